# SPDX-License-Identifier: Apache-2.0
"""One save to a path of its own, or to the step of a run: by this process, or
by several that save it together."""

from __future__ import annotations

import contextlib
import os
import pathlib
import uuid
from typing import TYPE_CHECKING, Any, Mapping, NamedTuple

import ckptree
from ckptree.errors import (
    AlreadyExistsError,
    Error,
    InvalidArgumentError,
    StateError,
    UnavailableError,
)
from ckptree.orbax import _checkpoint, _items, _place, _processes
from ckptree.orbax._agreement import Agreement
from ckptree.orbax._remote_saving import RemoteSaving
from ckptree.paths import local_path
from ckptree.removing import remove_store
from ckptree.sharing import is_open, ranks_of

if TYPE_CHECKING:
    from ckptree.handle import SaveHandle
    from ckptree.orbax._items import Item
    from ckptree.store import Store


class _Target(NamedTuple):
    """What is saved to."""

    step: int | None  # Of the run above the path; None: a store of its own.
    item: str | None  # The only one of that step.
    replaces: bool
    job: str = ""  # Of the ranks; empty: this process is alone.

    def store(self, path: pathlib.Path) -> pathlib.Path:
        if self.item is not None:
            return path.parent.parent
        return path if self.step is None else path.parent


