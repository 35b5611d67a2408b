# SPDX-License-Identifier: Apache-2.0
"""Handlers whose objects a store holds as they are: trees, JSON, messages."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any, Awaitable

import numpy as np

from ckptree import _rules
from ckptree.orbax import _tree_restore, _tree_save
from ckptree.orbax._document_handlers import (
    JsonCheckpointHandler,
    ProtoCheckpointHandler,
    json_item,
)
from ckptree.orbax._option_states import tell
from ckptree.orbax._tree_handlers import PyTreeCheckpointHandler
from ckptree.orbax._tree_restore import Strictness
from ckptree.orbax.args import (
    ProtoRestore,
    ProtoSave,
    PyTreeRestore,
    PyTreeSave,
)
from ckptree.orbax.experimental.v1 import _abstract
from ckptree.orbax.experimental.v1._context import Context, get_context
from ckptree.orbax.experimental.v1._handler_registry import register_handler
from ckptree.orbax.type_handlers import SaveArgs

if TYPE_CHECKING:
    from ckptree.orbax._items import Item, StoredItem
    from ckptree.orbax.experimental.v1.path import Path, PathAwaitingCreation

# Leaves that are no arrays.
_NUMBERS = (bool, int, float, complex, str, bytes, np.generic)

_HINTS = {
    "shape": "or set array.loading.enable_padding_and_truncation of the "
    "Context, to cut or fill it",
}


class ItemHandler:
    """A handler that makes and takes items of a store."""

    # The handler of ckptree.orbax that can restore it too.
    TYPESTR = ""

    def pack(self, value: Any, context: Context) -> Item:
        raise NotImplementedError

    def unpack(self, item: StoredItem, abstract: Any, context: Context) -> Any:
        raise NotImplementedError

    def describe(self, item: StoredItem) -> Any:
        return None


def in_store(handler: Any, *methods: str) -> bool:
    """Whether these methods of it, save() and load() where none are named, are
    those of the classes here; what a subclass overrides is called."""
    return isinstance(handler, ItemHandler) and all(
        getattr(type(handler), name).__module__ == __name__
        for name in methods or ("save", "load")
    )


@register_handler
class ProtoHandler(ItemHandler):
    """A message of protobuf; loading wants its type."""

    TYPESTR = ProtoCheckpointHandler.typestr()

    def __init__(self, filename: str = "proto.pbtxt") -> None:
        self._handler = ProtoCheckpointHandler(filename)

    def is_handleable(self, checkpointable: Any) -> bool:
        return hasattr(checkpointable, "SerializeToString")

    def is_abstract_handleable(
        self, abstract_checkpointable: Any
    ) -> bool | None:
        return hasattr(abstract_checkpointable, "FromString")

    def pack(self, value: Any, context: Context) -> Item:
        return self._handler.pack(ProtoSave(value))

    def unpack(self, item: StoredItem, abstract: Any, context: Context) -> Any:
        return self._handler.unpack(item, ProtoRestore(abstract))

    async def save(
        self, directory: PathAwaitingCreation, checkpointable: Any
    ) -> Awaitable[None]:
        async def write() -> None:
            self._handler.save(
                await directory.await_creation(), args=ProtoSave(checkpointable)
            )

        return write()

    async def load(
        self, directory: Path, abstract_checkpointable: Any = None
    ) -> Awaitable[Any]:
        async def read() -> Any:
            return self._handler.restore(
                directory, args=ProtoRestore(abstract_checkpointable)
            )

        return read()

    async def metadata(self, directory: Path) -> None:
        return None


@register_handler
class JsonHandler(ItemHandler):
    """What JSON can write."""

    TYPESTR = JsonCheckpointHandler.typestr()

    def __init__(self, filename: str | None = None) -> None:
        self._filename = filename or "data.json"

    def is_handleable(self, checkpointable: Any) -> bool:
        try:
            json.dumps(checkpointable)
        except (TypeError, ValueError):
            return False
        return True

    def is_abstract_handleable(
        self, abstract_checkpointable: Any
    ) -> bool | None:
        return None if abstract_checkpointable is None else False

    def pack(self, value: Any, context: Context) -> Item:
        return json_item(value)

    def unpack(self, item: StoredItem, abstract: Any, context: Context) -> Any:
        return item.document()

    async def save(
        self, directory: PathAwaitingCreation, checkpointable: Any
    ) -> Awaitable[None]:
        text = json.dumps(checkpointable)

        async def write() -> None:
            path = await directory.await_creation()
            (path / self._filename).write_text(text)

        return write()

    async def load(
        self, directory: Path, abstract_checkpointable: None = None
    ) -> Awaitable[Any]:
        async def read() -> Any:
            return json.loads((directory / self._filename).read_text())

        return read()

    async def metadata(self, directory: Path) -> None:
        return None


class PyTreeHandler(ItemHandler):
    """Trees of arrays, numbers, str, bytes and None."""

    TYPESTR = PyTreeCheckpointHandler.typestr()

    def __init__(
        self,
        *,
        context: Context | None = None,
        array_metadata_validator: Any = None,
        leaf_handler_registry: Any = None,
        partial_save_mode: bool = False,
    ) -> None:
        tell("PyTreeHandler", locals(), PyTreeHandler)
        if leaf_handler_registry is not None:
            raise NotImplementedError(
                "leaf_handler_registry: a store keeps leaves by itself: make "
                "your type a node of JAX's trees, or write a "
                "CheckpointableHandler"
            )
        if partial_save_mode:
            raise NotImplementedError(
                "partial_save_mode: a step is whole: save all of it; what did "
                "not change is not written again"
            )
        self._context = context
        self._handler = PyTreeCheckpointHandler()

    def is_handleable(self, checkpointable: Any) -> bool:
        try:
            _tree_save.map_leaves(checkpointable, _check_leaf)
        except (TypeError, ValueError):
            return False
        return True

    def is_abstract_handleable(
        self, abstract_checkpointable: Any
    ) -> bool | None:
        try:
            _abstract.template(abstract_checkpointable)
        except (TypeError, ValueError):
            return False
        return True

    def pack(self, value: Any, context: Context) -> Item:
        if value is None:
            raise ValueError("checkpointable must not be None for saving")
        try:
            _tree_save.map_leaves(value, _check_leaf)
        except TypeError as error:
            shown = str(error).removeprefix(_tree_save.ROOT).removeprefix("/")
            raise ValueError(
                f"Unsupported leaf type for saving: {shown}"
            ) from error
        saving = (self._context or context).array.saving
        return _tree_save.save(value, _conversions(value, saving))

    def unpack(self, item: StoredItem, abstract: Any, context: Context) -> Any:
        options = self._context or context
        strictness = Strictness(
            partial=options.pytree.loading.partial_load,
            convert=options.array.loading.enable_padding_and_truncation,
            kinds=True,
            hints=_HINTS,
        )
        return _tree_restore.restore(
            item, _abstract.template(abstract), None, strictness
        )

    def describe(self, item: StoredItem) -> Any:
        return _abstract.of_item(item)

    async def save(
        self, directory: PathAwaitingCreation, checkpointable: Any
    ) -> Awaitable[None]:
        context = self._context or get_context()
        made = self.pack(checkpointable, context)

        async def write() -> None:
            self._handler.save(
                await directory.await_creation(), args=PyTreeSave(made.state)
            )

        return write()

    async def load(
        self, directory: Path, abstract_checkpointable: Any = None
    ) -> Awaitable[Any]:
        template = _abstract.template(abstract_checkpointable)

        async def read() -> Any:
            return self._handler.restore(
                directory, args=PyTreeRestore(template)
            )

        return read()

    async def metadata(self, directory: Path) -> Any:
        return self._handler.metadata(directory).tree


def _check_leaf(name: str, leaf: Any) -> Any:
    """`leaf`, checked. TypeError where it cannot be a leaf."""
    jax = sys.modules.get("jax")
    if leaf is None or isinstance(leaf, (*_NUMBERS, np.ndarray)):
        return leaf
    if jax is not None and isinstance(leaf, jax.Array):
        return leaf
    _rules.adapt(leaf)
    return leaf


def _conversions(value: Any, saving: Any) -> Any:
    """SaveArgs in a tree like it; None: nothing is converted."""
    dtype = saving.storage_options.dtype
    creator = saving.scoped_storage_options_creator
    if creator is not None:
        import jax

        def of(path: Any, leaf: Any) -> SaveArgs:
            own = getattr(creator(path, leaf), "dtype", None)
            return _conversion(leaf, dtype if own is None else own)

        return jax.tree_util.tree_map_with_path(of, value)
    if dtype is None:
        return None
    return _tree_save.map_leaves(
        value, lambda name, leaf: _conversion(leaf, dtype)
    )


def _conversion(leaf: Any, dtype: Any) -> SaveArgs:
    """Of arrays only: numbers of Python stay what they are."""
    if leaf is None or isinstance(leaf, _NUMBERS):
        return SaveArgs()
    return SaveArgs(dtype=dtype)
