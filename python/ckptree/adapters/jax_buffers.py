# SPDX-License-Identifier: Apache-2.0
"""Memory of the host that arrays of JAX are sent to devices from: used again
and again, as the system takes its time to make fresh pages."""

from __future__ import annotations

import math
from typing import Any, Iterable, Sequence

import jax
import numpy as np

from ckptree.arrays import memory

# Where JAX copies to memory of the device's own. A CPU takes the memory of the
# host over, and so may a device that is not known here.
_COPIED_TO = ("gpu", "cuda", "rocm", "tpu")

# Of arrays in a buffer; from the second size on they begin with a page, as the
# disk puts them there without a copy then.
_ALIGNMENT = 64
_LARGE = 1 << 20
_PAGE = 4 << 10


class Buffers:
    """Two buffers of one restore: while one is read into, JAX copies from the
    other. Each is used again once all arrays made from it are ready; never
    where one of them may have its memory. Confined to one thread."""

    def __init__(self, nbytes: int) -> None:
        """Buffers have some more than `nbytes`, of which the system gives what
        is used; more only where more is asked for at once."""
        self._nbytes = nbytes + nbytes // 16  # For what lies between arrays.
        self._free: list[np.ndarray[Any, Any]] = []
        self._taken: np.ndarray[Any, Any] | None = None
        # What was sent before, and out of which buffer.
        self._arrays: list[Any] = []
        self._buffer: np.ndarray[Any, Any] | None = None

    def take(
        self, wanted: Iterable[tuple[tuple[int, ...], np.dtype[Any]]]
    ) -> list[np.ndarray[Any, Any]]:
        """Arrays of these shapes and types without content, which are the
        caller's until the next call but one of sent()."""
        offset = 0
        places: list[tuple[int, int, tuple[int, ...], np.dtype[Any]]] = []
        for shape, dtype in wanted:
            nbytes = dtype.itemsize * math.prod(shape)
            step = _PAGE if nbytes >= _LARGE else _ALIGNMENT
            offset = -(-offset // step) * step
            places.append((offset, offset + nbytes, shape, dtype))
            offset += nbytes
        buffer = self._taken = self._of(offset)
        return [
            buffer[begin:end].view(dtype).reshape(shape)
            for begin, end, shape, dtype in places
        ]

    def sent(self, arrays: list[Any]) -> None:
        """Says what JAX makes of what take() gave. Waits for the arrays of the
        call before, whose buffer is free then."""
        jax.block_until_ready(self._arrays)
        if self._buffer is not None and is_copied(self._arrays):
            self._free.append(self._buffer)
        self._arrays, self._buffer = arrays, self._taken
        self._taken = None

    def _of(self, nbytes: int) -> np.ndarray[Any, Any]:
        while self._free:
            buffer = self._free.pop()
            if buffer.nbytes >= nbytes:
                return buffer
        return memory.empty((max(nbytes, self._nbytes),), np.dtype(np.uint8))


def is_copied(arrays: Sequence[Any]) -> bool:
    """Whether none of the arrays, which are ready, can have the memory of the
    host that it was made from.

    >>> import jax.numpy as jnp
    >>> is_copied([jnp.ones(3)])  # Of a CPU.
    False
    """
    return all(
        device.platform in _COPIED_TO
        and "host" not in str(array.sharding.memory_kind)
        for array in arrays
        for device in array.devices()
    )
