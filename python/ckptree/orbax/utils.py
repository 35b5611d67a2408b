# SPDX-License-Identifier: Apache-2.0
"""Small helpers."""

from __future__ import annotations


from typing import Any

from ckptree.orbax.multihost import is_pathways_backend
from ckptree.orbax.path.step import checkpoint_steps, checkpoint_steps_paths
from ckptree.orbax.tree import deserialize_tree, serialize_tree

__all__ = [
    "TMP_DIR_SUFFIX",
    "checkpoint_steps",
    "checkpoint_steps_paths",
    "deserialize_tree",
    "is_pathways_backend",
    "serialize_tree",
    "to_shape_dtype_struct",
]

# Of directories that Orbax has not finished.
TMP_DIR_SUFFIX = ".orbax-checkpoint-tmp"


def to_shape_dtype_struct(
    arr: Any,
    dtype: Any = None,
    scalar_dtype: Any = None,
    support_format: bool = False,
) -> Any:
    """What describes an array, with its sharding; a number as `scalar_dtype`
    makes of it.

    >>> import numpy as np
    >>> to_shape_dtype_struct(np.zeros((2, 3), "f4"))
    ShapeDtypeStruct(shape=(2, 3), dtype=float32)
    """
    if isinstance(arr, (bool, int, float)):
        return arr if scalar_dtype is None else scalar_dtype(arr)
    import jax

    sharding: Any = getattr(arr, "sharding", None)
    if hasattr(sharding, "to_jax_sharding"):
        sharding = sharding.to_jax_sharding()
    return jax.ShapeDtypeStruct(
        arr.shape, dtype if dtype is not None else arr.dtype, sharding=sharding
    )


