# SPDX-License-Identifier: Apache-2.0
"""Sharing: a process has one engine for each store that it writes, however
often the store is opened. A cell of a notebook may run again."""

from __future__ import annotations

import os
import threading
from collections import defaultdict
from collections.abc import Callable, Mapping

from ckptree import _engine, logs
from ckptree.errors import AlreadyExistsError, Error, StateError
from ckptree.hints import Any
from ckptree.options import in_effect

# What only says how to wait for the store.
_OF_OPENING = ("lock_wait",)


class Shared:
    """An engine that writes, and how many stores and managers hold it."""

    def __init__(
        self,
        key: str,
        engine: _engine.Store,
        options: Mapping[str, Any],
        ranks: object,
        holder: object,
    ) -> None:
        self.engine = engine
        # One of each store and manager, in one step there or gone: who was
        # interrupted knows which.
        self.users = {holder}
        # On their way; some of them may be done.
        self.saves: list[_engine.SaveHandle] = []
        self.noting = threading.Lock()  # While one more is put there.
        self._lock = _identity(key)
        self._key = key
        self._options = options
        self._ranks = ranks

    def check(
        self,
        options: Mapping[str, Any],
        defaults: Mapping[str, Any],
        ranks: object,
    ) -> None:
        """StateError where it was opened with others: it cannot have both."""
        if ranks != self._ranks:
            raise StateError(
                f"{self.engine.directory} is open in this process with "
                f"ranks={self._ranks}, not {ranks}: close it first, or all "
                "stores by ckptree.close_all()"
            )
        for name, value in options.items():
            if name in _OF_OPENING or value == defaults[name]:
                continue
            if value != self._options[name]:
                raise StateError(
                    f"{self.engine.directory} is open in this process with "
                    f"{name}={self._options[name]}, not {value}: close it "
                    "first, or all stores by ckptree.close_all()"
                )

    def moved(self) -> bool:
        """Whether the store was moved away or removed since it was opened."""
        return _identity(self._key) != self._lock

    def abandon(self) -> Error | None:
        """Closes it, whoever holds it; returns why that was not done in
        order."""
        try:
            self.engine.close()
        except Error as error:
            return error
        return None

    def release(self, holder: object) -> bool:
        """One holder less. The last one closes it: True."""
        with lock_of(self._key):
            if self.users != {holder}:
                self.users.discard(holder)
                return False
            try:
                self.engine.close()
            finally:
                # Else it was interrupted, and is as open as before.
                if self.engine.closed:
                    self.users.clear()
                    self.saves = []
                    if _open.get(self._key) is self:
                        del _open[self._key]
            return True

    def wait(self) -> None:
        """Until nobody is about to close it."""
        with lock_of(self._key):
            pass


class Closed:
    """In place of the engine of a store that was closed while others hold
    it."""

    closed = True
    forked = False

    def __init__(
        self,
        directory: str,
        shared: Shared,
        managed: _engine.Manager | None,
    ) -> None:
        self.directory = directory
        self._shared = shared
        self._managed = managed

    def close(self) -> None:
        """It is, or another thread is about to: waits for that."""
        if self._managed is not None:
            self._managed.close()
        self._shared.wait()

    def check(self) -> None:
        """StateError."""
        self.__getattr__("")

    def __getattr__(self, name: str) -> Any:
        raise StateError(f"store {self.directory} was closed")


_open: dict[str, Shared] = {}
_locks: defaultdict[str, threading.RLock] = defaultdict(threading.RLock)


def share(
    directory: str,
    create: bool,
    options: Mapping[str, Any],
    defaults: Mapping[str, Any],
    opened: Callable[[], _engine.Store],
    ranks: object,
    holder: object,
) -> Shared:
    """The engine of this process for a directory, which `holder` releases; what
    `opened` returns where there is none. AlreadyExistsError: there is, and
    `create` wants a new store."""
    key = os.path.realpath(directory)
    gone: Error | None = None
    try:
        with lock_of(key):
            found = _found(key)
            if found is not None and found.moved():
                # RocksDB opens no other one of that name beside it.
                gone = found.abandon()
                found = None
            if found is not None:
                if create:
                    raise AlreadyExistsError(f"{directory} is there, and open")
                found.check(options, defaults, ranks)
                found.users.add(holder)
                return found
            made = Shared(key, opened(), in_effect(options), ranks, holder)
            _open[key] = made
            return made
    finally:
        if gone is not None:
            # Without the lock: a handler may open the store.
            logs.logger().warning(
                "store %s: the one that was open here was moved away or "
                "removed, and is closed now: %s",
                key,
                gone,
            )


def is_open(directory: str | os.PathLike[str]) -> bool:
    """Whether this process has it open for writing."""
    key = os.path.realpath(directory)
    with lock_of(key):
        return _found(key) is not None


def ranks_of(directory: str | os.PathLike[str]) -> Any:
    """With which ranks this process has it open; None: it is closed, or open
    without."""
    key = os.path.realpath(directory)
    with lock_of(key):
        found = _found(key)
        return None if found is None else found._ranks


def _identity(directory: str) -> tuple[int, int] | None:
    """Of the file that an open store has locked: its number is nobody else's
    as long as it is open. None: it is not there."""
    try:
        found = os.stat(os.path.join(directory, "LOCK"))
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _found(key: str) -> Shared | None:
    found = _open.get(key)
    if found is None or found.engine.closed or found.engine.forked:
        return None
    return found


def lock_of(key: str) -> threading.RLock:
    """Of a directory; "": of what is done in a moment. New in a child."""
    return _locks[key]


def _after_fork() -> None:
    # Other threads may have held them; the engines are the parent's.
    _open.clear()
    _locks.clear()


os.register_at_fork(after_in_child=_after_fork)
