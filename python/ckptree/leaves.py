# SPDX-License-Identifier: Apache-2.0
"""Leaves: those of a step, together."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import count, repeat

from ckptree.hints import TYPE_CHECKING, Any, overload
from ckptree.leaf import Leaf

if TYPE_CHECKING:
    from ckptree import _engine


class Source:
    """Some leaves of a step. The records of all are read at once when the
    first of them is asked for. For any thread; two of them may both read."""

    def __init__(
        self,
        step: _engine.Step,
        owner: object,
        details: Callable[[], list[dict[str, Any]]],
        info: Callable[[int], _engine.LeafInfo],
    ) -> None:
        self.step = step
        self.owner = owner
        self._details = details
        self.info = info
        self._found: list[dict[str, Any]] | None = None

    def of(self, index: int) -> dict[str, Any]:
        """A dict that belongs to the caller."""
        found = self._found
        if found is None:
            found = self._found = self._details()
        return dict(found[index])


class Leaves(Sequence[Leaf]):
    """Leaves of a step, in the order of its tree. A Leaf is made when it is
    looked at, and goes with who looks: of very many Python would look through
    all of them for garbage, again and again. Thread-safe.

    Examples
    --------
    >>> import ckptree, numpy as np
    >>> store = ckptree.Store(tmp / "run")
    >>> _ = store.save(1, {"b": np.ones(2), "w": np.ones((2, 2))}).result()
    >>> leaves = store["latest"].leaves()
    >>> len(leaves), leaves[-1].shape
    (2, (2, 2))
    >>> leaves
    [<Leaf b: float64[2]>, <Leaf w: float64[2, 2]>]
    >>> store.close()
    """

    def __init__(self, engine: _engine.Step, glob: str, owner: object) -> None:
        table = engine.leaf_table(glob)
        self._names, self._dtypes, self._shapes = table.columns()
        self._source = Source(
            engine, owner, lambda: engine.details(table), table.info
        )

    def __len__(self) -> int:
        return len(self._names)

    def __iter__(self) -> Iterator[Leaf]:
        return map(
            Leaf,
            repeat(self._source),
            self._names,
            self._dtypes,
            self._shapes,
            count(),
        )

    @overload
    def __getitem__(self, number: int) -> Leaf: ...

    @overload
    def __getitem__(self, number: slice) -> list[Leaf]: ...

    def __getitem__(self, number: int | slice) -> Leaf | list[Leaf]:
        if isinstance(number, slice):
            return [self._leaf(i) for i in range(len(self))[number]]
        return self._leaf(range(len(self))[number])

    def _leaf(self, number: int) -> Leaf:
        return Leaf(
            self._source,
            self._names[number],
            self._dtypes[number],
            self._shapes[number],
            number,
        )

    def __repr__(self) -> str:
        return repr(list(self))
