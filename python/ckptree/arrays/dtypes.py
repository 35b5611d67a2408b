# SPDX-License-Identifier: Apache-2.0
"""Element types: the engine's numbers, NumPy's and ml_dtypes' types."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    DType = np.dtype[Any]

_NUMPY = {
    1: "bool",
    5: "int8",
    6: "int16",
    7: "int32",
    8: "int64",
    12: "uint8",
    13: "uint16",
    14: "uint32",
    15: "uint64",
    16: "float16",
    18: "float32",
    19: "float64",
    33: "complex64",
    34: "complex128",
}

# NumPy has none of these by itself.
_ML_DTYPES = {
    2: "int1",
    3: "int2",
    4: "int4",
    9: "uint1",
    10: "uint2",
    11: "uint4",
    17: "bfloat16",
    20: "float8_e4m3fn",
    21: "float8_e5m2",
    22: "float8_e4m3fnuz",
    23: "float8_e5m2fnuz",
    24: "float8_e8m0fnu",
    25: "float8_e3m4",
    26: "float8_e4m3",
    27: "float8_e4m3b11fnuz",
    28: "float6_e2m3fn",
    29: "float6_e3m2fn",
    30: "float4_e2m1fn",
    31: "complex32",
    32: "bcomplex32",
}

_BY_NAME = {name: n for n, name in (_NUMPY | _ML_DTYPES).items()}


class Numbers(dict[Any, int]):
    """NumPy's dtypes to the engine's numbers. TypeError for others."""

    def __missing__(self, dtype: DType) -> int:
        number = _BY_NAME.get(dtype.name)
        if number is None or not dtype.isbuiltin == 2:
            raise TypeError(
                f"arrays of dtype {dtype} cannot be saved: elements are "
                "numbers or bool"
            )
        self[dtype] = number
        return number


NUMBERS = Numbers({np.dtype(name): n for n, name in _NUMPY.items()})


class Names(dict[Any, str]):
    """NumPy's dtypes, of either byte order, to our names; they take a while to
    make. TypeError for others."""

    def __missing__(self, dtype: DType) -> str:
        native = dtype.newbyteorder("=")
        NUMBERS[native]
        name = self[dtype] = native.name
        return name


NAMES = Names()


def to_numpy(number: int) -> DType:
    """The dtype of an array that the engine has.

    ImportError where it is one of ml_dtypes and that is not installed.

    >>> to_numpy(18)
    dtype('float32')
    """
    if number in _NUMPY:
        return np.dtype(_NUMPY[number])
    name = _ML_DTYPES[number]
    try:
        import ml_dtypes
    except ImportError:
        raise ImportError(
            f"NumPy has no {name} of its own: pip install ml_dtypes"
        ) from None
    found = getattr(ml_dtypes, name, None)
    if found is None:
        raise ImportError(
            f"this ml_dtypes has no {name}: pip install -U ml_dtypes"
        )
    dtype: DType = np.dtype(found)
    return dtype


def number_of(name: str) -> int:
    """The engine's number of the dtype of that name.

    >>> number_of("float32")
    18
    """
    return _BY_NAME[name]


def by_name(name: str) -> DType:
    """The dtype of that name: "float32", "bfloat16". TypeError, ImportError.

    >>> by_name("int8")
    dtype('int8')
    """
    if name not in _BY_NAME:
        raise TypeError(f"{name!r} is no element type")
    return to_numpy(_BY_NAME[name])
