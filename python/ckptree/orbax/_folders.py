# SPDX-License-Identifier: Apache-2.0
"""Folders that a handler is given for one call. What the classes of this
package save there is not written: it becomes the item as it is, and restores
from it."""

from __future__ import annotations

import contextlib
import os
import pathlib
import tempfile
from typing import TYPE_CHECKING, Any, Iterator

if TYPE_CHECKING:
    from ckptree.orbax._items import Item, StoredItem


class Folder:
    """One of them. `several`: of several items. `stored`: the item that is
    restored from it."""

    def __init__(
        self, path: pathlib.Path, several: bool, stored: StoredItem | None
    ) -> None:
        self.path = path
        self.several = several
        self.stored = stored
        self.saved: Any = None  # An Item, or several by name.

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


@contextlib.contextmanager
def given(
    *,
    several: bool = False,
    stored: StoredItem | None = None,
    name: str = "item",
) -> Iterator[Folder]:
    """A new folder of that name, gone at the end."""
    with tempfile.TemporaryDirectory() as above:
        path = pathlib.Path(above) / name
        path.mkdir()
        key = _key(path)
        _given[key] = Folder(path, several, stored)
        try:
            yield _given[key]
        finally:
            del _given[key]


def at(path: str | os.PathLike[str]) -> Folder | None:
    """The folder at that path, if it is one of them."""
    return _given.get(_key(path))


def _key(path: str | os.PathLike[str]) -> str:
    return os.path.abspath(os.fspath(path))
