# SPDX-License-Identifier: Apache-2.0
"""What a target of Flax asks for when it is restored."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from ckptree.orbax._tree_save import map_leaves
from ckptree.orbax.type_handlers import ArrayRestoreArgs, RestoreArgs


def args_of(target: Any) -> Any:
    """RestoreArgs in a tree like `target`: places of arrays that lie on several
    devices are taken, their shapes and element types are not."""

    def args(name: str, leaf: Any) -> Any:
        if isinstance(leaf, (jax.Array, jax.ShapeDtypeStruct)):
            placed = leaf.sharding
            if placed is not None and len(placed.device_set) > 1:
                return ArrayRestoreArgs(sharding=placed)
            if jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key):
                return RestoreArgs()
            return RestoreArgs(restore_type=np.ndarray)
        if isinstance(leaf, (np.ndarray, np.generic)):
            return RestoreArgs(restore_type=np.ndarray)
        return RestoreArgs()

    return map_leaves(target, args)
