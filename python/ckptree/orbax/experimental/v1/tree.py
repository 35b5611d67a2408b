# SPDX-License-Identifier: Apache-2.0
"""Types of trees, for annotations."""

from typing import Any

from ckptree.orbax.transform_utils import merge_trees as merge
from ckptree.orbax.tree import JsonType, Leaf, PyTree

AbstractLeaf = Any
PyTreeKey = Any
PyTreeKeyPath = tuple[Any, ...]
PyTreeOf = list  # PyTreeOf[Leaf] in an annotation.

__all__ = [
    "AbstractLeaf",
    "JsonType",
    "Leaf",
    "PyTree",
    "PyTreeKey",
    "PyTreeKeyPath",
    "PyTreeOf",
    "merge",
]
