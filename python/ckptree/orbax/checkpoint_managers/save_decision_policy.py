# SPDX-License-Identifier: Apache-2.0
"""Which steps are saved: rules of the engine under Orbax's names."""

from __future__ import annotations

import dataclasses
import datetime
from typing import Any, Container, Protocol, Sequence

from ckptree import decisions
from ckptree.decisions import Decision
from ckptree.orbax.checkpoint_managers.policy_checkpoint_info import (
    PolicyCheckpointInfo,
    seconds,
)
from ckptree.orbax.options import MultiprocessingOptions
from ckptree.policies import PolicyStep


@dataclasses.dataclass(kw_only=True)
class DecisionContext:
    """What else a decision may depend on."""

    is_saving_in_progress: bool = False
    reached_preemption: bool = False
    multiprocessing_options: MultiprocessingOptions = dataclasses.field(
        default_factory=MultiprocessingOptions
    )


class SaveDecisionPolicy(Protocol):
    """Says whether a step is saved."""

    def should_save(
        self,
        step: PolicyCheckpointInfo,
        previous_steps: Sequence[PolicyCheckpointInfo],
        *,
        context: DecisionContext,
    ) -> bool: ...


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
            PolicyStep(int(step.step), seconds(step)),
            None
            if latest is None
            else PolicyStep(latest.step, seconds(latest)),
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
        interval = self.minimum_interval_secs
        if interval is None:
            return decisions.Continuous()
        return decisions.Continuous(datetime.timedelta(seconds=interval))


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
