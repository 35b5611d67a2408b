# SPDX-License-Identifier: Apache-2.0
"""Which steps are kept: rules of the engine under Orbax's names."""

from __future__ import annotations

import dataclasses
import datetime
from typing import Any, Callable, Protocol, Sequence

from ckptree import _engine, policies
from ckptree.orbax.checkpoint_managers.policy_checkpoint_info import (
    PolicyCheckpointInfo,
    seconds,
)
from ckptree.policies import Policy, PolicyStep
from ckptree.policy_step import name_of


@dataclasses.dataclass
class PreservationContext:
    """Nothing, by now."""


class PreservationPolicy(Protocol):
    """Says of each step whether it is kept."""

    def should_preserve(
        self,
        checkpoints: Sequence[PolicyCheckpointInfo],
        *,
        context: PreservationContext,
    ) -> Sequence[bool]: ...


def _check_interval(name: str, steps: int) -> None:
    if steps < 1:
        raise ValueError(f"{name}={steps}: 1 step or more")


class Keeps:
    """A rule of the engine."""

    def _policy(self) -> Policy:
        raise NotImplementedError

    def should_preserve(
        self,
        checkpoints: Sequence[Any],
        *,
        context: PreservationContext | None = None,
    ) -> Sequence[bool]:
        """Of each whether it is kept; "last" is in the order that is given. In
        a manager steps are in that of their numbers."""
        return _kept(self._policy(), checkpoints)


def _kept(
    policy: Policy,
    checkpoints: Sequence[Any],
    metrics: Sequence[dict[str, float]] | None = None,
) -> list[bool]:
    steps = [
        PolicyStep(
            int(c.step), seconds(c), {} if metrics is None else metrics[i]
        )
        for i, c in enumerate(checkpoints)
    ]
    return policy.decide(steps, datetime.datetime.now(datetime.timezone.utc))


@dataclasses.dataclass
class PreserveAll(Keeps):
    """Every step."""

    def _policy(self) -> Policy:
        return policies.All()


@dataclasses.dataclass
class LatestN(Keeps):
    """The last `n`; None: all.

    >>> import datetime
    >>> now = datetime.datetime.now(datetime.timezone.utc)
    >>> steps = [PolicyCheckpointInfo(n, now) for n in range(4)]
    >>> LatestN(2).should_preserve(steps)
    [False, False, True, True]
    """

    n: int | None = None

    def _policy(self) -> Policy:
        return policies.Latest(self.n if self.n is None else max(self.n, 0))


@dataclasses.dataclass
class EveryNSeconds(Keeps):
    """The first, and each that is at least so much later than the one kept
    before."""

    interval_secs: int

    def _policy(self) -> Policy:
        if self.interval_secs <= 0:
            return policies.All()
        return policies.EverySeconds(self.interval_secs)


@dataclasses.dataclass
class EveryNSteps(Keeps):
    """Steps that `interval_steps` divides, or, not `exact_interval`, that are
    so far from the one kept before; of them the last `max_to_keep`."""

    interval_steps: int
    exact_interval: bool = True
    max_to_keep: int | None = None

    def __post_init__(self) -> None:
        _check_interval("interval_steps", self.interval_steps)

    def _policy(self) -> Policy:
        return policies.EveryN(
            self.interval_steps,
            spaced=not self.exact_interval,
            last=self.max_to_keep,
        )


@dataclasses.dataclass
class EveryNStepsClosest(Keeps):
    """The nearest step to each multiple of `interval_steps`, and the last; of
    them the last `max_to_keep`."""

    interval_steps: int
    max_to_keep: int | None = None

    def __post_init__(self) -> None:
        _check_interval("interval_steps", self.interval_steps)

    def _policy(self) -> Policy:
        return policies.Closest(self.interval_steps, last=self.max_to_keep)


@dataclasses.dataclass
class CustomSteps(Keeps):
    """These steps."""

    steps: Sequence[int]

    def _policy(self) -> Policy:
        return policies.SpecificSteps(self.steps)


@dataclasses.dataclass
class LatestDuration(Keeps):
    """The first that is at most so old, and all after it."""

    duration: datetime.timedelta

    def _policy(self) -> Policy:
        return policies.Within(self.duration)


@dataclasses.dataclass(kw_only=True)
class BestN(Keeps):
    """The `n` best (None: all) by a function of the metrics; `reverse`: the
    smallest. Ties to the later."""

    get_metric_fn: Callable[[Any], float]
    reverse: bool = False
    n: int | None = None
    keep_checkpoints_without_metrics: bool = True

    def _policy(self) -> Policy:
        """Of metrics as they are stored, which is for numbers by name."""
        return self.by(lambda metrics, step: self.get_metric_fn(metrics))

    def by(self, function: Callable[[dict[str, float], int], Any]) -> Policy:
        """With a function of the stored metrics and the step's number."""
        return policies.Policy(
            _engine.keep_best(
                name_of(self.get_metric_fn),
                function,
                "min" if self.reverse else "max",
                self.n,
                self.keep_checkpoints_without_metrics,
            ),
            repr(self),
        )

    def should_preserve(
        self,
        checkpoints: Sequence[Any],
        *,
        context: PreservationContext | None = None,
    ) -> Sequence[bool]:
        metrics = [
            {}
            if c.metrics is None
            else {"by": float(self.get_metric_fn(c.metrics))}
            for c in checkpoints
        ]
        return _kept(
            self.by(lambda found, step: found.get("by")), checkpoints, metrics
        )


@dataclasses.dataclass
class AnyPreservationPolicy(Keeps):
    """What any of them keeps. ValueError: there are none."""

    policies: Sequence[PreservationPolicy]

    def __post_init__(self) -> None:
        if not self.policies:
            raise ValueError("AnyPreservationPolicy of no policies: name one")

    def should_preserve(
        self,
        checkpoints: Sequence[Any],
        *,
        context: PreservationContext | None = None,
    ) -> Sequence[bool]:
        answers = [
            policy.should_preserve(
                checkpoints, context=context or PreservationContext()
            )
            for policy in self.policies
        ]
        return [any(step) for step in zip(*answers, strict=True)]
