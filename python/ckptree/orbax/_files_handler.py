# SPDX-License-Identifier: Apache-2.0
"""Handlers that write files: what they write is the item."""

from __future__ import annotations

import contextlib
import pathlib
from typing import TYPE_CHECKING, Any, Callable

from ckptree._rules import Content, Document
from ckptree.orbax import _folders, _items, _loops, _tree_save
from ckptree.orbax._handler import (
    AsyncCheckpointHandler,
    CheckpointHandler,
    StoreHandler,
)
from ckptree.orbax._items import Item

if TYPE_CHECKING:
    from ckptree.orbax._items import StoredItem


class PlainArgs:
    """Arguments of a handler that has no class for them."""

    def __init__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.args = args
        self.kwargs = kwargs


class FilesHandler(StoreHandler):
    """A handler with methods of its own as one of a store: gives it a folder
    that is there for the call only. `synchronous`: by save(), not by
    async_save()."""

    def __init__(
        self, handler: CheckpointHandler, synchronous: bool = False
    ) -> None:
        self.handler = handler
        self._synchronous = synchronous

    def pack(self, args: Any) -> Item:
        with contextlib.ExitStack() as stack:
            folder = stack.enter_context(_folders.given())
            futures = self._begin(folder.path, args)
            if not futures and folder.call is None:
                self.handler.finalize(folder.path)
                return item_of(folder)
            # The folder stays until they have ended, on all processes.
            took = stack.pop_all()
            if folder.saved is not None:
                folder.saved = _owned(folder.saved)

        def later() -> Item:
            with took:
                folder.finish(lambda: _wait(futures), self.handler.finalize)
                return item_of(folder)

        return Item(None, later=later)

    def pack_all(self, args: Any) -> dict[str, Item]:
        """Of a handler of several items."""
        with _folders.given(several=True) as folder:
            futures = self._begin(folder.path, args)
            folder.finish(lambda: _wait(futures), self.handler.finalize)
            if packed(folder.path):
                raise NotImplementedError(
                    f"{type(self.handler).__qualname__} writes files beside "
                    "its items: make them an item by a handler of their own"
                )
            return _items.finished(folder.saved or {})

    def _begin(self, directory: pathlib.Path, args: Any) -> list[Any]:
        """Returns futures of what goes on."""
        handler = self.handler
        if (
            isinstance(handler, AsyncCheckpointHandler)
            and not self._synchronous
        ):
            return _loops.begin_save(
                lambda: _call(handler.async_save, directory, args)
            )
        _call(handler.save, directory, args)
        return []

    def unpack(self, item: StoredItem, args: Any) -> Any:
        with _folders.given(stored=item) as folder:
            write(item, folder.path)
            return _call(self.handler.restore, folder.path, args)

    def describe(self, item: StoredItem) -> Any:
        with _folders.given(stored=item) as folder:
            write(item, folder.path)
            try:
                return self.handler.metadata(folder.path)
            except NotImplementedError:
                return None

    def close(self) -> None:
        self.handler.close()


def _owned(saved: Item) -> Item:
    return saved._replace(state=_tree_save.with_own_arrays(saved.state))


def _wait(futures: list[Any]) -> None:
    """Until each has ended. Raises what the first one failed of."""
    failed: BaseException | None = None
    for future in futures:
        try:
            future.result()
        except BaseException as error:
            failed = failed or error
    if failed is not None:
        raise failed


def _call(
    function: Callable[..., Any], directory: pathlib.Path, args: Any
) -> Any:
    if isinstance(args, PlainArgs):
        return function(directory, *args.args, **args.kwargs)
    if args is None:
        return function(directory)
    return function(directory, args=args)


def item_of(folder: _folders.Folder) -> Item:
    """What was saved to it: a tree of this package's, files, or both."""
    files = packed(folder.path)
    if folder.saved is None:
        return Item(files, {"files": True})
    made: Item = folder.saved._replace(files=files)
    return made


def packed(directory: pathlib.Path) -> dict[str, Any]:
    """What is in a directory, as a tree of files."""
    made: dict[str, Any] = {}
    for child in sorted(directory.iterdir()):
        if child.is_dir():
            made[child.name] = packed(child)
        elif child.is_file():
            made[child.name] = Document(Content("file", child.read_bytes()))
        else:
            raise ValueError(f"{child.name}: a handler may write files only")
    return made


def write(item: StoredItem, directory: pathlib.Path) -> None:
    """The files of an item, or those beside its tree."""
    if item.about.get("files"):
        unpack(item, directory)
        return
    beside = item.files()
    if beside is not None:
        unpack(beside, directory)


def unpack(item: StoredItem, directory: pathlib.Path) -> None:
    from ckptree.arrays import values

    infos = item.infos()
    files = [info for info in infos if info.is_leaf]
    read = values.read(item.step._engine, files)
    for info in infos:
        names = [str(key) for _, key in info.path[1:]]
        # A store is data from anywhere: no file may leave the directory.
        if any(n in ("", ".", "..") or "/" in n or "\0" in n for n in names):
            raise ValueError(f"{item.path}: {info.name} is no name of a file")
        if not info.is_leaf:
            directory.joinpath(*names).mkdir(parents=True, exist_ok=True)
    for info, data in zip(files, read):
        if not isinstance(data, bytes):
            raise ValueError(f"{item.path}: {info.name} is no file")
        path = directory.joinpath(*(str(key) for _, key in info.path[1:]))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
