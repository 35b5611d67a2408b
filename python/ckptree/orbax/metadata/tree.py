# SPDX-License-Identifier: Apache-2.0
"""Metadata of a tree."""

from __future__ import annotations

import dataclasses
import functools
import pathlib
import re
import sys
from typing import TYPE_CHECKING, Any, Iterator, Mapping

import numpy as np

from ckptree.arrays import dtypes, values
from ckptree.garbage import without_collection
from ckptree.orbax import _plain_tree
from ckptree.orbax._keys import item_of, keys_of
from ckptree.orbax.metadata.sharding import ShardingMetadata
from ckptree.orbax.metadata.value import (
    ArrayMetadata,
    Metadata,
    ScalarMetadata,
    StringMetadata,
)

if TYPE_CHECKING:
    from ckptree import _engine
    from ckptree.orbax._items import StoredItem


# Where keys are marked by the kind of their container.
_MARKED = re.compile(r'[\[{<"]|/\.')


@dataclasses.dataclass
class TreeMetadata:
    """A tree of metadata of its leaves, and what was said of it. May stand in
    for a template; is a mapping as its tree is."""

    tree: Any
    custom_metadata: Any = None

    def __getitem__(self, key: Any) -> Any:
        return self.tree[key]

    def __iter__(self) -> Iterator[Any]:
        return iter(self.tree)

    def __len__(self) -> int:
        return len(self.tree)

    def __contains__(self, key: Any) -> bool:
        return key in self.tree

    def keys(self) -> Any:
        return self.tree.keys()

    def items(self) -> Any:
        return self.tree.items()

    def get(self, key: Any, default: Any = None) -> Any:
        return self.tree.get(key, default)

    @classmethod
    def of(cls, item: StoredItem) -> TreeMetadata:
        """Of an item; reads no array."""
        from ckptree.restoring.inventory import Inventory

        inventory = Inventory(item.step._engine)
        about = item.about
        infos = item.infos(inventory.listed.values())
        prefix = item_of(infos[0].name) if infos else ""
        directory = pathlib.Path(item.path)
        lay = _OnDevices(about)
        leaves: dict[str, Any] = {}
        with without_collection():
            for info in infos:
                name = info.name
                found = inventory.value(name)
                if found is not None:
                    below = name.removeprefix(prefix)
                    leaves[name] = _leaf(about, directory, below, found, lay)
            tree = _plain_tree.build(infos, leaves)
        _register()
        return cls(tree, about.get("custom"))


class _OnDevices:
    """Which arrays were of JAX: the others lay on no device."""

    def __init__(self, about: Mapping[str, Any]) -> None:
        self._all_but = "not_of_jax" in about
        self._names = set(
            about.get("not_of_jax" if self._all_but else "of_jax", ())
        )

    def __contains__(self, below: str) -> bool:
        return (below in self._names) != self._all_but


def _leaf(
    about: Mapping[str, Any],
    directory: pathlib.Path,
    below: str,
    info: _engine.LeafInfo,
    lay: _OnDevices,
) -> Metadata:
    """`below`: its name below its item."""
    shown = below[1:].replace("/", ".")
    if _MARKED.search(below):
        shown = ".".join(keys_of(below))
    kind = values.kind_of(info)
    if kind == "array":
        dtype = dtypes.to_numpy(info.dtype)
        if info.tag == values.SCALAR_TAG:
            return ScalarMetadata(shown, directory, (), None, dtype)
        placed = None
        if below in lay:
            placed = ShardingMetadata.of(_placement(about, below))
        return ArrayMetadata(shown, directory, info.shape, placed, dtype)
    if kind in ("bool", "int", "float", "complex"):
        dtype = np.dtype({"int": "int64", "float": "float64"}.get(kind, kind))
        return ScalarMetadata(shown, directory, (), None, dtype)
    return StringMetadata(shown, directory)


@functools.lru_cache(maxsize=None)
def _register_with_jax() -> None:
    import jax

    jax.tree_util.register_pytree_with_keys(
        TreeMetadata,
        lambda made: (
            [(jax.tree_util.GetAttrKey("tree"), made.tree)],
            made.custom_metadata,
        ),
        lambda custom, children: TreeMetadata(children[0], custom),
    )


def _register() -> None:
    """A node of JAX's trees, where JAX is imported."""
    if "jax" in sys.modules:
        _register_with_jax()


def _placement(about: Mapping[str, Any], below: str) -> Any:
    if "placements" not in about:
        return None
    placed = about["placed"]
    return about["placements"][placed["others"].get(below, placed["most"])]


def tree_of(template: Any) -> Any:
    """The tree, where it is that of a TreeMetadata."""
    return template.tree if isinstance(template, TreeMetadata) else template
