# SPDX-License-Identifier: Apache-2.0
"""Upkeep: whether the bytes of a store are sound, and how many there are."""

from __future__ import annotations

from collections.abc import Iterable

from ckptree.arguments import checked, listed
from ckptree.hints import TYPE_CHECKING
from ckptree.holding import Holding
from ckptree.progress import showing
from ckptree.records import (
    CollectReport,
    FreedBytes,
    SubtreeUsage,
    UsageReport,
    VerifyReport,
)
from ckptree.selector import SELECTOR, selector_text
from ckptree.table import Table

if TYPE_CHECKING:
    from ckptree.progress import Progress
    from ckptree.selector import Selector


@checked(
    {"step": SELECTOR},
    would_free={"steps": SELECTOR},
    verify={"steps": listed(SELECTOR, "a list of steps")},
)
class Upkeep(Holding):
    """The bytes of a store: checks them, frees them, and says whose they
    are."""

    def verify(
        self,
        level: str = "full",
        steps: Iterable[Selector] = (),
        *,
        progress: Progress = None,
    ) -> VerifyReport:
        """Reads and checks the steps, or all. "quick": records only; "full":
        every chunk against its digest, and all else that a step needs; "deep":
        every file whole, and everything that can be computed
        again. What is wrong is in the report. Ctrl-C stops it. `progress`, as
        in restore(), is told the bytes that were read.

        >>> report = store.verify()
        >>> report.ok, report.steps, report.findings
        (True, 2, [])
        """
        selectors = [selector_text(step) for step in steps]
        with showing(progress, "verify") as meter:
            engine = self._knowing(*selectors)
            found = engine.verify(level, selectors, meter)
        return VerifyReport.of(found)

    def collect(
        self,
        min_dead_fraction: float = 0.25,
        bytes_per_second: int = 0,
        *,
        pack: bool = False,
        progress: Progress = None,
    ) -> CollectReport:
        """Frees now what no step needs. Files of which at least that fraction
        is dead are written again; 1: none. `pack`: those of all saves but the
        newest, too, where arrays take a twentieth less coded (see `coding`).
        Ctrl-C stops it: what was freed stays so. `progress`, as in restore(),
        is told the deleted saves that were gone through.

        >>> store.collect().kept
        []
        """
        with showing(progress, "collect", " saves") as meter:
            collect = self._writing("collect").collect
            found = collect(min_dead_fraction, bytes_per_second, pack, meter)
        return CollectReport.of(found)

    def usage(self) -> UsageReport:
        """What each step costs. Reads no arrays.

        >>> [(usage.step, usage.logical_bytes) for usage in store.usage().steps]
        [(100, 56), (200, 56)]
        """
        return UsageReport.of(self._engine.usage())

    def would_free(self, *steps: Selector) -> FreedBytes:
        """What deleting these steps would free; of a list of them
        `store.would_free(*steps)`.

        >>> store.would_free(100).nbytes > 0
        True
        """
        selectors = [selector_text(step) for step in steps]
        engine = self._knowing(*selectors)
        return FreedBytes.of(engine.would_free(selectors))

    def subtrees(
        self, step: Selector = "latest", depth: int = 1
    ) -> Table[SubtreeUsage]:
        """What the subtrees of a step cost, down to `depth` keys.

        >>> [(tree.name, tree.logical_bytes) for tree in store.subtrees()]
        [('lr', 8), ('params', 48)]
        """
        selector = selector_text(step)
        found = self._knowing(selector).subtrees(selector, depth)
        return Table(SubtreeUsage(**fields) for fields in found)
