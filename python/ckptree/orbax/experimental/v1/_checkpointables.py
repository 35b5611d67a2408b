# SPDX-License-Identifier: Apache-2.0
"""Objects by name, as the items of a step."""

from __future__ import annotations

import contextlib
import contextvars
import os
import pathlib
from typing import TYPE_CHECKING, Any, Callable

from ckptree.orbax import _files_handler, _folders, _items
from ckptree.orbax._items import Item
from ckptree.orbax.experimental.v1 import _running
from ckptree.orbax.experimental.v1._checkpointable import StatefulCheckpointable
from ckptree.orbax.experimental.v1._handler_registry import (
    register_handler,
    typestr_of,
)
from ckptree.orbax.experimental.v1._store_handlers import (
    PyTreeHandler,
    in_store,
)
from ckptree.orbax.experimental.v1.path import Path, PathAwaitingCreation

if TYPE_CHECKING:
    from typing import Awaitable

    from ckptree.orbax._items import StoredItem
    from ckptree.orbax.experimental.v1._context import Context
    from ckptree.step import Step

# What is saved without a name; what chooses one, where it is loaded.
STATE = "state"
AUTO = "AUTO"

_RESERVED = (_items.METRICS, AUTO)


class _StatefulHandler:
    """Objects that save and load themselves."""

    TYPESTR = "ckptree.orbax.StatefulCheckpointable"

    def is_handleable(self, checkpointable: Any) -> bool:
        return isinstance(checkpointable, StatefulCheckpointable)

    def is_abstract_handleable(
        self, abstract_checkpointable: Any
    ) -> bool | None:
        return isinstance(abstract_checkpointable, StatefulCheckpointable)

    async def save(
        self, directory: PathAwaitingCreation, checkpointable: Any
    ) -> Awaitable[None]:
        made: Awaitable[None] = await checkpointable.save(directory)
        return made

    async def load(
        self, directory: Path, abstract_checkpointable: Any = None
    ) -> Awaitable[Any]:
        if not isinstance(abstract_checkpointable, StatefulCheckpointable):
            raise ValueError(
                "To restore a `StatefulCheckpointable`, pass the object that "
                "is to load itself"
            )
        loads = await abstract_checkpointable.load(directory)

        async def read() -> Any:
            await loads
            return abstract_checkpointable

        return read()

    async def metadata(self, directory: Path) -> None:
        return None


# The last one is asked first.
register_handler(_StatefulHandler)
register_handler(PyTreeHandler)


def check_names(names: Any) -> None:
    """ValueError: no name may be so."""
    taken = [name for name in _RESERVED if name in names]
    if taken:
        raise ValueError(
            f"Provided reserved checkpointable keys: {', '.join(taken)}: "
            "choose other names"
        )
    if any(not isinstance(name, str) or not name for name in names):
        raise ValueError(
            "a name of a checkpointable is a str that is not empty"
        )


def pack(checkpointables: Any, context: Context) -> dict[str, Item]:
    """The items. ValueError, NoEntryError: one cannot be saved."""
    if not isinstance(checkpointables, dict) or not checkpointables:
        raise ValueError(
            "`checkpointables` must be a dict of objects by name, and not be "
            f"empty: it is {checkpointables!r:.80}"
        )
    context.check()
    check_names(checkpointables)
    registry = context.checkpointables.registry
    made: dict[str, Item] = {}
    try:
        for name, value in checkpointables.items():
            if value is None:
                raise ValueError(
                    f"{name!r}: checkpointable must not be None for saving"
                )
            kind = registry.of_object(name, value)
            made[name] = _packed(kind, value, context)
    except BaseException as error:
        _folders.tell(error)
        # What the handlers before have begun is ended.
        with contextlib.suppress(Exception):
            _items.finished(made)
        raise
    return made


