# SPDX-License-Identifier: Apache-2.0
"""Handlers of trees."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from ckptree.orbax import _tree_restore, _tree_save, transform_utils
from ckptree.orbax._handler import StoreHandler
from ckptree.orbax._items import Item
from ckptree.orbax._tree_restore import Strictness
from ckptree.orbax.args import (
    PyTreeRestore,
    PyTreeSave,
    StandardRestore,
    StandardSave,
)
from ckptree.orbax.checkpoint_args import register_with_handler
from ckptree.orbax.metadata import TreeMetadata

if TYPE_CHECKING:
    from ckptree.orbax._items import StoredItem


class _TreeHandler(StoreHandler):
    """What both have in common. Options of files do nothing."""

    def __init__(self, *args: Any, **options: Any) -> None:
        del args, options

    def describe(self, item: StoredItem) -> TreeMetadata:
        return TreeMetadata.of(item)

    def _packed(self, args: Any, check: Any = None) -> Item:
        tree = args.item
        if isinstance(tree, TreeMetadata):
            raise ValueError("Cannot save TreeMetadata: save the tree itself")
        made = _tree_save.save(tree, args.save_args, check)
        custom = args.custom_metadata
        if custom is not None:
            json.dumps(custom)  # TypeError where it cannot be written.
            made = made._replace(about={**made.about, "custom": custom})
        return made


class StandardCheckpointHandler(_TreeHandler):
    """Trees of arrays and numbers: StandardSave, StandardRestore."""

    def pack(self, args: Any) -> Item:
        return self._packed(args, _check_standard)

    def unpack(self, item: StoredItem, args: Any) -> Any:
        args = args or StandardRestore()
        return _tree_restore.restore(
            item,
            args.item,
            None,
            Strictness(convert=not args.strict),
            args.fallback_sharding,
        )


class PyTreeCheckpointHandler(_TreeHandler):
    """Trees of arrays, numbers, str and None: PyTreeSave, PyTreeRestore."""

    def pack(self, args: Any) -> Item:
        return self._packed(args)

    def unpack(self, item: StoredItem, args: Any) -> Any:
        args = args or PyTreeRestore()
        if args.legacy_transform_fn is not None:
            raise NotImplementedError(
                "legacy_transform_fn: use transforms, or change the tree that "
                "restore() returns"
            )
        if args.transforms is not None:
            return self._transformed(item, args)
        return _tree_restore.restore(
            item,
            args.item,
            args.restore_args,
            Strictness(partial=args.partial_restore),
        )

    def _transformed(self, item: StoredItem, args: Any) -> Any:
        if args.item is None:
            raise ValueError("transforms need a template: pass item")
        original = _tree_restore.restore(item, None, None)
        lacking = transform_utils.untransformed(
            original, args.transforms, args.item
        )
        if lacking:
            raise ValueError(
                f"{item.path}: neither saved nor transformed: "
                f"{', '.join(lacking)}: give each a "
                "Transform(use_fallback=True) to keep its value"
            )
        made = transform_utils.apply_transformations(
            original,
            args.transforms,
            args.item,
            args.transforms_default_to_original,
        )
        if args.restore_args is None:
            return made
        return transform_utils.converted(made, args.restore_args)


class BasePyTreeCheckpointHandler(PyTreeCheckpointHandler):
    """As PyTreeCheckpointHandler."""


register_with_handler(StandardCheckpointHandler, for_save=True)(StandardSave)
register_with_handler(StandardCheckpointHandler, for_restore=True)(
    StandardRestore
)
register_with_handler(PyTreeCheckpointHandler, for_save=True)(PyTreeSave)
register_with_handler(PyTreeCheckpointHandler, for_restore=True)(PyTreeRestore)


def _check_standard(name: str, leaf: Any) -> None:
    if isinstance(leaf, (str, bytes, complex)):
        raise ValueError(
            f"Unsupported type: {type(leaf)} for key: "
            f"{name.partition('/')[2]}: use PyTreeSave, or JsonSave for it"
        )
