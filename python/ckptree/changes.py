# SPDX-License-Identifier: Apache-2.0
"""What became of leaves: the named tuples of history(), diff() and blame().

>>> import ckptree
>>> with ckptree.Store(tmp / "run") as store:
...     for step in (1, 2, 3):
...         _ = store.save(step, {"lr": 0.5 if step < 3 else 0.25}).result()
...     rows = store.history("lr")
>>> [(row.step, row.last_step, row.value) for row in rows]
[(1, 2, 0.5), (3, 3, 0.25)]
"""
# Annotations are types here, not text: a named tuple compiles each text, which
# takes as long as the rest of these classes.
from collections.abc import Mapping

from ckptree.hints import TYPE_CHECKING, Any, NamedTuple
from ckptree.records import LeafType
from ckptree.table import Table

if TYPE_CHECKING:
    import numpy as np

    from ckptree import _engine


class HistoryRow(NamedTuple):
    """Listed steps, next to each other, in which a leaf has the same value.
    The statistics are None of what is no array."""

    step: int  # The first of them.
    last_step: int
    steps: int  # How many there are.
    begun_ns: int  # Of the first.
    kind: str  # As in LeafType; "none" where None stands in its place.
    dtype: str
    shape: tuple[int, ...]
    nbytes: int
    digest: str
    # Of a number, an array of no dimensions, and a str of up to 256 bytes; None
    # of all else.
    value: bool | int | float | complex | str | None
    count: int | None = None  # type: ignore[assignment]  # Hides tuple.count().
    nan: int | None = None
    inf: int | None = None
    zero: int | None = None
    min: float | None = None
    max: float | None = None
    mean: float | None = None
    std: float | None = None
    l2: float | None = None


class Series(NamedTuple):
    """A statistic of a leaf, and the steps that it is of.

    >>> series = Series([100, 200], [0.5, 0.25])
    """

    steps: list[int]
    values: list[float]

    def plot(self, *, ax: Any = None, **options: Any) -> Any:
        """Draws the values over the steps, by matplotlib.

        Parameters
        ----------
        ax : matplotlib.axes.Axes, optional
            Where to; None: new ones.
        **options
            For `Axes.plot()`: `linestyle="--"`, `label=`, ...

        Returns
        -------
        matplotlib.axes.Axes

        Raises
        ------
        ImportError
            matplotlib is not installed.

        Examples
        --------
        >>> from unittest.mock import Mock  # In place of plt.gca().
        >>> series.plot(ax=Mock()).plot.call_args
        call([100, 200], [0.5, 0.25], label='')
        """
        from ckptree import plots

        return plots.lines({"": self}, "", ax, options)

    def _repr_html_(self) -> str:
        from ckptree import html

        return html.curves({"": self})


class Curves(dict[str, Series]):
    """A statistic of leaves, by their names: what Store.history() of a
    statistic returns.

    >>> curves = Curves({"w": Series([100, 200], [0.5, 0.25])}, statistic="l2")
    >>> curves["w"].values
    [0.5, 0.25]
    """

    def __init__(
        self, series: Mapping[str, Series], *, statistic: str = ""
    ) -> None:
        super().__init__(series)
        self.statistic = statistic

    def plot(self, *, ax: Any = None, **options: Any) -> Any:
        """Draws a line for each leaf over the steps, by matplotlib; of the
        first hundred, with a warning, where there are more.

        Parameters
        ----------
        ax : matplotlib.axes.Axes, optional
            Where to; None: new ones.
        **options
            For `Axes.plot()`, of all lines.

        Returns
        -------
        matplotlib.axes.Axes

        Raises
        ------
        ImportError
            matplotlib is not installed.

        Examples
        --------
        >>> from unittest.mock import Mock  # In place of plt.gca().
        >>> ax = curves.plot(ax=Mock())
        >>> ax.plot.call_args
        call([100, 200], [0.5, 0.25], label='w')
        >>> ax.set_ylabel.call_args
        call('l2')
        """
        from ckptree import plots

        return plots.lines(self, self.statistic, ax, options)

    def to_pandas(self) -> Any:
        """A pandas.DataFrame with a row for each step and a column for each
        leaf; NaN where a leaf was not there.

        >>> curves.to_pandas().loc[200, "w"]
        np.float64(0.25)
        """
        import pandas

        steps = sorted({step for one in self.values() for step in one.steps})
        row_of = {step: row for row, step in enumerate(steps)}
        columns = {
            name: _column(one, steps, row_of) for name, one in self.items()
        }
        index = pandas.Index(steps, name="step")
        return pandas.DataFrame(columns, index=index)

    def _repr_html_(self) -> str:
        from ckptree import html

        return html.curves(self, self.statistic)


