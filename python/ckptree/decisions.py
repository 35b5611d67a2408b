# SPDX-License-Identifier: Apache-2.0
"""Save decisions: which steps a CheckpointManager saves.

>>> from ckptree import CheckpointManager, decisions
>>> each = decisions.FixedInterval(100) | decisions.OnPreemption()
>>> with CheckpointManager(tmp / "run", save_decision=each) as manager:
...     manager.save(7, {"w": 1}), manager.save(100, {"w": 2})
(False, True)
"""

from __future__ import annotations

from datetime import timedelta
from typing import Callable, Iterable

from ckptree import _engine
from ckptree.arguments import (
    ANY,
    BOOL,
    FUNCTION,
    INTS,
    Kind,
    checked,
    integer,
    optional,
)
from ckptree.policy_step import (
    SPAN,
    STEP_LIKE,
    PolicyStep,
    as_tuple,
    microseconds,
    name_of,
    shown_duration,
)

__all__ = [
    "Continuous",
    "Decision",
    "FixedInterval",
    "InitialSave",
    "OnPreemption",
    "SaveIf",
    "SpecificSteps",
    "any_of",
]


DECISION = Kind(
    "a save decision",
    lambda name, value: (
        value if isinstance(value, Decision) else NotImplemented
    ),
)


@checked(
    {
        "engine": ANY,
        "representation": ANY,
        "step": STEP_LIKE,
        "latest": optional(STEP_LIKE),
        "saving_in_progress": BOOL,
        "preempted": BOOL,
    }
)
class Decision:
    """Whether a step is saved. Joined by `|`: asked in their order until one
    says yes.

    >>> decision = FixedInterval(100) | SpecificSteps([7])
    >>> [step for step in range(201) if decision.decide(PolicyStep(step))]
    [0, 7, 100, 200]
    """

    def __init__(
        self, engine: _engine.SaveDecision, representation: str
    ) -> None:
        self._engine = engine
        self._representation = representation

    def decide(
        self,
        step: PolicyStep,
        latest: PolicyStep | None = None,
        *,
        saving_in_progress: bool = False,
        preempted: bool = False,
    ) -> bool:
        """Whether `step` is to be saved, now, where `latest` is the last one.

        >>> decision.decide(PolicyStep(8), latest=PolicyStep(7))
        False
        """
        return self._engine.decide(
            as_tuple(step),
            None if latest is None else as_tuple(latest),
            saving_in_progress,
            preempted,
        )

    def __or__(self, other: Decision) -> Decision:
        return any_of(self, other)

    def __repr__(self) -> str:
        return self._representation


@checked({"interval": integer()})
class FixedInterval(Decision):
    """Steps that `interval` divides.

    >>> FixedInterval(10).decide(PolicyStep(20))
    True
    """

    def __init__(self, interval: int) -> None:
        super().__init__(
            _engine.save_every(interval), f"FixedInterval({interval})"
        )


@checked({"steps": INTS})
class SpecificSteps(Decision):
    """These steps.

    >>> SpecificSteps([1, 3]).decide(PolicyStep(2))
    False
    """

    def __init__(self, steps: Iterable[int]) -> None:
        numbers = list(steps)
        super().__init__(_engine.save_at(numbers), f"SpecificSteps({numbers})")


@checked({"minimum": optional(SPAN)})
class Continuous(Decision):
    """Whenever no save is in progress and the last step is at least `minimum`
    old.

    >>> Continuous().decide(
    ...     PolicyStep(2), PolicyStep(1), saving_in_progress=True)
    False
    """

    def __init__(self, minimum: timedelta | None = None) -> None:
        super().__init__(
            _engine.save_continuously(
                None if minimum is None else microseconds(minimum)
            ),
            f"Continuous({'' if minimum is None else shown_duration(minimum)})",
        )


class OnPreemption(Decision):
    """The process is about to be taken away.

    >>> OnPreemption().decide(PolicyStep(2), preempted=True)
    True
    """

    def __init__(self) -> None:
        super().__init__(_engine.save_on_preemption(), "OnPreemption()")


class InitialSave(Decision):
    """There is no step yet.

    >>> InitialSave().decide(PolicyStep(3))
    True
    """

    def __init__(self) -> None:
        super().__init__(_engine.save_initially(), "InitialSave()")


@checked({"function": FUNCTION})
class SaveIf(Decision):
    """A function of the step's number and that of the latest, or None, says
    so.

    >>> SaveIf(lambda step, latest: step > 5).decide(PolicyStep(6))
    True
    """

    def __init__(self, function: Callable[[int, int | None], bool]) -> None:
        super().__init__(
            _engine.save_if(function), f"SaveIf({name_of(function)})"
        )


@checked({"decisions": DECISION})
def any_of(*decisions: Decision) -> Decision:
    """Any of them; none: never.

    >>> any_of(FixedInterval(10), InitialSave())
    any_of(FixedInterval(10), InitialSave())
    """
    return Decision(
        _engine.save_any([d._engine for d in decisions]),
        f"any_of({', '.join(map(repr, decisions))})",
    )
