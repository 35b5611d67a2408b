# SPDX-License-Identifier: Apache-2.0
"""What a target of Flax asks for when it is restored."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from ckptree.orbax._keys import keys_of
from ckptree.orbax._tree_save import map_leaves
from ckptree.orbax.type_handlers import ArrayRestoreArgs, RestoreArgs


def args_of(
    target: Any,
    *,
    by_orbax: bool = True,
    numbers: frozenset[tuple[str, ...]] = frozenset(),
) -> Any:
    """RestoreArgs in a tree like `target`: arrays of JAX come back as such, and
    where they lie; their shapes are not taken. Where one of them has a place,
    a number of Python comes back as one, and arrays in the element types of
    `target`: so it is in Flax, where it saves `by_orbax`. Else what was saved
    as a number comes back so, whatever `target` has: `numbers` are their
    keys."""
    leaves = jax.tree_util.tree_leaves(target)
    of_jax = any(getattr(leaf, "sharding", None) for leaf in leaves)
    converts = of_jax and by_orbax

    def args(name: str, leaf: Any) -> Any:
        if not by_orbax and keys_of(name) in numbers:
            return RestoreArgs()
        dtype = getattr(leaf, "dtype", None) if converts else None
        if isinstance(leaf, (jax.Array, jax.ShapeDtypeStruct)):
            if jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key):
                return RestoreArgs()
            if leaf.sharding is not None:
                return ArrayRestoreArgs(sharding=leaf.sharding, dtype=dtype)
            return RestoreArgs(restore_type=np.ndarray, dtype=dtype)
        if isinstance(leaf, np.ndarray):
            return RestoreArgs(restore_type=np.ndarray, dtype=dtype)
        if isinstance(leaf, np.generic):
            if not by_orbax:
                return RestoreArgs()
            # One of Python's own numbers, too, stays what it is.
            is_float = isinstance(leaf, float) and converts
            kind = type(leaf) if is_float else np.ndarray
            return RestoreArgs(restore_type=kind)
        if converts and type(leaf) in (int, float):
            return RestoreArgs(restore_type=type(leaf))
        return RestoreArgs()

    return map_leaves(target, args)
