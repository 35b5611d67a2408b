# SPDX-License-Identifier: Apache-2.0
"""Memory that arrays are read into."""

from __future__ import annotations

import gc
import math
from contextlib import contextmanager
from typing import Any, Iterator

import numpy as np

from ckptree import _engine

# Below, NumPy's own is cheaper to get.
_WORTH_IT = 64 << 10


def empty(shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """Returns an array without content, like `numpy.empty`.

    Large ones lie as JAX wants them, so that it takes them over on a CPU
    without a copy, and are no huge pages unless the system makes all memory so:
    NumPy asks for those, and while a restore fills the page cache the kernel
    has to compact memory for each (a cold restore fell from 1.7 to 0.7 GB/s).

    >>> empty((2, 3), np.dtype("int32")).shape
    (2, 3)
    """
    size = dtype.itemsize * math.prod(shape)
    if size < _WORTH_IT:
        return np.empty(shape, dtype)
    return _engine.array_memory(size).view(dtype).reshape(shape)


@contextmanager
def without_collection() -> Iterator[None]:
    """While very many small objects are made Python looks through all of them
    for garbage, again and again, which takes longer than making them. Not for
    what waits."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
