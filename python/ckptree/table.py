# SPDX-License-Identifier: Apache-2.0
"""Table: named tuples of one kind, which a notebook shows as a table."""

from __future__ import annotations

from ckptree.hints import Any, TypeVar

Row = TypeVar("Row")


class Table(list[Row]):
    """A list of named tuples. pandas.DataFrame() takes it as it is.

    >>> from ckptree.changes import Series
    >>> table = Table([Series([1, 2], [0.5, 0.25])])
    >>> table[0].values
    [0.5, 0.25]
    """

    def to_pandas(self) -> Any:
        """A pandas.DataFrame; times are datetimes, UTC, in columns without
        "_ns"."""
        import pandas

        frame = pandas.DataFrame(self)
        for name in [n for n in frame.columns if str(n).endswith("_ns")]:
            times = pandas.to_datetime(frame.pop(name), unit="ns", utc=True)
            frame[name.removesuffix("_ns")] = times
        return frame

    def plot(
        self, column: str | None = None, *, ax: Any = None, **options: Any
    ) -> Any:
        """Draws a column of numbers over the steps, by matplotlib.

        Parameters
        ----------
        column : str, optional
            Which one, or of steps the name of a metric. None: of steps all
            metrics, of a history the values of the leaf, or its mean.
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
        TypeError
            The rows are not of steps.
        ValueError
            There is no such column, or it has no numbers.

        Examples
        --------
        >>> from unittest.mock import Mock  # In place of plt.gca().
        >>> with ckptree.Store(tmp / "run") as store:
        ...     for step in (1, 2):
        ...         metrics = {"loss": 1 / step}
        ...         _ = store.save(step, {"lr": 0.5}, metrics=metrics)
        ...     store.flush()
        ...     ax = store.steps().plot("loss", ax=Mock())
        >>> ax.plot.call_args
        call([1, 2], [1.0, 0.5], label='loss')
        """
        from ckptree import plots

        what, curves = plots.over_steps(self, column)
        return plots.lines(curves, what, ax, options)

    def _repr_html_(self) -> str:
        from ckptree import html

        return html.table(self)
