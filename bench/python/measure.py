# SPDX-License-Identifier: Apache-2.0
"""What the cases share: time, medians, turns, the verdict; as
bench/measure.h."""

from __future__ import annotations

import json
import os
import random
import statistics
import sys
import time
from dataclasses import dataclass, field
from typing import Any, Callable, Mapping, NoReturn

sys.path.append(
    os.path.join(os.path.dirname(os.path.abspath(__file__)), "../report")
)

import text  # noqa: E402
from figure import Figure, Row  # noqa: E402


class NoDevice(Exception):
    """There is no accelerator to measure."""


@dataclass
class Settings:
    quick: bool  # Small data.
    guard: bool  # Fail where a figure is beyond its floor and the slack.
    directory: str
    mib: int | None = None  # Of the state of ranks_large; None: as it comes.
    minutes: float = 30  # Of soak.

    @property
    def repeats(self) -> int:
        return 3 if self.quick else 5


@dataclass
class Report:
    """The figures of one case, and whether its floors held. `as_json`: each is
    written as one object a line, with no verdict, for bench/report."""

    case: str
    settings: Settings
    as_json: bool = False
    passed: bool = True
    not_measured: list[str] = field(default_factory=list)

    def figure(
        self,
        what: str,
        unit: str,
        values: list[float],
        beside: tuple[str, list[float]] | None = None,
        floor: float | None = None,
        goal: float | None = None,
        at_least: bool = True,
    ) -> None:
        """What was measured each time, and what the ceiling or the peer of that
        name did in the same turns, in the same unit. Floor and goal are of the
        median of the ratio to it, or of the median where nothing is beside;
        `at_least=False` where less is better. `what` is for somebody who has
        not read the case: the tables of the pages have it."""
        name, theirs = beside or ("", [])
        figure = Figure(
            self.case,
            what,
            unit,
            values,
            name,
            theirs,
            floor,
            goal,
            at_least,
        )
        row = Row.of(figure)
        self.passed = self.passed and row.within_slack
        shown = json.dumps(figure.to_json()) if self.as_json else text.line(row)
        print(shown, flush=True)

    def show(self, what: str, values: list[float], unit: str) -> None:
        self.figure(what, unit, values)

    def at_least(
        self,
        what: str,
        values: list[float],
        floor: float | None,
        goal: float | None = None,
        absolute: bool = False,
    ) -> None:
        """figure() of a ratio that the case itself has made. `absolute`: it is
        no ratio to what this run measured."""
        unit = "" if absolute else "x"
        self.figure(what, unit, values, None, floor, goal)

    def at_most(
        self,
        what: str,
        values: list[float],
        floor: float | None,
        goal: float | None = None,
        absolute: bool = False,
    ) -> None:
        unit = "" if absolute else "x"
        self.figure(what, unit, values, None, floor, goal, at_least=False)

    def skip(self, what: str, why: str) -> None:
        """A floor that nothing is known about has not been met."""
        self.not_measured.append(what)
        if self.as_json:
            print(json.dumps({"what": what, "why": why}), flush=True)
        else:
            print(f"{self.case:<14} {what} NOT MEASURED: {why}", flush=True)


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
    print(f"bench/python: {message}", file=sys.stderr)
    sys.exit(2)
