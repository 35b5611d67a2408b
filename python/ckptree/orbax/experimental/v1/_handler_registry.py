# SPDX-License-Identifier: Apache-2.0
"""Which handlers there are, for all names or for one."""

from __future__ import annotations

from typing import Any, Sequence, TypeVar

from ckptree.orbax._registry import AlreadyExistsError, NoEntryError

_Handler = TypeVar("_Handler", bound=type[Any])
Entry = tuple[type[Any], str | None]

# What a handler class has.
_METHODS = ("is_handleable", "save", "load", "metadata")


class CheckpointableHandlerRegistry:
    """Handler classes, each for all names or for one. Of several that take an
    object the one that was added last is used.

    >>> from ckptree.orbax.experimental.v1 import handlers
    >>> registry = handlers.local_registry().add(
    ...     handlers.JsonHandler, checkpointable_name="config")
    >>> registry.get("config").__name__, registry.has("other")
    ('JsonHandler', False)
    """

    def __init__(
        self, other: CheckpointableHandlerRegistry | None = None
    ) -> None:
        self._entries: list[Entry] = (
            [] if other is None else list(other._entries)
        )
        self._others: dict[type[Any], tuple[str, ...]] = (
            {} if other is None else dict(other._others)
        )

    def add(
        self,
        handler_type: type[Any],
        *,
        checkpointable_name: str | None = None,
        secondary_typestrs: Sequence[str] | None = None,
    ) -> CheckpointableHandlerRegistry:
        """Returns the registry. `secondary_typestrs`: earlier names of the
        class, under which checkpoints know it. AlreadyExistsError, a
        ValueError: the name has a handler, or the class is there."""
        if not isinstance(handler_type, type):
            raise ValueError(
                f"handler_type must be a class, not {handler_type!r}"
            )
        lacking = [name for name in _METHODS if not hasattr(handler_type, name)]
        if lacking:
            raise ValueError(
                f"{handler_type.__qualname__} is no CheckpointableHandler: it "
                f"has no {', '.join(lacking)}"
            )
        if checkpointable_name is not None and self.has(checkpointable_name):
            raise AlreadyExistsError(
                f"{checkpointable_name!r} has a handler: "
                f"{self.get(checkpointable_name).__qualname__}"
            )
        if (handler_type, checkpointable_name) in self._entries:
            raise AlreadyExistsError(
                f"{handler_type.__qualname__} is in the registry"
            )
        self._entries.append((handler_type, checkpointable_name))
        if secondary_typestrs:
            self._others[handler_type] = tuple(secondary_typestrs)
        return self

    def get(self, checkpointable_name: str) -> type[Any]:
        """NoEntryError, a KeyError: there is none for this name."""
        for kind, name in self._entries:
            if name == checkpointable_name:
                return kind
        raise NoEntryError(f"{checkpointable_name!r} has no handler of its own")

    def has(self, checkpointable_name: str) -> bool:
        return any(name == checkpointable_name for _, name in self._entries)

    def get_all_entries(self) -> Sequence[Entry]:
        return list(self._entries)

    def get_secondary_typestrs(self, handler_type: type[Any]) -> Sequence[str]:
        return self._others.get(handler_type, ())

    def of_object(self, name: str, value: Any) -> type[Any]:
        """What saves an object under a name. NoEntryError."""
        if self.has(name):
            return self.get(name)
        for kind, of_name in reversed(self._entries):
            if of_name is None and kind().is_handleable(value):
                return kind
        raise NoEntryError(
            f"no handler takes {name!r}, a {type(value).__qualname__}: add one "
            "by register_handler, or to the registry of the "
            "CheckpointablesOptions"
        )

    def of_saved(self, name: str, typestr: str | None) -> type[Any]:
        """What loads an object of a name, which a handler of this typestr
        saved. NoEntryError."""
        if self.has(name):
            return self.get(name)
        for kind, of_name in reversed(self._entries):
            if of_name is None and (
                typestr_of(kind) == typestr
                or typestr in self.get_secondary_typestrs(kind)
            ):
                return kind
        raise NoEntryError(
            f"{name!r} was saved by {typestr or 'an unknown handler'}, which "
            "is not in the registry: add it by register_handler, or to the "
            "registry of the CheckpointablesOptions"
        )


def typestr_of(kind: type[Any]) -> str:
    """What is kept with a step, to find the handler when it is loaded."""
    own: str | None = vars(kind).get("TYPESTR")
    return own or f"{kind.__module__}.{kind.__qualname__}"


_global = CheckpointableHandlerRegistry()


def global_registry() -> CheckpointableHandlerRegistry:
    """That of all contexts which have none of their own."""
    return _global


def local_registry(
    other_registry: CheckpointableHandlerRegistry | None = None,
    *,
    include_global_registry: bool = True,
) -> CheckpointableHandlerRegistry:
    """A registry for a Context, with what `other_registry` has, and what the
    global one has."""
    made = CheckpointableHandlerRegistry(
        _global if include_global_registry else None
    )
    for entry in other_registry.get_all_entries() if other_registry else ():
        if entry not in made._entries:
            assert other_registry is not None
            made.add(
                entry[0],
                checkpointable_name=entry[1],
                secondary_typestrs=other_registry.get_secondary_typestrs(
                    entry[0]
                ),
            )
    return made


def register_handler(
    cls: _Handler,
    *,
    checkpointable_name: str | None = None,
    secondary_typestrs: Sequence[str] | None = None,
) -> _Handler:
    """Adds a handler class to the global registry; a decorator."""
    _global.add(
        cls,
        checkpointable_name=checkpointable_name,
        secondary_typestrs=secondary_typestrs,
    )
    return cls
