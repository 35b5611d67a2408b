# SPDX-License-Identifier: Apache-2.0
"""Comparing: what became of leaves from step to step."""

from __future__ import annotations

from ckptree import history
from ckptree.arguments import checked
from ckptree.hints import TYPE_CHECKING, overload
from ckptree.holding import Holding
from ckptree.selector import SELECTOR

if TYPE_CHECKING:
    from ckptree.changes import BlameRow, Curves, DiffReport, HistoryRow
    from ckptree.selector import Selector
    from ckptree.step import Step
    from ckptree.table import Table


@checked({"step": SELECTOR, "before": SELECTOR, "after": SELECTOR})
class Comparing(Holding):
    """What a store says of a leaf in several steps. From records alone."""

    if TYPE_CHECKING:

        def __getitem__(self, step: Selector) -> Step: ...

    @overload
    def history(
        self,
        name: str,
        *,
        branch: str = "",
        first: int | None = None,
        last: int | None = None,
    ) -> Table[HistoryRow]: ...

    @overload
    def history(
        self,
        name: str,
        statistic: str,
        *,
        branch: str = "",
        first: int | None = None,
        last: int | None = None,
    ) -> Curves: ...

    def history(
        self,
        name: str,
        statistic: str | None = None,
        *,
        branch: str = "",
        first: int | None = None,
        last: int | None = None,
    ) -> Table[HistoryRow] | Curves:
        """Each value that one leaf had, over the steps of a branch, or those
        from `first` to `last`. KeyError where none of them has it.

        With a `statistic` ("l2", "mean", ..., or "value" of numbers and of
        arrays of no dimensions) `name` is a glob, and the result has for each
        leaf that matches the steps, and the statistic in each: of the steps in
        which the leaf has statistics. What was saved with statistics=False has
        none, but for "value".

        Reads records, no arrays. Ctrl-C stops it.

        >>> for row in store.history("lr"):
        ...     print(row.step, row.last_step, row.value)
        100 200 0.5
        >>> store.history("params/**", "max")
        {'params/w': Series(steps=[100, 200], values=[1.0, 2.0])}
        """
        if statistic is not None:
            return history.series(
                self._live(), name, statistic, branch, first, last
            )
        return history.rows(self._live(), name, branch, first, last)

    def diff(
        self,
        before: Selector = "latest~1",
        after: Selector = "latest",
        glob: str = "",
    ) -> DiffReport:
        """The leaves in which two steps differ, of those whose names match.
        Compares digests; see Step.diff() for steps of two stores.

        >>> report = store.diff(100, 200)
        >>> report.changed, report.same
        (['params/w'], 1)
        >>> report.changes[0].l2_before < report.changes[0].l2_after
        True
        """
        return self[before].diff(self[after], glob)

    def blame(
        self, step: Selector = "latest", glob: str = ""
    ) -> Table[BlameRow]:
        """Which save gave each leaf its value, of those whose names match.

        >>> [(row.name, row.since_step) for row in store.blame()]
        [('lr', 100), ('params/w', 200)]
        """
        return self[step].blame(glob)
