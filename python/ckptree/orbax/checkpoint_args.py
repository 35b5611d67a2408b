# SPDX-License-Identifier: Apache-2.0
"""Arguments of handlers, and which handler they are for."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, Callable, TypeVar

if TYPE_CHECKING:
    Args = TypeVar("Args", bound="type[CheckpointArgs]")


# A subclass of CheckpointHandler, of which nothing has to be known here.
Handler = type[Any]


@dataclasses.dataclass
class CheckpointArgs:
    """The base of all arguments of save() and restore(). Those of handlers of
    your own are dataclasses of it, made known by register_with_handler()."""


_handlers: dict[type[CheckpointArgs], Handler] = {}
# Of a handler: for saving, for restoring.
_arguments: dict[type[Any], list[type[CheckpointArgs] | None]] = {}


def register_with_handler(
    handler_cls: Handler,
    for_save: bool = False,
    for_restore: bool = False,
) -> Callable[[Args], Args]:
    """A decorator of a subclass of CheckpointArgs: these are arguments of that
    handler, which may have several. A subclass of the handler does not inherit
    them."""
    if not (for_save or for_restore):
        raise ValueError("pass for_save=True, for_restore=True or both")

    def register(cls: Args) -> Args:
        if not (isinstance(cls, type) and issubclass(cls, CheckpointArgs)):
            raise TypeError(f"{cls!r} is no subclass of CheckpointArgs")
        known = _arguments.setdefault(handler_cls, [None, None])
        for i, wanted in enumerate((for_save, for_restore)):
            if wanted and known[i] is None:
                known[i] = cls  # Of several the first is what others ask for.
        _handlers[cls] = handler_cls
        return cls

    return register


def get_registered_handler_cls(
    arg: type[CheckpointArgs] | CheckpointArgs,
) -> Handler:
    """The handler that such arguments are for. ValueError: none is known."""
    cls = arg if isinstance(arg, type) else type(arg)
    if cls not in _handlers:
        raise ValueError(
            f"{cls.__qualname__} was not registered with a handler: use "
            "register_with_handler"
        )
    return _handlers[cls]


def get_registered_args_cls(
    handler: Any,
) -> tuple[type[CheckpointArgs], type[CheckpointArgs]]:
    """The arguments of a handler, for saving and for restoring. ValueError:
    none are known."""
    cls = handler if isinstance(handler, type) else type(handler)
    found = _arguments.get(cls, [None, None])
    if found[0] is None or found[1] is None:
        raise ValueError(
            f"{cls.__qualname__} has no arguments registered for saving and "
            "restoring: use register_with_handler"
        )
    return found[0], found[1]


def all_registered_args(handler_cls: Handler) -> list[type[CheckpointArgs]]:
    """Every class of arguments of a handler."""
    return [cls for cls, known in _handlers.items() if known is handler_cls]


def has_registered_args(
    handler: Any,
) -> bool:
    """Whether get_registered_args_cls() would find them."""
    cls = handler if isinstance(handler, type) else type(handler)
    return None not in _arguments.get(cls, [None])
