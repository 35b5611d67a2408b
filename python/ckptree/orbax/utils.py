# SPDX-License-Identifier: Apache-2.0
"""Small helpers."""

from __future__ import annotations

from ckptree.orbax.multihost import is_pathways_backend
from ckptree.orbax.path.atomicity import TMP_DIR_SUFFIX
from ckptree.orbax.path.step import checkpoint_steps, checkpoint_steps_paths
from ckptree.orbax.tree import (
    deserialize_tree,
    serialize_tree,
    to_shape_dtype_struct,
)

__all__ = [
    "TMP_DIR_SUFFIX",
    "checkpoint_steps",
    "checkpoint_steps_paths",
    "deserialize_tree",
    "is_pathways_backend",
    "serialize_tree",
    "to_shape_dtype_struct",
]
