# SPDX-License-Identifier: Apache-2.0
"""Abstract trees: what describes the leaves of a checkpoint, to load by."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ckptree.orbax import _wanted
from ckptree.orbax._tree_save import map_leaves
from ckptree.orbax._wanted import Wanted
from ckptree.orbax.experimental.v1._metadata import CheckpointMetadata
from ckptree.orbax.experimental.v1.arrays import NumpyShapeDtype
from ckptree.orbax.metadata import (
    ArrayMetadata,
    ScalarMetadata,
    StringMetadata,
    TreeMetadata,
    tree_of,
)

if TYPE_CHECKING:
    from ckptree.orbax._items import StoredItem

_LEAVES = (*_wanted.ABSTRACT, NumpyShapeDtype)


def template(abstract: Any) -> Any:
    """For a restore. TypeError: a leaf cannot be asked for."""
    if isinstance(abstract, CheckpointMetadata):
        abstract = abstract.metadata
    abstract = tree_of(abstract)
    if abstract is None:
        return None
    return map_leaves(abstract, _leaf, leaves=_LEAVES)


def _leaf(name: str, leaf: Any) -> Any:
    if isinstance(leaf, NumpyShapeDtype):
        # An array of NumPy of that shape, without its memory.
        return np.broadcast_to(np.zeros((), leaf.dtype), leaf.shape)
    if leaf is not ...:
        try:
            _wanted.of_leaf(leaf, Wanted("saved"))
        except ValueError as error:
            raise TypeError(
                f"Unsupported abstract leaf type for loading: {error}"
            ) from error
    return leaf


def of_item(item: StoredItem) -> Any:
    """Of a tree that was saved: arrays as ArrayMetadata, numbers as 0 of their
    type, a str as one."""
    tree = TreeMetadata.of(item).tree
    return map_leaves(tree, _described, leaves=_wanted.ABSTRACT)


def _described(name: str, leaf: Any) -> Any:
    if isinstance(leaf, StringMetadata):
        return "string"
    if isinstance(leaf, ScalarMetadata):
        dtype = np.dtype(leaf.dtype)
        if dtype in (
            np.dtype(kind) for kind in (bool, np.int64, float, complex)
        ):
            return dtype.type(0).item()
        return dtype.type(0)
    assert isinstance(leaf, ArrayMetadata)
    return leaf
