# SPDX-License-Identifier: Apache-2.0
"""What a handler is: of the user's own, or one of a store's."""

from __future__ import annotations

import abc
import contextlib
import pathlib
from typing import TYPE_CHECKING, Any, Iterator

from ckptree.orbax import _checkpoint, _folders, _items, _loops, _saving
from ckptree.orbax.checkpoint_args import (
    CheckpointArgs,
    get_registered_args_cls,
)
from ckptree.orbax.type_handlers import is_of_orbax

if TYPE_CHECKING:
    from ckptree.orbax._items import Item, StoredItem


class CheckpointHandler(abc.ABC):
    """Saves an object of some kind to a directory, and restores it.

    Handlers of your own work as they do with Orbax. What they write to the
    directory becomes part of the step, in the same commit.
    """

    @abc.abstractmethod
    def save(self, directory: pathlib.Path, *args: Any, **kwargs: Any) -> None:
        """Writes to `directory`, which is there, and empty."""

    @abc.abstractmethod
    def restore(
        self, directory: pathlib.Path, *args: Any, **kwargs: Any
    ) -> Any:
        """Reads what save() wrote."""

    def metadata(self, directory: pathlib.Path) -> Any:
        """What there is to say without restoring it."""
        raise NotImplementedError(
            f"{type(self).__qualname__} has no metadata()"
        )

    def finalize(self, directory: pathlib.Path) -> None:
        """Called when save() is done, before anybody can see it."""

    def close(self) -> None:
        """Frees what the handler holds."""

    @classmethod
    def typestr(cls) -> str:
        """What is kept with a step, to find the handler when it is restored."""
        return f"{cls.__module__}.{cls.__qualname__}"


class AsyncCheckpointHandler(CheckpointHandler):
    """A handler whose save can go on in the background."""

    @abc.abstractmethod
    async def async_save(
        self, directory: pathlib.Path, *args: Any, **kwargs: Any
    ) -> Any:
        """As save(); returns futures of what goes on, or None."""


class StoringHandler(AsyncCheckpointHandler):
    """A handler of a store: save() and async_save() are the same, and each runs
    the other where a subclass overrides that one only."""

    def _save(
        self, directory: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        raise NotImplementedError

    def save(self, directory: Any, *args: Any, **kwargs: Any) -> None:
        """To a directory that is absent or empty."""
        if overrides(self, "async_save"):
            _loops.run_save(lambda: self.async_save(directory, *args, **kwargs))
        else:
            self._save(directory, args, kwargs)

    async def async_save(
        self, directory: Any, *args: Any, **kwargs: Any
    ) -> Any:
        if overrides(self, "save") and not overrides(self, "async_save"):
            self.save(directory, *args, **kwargs)
        else:
            self._save(directory, args, kwargs)
        return []


class StoreHandler(StoringHandler):
    """A handler that makes and takes items of a store. At a directory it makes
    a store with one item."""

    @classmethod
    def typestr(cls) -> str:
        # The name that is public, wherever the class is.
        if cls.__module__.startswith("ckptree.orbax."):
            return f"ckptree.orbax.{cls.__qualname__}"
        return super().typestr()

    def pack(self, args: Any) -> Item:
        """The item of these arguments."""
        raise NotImplementedError

    def unpack(self, item: StoredItem, args: Any) -> Any:
        """What the item was made of. `args` may be None."""
        raise NotImplementedError

    def describe(self, item: StoredItem) -> Any:
        """Its metadata."""
        return None

    def _save(
        self, directory: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        item = self.pack(arguments(self, 0, args, kwargs))
        folder = _folders.at(directory)
        if folder is not None and not folder.several:
            folder.take(item)
        else:
            _saving.save(directory, {_items.DEFAULT: item}, force=True)

    def restore(self, directory: Any, *args: Any, **kwargs: Any) -> Any:
        wanted = arguments(self, 1, args, kwargs)
        with self._stored(directory) as item:
            return self.unpack(item, wanted)

    def metadata(self, directory: Any) -> Any:
        with self._stored(directory) as item:
            return self.describe(item)

    @contextlib.contextmanager
    def _stored(self, directory: Any) -> Iterator[StoredItem]:
        folder = _folders.at(directory)
        if folder is not None and folder.stored is not None:
            yield folder.stored
            return
        with _checkpoint.opened(directory) as (step, place):
            yield _checkpoint.only_item(step, place)


def shown_type(value: Any) -> str:
    """Of what is no handler or argument here: its type, and where it is of
    Orbax what to take instead."""
    name = type(value).__name__
    if is_of_orbax(value):
        return f"a {name} of Orbax's own: take that of ckptree.orbax"
    return f"a {name}"


def only_args(
    args: tuple[Any, ...], kwargs: dict[str, Any], more: tuple[Any, ...] = ()
) -> Any:
    """What is passed as `args=`; None: nothing is. TypeError: something is
    passed beside it, which nobody would look at."""
    given = kwargs.get("args")
    others = [*map(repr, (*args, *more)), *(k for k in kwargs if k != "args")]
    if given is not None and others:
        raise TypeError(
            f"args= goes alone: {', '.join(others):.200} beside it is an "
            "unexpected argument"
        )
    return given


def arguments(
    handler: CheckpointHandler,
    which: int,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> CheckpointArgs:
    """The arguments of a call, given as such (`args=`) or one by one. `which`:
    0 to save, 1 to restore."""
    given = only_args(args, kwargs)
    if given is None and args and isinstance(args[0], CheckpointArgs):
        given = only_args((), {**kwargs, "args": args[0]}, args[1:])
    if given is not None:
        if not isinstance(given, CheckpointArgs):
            raise ValueError(
                f"args is a CheckpointArgs, not {shown_type(given)}"
            )
        return given
    cls: Any = None
    for known in type(handler).__mro__:
        try:
            cls = get_registered_args_cls(known)[which]
            break
        except ValueError:
            continue
    if cls is None:
        raise ValueError(
            f"{type(handler).__qualname__} has no arguments registered: use "
            "register_with_handler"
        )
    passed = {k: v for k, v in kwargs.items() if k != "args"}
    made: CheckpointArgs = cls(*args, **passed)
    return made


# What a subclass may do in its own way.
_METHODS = ("save", "async_save", "restore", "metadata", "finalize")


def overrides(handler: CheckpointHandler, *names: str) -> bool:
    """Whether it is of a subclass of the user's that has methods of its own:
    one of these, or any."""
    return any(
        not getattr(type(handler), name).__module__.startswith("ckptree.orbax.")
        for name in names or _METHODS
    )


def is_of_a_store(handler: CheckpointHandler) -> bool:
    """Whether it saves and restores as the classes here do; for one that does
    not, its methods are called."""
    return isinstance(handler, StoreHandler) and not overrides(handler)
