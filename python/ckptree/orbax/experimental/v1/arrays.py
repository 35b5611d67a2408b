# SPDX-License-Identifier: Apache-2.0
"""Shapes and types of arrays."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from ckptree.orbax.arrays import Shape
from ckptree.orbax.utils import to_shape_dtype_struct

DType = np.dtype
Scalar = int | float | np.number[Any] | bytes | bool
AbstractScalar = Scalar
ArrayLike = Any
AbstractArray = Any
AbstractShardedArray = Any


@dataclasses.dataclass(frozen=True)
class NumpyShapeDtype:
    """Describes an array of NumPy in an abstract state.

    >>> NumpyShapeDtype((2, 3), np.float32)
    NumpyShapeDtype(shape=(2, 3), dtype=dtype('float32'))
    """

    shape: Shape
    dtype: Any

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", tuple(self.shape))
        object.__setattr__(self, "dtype", np.dtype(self.dtype))


__all__ = [
    "AbstractArray",
    "AbstractScalar",
    "AbstractShardedArray",
    "ArrayLike",
    "DType",
    "NumpyShapeDtype",
    "Scalar",
    "Shape",
    "to_shape_dtype_struct",
]
