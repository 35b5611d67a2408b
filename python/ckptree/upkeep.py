# SPDX-License-Identifier: Apache-2.0
"""Upkeep: whether the bytes of a store are sound, what they cost, and how they
become free."""

from __future__ import annotations

from typing import TYPE_CHECKING, Iterable

from ckptree.records import (
    CollectReport,
    FreedBytes,
    SubtreeUsage,
    UsageReport,
    VerifyReport,
)
from ckptree.selector import selector_text

if TYPE_CHECKING:
    from ckptree._engine import Store as EngineStore
    from ckptree.selector import Selector


class Upkeep:
    """Part of Store: its bytes."""

    _engine: EngineStore

    def verify(
        self, level: str = "full", steps: Iterable[Selector] = ()
    ) -> VerifyReport:
        """Reads and checks the steps, or all. "quick": records only; "full":
        every chunk against its digest; "deep": everything that can be computed
        again. What is wrong is in the report. Ctrl-C stops it.

        >>> report = store.verify()
        >>> report.ok, report.steps, report.findings
        (True, 2, [])
        """
        selectors = [selector_text(step) for step in steps]
        return VerifyReport.of(self._engine.verify(level, selectors))

    def collect(
        self, min_dead_fraction: float = 0.25, bytes_per_second: int = 0
    ) -> CollectReport:
        """Frees now what no step needs. Files of which at least that fraction
        is dead are written again; 1: none. Ctrl-C stops it: what was freed
        stays so.

        >>> store.collect().kept
        []
        """
        return CollectReport.of(
            self._engine.collect(min_dead_fraction, bytes_per_second)
        )

    def usage(self) -> UsageReport:
        """What each step costs. Reads no arrays.

        >>> [(usage.step, usage.logical_bytes) for usage in store.usage().steps]
        [(100, 56), (200, 56)]
        """
        return UsageReport.of(self._engine.usage())

    def would_free(self, *steps: Selector) -> FreedBytes:
        """What deleting these steps would free.

        >>> store.would_free(100).nbytes > 0
        True
        """
        selectors = [selector_text(step) for step in steps]
        return FreedBytes.of(self._engine.would_free(selectors))

    def subtrees(
        self, step: Selector = "latest", depth: int = 1
    ) -> list[SubtreeUsage]:
        """What the subtrees of a step cost, down to `depth` keys.

        >>> [(tree.name, tree.logical_bytes) for tree in store.subtrees()]
        [('lr', 8), ('params', 48)]
        """
        found = self._engine.subtrees(selector_text(step), depth)
        return [SubtreeUsage(**fields) for fields in found]
