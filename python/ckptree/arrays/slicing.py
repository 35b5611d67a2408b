# SPDX-License-Identifier: Apache-2.0
"""BoxIndex: NumPy's basic indexing as a box, and what is left to do in it."""

from __future__ import annotations

import operator
from typing import Any


class BoxIndex:
    """The smallest box that has all elements of `shape` that `index` names.

    `start`, `shape`: the box. `local`: what indexes the box as `index` does the
    whole. IndexError and TypeError as NumPy has them, with the name.

    >>> box = BoxIndex((slice(2, 9, 3), -1), (10, 4), "w")
    >>> box.start, box.shape, box.local
    ((2, 3), (7, 1), (slice(None, None, 3), 0))
    """

    def __init__(self, index: Any, shape: tuple[int, ...], name: str) -> None:
        parts = _expand(index, len(shape), name)
        start: list[int] = []
        extent: list[int] = []
        local: list[Any] = []
        for part in parts:
            if part is None:
                local.append(None)
                continue
            dim = shape[len(start)]
            first, count, here = _one(part, dim, name, len(start))
            start.append(first)
            extent.append(count)
            local.append(here)
        self.start = tuple(start)
        self.shape = tuple(extent)
        if _has_ellipsis(index):
            local.append(...)  # With it NumPy gives an array, never a scalar.
        self.local = tuple(local)


def _has_ellipsis(index: Any) -> bool:
    parts = index if isinstance(index, tuple) else (index,)
    return any(part is ... for part in parts)


def _expand(index: Any, rank: int, name: str) -> list[Any]:
    """A part for each dimension, and None for each new one."""
    parts = list(index) if isinstance(index, tuple) else [index]
    given = sum(1 for part in parts if part is not None and part is not ...)
    if sum(1 for part in parts if part is ...) > 1:
        raise IndexError(f"{name}: an index has one '...' at most")
    if given > rank:
        raise IndexError(
            f"{name}: {given} indices for an array of {rank} dimensions"
        )
    rest = [slice(None)] * (rank - given)
    for i, part in enumerate(parts):
        if part is ...:
            return parts[:i] + rest + parts[i + 1 :]
    return parts + rest


def _one(part: Any, dim: int, name: str, axis: int) -> tuple[int, int, Any]:
    """First element, extent, and what is left of the index in there."""
    if isinstance(part, slice):
        start, stop, step = part.indices(dim)
        count = len(range(start, stop, step))
        if count == 0:
            return 0, 0, slice(None)
        last = start + (count - 1) * step
        low, high = min(start, last), max(start, last)
        if step < 0:
            return low, high - low + 1, slice(None, None, step)
        return (
            low,
            high - low + 1,
            slice(None, None, None if step == 1 else step),
        )
    if isinstance(part, bool):
        raise TypeError(f"{name}: only integers, slices, '...' and None index")
    try:
        at = operator.index(part)
    except TypeError:
        raise TypeError(
            f"{name}: only integers, slices, '...' and None index; read a "
            "slice, and index that"
        ) from None
    if not -dim <= at < dim:
        raise IndexError(
            f"{name}: index {at} is out of bounds for axis {axis} of size {dim}"
        )
    return at % dim, 1, 0
