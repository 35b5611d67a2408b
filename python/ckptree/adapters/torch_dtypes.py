# SPDX-License-Identifier: Apache-2.0
"""Element types of PyTorch, and the memory of tensors as arrays of NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np

from ckptree.arrays import dtypes

try:
    import torch
except ImportError:
    raise ImportError(
        "tensors need PyTorch: pip install 'ckptree[torch]', or torch for "
        "your device; without it, restore() gives arrays of NumPy"
    ) from None

# By the engine's names, as far as this PyTorch has them.
DTYPES = {
    name: getattr(torch, name)
    for name in """bool int8 int16 int32 int64 uint8 uint16 uint32 uint64
    float16 bfloat16 float32 float64 complex32 complex64 complex128
    float8_e4m3fn float8_e5m2 float8_e4m3fnuz float8_e5m2fnuz
    float8_e8m0fnu""".split()
    if hasattr(torch, name)
}
NAMES = {dtype: name for name, dtype in DTYPES.items()}
for _name, _dtype in DTYPES.items():
    dtypes.NUMBERS[_dtype] = dtypes.number_of(_name)

# NumPy has no such elements: their bytes pass as those of integers.
CARRIERS = {
    DTYPES[name]: carrier
    for names, carrier in (
        ("bfloat16", torch.int16),
        ("complex32", torch.int32),
        (
            "float8_e4m3fn float8_e5m2 float8_e4m3fnuz float8_e5m2fnuz "
            "float8_e8m0fnu",
            torch.uint8,
        ),
    )
    for name in names.split()
    if name in DTYPES
}


def array_of(tensor: torch.Tensor) -> np.ndarray[Any, Any]:
    """The memory of a tensor on the host.

    >>> array_of(torch.ones(2, dtype=torch.bfloat16))
    array([16256, 16256], dtype=int16)
    """
    carrier = CARRIERS.get(tensor.dtype)
    array: np.ndarray[Any, Any] = (
        tensor if carrier is None else tensor.view(carrier)
    ).numpy()
    return array


def memory_of(value: torch.Tensor) -> Any:
    """Equal for tensors that are the same elements: state_dict() gives tied
    parameters as two objects. None where there is nothing to share.

    >>> w = torch.ones(2)
    >>> memory_of(w) == memory_of(w.detach()), memory_of(w) == memory_of(w[:1])
    (True, False)
    """
    if value.numel() == 0:
        return None
    return (
        str(value.device),
        value.data_ptr(),
        value.dtype,
        tuple(value.shape),
        value.stride(),
        value.is_conj(),
        value.is_neg(),
    )
