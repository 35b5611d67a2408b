# SPDX-License-Identifier: Apache-2.0
"""What a target of Flax asks for when it is restored."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from ckptree.orbax._tree_save import map_leaves
from ckptree.orbax.type_handlers import ArrayRestoreArgs, RestoreArgs


def args_of(target: Any) -> Any:
    """RestoreArgs in a tree like `target`: arrays of JAX come back as such, and
    where they lie; their shapes and element types are not taken. A number of
    Python comes back as one where arrays of JAX are beside it, as in Flax."""
    leaves = jax.tree_util.tree_leaves(target)
    of_jax = any(isinstance(leaf, jax.Array) for leaf in leaves)

    def args(name: str, leaf: Any) -> Any:
        if isinstance(leaf, (jax.Array, jax.ShapeDtypeStruct)):
            if jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key):
                return RestoreArgs()
            if leaf.sharding is not None:
                return ArrayRestoreArgs(sharding=leaf.sharding)
            return RestoreArgs(restore_type=np.ndarray)
        if isinstance(leaf, (np.ndarray, np.generic)):
            return RestoreArgs(restore_type=np.ndarray)
        if of_jax and type(leaf) in (int, float):
            return RestoreArgs(restore_type=type(leaf))
        return RestoreArgs()

    return map_leaves(target, args)
