# SPDX-License-Identifier: Apache-2.0
"""NumPy's values: the scalars, and arrays that the extension does not know by
themselves. values.read() makes the arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from ckptree.arrays import dtypes
from ckptree.adapters.protocol import Container, Expected, Pieces

_ARRAYS = (np.ndarray, np.generic)


def is_leaf(value: Any) -> bool:
    return isinstance(value, _ARRAYS)


def container(value: Any) -> Container | None:
    return None


def pieces(value: Any) -> Pieces | None:
    """Of scalars and mapped files; None of subclasses, which may mean more
    than their elements."""
    if isinstance(value, np.generic):
        array = _native(np.asarray(value))
        return Pieces(array.dtype, (), [(None, array)], "scalar", True)
    if type(value) is not np.memmap:
        return None
    array = np.asarray(value)
    swapped = _native(array)
    return Pieces(
        swapped.dtype,
        swapped.shape,
        [(None, swapped)],
        "",
        swapped is not array,
    )


def _native(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """`array` itself, or a copy in the byte order of this machine."""
    if array.dtype.isnative:
        return array
    return array.astype(array.dtype.newbyteorder("="))


def describe(value: Any) -> Expected | None:
    if not isinstance(value, np.generic):
        if type(value) not in (np.ndarray, np.memmap):
            return None
    name = dtypes.NAMES[value.dtype]  # TypeError: not one of ours.
    scalar = value if isinstance(value, np.generic) else None
    return Expected("array", name, value.shape, like=scalar)