def _column(
    one: Series, steps: list[int], row_of: Mapping[int, int]
) -> "np.ndarray[Any, Any]":
    """The values of a leaf in all steps, NaN in those that lack it."""
    import numpy as np

    values = np.asarray(one.values)
    if one.steps == steps:
        return values
    kind = float if values.dtype.kind in "fiu" else object
    column = np.full(len(steps), np.nan, kind)
    column[[row_of[step] for step in one.steps]] = values
    return column


class LeafChange(NamedTuple):
    """A leaf in which two steps differ."""

    name: str
    change: str  # "added", "removed", "changed", "retyped"
    before: str  # "float32[3, 4]", "int"; empty where it is not there.
    after: str
    nbytes_before: int | None
    nbytes_after: int | None
    l2_before: float | None
    l2_after: float | None
    mean_before: float | None
    mean_after: float | None

    @staticmethod
    def of(fields: dict[str, Any]) -> "LeafChange":
        """Of what the engine says."""
        before = _Side(fields["before"], fields["before_detail"])
        after = _Side(fields["after"], fields["after_detail"])
        return LeafChange(
            fields["name"],
            fields["change"],
            before.type,
            after.type,
            before.nbytes,
            after.nbytes,
            before.l2,
            after.l2,
            before.mean,
            after.mean,
        )


class _Side:
    """A leaf in one of two steps; nothing where it is not there."""

    def __init__(
        self, info: "_engine.LeafInfo | None", fields: dict[str, Any] | None
    ) -> None:
        self.type = ""
        self.nbytes: int | None = None
        self.l2: float | None = None
        self.mean: float | None = None
        if info is None or fields is None:
            return
        leaf = LeafType.of(info)
        self.type = str(leaf)
        self.nbytes = fields["nbytes"]
        if leaf.kind == "array" and fields["stats"]:
            self.l2 = fields["stats"]["l2"]
            self.mean = fields["stats"]["mean"]


class DiffReport(NamedTuple):
    """In what two steps differ.

    >>> with ckptree.Store(tmp / "run") as store:
    ...     for step, state in enumerate([{"a": 1, "b": 1}, {"a": 2, "c": 1}]):
    ...         _ = store.save(step, state).result()
    ...     report = store.diff()
    >>> [(change.name, change.change) for change in report.changes]
    [('a', 'changed'), ('b', 'removed'), ('c', 'added')]
    """

    before: str  # Selectors of the steps.
    after: str
    changes: Table[LeafChange]
    same: int  # Leaves, without ties.

    @property
    def added(self) -> list[str]:
        """Names of leaves that only the second step has.

        >>> report.added
        ['c']
        """
        return self._names("added")

    @property
    def removed(self) -> list[str]:
        """Names of leaves that only the first step has.

        >>> report.removed
        ['b']
        """
        return self._names("removed")

    @property
    def changed(self) -> list[str]:
        """Names of leaves with another value.

        >>> report.changed
        ['a']
        """
        return self._names("changed")

    @property
    def retyped(self) -> list[str]:
        """Names of leaves of another kind, element type or shape.

        >>> report.retyped
        []
        """
        return self._names("retyped")

    def _names(self, change: str) -> list[str]:
        return [c.name for c in self.changes if c.change == change]

    def _repr_html_(self) -> str:
        from ckptree import html

        caption = f"{self.before} -> {self.after}: {len(self.changes)} changes"
        return html.changes(self.changes, f"{caption}, {self.same} the same")


class BlameRow(NamedTuple):
    """Which save gave a leaf its value."""

    name: str
    since_step: int
    since_version: int
    listed: bool  # That step is still there.
    kind: str
    dtype: str
    shape: tuple[int, ...]
    nbytes: int
    # Of the step since which it is so, "" for the main one; None where that is
    # not listed any more: nobody knows.
    since_branch: str | None

    @staticmethod
    def of(fields: dict[str, Any]) -> "BlameRow":
        """Of what the engine says."""
        kind = LeafType.of(fields["leaf"])
        detail = fields["detail"]
        return BlameRow(
            kind.name,
            detail["since_step"],
            detail["since_version"],
            fields["listed"],
            kind.kind,
            kind.dtype,
            kind.shape,
            detail["nbytes"],
            fields["branch"],
        )