class Saving:
    """One call of save(). Where several processes save together each of them
    has one, and they agree: what one of them fails at, all of them raise.

    `deadline`: seconds that they wait for each other.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        *,
        force: bool = False,
        permissions: int | None = None,
        processes: _processes.Options | None = None,
        deadline: float = _processes.DEADLINE,
    ) -> None:
        self._path = pathlib.Path(local_path(directory))
        self._force = force
        self._permissions = permissions
        # Of a store that this save makes: what was there before.
        self._undoes = False
        self._existed = False
        self._made = False
        self._begun: tuple[Store, SaveHandle] | None = None
        path = pathlib.Path(os.path.abspath(self._path))
        job = _processes.job(processes, deadline)
        place = None if job is None else _checkpoint.step_to_save(path)
        self._agreement = Agreement(
            job,
            f"save to {path}",
            path if place is None else pathlib.Path(place.store),
        )

    @property
    def is_primary(self) -> bool:
        """Whether this process does what one of them does."""
        return self._agreement.is_primary

    @property
    def handle(self) -> SaveHandle:
        """Of what begin() began."""
        assert self._begun is not None
        return self._begun[1]

    def telling(self) -> contextlib.AbstractContextManager[None]:
        """For all that comes before begin(): what it raises, all raise."""
        return self._agreement.telling()

    def check_free(self) -> None:
        """ValueError: something is there that is not to be replaced. The
        primary process looks, for the others may see what it makes."""
        if self.is_primary:
            _checkpoint.check_free(self._path, force=self._force)

    def begin(self, items: Mapping[str, Item], custom: Any = None) -> None:
        """Starts saving `items` to a store at the path, which is made, or to
        the run in which that is a step, or the item of one. What is there
        already: ValueError, or with `force` replaced, in one commit."""
        try:
            with self.telling():
                kept = _items.about(items, custom)
                here = self._open_here()
            target = self._agreement.on(items, here, self._decide)
            self._begun = self._open(_Target(*target), items, kept)
        except BaseException as error:
            self._undo()
            if isinstance(error, TypeError):
                raise ValueError(str(error)) from error
            raise

    def finish(self) -> None:
        """Waits until it is durable, and closes the store."""
        assert self._begun is not None
        store, handle = self._begun
        try:
            with store:
                handle.result()
        except Error:
            if handle.progress().phase != "done":
                self._undo()
            raise

    # ---- What several processes agree on ----

    def _decide(self, jobs: list[str]) -> _Target:
        """Of what _open_here() says on each of them."""
        if self._agreement.job is None:
            return self._prepare("")
        if len(set(jobs)) > 1:
            raise StateError(
                f"{self._path}: its run is open in some of the processes: open "
                "it in all of them, or close it"
            )
        return self._prepare(jobs[0] or uuid.uuid4().hex)

    def _open_here(self) -> str:
        """The job of the run that the path is a step of, where this process
        has it open with others."""
        if self._agreement.job is None:
            return ""
        place = _checkpoint.step_to_save(self._path)
        ranks = ranks_of(self._path if place is None else place.store)
        return "" if ranks is None else str(ranks.job)

    # ---- Stores ----

    def _prepare(self, job: str) -> _Target:
        """Makes sure that it can be saved to; by the first process. `job`: what
        the processes open it as."""
        there = _checkpoint.check_free(self._path, force=self._force)
        place = _checkpoint.step_to_save(self._path)
        if place is not None:
            target = _Target(place.step, place.item, self._force, job)
        else:
            self._existed = self._path.is_dir()
            self._undoes = not there
            self._path.parent.mkdir(parents=True, exist_ok=True)
            target = _Target(None, None, there, job)
        if job == "" or ranks_of(target.store(self._path)) is not None:
            return target
        # The others wait for a store that can be opened: it can.
        with self._opened(target._replace(job="")):
            pass
        directory = target.store(self._path)
        if is_open(directory):
            raise StateError(
                f"{directory} is open in this process without ranks=: close it "
                "first, or all stores by ckptree.close_all()"
            )
        return target

    def _opened(self, target: _Target) -> Store:
        directory = target.store(self._path)
        ranks = None
        if target.job:
            assert self._agreement.job is not None
            ranks = ranks_of(directory)
            ranks = ranks or self._agreement.job.ranks(target.job)
        makes = self._undoes and not self._made
        try:
            store = ckptree.Store(
                directory, mode="create" if makes else "write", ranks=ranks
            )
        except (AlreadyExistsError, UnavailableError) as error:
            self._undoes = False  # It is another's.
            if not makes:
                raise
            raise ValueError(
                f"Destination {directory} already exists: another process "
                "has just begun to save there"
            ) from error
        self._made = True
        try:
            if target.step is None and target.replaces:
                _checkpoint.check_no_run(store)
            if makes and self._permissions is not None:
                directory.chmod(self._permissions)
        except BaseException:
            store.close()
            raise
        return store

    def _open(
        self, target: _Target, items: Mapping[str, Item], kept: Any
    ) -> tuple[Store, SaveHandle]:
        if target.item is not None:
            (item,) = items.values()  # Several have folders of their own.
            items = {target.item: item}
        store = self._opened(target)
        step = _place.ONLY_STEP if target.step is None else target.step
        try:
            handle = store.save(
                step,
                _items.states(items),
                metadata=kept,
                overwrite=target.replaces,
            )
        except BaseException:
            store.close()
            raise
        return store, handle

    def _undo(self) -> None:
        """Nothing was saved: as it was before."""
        if not self._undoes or is_open(self._path):
            return
        self._undoes = False
        # Others may have saved to it since: it stays then.
        with contextlib.suppress(Error, OSError):
            remove_store(self._path)
            if self._existed:
                self._path.mkdir(exist_ok=True)


def saving_to(
    directory: str | os.PathLike[str],
    *,
    force: bool = False,
    permissions: int | None = None,
    processes: _processes.Options | None = None,
    deadline: float = _processes.DEADLINE,
) -> Saving | RemoteSaving:
    """Of a path, or of an address. InvalidArgumentError: files have
    permissions, and an address has no files."""
    address = _place.address_of(directory)
    if address is None:
        return Saving(
            directory,
            force=force,
            permissions=permissions,
            processes=processes,
            deadline=deadline,
        )
    if permissions is not None:
        raise InvalidArgumentError(
            f"{address}: path_permission_mode is of a directory: leave it out"
        )
    return RemoteSaving(
        address, force=force, processes=processes, deadline=deadline
    )


def save(
    directory: str | os.PathLike[str],
    items: Mapping[str, Item],
    custom: Any = None,
    *,
    force: bool = False,
) -> None:
    """Saves `items`; it is durable when this returns."""
    saving = saving_to(directory, force=force)
    saving.begin(items, custom)
    saving.finish()
