# SPDX-License-Identifier: Apache-2.0
"""Which step is meant."""

from __future__ import annotations


from ckptree.arguments import TEXT, Kind
from ckptree.errors import InvalidArgumentError
from ckptree.hints import Any
from ckptree.records import StepInfo, StepUsage, TagInfo

# A number, a text like "latest~2" or "best:loss:min", or a record of the step.
Selector = int | str | StepInfo | StepUsage | TagInfo


def on_branch(branch: str, step: int) -> str:
    """The step of that number.

    >>> on_branch("", 3), on_branch("warm", 3)
    ('3', 'warm/3')
    """
    return f"{branch}/{step}" if branch else str(step)


def branch_and_rest(selector: str) -> tuple[str, str]:
    """The branch that it names, and what is asked for there.

    >>> branch_and_rest("warm/latest"), branch_and_rest("best:a/b:min")
    (('warm', 'latest'), ('', 'best:a/b:min'))
    """
    branch, slash, rest = selector.partition("/")
    if not slash or ":" in branch or "@" in branch:
        return "", selector
    return branch, rest


def selector_text(step: Selector) -> str:
    """As the engine reads it. TypeError for what names no step.

    >>> selector_text(3), selector_text("latest")
    ('3', 'latest')
    """
    if isinstance(step, (StepInfo, StepUsage, TagInfo)):
        return on_branch(step.branch, step.step)
    if isinstance(step, str):
        return TEXT("step", step)  # type: ignore[no-any-return]
    if isinstance(step, bool) or not hasattr(step, "__index__"):
        raise TypeError(
            f"a step is an int or a str like 'latest', not {step!r}"
        )
    number = step.__index__()
    if number < 0:
        raise InvalidArgumentError(
            f"step {number}: steps are not negative; 'latest' is the last one, "
            "'latest~1' the one before"
        )
    return str(number)


def _selector(name: str, value: Any) -> Any:
    if isinstance(value, str):
        return TEXT(name, value)
    if isinstance(value, (StepInfo, StepUsage, TagInfo)):
        return value
    number = not isinstance(value, bool) and hasattr(value, "__index__")
    return value if number else NotImplemented


SELECTOR = Kind("an int or a str like 'latest'", _selector)
