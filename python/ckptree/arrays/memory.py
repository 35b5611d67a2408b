# SPDX-License-Identifier: Apache-2.0
"""Memory that arrays are read into."""

from __future__ import annotations

import math
from typing import Any

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
