# SPDX-License-Identifier: Apache-2.0
"""One save to a path of its own, or to the step of a run: by this process, or
by several that save it together."""

from __future__ import annotations

import contextlib
import os
import pathlib
import shutil
import uuid
from typing import TYPE_CHECKING, Any, Iterator, Mapping, NamedTuple

import ckptree
from ckptree.errors import Error, InvalidArgumentError, StateError
from ckptree.orbax import _checkpoint, _folders, _items, _place, _processes
from ckptree.orbax._alike import Survey
from ckptree.paths import local_path
from ckptree.sharing import is_open, ranks_of

if TYPE_CHECKING:
    from ckptree.handle import SaveHandle
    from ckptree.orbax._items import Item
    from ckptree.orbax._processes import Call
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
        self._call: Call | None = None
        self._shared: _folders.Shared | None = None
        # Of a store that this save has made: what was there before.
        self._undoes = False
        self._existed = False
        self._begun: tuple[Store, SaveHandle] | None = None
        job = _processes.job(processes, deadline)
        if job is not None:
            path = pathlib.Path(os.path.abspath(self._path))
            self._call = _processes.Call(job, "save to", path)
            place = _checkpoint.step_to_save(path)
            beside = path if place is None else place.store
            self._shared = _folders.Shared(self._call, beside)

    @property
    def is_primary(self) -> bool:
        """Whether this process does what one of them does."""
        return self._call is None or self._call.job.is_primary

    @property
    def handle(self) -> SaveHandle:
        """Of what begin() began."""
        assert self._begun is not None
        return self._begun[1]

    @contextlib.contextmanager
    def telling(self) -> Iterator[None]:
        """For all that comes before begin(): what it raises, all raise."""
        if self._call is None or self._shared is None:
            yield
            return
        try:
            with self._call.telling(), self._shared.used():
                yield
        except BaseException:
            self._shared.clear()
            raise

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
                survey = Survey(items) if self._call is not None else None
                kept = _items.about(items, custom)
            if survey is None:
                target = self._prepare("")
            else:
                target = self._agreed(survey)
            self._begun = self._open(target, items, kept)
        except BaseException as error:
            self._undo()
            if isinstance(error, TypeError):
                raise ValueError(str(error)) from error
            raise
        if self._shared is not None:
            self._shared.clear()

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

    def _agreed(self, survey: Survey) -> _Target:
        """The same on all of them."""
        call = self._call
        assert call is not None

        def decide(says: list[Any]) -> Any:
            if len({have for have, _ in says}) > 1:
                return None  # To be looked at.
            there = {open_here for _, open_here in says}
            if len(there) > 1:
                raise StateError(
                    f"{self._path}: its run is open in some of the processes: "
                    "open it in all of them, or close it"
                )
            return self._prepare(there.pop() or uuid.uuid4().hex)

        def refuse(texts: list[str]) -> None:
            raise InvalidArgumentError(survey.difference(call.job, texts))

        with self.telling():
            target = call.agree([survey.said(), self._open_here()], decide)
            if target is None:
                call.agree(survey.in_full(), refuse)
            return _Target(*target)

    def _open_here(self) -> str:
        """The job of the run that the path is a step of, where this process
        has it open with others."""
        place = _checkpoint.step_to_save(self._path)
        store = self._path if place is None else place.store
        ranks = ranks_of(store)
        return "" if ranks is None else ranks.job

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
            assert self._call is not None
            ranks = ranks_of(directory) or self._call.job.ranks(target.job)
        made = self._undoes and not _place.is_store(directory)
        store = ckptree.Store(
            directory,
            mode="write or create" if made else "write",
            ranks=ranks,
        )
        try:
            if target.step is None and target.replaces:
                _checkpoint.check_no_run(store)
            if made and self._permissions is not None:
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
        if self._shared is not None:
            self._shared.clear()
        if not self._undoes or is_open(self._path):
            return
        self._undoes = False
        shutil.rmtree(self._path, ignore_errors=True)
        if self._existed:
            self._path.mkdir(exist_ok=True)


def save(
    directory: str | os.PathLike[str],
    items: Mapping[str, Item],
    custom: Any = None,
    *,
    force: bool = False,
) -> None:
    """Saves `items`; it is durable when this returns."""
    saving = Saving(directory, force=force)
    saving.begin(items, custom)
    saving.finish()
