# SPDX-License-Identifier: Apache-2.0
"""Table: named tuples of one kind, which a notebook shows as a table."""

from __future__ import annotations

from typing import Any, TypeVar

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

    def _repr_html_(self) -> str:
        from ckptree import html

        return html.table(self)
