# SPDX-License-Identifier: Apache-2.0
"""Table: named tuples of one kind, which a notebook shows as a table."""

from __future__ import annotations

from typing import TypeVar

Row = TypeVar("Row")


class Table(list[Row]):
    """A list of named tuples. pandas.DataFrame() takes it as it is.

    >>> from ckptree.changes import Series
    >>> table = Table([Series([1, 2], [0.5, 0.25])])
    >>> table[0].values
    [0.5, 0.25]
    """

    def _repr_html_(self) -> str:
        from ckptree import html

        return html.table(self)
