# SPDX-License-Identifier: Apache-2.0
"""Arrays cut into boxes, which are what a device can be asked for."""

from __future__ import annotations

import itertools
import math
from typing import Iterator, Sequence

# Where it starts, and its shape.
Box = tuple[tuple[int, ...], tuple[int, ...]]


def of_run(shape: Sequence[int], first: int, count: int) -> Iterator[Box]:
    """The elements [first, first + count) in row-major order, as boxes one
    behind the other: one where they are whole rows of one dimension, as those
    of a chunk are; else few for each dimension.

    >>> list(of_run((4, 10), 10, 20))
    [((1, 0), (2, 10))]
    >>> list(of_run((4, 10), 8, 5))
    [((0, 8), (1, 2)), ((1, 0), (1, 3))]
    >>> list(of_run((), 0, 1)), list(of_run((3, 2), 2, 0))
    ([((), ())], [])
    """
    if count == 0:
        return
    # Elements from one index to the next of each dimension.
    steps = [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]
    end = first + count
    while first < end:
        start = []
        rest = first
        for step in steps:
            start.append(rest // step)
            rest %= step
        # The outermost dimension that as many whole indices are left of.
        axis = len(shape)
        while axis > 0:
            step = steps[axis - 1]
            if first % step != 0 or first + step > end:
                break
            axis -= 1
        if axis == len(shape):  # No dimensions: an element.
            yield (), ()
            return
        extent = min((end - first) // steps[axis], shape[axis] - start[axis])
        ones = [1] * axis
        yield tuple(start), (*ones, extent, *shape[axis + 1 :])
        first += extent * steps[axis]


def cut(
    shape: tuple[int, ...], itemsize: int, grid: tuple[int, ...], most: int
) -> Iterator[Box]:
    """Boxes of at most `most` bytes, or of one element. They end where chunks
    of the shape `grid` do, where that is possible: a chunk that is cut is read
    once for each part.

    >>> list(cut((5, 4), 1, (2, 4), 13))
    [((0, 0), (2, 4)), ((2, 0), (2, 4)), ((4, 0), (1, 4))]
    """
    none: tuple[int, ...] = (0,) * len(shape)
    if math.prod(shape) * itemsize <= most:
        yield none, shape
        return
    # The first dimension of which one index fits.
    axis = next(
        i
        for i in range(len(shape))
        if math.prod(shape[i + 1 :]) * itemsize <= most
    )
    inner = shape[axis + 1 :]
    count = max(1, most // (math.prod(inner) * itemsize))
    if len(grid) == len(shape) and 0 < grid[axis] <= count:
        count -= count % grid[axis]
    for outer in itertools.product(*map(range, shape[:axis])):
        for first in range(0, shape[axis], count):
            extent = min(count, shape[axis] - first)
            yield (
                (*outer, first, *none[axis + 1 :]),
                (*(1 for _ in outer), extent, *inner),
            )
