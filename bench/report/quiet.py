# SPDX-License-Identifier: Apache-2.0
"""Whether the machine does our work alone. A figure of one that does not says
more about the others than about us.

The rule, before the cases, after them and every few minutes between:

* In one of ten seconds the processors are busy for at most a tenth of their
  time, while nothing of ours runs.
* Of five readings of raw writes, raw reads and copies of 256 MiB, and of how a
  processor sorts (the median of five each), two that follow each other are
  alike, and like those of the looks before: none of them takes more than 1.35
  times as long in one as in another. A disk of a virtual machine that is
  slow for one moment does not count; one that stays so does.
* Where figures are kept, or floors guarded: none takes as much longer than when
  the kept ones of this machine were measured. A processor of a virtual machine
  that others use is evenly slow, for us and for what stands beside.
"""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass, field
from typing import Any, Callable, Iterable

MOST_SPREAD = 1.35
MOST_BUSY = 0.1
_READINGS = 5
SECONDS = 10

Reading = dict[str, float]  # What was done, and GB/s.


@dataclass
class Quiet:
    """`measure` makes one reading. `usual` is what is known of this machine,
    of some kinds or none. What a look complained of is never
    forgotten, and counts for the cases before and after it alone."""

    measure: Callable[[], Reading]
    most_spread: float = MOST_SPREAD
    most_busy: float = MOST_BUSY
    readings: list[Reading] = field(default_factory=list)  # The alike ones.
    usual: Reading = field(default_factory=dict)
    unlike: list[Reading] = field(default_factory=list)  # The others.
    busy: list[float] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)
    disturbed: list[str] = field(default_factory=list)  # Names of cases.

    def look(self) -> bool:
        """Whether the machine is quiet, and as it was when it was so before."""
        before = len(self.complaints)
        self.busy.append(least_busy(self.most_busy))
        if self.busy[-1] > self.most_busy:
            self.complaints.append(
                f"others keep the processors busy for {self.busy[-1]:.0%} of "
                f"their time, at most {self.most_busy:.0%}"
            )
        last: list[Reading] = []
        for _ in range(_READINGS):
            last = [*last[-1:], self.measure()]
            if len(last) == 2 and not self._apart([*self.readings, *last]):
                self.readings += last
                self.complaints += self._slow(last)
                return len(self.complaints) == before
        self.unlike += last
        self.complaints += self._apart([*self.readings, *last])
        return False

    def spreads(self) -> dict[str, float]:
        """Of each kind, the fastest reading over the slowest."""
        return _spreads(self.readings)

    def _apart(self, readings: list[Reading]) -> list[str]:
        found = []
        for what, spread in _spreads(readings).items():
            if spread > self.most_spread:
                rates = ", ".join(f"{r[what]:.3g}" for r in readings)
                found.append(
                    f"{what}: {rates} GB/s differ by {spread:.2f} x, at most "
                    f"{self.most_spread:g} x"
                )
        return found

    def _slow(self, readings: list[Reading]) -> list[str]:
        found = []
        for what, usual in self.usual.items():
            rates = [r[what] for r in readings if what in r]
            if rates and usual > self.most_spread * max(rates):
                found.append(
                    f"{what}: {max(rates):.3g} GB/s, where what is kept of "
                    f"this machine was measured at {usual:.3g}: at least "
                    f"{usual / self.most_spread:.3g}"
                )
        return found

    def to_json(self) -> dict[str, Any]:
        return {
            "readings_gb_per_s": self.readings,
            "unlike_gb_per_s": self.unlike,
            "spread": self.spreads(),
            "most_spread": self.most_spread,
            "busy": [round(share, 3) for share in self.busy],
            "most_busy": self.most_busy,
            "quiet": not self.complaints,
            "disturbed": self.disturbed,
        }


def usual(runs: Iterable[dict[str, Any]], machine: dict[str, Any]) -> Reading:
    """Of each kind the median of the readings of those runs of a document that
    are of `machine`."""
    found: dict[str, list[float]] = {}
    for run in runs:
        if run["machine"] == machine:
            for reading in run["quiet"]["readings_gb_per_s"]:
                for what, rate in reading.items():
                    found.setdefault(what, []).append(rate)
    return {what: statistics.median(rates) for what, rates in found.items()}


def _spreads(readings: list[Reading]) -> dict[str, float]:
    found = {}
    for what in readings[0] if readings else ():
        rates = [reading[what] for reading in readings]
        found[what] = round(max(rates) / min(rates), 3)
    return found


def least_busy(enough: float) -> float:
    """The share of their time for which all processors were busy, in the
    quietest of some seconds; the first is taken that is good enough. Nothing is
    looked at where anything is."""
    if enough >= 1:
        return 0.0
    least = 1.0
    for _ in range(SECONDS):
        before = _processor_times()
        time.sleep(1)
        after = _processor_times()
        total = sum(after) - sum(before)
        idle = sum(after[3:5]) - sum(before[3:5])  # And waiting for a disk.
        least = min(least, 1 - idle / max(1, total))
        if least <= enough:
            break
    return least


def _processor_times() -> list[int]:
    """user, nice, system, idle, iowait, irq, softirq, steal."""
    with open("/proc/stat") as file:
        return [int(word) for word in file.readline().split()[1:9]]
