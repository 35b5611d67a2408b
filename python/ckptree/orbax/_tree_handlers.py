# SPDX-License-Identifier: Apache-2.0
"""Handlers of trees."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

from ckptree.metadata import as_json_has_it
from ckptree.orbax import (
    _tree_restore,
    _tree_save,
    _wanted,
    transform_utils,
)
from ckptree.orbax._handler import StoreHandler
from ckptree.orbax._items import Item
from ckptree.orbax._option_states import check_processes, tell, tell_of
from ckptree.orbax._tree_restore import Strictness
from ckptree.orbax.args import (
    PyTreeRestore,
    PyTreeSave,
    StandardRestore,
    StandardSave,
)
from ckptree.orbax.checkpoint_args import register_with_handler
from ckptree.orbax.metadata import TreeMetadata
from ckptree.orbax.options import MemoryLimitOptions, MultiprocessingOptions
from ckptree.orbax.tree import to_flat_dict
from ckptree.orbax.type_handlers import (
    TypeHandlerRegistry,
    check_type_handlers,
)

if TYPE_CHECKING:
    from ckptree.orbax._items import StoredItem


class _TreeHandler(StoreHandler):
    """What both have in common. What has no meaning for a store does nothing,
    and a warning says so once."""

    def describe(self, item: StoredItem) -> TreeMetadata:
        return TreeMetadata.of(item)

    def _packed(self, args: Any, check: Any = None) -> Item:
        tree = args.item
        if isinstance(tree, TreeMetadata):
            raise ValueError("Cannot save TreeMetadata: save the tree itself")
        made = _tree_save.save(tree, args.save_args, check)
        custom = args.custom_metadata
        if custom is not None:
            # TypeError, ValueError where it cannot be written.
            kept = as_json_has_it(custom)
            made = made._replace(about={**made.about, "custom": kept})
        return made


class StandardCheckpointHandler(_TreeHandler):
    """Trees of arrays and numbers: StandardSave, StandardRestore."""

    def __init__(
        self,
        *,
        save_concurrent_gb: int = 96,
        restore_concurrent_gb: int = 96,
        multiprocessing_options: MultiprocessingOptions | None = None,
        pytree_metadata_options: Any = None,
        use_ocdbt: bool = True,
    ) -> None:
        check_processes(multiprocessing_options)
        tell("StandardCheckpointHandler", locals(), StandardCheckpointHandler)

    def pack(self, args: Any) -> Item:
        return self._packed(args, _check_standard)

    def unpack(self, item: StoredItem, args: Any) -> Any:
        args = args or StandardRestore()
        tell("StandardRestore", vars(args), StandardRestore)
        return _tree_restore.restore(
            item,
            args.item,
            None,
            Strictness(convert=not args.strict),
            args.fallback_sharding,
        )


class _PyTreeHandler(_TreeHandler):
    def pack(self, args: Any) -> Item:
        tell("PyTreeSave", vars(args), PyTreeSave)
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
            Strictness(partial=args.partial_restore, placeholders=True),
        )

    def _transformed(self, item: StoredItem, args: Any) -> Any:
        if args.item is None:
            raise ValueError("transforms need a template: pass item")
        original = _tree_restore.restore(item, None, None)
        lacking = transform_utils.untransformed(
            original, args.transforms, args.item
        )
        if lacking:
            _warn_of_kept(item.path, lacking, args.item)
        made = transform_utils.restored(
            original,
            args.transforms,
            args.item,
            args.transforms_default_to_original,
            args.restore_args,
        )
        if args.restore_args is None:
            return made
        return transform_utils.converted(made, args.restore_args)


class PyTreeCheckpointHandler(_PyTreeHandler):
    """Trees of arrays, numbers, str and None: PyTreeSave, PyTreeRestore."""

    def __init__(
        self,
        aggregate_filename: str | None = None,
        *,
        save_concurrent_gb: int | None = None,
        restore_concurrent_gb: int | None = None,
        save_device_host_concurrent_gb: int | str | None = None,
        memory_limit_options: MemoryLimitOptions | None = None,
        use_ocdbt: bool = True,
        use_zarr3: bool = False,
        use_compression: bool = True,
        multiprocessing_options: MultiprocessingOptions | None = None,
        type_handler_registry: TypeHandlerRegistry | None = None,
        handler_impl: Any = None,
        pytree_metadata_options: Any = None,
        array_metadata_validator: Any = None,
        enable_pinned_host_transfer: bool | None = None,
        is_prioritized_key_fn: Any = None,
    ) -> None:
        check_processes(multiprocessing_options)
        check_type_handlers(type_handler_registry)
        if handler_impl is not None:
            raise NotImplementedError(
                "handler_impl: make a subclass of PyTreeCheckpointHandler, "
                "whose methods are called"
            )
        tell_of(memory_limit_options)
        tell("PyTreeCheckpointHandler", locals(), PyTreeCheckpointHandler)


class BasePyTreeCheckpointHandler(PyTreeCheckpointHandler):
    """As PyTreeCheckpointHandler, whose limits are in bytes."""

    def __init__(
        self,
        *,
        save_concurrent_bytes: int | None = None,
        restore_concurrent_bytes: int | None = None,
        save_device_host_concurrent_bytes: int | str | None = None,
        memory_limit_options: MemoryLimitOptions | None = None,
        use_ocdbt: bool = True,
        use_zarr3: bool = False,
        use_compression: bool = True,
        multiprocessing_options: MultiprocessingOptions | None = None,
        type_handler_registry: TypeHandlerRegistry | None = None,
        enable_post_merge_validation: bool = True,
        pytree_metadata_options: Any = None,
        array_metadata_validator: Any = None,
        enable_pinned_host_transfer: bool | None = None,
        is_prioritized_key_fn: Any = None,
    ) -> None:
        check_processes(multiprocessing_options)
        check_type_handlers(type_handler_registry)
        tell_of(memory_limit_options)
        tell(
            "BasePyTreeCheckpointHandler",
            locals(),
            BasePyTreeCheckpointHandler,
        )


def _warn_of_kept(path: str, lacking: list[str], template: Any) -> None:
    """Those keep the value of the template. ValueError: one has none."""
    flat = to_flat_dict(template, sep="/")
    described = [
        key
        for key in lacking
        if key in flat and _wanted.is_described(flat[key])
    ]
    if described:
        raise ValueError(
            f"{path}: neither saved nor transformed, and the template has no "
            f"value to keep: {', '.join(described)}"
        )
    warnings.warn(
        f"{path}: neither saved nor transformed, so the template's values "
        f"stay: {', '.join(lacking)}. Transform(use_fallback=True) says that "
        "this is meant",
        stacklevel=4,
    )


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
