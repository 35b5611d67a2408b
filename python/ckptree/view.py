# SPDX-License-Identifier: Apache-2.0
"""LeafView: an array where it stands in the store's file, without a copy."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ckptree import _engine
from ckptree.hints import TYPE_CHECKING, Any, NamedTuple, overload

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]


class ViewPiece(NamedTuple):
    """A box of an array, in place.

    Attributes
    ----------
    index : tuple of slice
        Where it is in the array: `whole[piece.index]`.
    array : numpy.ndarray
        Its elements, row-major; it cannot be written to.
    """

    # Hides tuple.index().
    index: tuple[slice, ...]  # type: ignore[assignment]
    array: Array


class LeafView(Sequence[ViewPiece]):
    """An array of a step in place: pieces that are boxes of it, do not overlap
    and make up the whole. Leaf.view() returns it, after every byte of it was
    checked.

    The memory is a mapping of the store's file, and belongs to the arrays made
    of it. They outlive the view, the step and the store: close() does not wait
    for them, the store can be opened for writing again at once, and a step that
    is deleted and collected stays readable in them; its file takes its place on
    the disk until the last one goes. In a child made by fork() they are
    readable, too.

    Examples
    --------
    >>> import ckptree, numpy as np
    >>> with ckptree.Store(tmp / "run") as store:
    ...     state = {"w": np.arange(1 << 20, dtype="f4").reshape(1024, 1024)}
    ...     _ = store.save(1, state).result()
    ...     view = store["latest"]["w"].view()
    >>> view
    <LeafView w: float32[1024, 1024], 1 piece>
    >>> view.array[2, 3], view.array.flags.writeable
    (np.float32(2051.0), False)
    >>> for piece in view:
    ...     print(piece.index, piece.array.shape)
    (slice(0, 1024, None), slice(0, 1024, None)) (1024, 1024)
    """

    def __init__(
        self,
        name: str,
        shape: tuple[int, ...],
        dtype: np.dtype[Any],
        pieces: list[ViewPiece],
        zero_copy: bool,
    ) -> None:
        self._name = name
        self._shape = shape
        self._dtype = dtype
        self._pieces = tuple(pieces)
        self._zero_copy = zero_copy

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the whole array.

        >>> view.shape
        (1024, 1024)
        """
        return self._shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """NumPy's element type.

        >>> view.dtype
        dtype('float32')
        """
        return self._dtype

    @property
    def zero_copy(self) -> bool:
        """False where something had to be copied: arrays of small saves and
        small arrays stand where nothing can be mapped, coded ones (`coding`,
        or a store that was packed) have to be decoded, and so do bytes that
        were found beside damage.

        >>> view.zero_copy
        True
        """
        return self._zero_copy

    @property
    def array(self) -> Array:
        """The whole array, without a copy; it cannot be written to.

        Raises
        ------
        ValueError
            It has several pieces, which do not lie one behind the other:
            arrays are cut into chunks. `numpy.asarray(view)` copies them
            together.

        Examples
        --------
        >>> view.array.shape
        (1024, 1024)
        """
        if self.size == 0:
            import numpy as np

            empty = np.empty(self._shape, self._dtype)
            empty.flags.writeable = False
            return empty
        if len(self._pieces) == 1:
            return self._pieces[0].array
        raise ValueError(
            f"{self._name} stands in {len(self._pieces)} pieces: take each by "
            "its index, or copy them together by numpy.asarray(view)"
        )

    @property
    def size(self) -> int:
        """How many elements there are.

        >>> view.size
        1048576
        """
        return math.prod(self._shape)

    @property
    def nbytes(self) -> int:
        """Of all elements.

        >>> view.nbytes
        4194304
        """
        return self.size * self._dtype.itemsize

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        import numpy as np

        whole = self.size == 0 or len(self._pieces) == 1
        if whole and not copy:
            made = self.array
        elif copy is False:
            made = self.array  # Which says why not.
        else:
            made = np.empty(self._shape, self._dtype)
            for piece in self._pieces:
                made[piece.index] = piece.array
        if dtype is None or made.dtype == dtype:
            return made
        if copy is False:
            raise ValueError(
                f"{self._name}: {self._dtype} as {dtype} makes a copy"
            )
        return made.astype(dtype)

    def __len__(self) -> int:
        return len(self._pieces)

    @overload
    def __getitem__(self, number: int) -> ViewPiece: ...

    @overload
    def __getitem__(self, number: slice) -> tuple[ViewPiece, ...]: ...

    def __getitem__(
        self, number: int | slice
    ) -> ViewPiece | tuple[ViewPiece, ...]:
        return self._pieces[number]

    def __repr__(self) -> str:
        dims = ", ".join(map(str, self._shape))
        pieces = "1 piece" if len(self) == 1 else f"{len(self)} pieces"
        return f"<LeafView {self._name}: {self._dtype}[{dims}], {pieces}>"


def view(step: _engine.Step, info: _engine.LeafInfo, name: str) -> LeafView:
    """Of an array of a step, which is not packed."""
    from ckptree.arrays import dtypes

    dtype = dtypes.to_numpy(info.dtype)
    zero_copy, found = _engine.view(step, info)
    pieces = []
    for start, shape, memory in found:
        if start is None:
            start, shape = (0,) * len(info.shape), info.shape
        index = tuple(slice(a, a + n) for a, n in zip(start, shape))
        if memory.nbytes:
            array = memory.view(dtype).reshape(shape)
            pieces.append(ViewPiece(index, array))
    return LeafView(name, info.shape, dtype, pieces, zero_copy)
