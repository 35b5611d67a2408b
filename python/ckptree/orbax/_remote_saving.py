# SPDX-License-Identifier: Apache-2.0
"""One save to an address of its own in an object store."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pathlib
import shutil
import uuid
from typing import TYPE_CHECKING, Any, Mapping

import ckptree
from ckptree.errors import StoreNotFoundError, UnsupportedError
from ckptree.orbax import _items, _place, _processes
from ckptree.orbax._remote import advice_to_take_over, cache_of

if TYPE_CHECKING:
    from ckptree.handle import SaveHandle
    from ckptree.orbax._items import Item
    from ckptree.orbax._place import Address
    from ckptree.store import Store


class _Scratch:
    """A folder of this machine for the store of one save, which is gone after
    it. Those that a killed process has left are removed."""

    def __init__(self, address: Address) -> None:
        above = pathlib.Path(cache_of(address), "saves")
        above.mkdir(parents=True, exist_ok=True)
        for lock in above.glob("*.lock"):
            with contextlib.suppress(OSError):
                self._locked(lock, fcntl.LOCK_NB)
                self.remove()
        self._locked(above / f"{uuid.uuid4().hex}.lock")

    def _locked(self, lock: pathlib.Path, how: int = 0) -> None:
        """OSError: a process that lives has it."""
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | how)
        except OSError:
            os.close(descriptor)
            raise
        self._descriptor = descriptor
        self._lock = lock
        self.path = lock.with_suffix("")

    def remove(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)
        self._lock.unlink(missing_ok=True)
        os.close(self._descriptor)


class RemoteSaving:
    """As _saving.Saving, of an address. `deadline`: seconds that the object
    store may take."""

    is_primary = True

    def __init__(
        self,
        address: Address,
        *,
        force: bool = False,
        processes: _processes.Options | None = None,
        deadline: float = _processes.DEADLINE,
    ) -> None:
        self._address = address
        self._force = force
        self._deadline = deadline
        self._begun: tuple[Store, SaveHandle, _Scratch] | None = None
        if _processes.job(processes, deadline) is not None:
            raise UnsupportedError(
                f"{address}: a checkpointer of several processes needs a "
                "folder that all of them see: save steps there by "
                "ckptree.orbax.CheckpointManager, which needs none"
            )

    @property
    def handle(self) -> SaveHandle:
        """Of what begin() began."""
        assert self._begun is not None
        return self._begun[1]

    def telling(self) -> contextlib.AbstractContextManager[None]:
        """There is nobody to be told."""
        return contextlib.nullcontext()

    def check_free(self) -> None:
        """ValueError: something is there that is not to be replaced."""
        for place in _place.readings(self._address):
            try:
                store = ckptree.open(place.store)
            except StoreNotFoundError:
                continue
            with store:
                steps = list(store)
            if place.step is not None:
                raise ValueError(
                    f"{place.store} is a run: save its step {place.step} by "
                    f"ckptree.orbax.CheckpointManager({str(place.store)!r})"
                )
            if steps not in ([], [_place.ONLY_STEP]):
                raise ValueError(
                    f"{self._address} is a run, with steps up to {steps[-1]}: "
                    "save to it by its CheckpointManager"
                )
            # Without a step somebody has begun to save to it.
            if steps and not self._force:
                raise ValueError(
                    f"Destination {self._address} already exists: pass "
                    "force=True to replace it"
                )
            return

    def begin(self, items: Mapping[str, Item], custom: Any = None) -> None:
        """As Saving.begin()."""
        kept = _items.about(items, custom)
        self.check_free()
        scratch = _Scratch(self._address)
        try:
            store = self._opened(scratch)
            try:
                handle = store.save(
                    _place.ONLY_STEP,
                    _items.states(items),
                    metadata=kept,
                    overwrite=self._force,
                )
            except BaseException:
                store.close()
                raise
        except BaseException as error:
            scratch.remove()
            if isinstance(error, TypeError):
                raise ValueError(str(error)) from error
            raise
        self._begun = store, handle, scratch

    def _opened(self, scratch: _Scratch) -> Store:
        with advice_to_take_over(
            "For a checkpointer of ckptree.orbax: pass force=True, which also "
            "replaces what was begun there"
        ):
            return ckptree.Store(
                scratch.path,
                remote=self._address,
                durable="remote",
                take_over=self._force,
                remote_timeout=self._deadline,
            )

    def finish(self) -> None:
        """Waits until it is durable at the address."""
        assert self._begun is not None
        store, handle, scratch = self._begun
        try:
            with store:
                handle.result()
        finally:
            scratch.remove()
