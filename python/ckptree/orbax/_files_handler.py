"""Handlers that write files: what they write is the item."""

from __future__ import annotations

import asyncio
import inspect
import pathlib
import tempfile
from typing import TYPE_CHECKING, Any, Callable

from ckptree._rules import Content, Document
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
    """A handler of files as one of a store: gives it a directory that is there
    for the call only."""

    def __init__(self, handler: CheckpointHandler) -> None:
        self.handler = handler

    def pack(self, args: Any) -> Item:
        with tempfile.TemporaryDirectory() as name:
            directory = pathlib.Path(name)
            if isinstance(self.handler, AsyncCheckpointHandler):
                self._save_async(directory, args)
            else:
                _call(self.handler.save, directory, args)
            self.handler.finalize(directory)
            return Item(packed(directory), {"files": True})

    def _save_async(self, directory: pathlib.Path, args: Any) -> None:
        async def save() -> Any:
            made = _call(self.handler.async_save, directory, args)  # type: ignore[attr-defined]
            return await made if inspect.isawaitable(made) else made

        for future in asyncio.run(save()) or ():
            future.result()

    def unpack(self, item: StoredItem, args: Any) -> Any:
        with tempfile.TemporaryDirectory() as name:
            directory = pathlib.Path(name)
            unpack(item, directory)
            return _call(self.handler.restore, directory, args)

    def describe(self, item: StoredItem) -> Any:
        with tempfile.TemporaryDirectory() as name:
            directory = pathlib.Path(name)
            unpack(item, directory)
            try:
                return self.handler.metadata(directory)
            except NotImplementedError:
                return None

    def close(self) -> None:
        self.handler.close()


def _call(function: Callable[..., Any], directory: pathlib.Path, args: Any) -> Any:
    if isinstance(args, PlainArgs):
        return function(directory, *args.args, **args.kwargs)
    if args is None:
        return function(directory)
    return function(directory, args=args)


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


def unpack(item: StoredItem, directory: pathlib.Path) -> None:
    from ckptree import values

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
