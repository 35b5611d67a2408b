# SPDX-License-Identifier: Apache-2.0
"""The engine of a manager: a reader, until something is to be written. One
process writes a store at a time; the managers in it share what is open.
Processes that save together open it together, each at the same call."""

from __future__ import annotations

import os
import pathlib
import threading
import uuid
import weakref
from typing import TYPE_CHECKING, Any, Mapping

import ckptree
from ckptree.errors import StateError, StoreNotFoundError, UnavailableError
from ckptree.metadata import as_json_has_it
from ckptree.orbax import _place, _processes
from ckptree.orbax._manager_arguments import listed_steps
from ckptree.orbax.checkpoint_managers.save_decision_policy import decision_of
from ckptree.orbax.options import AsyncOptions
from ckptree.policy_step import MetricOfStep
from ckptree.sharing import is_open, ranks_of

if TYPE_CHECKING:
    from ckptree.orbax._manager_options import CheckpointManagerOptions, Kept
    from ckptree.orbax._remote import Remote


class Engines:
    """What is open of one manager."""

    def __init__(
        self,
        directory: pathlib.Path,
        options: CheckpointManagerOptions,
        kept: Kept,
        remote: Remote | None = None,
    ) -> None:
        self._options = options
        self._kept = kept
        self._lock = threading.RLock()  # To become one that writes.
        self._writes = False
        self._closed = False
        self._timeout = (options.async_options or AsyncOptions()).timeout_secs
        # Those that save together; None: this process saves, or reads, alone.
        self.job: _processes.Job | None = None
        if not options.read_only:
            self.job = _processes.job(
                options.multiprocessing_options, self._timeout
            )
        # Where the directory ships to; it is read there until it is written.
        self._remote = None if remote is None else remote.of_job(self.job)
        # Of this process, which may be another one's alone.
        self.directory = (
            directory if self._remote is None else self._remote.directory
        )
        # What all of them call it.
        self.named = (
            os.path.abspath(directory) if remote is None else remote.address
        )
        # The one that is open; None: there is nothing yet, or it was left.
        self.current: ckptree.CheckpointManager | None = None

    @property
    def shares_folder(self) -> bool:
        """Whether the processes see the same directory."""
        return self._remote is None

    def begin(self, metadata: Mapping[str, Any] | None) -> None:
        """Opens what is there, or makes it where the options say so."""
        call = self._call("open")
        if call is None:
            writes = self._writes_at_once(metadata)
        else:
            writes = False
            with call.telling():
                if call.job.is_primary:
                    writes = self._writes_at_once(metadata)
            # The others may see by now what another process has made.
            writes = call.agree(writes, lambda says: says[0])
        if writes:
            self.writing(metadata)
        else:
            self.reading()

    def _writes_at_once(self, metadata: Mapping[str, Any] | None) -> bool:
        """Whether there is something to be written when it is opened."""
        given = self._options
        if self._remote is None:
            _place.check_not_of_orbax(self.directory)
        found = self.reading()
        if given.create and found is None:
            return True
        if metadata and given.save_root_metadata and not given.read_only:
            return found is not None and found.metadata() is None
        return False

    def _call(self, what: str) -> _processes.Call | None:
        if self.job is None:
            return None
        return _processes.Call(self.job, f"{what} {self.named}")

    def reading(self) -> ckptree.CheckpointManager | None:
        """None: there is nothing to read yet."""
        if self.current is None:
            self.current = self._reader()
            if self._closed and self.current is not None:
                # Nobody closes it: it goes with the manager.
                weakref.finalize(self, self.current.close)
        return self.current

    def _reader(self) -> ckptree.CheckpointManager | None:
        if self._remote is None:
            if not _place.is_store(self.directory):
                return None
            return self._open(None, read_only=True)
        try:
            return self._open(None, read_only=True)
        except StoreNotFoundError:
            return None

    def writing(
        self, metadata: Mapping[str, Any] | None = None
    ) -> ckptree.CheckpointManager:
        """UnavailableError: another process writes it."""
        if self._closed:
            raise StateError(
                f"{self.directory}: the manager was closed, and saves and "
                "deletes nothing any more"
            )
        with self._lock:
            if self._writes and self.current is not None:
                return self.current
            fresh = not _place.is_store(self.directory)
            self.directory.parent.mkdir(parents=True, exist_ok=True)
            try:
                opened = self._writer(metadata)
            except UnavailableError as error:
                raise UnavailableError(
                    f"{error}. What is there can be restored all the same: "
                    "pass CheckpointManagerOptions(read_only=True) where "
                    "nothing is to be saved or deleted"
                ) from None
            mode = self._options.file_options.path_permission_mode
            first = self.job is None or self.job.is_primary
            if fresh and first and mode is not None:
                self.directory.chmod(mode)
            reader, self.current = self.current, opened
            self._writes = True
        if reader is not None:
            reader.close()
        return opened

    def _writer(
        self, metadata: Mapping[str, Any] | None
    ) -> ckptree.CheckpointManager:
        if self._remote is None:
            return self._open(metadata, read_only=False, ranks=self._ranks())
        ranks = self._ranks()
        return self._remote.opened(
            lambda: self._open(metadata, read_only=False, ranks=ranks)
        )

    def _ranks(self) -> ckptree.Ranks | None:
        """Of the processes that open it now; that of others in this process,
        where they have it open."""
        call = self._call("write")
        if call is None:
            return None
        here = ranks_of(self.directory)

        def decide(jobs: list[str]) -> str:
            if len(set(jobs)) > 1:
                raise StateError(
                    f"{self.directory} is open in some of the processes: open "
                    "it in all of them, or close it"
                )
            if jobs[0] == "":
                # The others wait for a store that can be opened: it can.
                self._try_to_open()
                if is_open(self.directory):
                    raise StateError(
                        f"{self.directory} is open in this process without "
                        "ranks=: close it first, or all stores by "
                        "ckptree.close_all()"
                    )
            return jobs[0] or uuid.uuid4().hex

        name = call.agree("" if here is None else here.job, decide)
        return here or call.job.ranks(
            str(name), shared_folder=self._remote is None
        )

    def _try_to_open(self) -> None:
        remote = self._remote
        if remote is None:
            ckptree.Store(self.directory).close()
            return
        opening = remote.opening(self._timeout)
        remote.opened(lambda: ckptree.Store(self.directory, **opening).close())

    @property
    def writer(self) -> ckptree.CheckpointManager | None:
        """The one that is open for writing, if there is one."""
        return self.current if self._writes else None

    def close(self) -> None:
        """For good: what is there can still be read."""
        self._closed = True
        current, self.current = self.current, None
        self._writes = False
        if current is not None and not current.closed:
            current.close()

    def _open(
        self,
        metadata: Mapping[str, Any] | None,
        *,
        read_only: bool,
        ranks: ckptree.Ranks | None = None,
    ) -> ckptree.CheckpointManager:
        given = self._options
        decision = None
        by_policy = given.save_decision_policy is not None
        if by_policy:
            # The sole means: the older options are not looked at.
            decision = decision_of(given.save_decision_policy)
        preservation = None
        if given.preservation_policy is not None:
            preservation = self._kept.policy(given.preservation_policy)
        best_fn = None
        if given.best_fn is not None:
            best_fn = MetricOfStep(
                given.best_fn, self._kept.metric(given.best_fn)
            )
        interval = given.save_interval_steps
        place: str | os.PathLike[str] = self.directory
        opening: dict[str, Any] = {}
        if self._remote is not None:
            if read_only:
                place = self._remote.address
            else:
                opening = self._remote.opening(self._timeout)
        return ckptree.CheckpointManager(
            place,
            max_to_keep=given.max_to_keep,
            keep_period=given.keep_period,
            keep_time_interval=given.keep_time_interval,
            should_keep_fn=given.should_keep_fn,
            preservation=preservation,
            best_fn=best_fn,
            best_mode=None if best_fn is None else given.best_mode,
            keep_checkpoints_without_metrics=given.keep_checkpoints_without_metrics,
            save_interval_steps=None if read_only or by_policy else interval,
            save_on_steps=()
            if by_policy
            else listed_steps(given.save_on_steps),
            should_save_fn=None if by_policy else given.should_save_fn,
            save_decision=decision,
            metadata=as_json_has_it(metadata)
            if given.save_root_metadata
            else None,
            read_only=read_only,
            ranks=ranks,
            save_timeout=self._timeout,
            **opening,
        )
