# SPDX-License-Identifier: Apache-2.0
"""Policies: which steps are saved, and which are kept.

Those here are rules of the engine under Orbax's names. Objects of your own with
should_save() or should_preserve() work beside them.
"""

from __future__ import annotations

import dataclasses
import datetime
from typing import Any, Callable, Container, Protocol, Sequence

from ckptree import _engine, decisions, policies
from ckptree.decisions import Decision
from ckptree.orbax.options import MultiprocessingOptions
from ckptree.policies import Policy, PolicyStep


@dataclasses.dataclass
class PolicyCheckpointInfo:
    """A step as policies see it. `time` is aware of its zone."""

    step: int
    time: datetime.datetime
    metrics: Any = None


@dataclasses.dataclass(kw_only=True)
class DecisionContext:
    """What else a decision may depend on."""

    is_saving_in_progress: bool = False
    reached_preemption: bool = False
    multiprocessing_options: MultiprocessingOptions = dataclasses.field(
        default_factory=MultiprocessingOptions
    )


@dataclasses.dataclass
class PreservationContext:
    """Nothing, by now."""


class SaveDecisionPolicy(Protocol):
    """Says whether a step is saved."""

    def should_save(
        self,
        step: PolicyCheckpointInfo,
        previous_steps: Sequence[PolicyCheckpointInfo],
        *,
        context: DecisionContext,
    ) -> bool: ...


class PreservationPolicy(Protocol):
    """Says of each step whether it is kept."""

    def should_preserve(
        self,
        checkpoints: Sequence[PolicyCheckpointInfo],
        *,
        context: PreservationContext,
    ) -> Sequence[bool]: ...


def _seconds(info: Any) -> float:
    time = info.time
    if time.tzinfo is None:
        time = time.replace(tzinfo=datetime.timezone.utc)
    return float(time.timestamp())


def _check_interval(name: str, steps: int) -> None:
    if steps < 1:
        raise ValueError(f"{name}={steps}: 1 step or more")


# ---- Which steps are saved ----


class _Decides:
    """A rule of the engine."""

    def _decision(self) -> Decision | None:
        """None: parts of it are Python's own."""
        raise NotImplementedError

    def should_save(
        self,
        step: Any,
        previous_steps: Sequence[Any],
        *,
        context: DecisionContext,
    ) -> bool:
        """Whether `step` is saved, after those before."""
        decision = self._decision()
        assert decision is not None
        latest = previous_steps[-1] if previous_steps else None
        return decision.decide(
            PolicyStep(int(step.step), _seconds(step)),
            None
            if latest is None
            else PolicyStep(latest.step, _seconds(latest)),
            saving_in_progress=context.is_saving_in_progress,
            preempted=context.reached_preemption,
        )


@dataclasses.dataclass
class FixedIntervalPolicy(_Decides):
    """Steps that `interval` divides.

    >>> import datetime
    >>> now = datetime.datetime.now(datetime.timezone.utc)
    >>> policy = FixedIntervalPolicy(10)
    >>> context = DecisionContext()
    >>> [policy.should_save(PolicyCheckpointInfo(n, now), [], context=context)
    ...  for n in (5, 10)]
    [False, True]
    """

    interval: int

    def __post_init__(self) -> None:
        self._decision()

    def _decision(self) -> Decision:
        return decisions.FixedInterval(self.interval)


@dataclasses.dataclass
class SpecificStepsPolicy(_Decides):
    """The steps that `steps` contains."""

    steps: Container[int]

    def _decision(self) -> Decision | None:
        try:
            return decisions.SpecificSteps(list(self.steps))  # type: ignore[call-overload]
        except TypeError:
            return decisions.SaveIf(lambda step, latest: step in self.steps)


@dataclasses.dataclass(kw_only=True)
class ContinuousCheckpointingPolicy(_Decides):
    """Whenever no save is in progress and the last one is at least so old."""

    minimum_interval_secs: int | None = None

    def _decision(self) -> Decision:
        seconds = self.minimum_interval_secs
        if seconds is None:
            return decisions.Continuous()
        return decisions.Continuous(datetime.timedelta(seconds=seconds))


@dataclasses.dataclass
class PreemptionCheckpointingPolicy(_Decides):
    """The process is about to be taken away."""

    def _decision(self) -> Decision:
        return decisions.OnPreemption()


@dataclasses.dataclass
class InitialSavePolicy(_Decides):
    """There is no step yet."""

    def _decision(self) -> Decision:
        return decisions.InitialSave()


@dataclasses.dataclass
class AnySavePolicy(_Decides):
    """Any of them, asked in their order until one says yes."""

    policies: Sequence[SaveDecisionPolicy]

    def _decision(self) -> Decision | None:
        parts = [decision_of(policy) for policy in self.policies]
        if any(part is None for part in parts):
            return None
        return decisions.any_of(*(part for part in parts if part is not None))

    def should_save(
        self,
        step: Any,
        previous_steps: Sequence[Any],
        *,
        context: DecisionContext,
    ) -> bool:
        return any(
            policy.should_save(step, previous_steps, context=context)
            for policy in self.policies
        )


def decision_of(policy: Any) -> Decision | None:
    """The engine's rule, or None where `policy` is Python's own."""
    return policy._decision() if isinstance(policy, _Decides) else None


# ---- Which steps are kept ----


class _Keeps:
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
            int(c.step), _seconds(c), {} if metrics is None else metrics[i]
        )
        for i, c in enumerate(checkpoints)
    ]
    return policy.decide(steps, datetime.datetime.now(datetime.timezone.utc))


@dataclasses.dataclass
class PreserveAll(_Keeps):
    """Every step."""

    def _policy(self) -> Policy:
        return policies.All()


@dataclasses.dataclass
class LatestN(_Keeps):
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
class EveryNSeconds(_Keeps):
    """The first, and each that is at least so much later than the one kept
    before."""

    interval_secs: int

    def _policy(self) -> Policy:
        if self.interval_secs <= 0:
            return policies.All()
        return policies.EverySeconds(self.interval_secs)


@dataclasses.dataclass
class EveryNSteps(_Keeps):
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
class EveryNStepsClosest(_Keeps):
    """The nearest step to each multiple of `interval_steps`, and the last; of
    them the last `max_to_keep`."""

    interval_steps: int
    max_to_keep: int | None = None

    def __post_init__(self) -> None:
        _check_interval("interval_steps", self.interval_steps)

    def _policy(self) -> Policy:
        return policies.Closest(self.interval_steps, last=self.max_to_keep)


@dataclasses.dataclass
class CustomSteps(_Keeps):
    """These steps."""

    steps: Sequence[int]

    def _policy(self) -> Policy:
        return policies.SpecificSteps(self.steps)


@dataclasses.dataclass
class LatestDuration(_Keeps):
    """The first that is at most so old, and all after it."""

    duration: datetime.timedelta

    def _policy(self) -> Policy:
        return policies.Within(self.duration)


@dataclasses.dataclass(kw_only=True)
class BestN(_Keeps):
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
                policies.name_of(self.get_metric_fn),
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
class AnyPreservationPolicy(_Keeps):
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