def pack_tree(tree: Any, name: str, context: Context) -> dict[str, Item]:
    """The item of a tree. ValueError: `tree` is not a tree."""
    context.check()
    check_names((name,))
    registry = context.checkpointables.registry
    kind = registry.get(name) if registry.has(name) else PyTreeHandler
    return {name: _packed(kind, tree, context)}


def _packed(kind: type[Any], value: Any, context: Context) -> Item:
    handler = kind()
    if in_store(handler):
        item: Item = handler.pack(value, context)
    else:
        item = _begun(handler, value)
    return item._replace(about={**item.about, "handler": typestr_of(kind)})


def _begun(handler: Any, value: Any) -> Item:
    """What a handler of the user's own writes. The first coroutine has ended
    when this returns; the second one is run where the item is waited for."""
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(_folders.given())
        awaiting = PathAwaitingCreation(folder.path)
        work = _running.run_one(handler.save(awaiting, value))
        took = stack.pop_all()
    variables = contextvars.copy_context()

    def later() -> Item:
        with took:
            folder.finish(lambda: variables.run(_running.run_one, work))
            return _files_handler.item_of(folder)

    return Item(None, later=later)


def unpack(
    step: Step, folder: str | os.PathLike[str], abstract: Any, context: Context
) -> dict[str, Any]:
    """The objects that `abstract` names; all, without. KeyError: one is not
    there, or no handler for it."""
    if abstract is None:
        abstract = dict.fromkeys(names(step))
    else:
        check_names(abstract)
    return {
        name: unpack_one(step, folder, name, given, context)
        for name, given in abstract.items()
    }


def unpack_one(
    step: Step,
    folder: str | os.PathLike[str],
    name: str,
    abstract: Any,
    context: Context,
) -> Any:
    """KeyError: it is not there, or no handler for it."""
    context.check()
    item = _items.stored(step, name, folder)
    handler = _handler_of(item, context)
    if in_store(handler):
        return handler.unpack(item, abstract, context)
    return _in_files(
        item, lambda path: _running.run_both(handler.load(path, abstract))
    )


def describe(
    step: Step, folder: str | os.PathLike[str], context: Context
) -> dict[str, Any]:
    """Metadata of all objects; None, where their handler is not known."""
    return {
        name: describe_one(step, folder, name, context) for name in names(step)
    }


def describe_one(
    step: Step, folder: str | os.PathLike[str], name: str, context: Context
) -> Any:
    item = _items.stored(step, name, folder)
    try:
        handler = _handler_of(item, context)
    except KeyError:
        return None
    if in_store(handler, "save", "load", "metadata"):
        return handler.describe(item)
    return _in_files(
        item, lambda path: _running.run_one(handler.metadata(path))
    )


def names(step: Step) -> list[str]:
    """Of the objects of a step."""
    return [name for name in _items.names(step) if name != _items.METRICS]


def automatic(step: Step, context: Context) -> str | None:
    """The name of the tree that is meant where none is said."""
    there = names(step)
    for name in (STATE, _items.DEFAULT):
        if name in there:
            return name
    for name in sorted(there):
        try:
            handler = _handler_of(_items.stored(step, name, ""), context)
        except KeyError:
            continue
        if isinstance(handler, PyTreeHandler):
            return name
    return None


def _handler_of(item: StoredItem, context: Context) -> Any:
    saved_by = item.about.get("handler")
    if saved_by in _TREES:
        saved_by = PyTreeHandler.TYPESTR
    return context.checkpointables.registry.of_saved(item.name, saved_by)()


# None: saved by Store.save(), whose items are trees.
_TREES: tuple[str | None, ...] = (
    None,
    "ckptree.orbax.StandardCheckpointHandler",
    "ckptree.orbax.BasePyTreeCheckpointHandler",
    "ckptree.orbax.ArrayCheckpointHandler",
)


def _in_files(item: StoredItem, function: Callable[[pathlib.Path], Any]) -> Any:
    name = item.name.replace("/", "_")
    with _folders.given(stored=item, name=name) as folder:
        _files_handler.write(item, folder.path)
        return function(folder.path)
