# SPDX-License-Identifier: Apache-2.0
"""What policies and save decisions are asked of, a step, and what else they are
given: times, and functions of a program."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta

from ckptree.arguments import (
    BOOL,
    Kind,
    instance,
    integer,
    mapping,
    real,
    refuse,
)
from ckptree.hints import Any, NamedTuple

# ---- Times ----


def _time(name: str, value: Any) -> Any:
    return (
        value.timestamp()
        if isinstance(value, datetime)
        else real().convert(name, value)
    )


def _span(name: str, value: Any) -> Any:
    if not isinstance(value, timedelta):
        return NotImplemented
    if value < timedelta(0):
        raise refuse(name, value, "0 or more")
    return value


TIME = Kind("a number or a datetime.datetime", _time)
TIMEDELTA = instance("a datetime.timedelta", timedelta)
SPAN = Kind("a datetime.timedelta", _span)


def microseconds(duration: timedelta) -> int:
    if not isinstance(duration, timedelta):
        raise TypeError(
            f"a duration must be a datetime.timedelta, not {duration!r}"
        )
    return duration // timedelta(microseconds=1)


def shown_duration(duration: timedelta) -> str:
    return repr(duration).removeprefix("datetime.")


def optional_seconds(time: float | datetime | None) -> float | None:
    return None if time is None else _seconds(time)


def _seconds(time: float | datetime) -> float:
    return time.timestamp() if isinstance(time, datetime) else float(time)


# ---- Steps ----


class PolicyStep(NamedTuple):
    """A step as policies see it.

    >>> PolicyStep(10, metrics={"loss": 0.5}).healthy
    True
    """

    step: int
    time: float = 0  # When its save began; seconds since 1970 UTC.
    metrics: Mapping[str, float] = {}
    # Neither NaN nor Inf in arrays and metrics; False where not known.
    healthy: bool = True


# Where users have it from, and pickles look for it.
PolicyStep.__module__ = "ckptree.policies"


def _step_like(name: str, value: Any) -> Any:
    if not isinstance(value, tuple) or not 1 <= len(value) <= 4:
        return NotImplemented
    number, time, metrics, healthy = PolicyStep(*value)
    return PolicyStep(
        _NUMBER(f"{name}.step", number),
        TIME(f"{name}.time", time),
        _METRICS(f"{name}.metrics", metrics),
        BOOL(f"{name}.healthy", healthy),
    )


_NUMBER = integer()
_METRICS = mapping(real(), "a dict of str to float")
STEP_LIKE = Kind("a PolicyStep", _step_like)


def as_tuple(
    step: PolicyStep | tuple[Any, ...],
) -> tuple[int, float, dict[str, float], bool]:
    number, time, metrics, healthy = PolicyStep(*step)
    return (
        number,
        _seconds(time),
        {k: float(v) for k, v in metrics.items()},
        healthy,
    )


def as_tuples(
    steps: Iterable[PolicyStep | tuple[Any, ...]],
) -> list[tuple[int, float, dict[str, float], bool]]:
    return [as_tuple(step) for step in steps]


# ---- Functions ----


def name_of(function: Any) -> str:
    if not callable(function):
        raise TypeError(f"pass a function, not {function!r}")
    return str(getattr(function, "__name__", type(function).__name__))


class MetricOfStep:
    """A function of a step's stored metrics and its number, instead of
    `function`, of metrics alone, whose name it has."""

    def __init__(
        self,
        function: Callable[[Any], Any],
        instead: Callable[[dict[str, float], int], float | None],
    ) -> None:
        self.__name__ = name_of(function)
        self._instead = instead

    def __call__(self, metrics: dict[str, float], step: int) -> float | None:
        return self._instead(metrics, step)


def of_metrics(
    function: Callable[[dict[str, float]], float | None] | MetricOfStep | None,
) -> Callable[[dict[str, float], int], float | None] | None:
    """As the engine calls it: with the step's number, too."""
    if function is None or isinstance(function, MetricOfStep):
        return function
    return lambda metrics, step: function(metrics)
