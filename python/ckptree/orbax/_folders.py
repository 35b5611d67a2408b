# SPDX-License-Identifier: Apache-2.0
"""Folders that a handler is given for one call. What the classes of this
package save there is not written: it becomes the item as it is, and restores
from it. Processes that save together have one folder for each item, beside the
store, as handlers that write a file of each process expect."""

from __future__ import annotations

import contextlib
import contextvars
import os
import pathlib
import shutil
import tempfile
import uuid
from typing import TYPE_CHECKING, Any, Callable, Iterator

from ckptree.errors import UnsupportedError

if TYPE_CHECKING:
    from ckptree.orbax._items import Item, StoredItem
    from ckptree.orbax._processes import Call


class Folder:
    """One of them. `several`: of several items. `stored`: the item that is
    restored from it. `call`: of the processes that share it."""

    def __init__(
        self,
        path: pathlib.Path,
        several: bool,
        stored: StoredItem | None,
        call: Call | None = None,
    ) -> None:
        self.path = path
        self.several = several
        self.stored = stored
        self.call = call
        self.saved: Any = None  # An Item, or several by name.

    def finish(
        self,
        wait: Callable[[], object],
        finalize: Callable[[pathlib.Path], object] = lambda path: None,
    ) -> None:
        """Calls both. Of a folder that is shared the first process finalizes
        when all have waited; what is in it is whole then."""
        if self.call is None:
            wait()
            finalize(self.path)
            return
        if self.call.over:
            wait()  # It failed: what goes on is ended, and is nothing.
            return
        with self.call.telling():
            wait()
        self.call.agree()
        with self.call.telling():
            if self.call.job.is_primary:
                finalize(self.path)
        self.call.agree()

    def take(self, saved: Item | dict[str, Item]) -> None:
        """ValueError: something was saved there already."""
        if self.saved is not None:
            raise ValueError(
                "two handlers save to the same directory: give each a folder "
                "of its own in it"
            )
        self.saved = saved


# Of all threads: a handler may save on another one.
_given: dict[str, Folder] = {}


class Shared:
    """The folders that processes share for one call, beside `path`; None: they
    share none."""

    def __init__(self, call: Call, path: pathlib.Path | None) -> None:
        self._call = call
        self._path = path
        self._made: list[pathlib.Path] = []

    @property
    def any(self) -> bool:
        return bool(self._made)

    @contextlib.contextmanager
    def used(self) -> Iterator[None]:
        """given() gives out these."""
        token = _shared.set(self)
        try:
            yield
        finally:
            _shared.reset(token)

    def make(self, name: str) -> pathlib.Path:
        """One that is there for all of them. UnsupportedError: there is
        none."""
        if self._path is None:
            raise UnsupportedError(
                "a handler that writes files needs a folder that all processes "
                "see, and at an address there is none: save the item by "
                "StandardSave, PyTreeSave or JsonSave, or by a manager of a "
                "folder"
            )
        prefix = f".{self._path.name}.saving-"
        made = ""
        with self._call.telling():
            if self._call.job.is_primary:
                if not self._made:
                    # A process that was killed has left it.
                    for left in self._path.parent.glob(prefix + "*"):
                        shutil.rmtree(left, ignore_errors=True)
                made = prefix + uuid.uuid4().hex
                (self._path.parent / made / name).mkdir(parents=True)
        above = self._path.parent / str(
            self._call.agree(made, lambda says: says[0])
        )
        self._made.append(above)
        return above / name

    def clear(self) -> None:
        """Nobody needs them any more."""
        if self._call.job.is_primary:
            for made in self._made:
                shutil.rmtree(made, ignore_errors=True)
        self._made = []


_shared: contextvars.ContextVar[Shared | None] = contextvars.ContextVar(
    "folders of a call", default=None
)


def tell(error: BaseException) -> None:
    """What this process fails at, where folders are shared: before it ends what
    it has begun."""
    shared = _shared.get()
    if shared is not None:
        shared._call.fail(error)


@contextlib.contextmanager
def given(
    *,
    several: bool = False,
    stored: StoredItem | None = None,
    name: str = "item",
) -> Iterator[Folder]:
    """A new folder of that name, gone at the end."""
    shared = _shared.get() if stored is None else None
    with contextlib.ExitStack() as stack:
        if shared is None:
            above = stack.enter_context(tempfile.TemporaryDirectory())
            path = pathlib.Path(above) / name
            path.mkdir()
            folder = Folder(path, several, stored)
        else:
            path = shared.make(name)
            folder = Folder(path, several, None, shared._call)
        key = _key(path)
        _given[key] = folder
        try:
            yield folder
        finally:
            del _given[key]


def at(path: str | os.PathLike[str]) -> Folder | None:
    """The folder at that path, if it is one of them."""
    return _given.get(_key(path))


def _key(path: str | os.PathLike[str]) -> str:
    return os.path.abspath(os.fspath(path))
