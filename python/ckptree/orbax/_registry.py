# SPDX-License-Identifier: Apache-2.0
"""Which handler is for which item and arguments."""

from __future__ import annotations

import inspect
from typing import Any

from ckptree.orbax._handler import CheckpointHandler
from ckptree.orbax.checkpoint_args import (
    CheckpointArgs,
    all_registered_args,
    get_registered_args_cls,
    get_registered_handler_cls,
    has_registered_args,
)

Entry = tuple[str | None, type[CheckpointArgs]]


class AlreadyExistsError(ValueError):
    """That item and those arguments have a handler."""


class NoEntryError(KeyError):
    """No handler is known."""


class DefaultCheckpointHandlerRegistry:
    """Handlers by item, or for all, and arguments.

    >>> from ckptree.orbax import JsonCheckpointHandler, args
    >>> registry = DefaultCheckpointHandlerRegistry()
    >>> registry.add("config", args.JsonSave, JsonCheckpointHandler())
    >>> registry.has("config", args.JsonSave), registry.has(None, args.JsonSave)
    (True, False)
    """

    def __init__(
        self, other_registry: DefaultCheckpointHandlerRegistry | None = None
    ) -> None:
        self._entries: dict[Entry, CheckpointHandler] = {}
        if other_registry is not None:
            self._entries.update(other_registry.get_all_entries())

    def add(
        self,
        item: str | None,
        args: type[CheckpointArgs] | CheckpointArgs,
        handler: CheckpointHandler | type[CheckpointHandler] | None = None,
    ) -> None:
        """`item` None: of all that have none of their own. Without a handler:
        the one that the arguments were registered with. AlreadyExistsError."""
        kind = _type_of(args)
        if handler is None:
            handler = get_registered_handler_cls(kind)
        if isinstance(handler, type):
            handler = _made(handler)
        if (item, kind) in self._entries:
            raise AlreadyExistsError(
                f"item {item!r} has a handler for {kind.__qualname__}"
            )
        self._entries[(item, kind)] = handler

    def get(
        self, item: str | None, args: type[CheckpointArgs] | CheckpointArgs
    ) -> CheckpointHandler:
        """NoEntryError where there is none."""
        kind = _type_of(args)
        for key in ((item, kind), (None, kind)):
            if key in self._entries:
                return self._entries[key]
        raise NoEntryError(
            f"item {item!r} has no handler for {kind.__qualname__}"
        )

    def has(
        self, item: str | None, args: type[CheckpointArgs] | CheckpointArgs
    ) -> bool:
        return (item, _type_of(args)) in self._entries

    def get_all_entries(self) -> dict[Entry, CheckpointHandler]:
        return dict(self._entries)


def create_default_handler_registry(
    **items_and_handlers: CheckpointHandler,
) -> DefaultCheckpointHandlerRegistry:
    """A registry of handlers by item, for all arguments that they have.

    >>> from ckptree.orbax import StandardCheckpointHandler, args
    >>> registry = create_default_handler_registry(
    ...     state=StandardCheckpointHandler())
    >>> registry.has("state", args.StandardRestore)
    True
    """
    made = DefaultCheckpointHandlerRegistry()
    for item, handler in items_and_handlers.items():
        for args in get_registered_args_cls(handler):
            made.add(item, args, handler)
    return made


CheckpointHandlerRegistry = DefaultCheckpointHandlerRegistry


def _made(cls: type[CheckpointHandler]) -> CheckpointHandler:
    """ValueError: it needs arguments."""
    try:
        inspect.signature(cls).bind()
    except TypeError as error:
        raise ValueError(
            f"{cls.__qualname__} cannot be made without arguments ({error}): "
            "pass one that is made, as handler"
        ) from None
    return cls()


def _type_of(
    args: type[CheckpointArgs] | CheckpointArgs,
) -> type[CheckpointArgs]:
    return args if isinstance(args, type) else type(args)


class HandlerTable:
    """The handlers of a checkpointer or manager: the first use of an item says
    which it has."""

    def __init__(
        self,
        registry: DefaultCheckpointHandlerRegistry | None = None,
        handlers: dict[str, CheckpointHandler] | None = None,
    ) -> None:
        self._registry = registry or DefaultCheckpointHandlerRegistry()
        self._known: dict[str, CheckpointHandler] = dict(handlers or {})

    def known(self, item: str) -> CheckpointHandler | None:
        """Of an earlier use, or as it was set."""
        found = self._known.get(item)
        if found is None:
            of_item = [h for (i, _), h in self._entries() if i == item]
            found = of_item[0] if of_item else None
        return found

    def find(self, item: str, args: CheckpointArgs) -> CheckpointHandler:
        """The handler of an item for these arguments. ValueError: the item has
        another one, or none is known."""
        known = self._known.get(item)
        if known is not None:
            if not self._takes(known, item, args):
                raise ValueError(
                    f"item {item!r}: {type(args).__qualname__} does not match "
                    f"with any registered handler! It has a "
                    f"{type(known).__qualname__} by now"
                )
            return known
        try:
            found = self._registry.get(item, args)
        except NoEntryError:
            found = _made(get_registered_handler_cls(args))
        self._known[item] = found
        return found

    def find_by_name(self, item: str, typestr: str | None) -> CheckpointHandler:
        """Without arguments: the handler that was used before, or saved it.
        ValueError: it is unknown here."""
        known = self.known(item)
        if known is not None:
            return known
        for _, handler in self._entries():
            if handler.typestr() == typestr:
                return handler
        for cls in _subclasses(CheckpointHandler):
            if cls.typestr() == typestr and has_registered_args(cls):
                made: CheckpointHandler = cls()
                return made
        raise ValueError(
            f"item {item!r} was saved by {typestr or 'an unknown handler'}, "
            "which is not known here: pass its arguments to restore(), or "
            "item_handlers"
        )

    def close(self) -> None:
        for handler in self._known.values():
            handler.close()

    def _entries(self) -> list[tuple[Entry, CheckpointHandler]]:
        return list(self._registry.get_all_entries().items())

    def _takes(
        self, handler: CheckpointHandler, item: str, args: CheckpointArgs
    ) -> bool:
        kinds = [
            kind
            for (name, kind), h in self._entries()
            if h is handler and name in (None, item)
        ]
        for cls in type(handler).__mro__:
            if has_registered_args(cls):
                kinds += all_registered_args(cls)
                break
        return isinstance(args, tuple(kinds))


def _subclasses(cls: type[Any]) -> list[type[Any]]:
    found = []
    for sub in cls.__subclasses__():
        found += [sub, *_subclasses(sub)]
    return found
