# SPDX-License-Identifier: Apache-2.0
"""One figure of a case: what was measured each time (Figure), and what is kept
of it, judged (Row). Text, JSON, tables and the history are made of rows."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field
from typing import Any, Mapping

# What a guard forgives, because shared machines are noisy: of a ratio taken in
# the same run, and of a figure that has nothing to lean on.
SLACK = 1.5
ABSOLUTE_SLACK = 3.0


@dataclass(frozen=True)
class Figure:
    """As bench/measure.h has it; the floor and the goal are of the median of
    the ratio of each turn where something is beside, else of the median."""

    case: str
    what: str
    unit: str
    values: list[float]
    beside: str = ""
    beside_values: list[float] = field(default_factory=list)
    floor: float | None = None
    goal: float | None = None
    at_least: bool = True

    def to_json(self) -> dict[str, Any]:
        return dict(vars(self))

    @staticmethod
    def from_json(found: Mapping[str, Any]) -> Figure:
        """KeyError or TypeError where it is no figure."""
        return Figure(**found)

    def ratios(self) -> list[float]:
        """Of each turn; of the medians where one was measured more often."""
        if not self.beside_values:
            return []
        if len(self.values) != len(self.beside_values):
            return [
                statistics.median(self.values)
                / statistics.median(self.beside_values)
            ]
        return [a / b for a, b in zip(self.values, self.beside_values)]


@dataclass(frozen=True)
class Spread:
    """A median and its range."""

    median: float
    low: float
    high: float

    @staticmethod
    def of(values: list[float]) -> Spread:
        return Spread(
            *(
                _rounded(value)
                for value in (
                    statistics.median(values),
                    min(values),
                    max(values),
                )
            )
        )

    def text(self) -> str:
        if self.low == self.high:
            return _short(self.median)
        return f"{_short(self.median)} ({_short(self.low)}-{_short(self.high)})"


@dataclass(frozen=True)
class Row:
    """What is kept of a figure."""

    case: str
    what: str
    unit: str
    repeats: int
    ours: Spread
    beside: str
    theirs: Spread | None  # Both None where nothing is beside.
    ratio: Spread | None
    floor: float | None
    goal: float | None
    at_least: bool

    @staticmethod
    def of(figure: Figure) -> Row:
        ratios = figure.ratios()
        return Row(
            figure.case,
            figure.what,
            figure.unit,
            len(figure.values),
            Spread.of(figure.values),
            figure.beside,
            Spread.of(figure.beside_values) if ratios else None,
            Spread.of(ratios) if ratios else None,
            figure.floor,
            figure.goal,
            figure.at_least,
        )

    @property
    def judged(self) -> float:
        """What is held to the floor."""
        return (self.ratio or self.ours).median

    @property
    def met(self) -> bool | None:
        """Whether the floor is; None where there is no floor."""
        return self._holds(self.floor)

    @property
    def goal_met(self) -> bool | None:
        return self._holds(self.goal)

    @property
    def within_slack(self) -> bool:
        """Whether a guard lets it pass."""
        if self.floor is None:
            return True
        is_ratio = self.ratio is not None or self.unit == "x"
        slack = SLACK if is_ratio else ABSOLUTE_SLACK
        limit = self.floor / slack if self.at_least else self.floor * slack
        return bool(self._holds(limit))

    @property
    def more_is_better(self) -> bool:
        """Also of a figure that nothing judges: rates are."""
        if self.floor is not None or self.goal is not None:
            return self.at_least
        return "/s" in self.unit

    def _holds(self, bound: float | None) -> bool | None:
        if bound is None:
            return None
        return self.judged >= bound if self.at_least else self.judged <= bound

    def to_json(self) -> dict[str, Any]:
        """With the verdicts, for programs that read them."""
        found: dict[str, Any] = {}
        for name, value in vars(self).items():
            if isinstance(value, Spread):
                value = [value.median, value.low, value.high]
            found[name] = value
        return found | {"met": self.met, "goal_met": self.goal_met}

    @staticmethod
    def from_json(found: Mapping[str, Any]) -> Row:
        """ValueError where a verdict is not what the figures say."""
        given = dict(found)
        verdicts = (given.pop("met"), given.pop("goal_met"))
        for name in ("ours", "theirs", "ratio"):
            if given[name] is not None:
                given[name] = Spread(*given[name])
        row = Row(**given)
        if verdicts != (row.met, row.goal_met):
            raise ValueError(
                f"{row.case}: {row.what}: says {verdicts} of floor and goal, "
                f"its figures say {(row.met, row.goal_met)}"
            )
        return row


def _rounded(value: float) -> float:
    """To what a figure is good for, so that documents stay small."""
    return float(f"{value:.4g}")


def _short(value: float) -> str:
    """Three digits, never as a power of ten."""
    if value == 0:
        return "0"
    if abs(value) >= 100:
        return f"{value:,.0f}".replace(",", " ")
    return f"{value:.3g}" if abs(value) >= 1e-4 else f"{value:.6f}"
