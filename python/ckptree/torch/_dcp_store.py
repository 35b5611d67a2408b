# SPDX-License-Identifier: Apache-2.0
"""The store behind a writer or a reader of DCP."""

from __future__ import annotations

import os
from typing import Any

from ckptree.arguments import PATH, either, instance
from ckptree.closing import Closing
from ckptree.paths import local_path, place_to_read
from ckptree.store import Store

STORE = either(PATH, instance("a Store", Store))


class Opened(Closing):
    """The store of a writer or reader: the caller's, or opened by its path."""

    def __init__(
        self, store: Store | str | os.PathLike[str], *, reads: bool = False
    ) -> None:
        self._given = store if isinstance(store, Store) else None
        self.path = (
            store.path
            if isinstance(store, Store)
            else place_to_read(store)
            if reads
            else local_path(store)
        )
        self._opened: Store | None = None

    def to_write(self) -> Store:
        return self._given or self._open("write or create")

    def to_read(self) -> Store:
        """Any that is open, and sees what was committed so far."""
        store = self._given or self._opened or self._open("read")
        if store.info().read_only:
            store.refresh()
        return store

    def _open(self, mode: str) -> Store:
        opened = self._opened
        if opened is not None and (mode == "read") != opened.info().read_only:
            self.close()
            opened = None
        if opened is None or opened.closed:
            opened = self._opened = Store(self.path, mode=mode)
        return opened

    def close(self) -> None:
        opened, self._opened = self._opened, None
        if opened is not None:
            opened.close()

    def __getstate__(self) -> Any:
        if self._given is not None:
            raise TypeError(
                f"{self._given!r} cannot go to another process: make the "
                "writer or reader from the path of the store"
            )
        return {**vars(self), "_opened": None}
