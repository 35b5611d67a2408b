# SPDX-License-Identifier: Apache-2.0
"""What the cases share: time, medians, turns, the verdict; as
bench/measure.h."""

from __future__ import annotations

import random
import statistics
import sys
import time
from dataclasses import dataclass, field
from typing import Any, Callable, Mapping, NoReturn


@dataclass
class Settings:
    quick: bool  # Small data.
    guard: bool  # Fail where a figure is beyond its floor.
    directory: str
    mib: int | None = None  # Of the state of ranks_large; None: as it comes.
    # What a guard forgives, because shared machines are noisy: of a ratio taken
    # in the same run, and of a figure that has nothing to lean on.
    slack: float = 1.5
    absolute_slack: float = 3.0

    @property
    def repeats(self) -> int:
        return 3 if self.quick else 5


@dataclass
class Report:
    """The lines of one case, and whether its floors held."""

    case: str
    settings: Settings
    passed: bool = True
    not_measured: list[str] = field(default_factory=list)

    def show(self, what: str, values: list[float], unit: str) -> None:
        self._print(
            f"{what:<46} {median(values):10.4g} "
            f"({min(values):.4g}-{max(values):.4g}) {unit}"
        )

    def at_least(
        self,
        what: str,
        values: list[float],
        floor: float | None,
        goal: float | None = None,
        absolute: bool = False,
    ) -> None:
        """Compares the median with its floor and its goal, where there are
        such. `absolute`: it is no ratio to what this run measured."""
        self._judge(what, values, floor, goal, absolute, least=True)

    def at_most(
        self,
        what: str,
        values: list[float],
        floor: float | None,
        goal: float | None = None,
        absolute: bool = False,
    ) -> None:
        self._judge(what, values, floor, goal, absolute, least=False)

    def _judge(
        self,
        what: str,
        values: list[float],
        floor: float | None,
        goal: float | None,
        absolute: bool,
        least: bool,
    ) -> None:
        figure = median(values)
        sign = ">=" if least else "<="
        text = f"{what:<46} {figure:10.4g} "
        if floor is not None:
            slack = (
                self.settings.absolute_slack
                if absolute
                else self.settings.slack
            )
            limit = floor / slack if least else floor * slack
            met = _holds(figure, floor, least)
            passed = _holds(figure, limit, least)
            missed = "missed, within the slack" if passed else "MISSED"
            text += f" floor {sign} {floor:g}: {'met' if met else missed}"
            self.passed = self.passed and passed
        if goal is not None:
            reached = "met" if _holds(figure, goal, least) else "not yet"
            comma = "" if floor is None else ","
            text += f"{comma} goal {sign} {goal:g}: {reached}"
        self._print(text)

    def skip(self, what: str, why: str) -> None:
        """A floor that nothing is known about has not been met."""
        self.not_measured.append(what)
        self._print(f"{what:<46} NOT MEASURED: {why}")

    def _print(self, text: str) -> None:
        print(f"{self.case:<11} {text}", flush=True)


def median(values: list[float]) -> float:
    return statistics.median(values)


def percentile(values: list[float], p: float) -> float:
    return sorted(values)[int(p * (len(values) - 1))]


def ratios(above: list[float], below: list[float]) -> list[float]:
    """Of what was measured in the same turn."""
    return [a / b for a, b in zip(above, below)]


def seconds(work: Callable[[], Any]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def take_turns(
    repeats: int, contenders: Mapping[str, Callable[[], float]]
) -> dict[str, list[float]]:
    """Each contender once per turn, so that a slow moment of the machine meets
    all of them, in another order each time: what one leaves behind, memory for
    one, is not always the same one's."""
    names = list(contenders)
    figures: dict[str, list[float]] = {name: [] for name in names}
    chance = random.Random(1)
    for _ in range(repeats):
        chance.shuffle(names)
        for name in names:
            figures[name].append(contenders[name]())
    return figures


def fail(message: str) -> NoReturn:
    """A benchmark that did not run has no figure."""
    print(f"bench/run python: {message}", file=sys.stderr)
    sys.exit(2)


def _holds(figure: float, bound: float, least: bool) -> bool:
    return figure >= bound if least else figure <= bound
