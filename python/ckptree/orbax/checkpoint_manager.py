# SPDX-License-Identifier: Apache-2.0
"""CheckpointManager: the steps of a training loop, as Orbax names it all."""

from __future__ import annotations

import contextlib
import datetime
import logging
import os
import pathlib
from typing import TYPE_CHECKING, Any, Callable, Iterator, Mapping, Sequence

import ckptree
from ckptree.closing import Closing, refuse_in_function
from ckptree.errors import AlreadyExistsError, Error, NotFoundError
from ckptree.orbax import _composite_handler, _items, _processes, multihost
from ckptree.orbax._agreement import Agreement
from ckptree.orbax._composite_handler import describe
from ckptree.orbax._engines import Engines
from ckptree.orbax._entries import Entry
from ckptree.orbax._following import Deferred, Following, after_commit
from ckptree.orbax._items import finished
from ckptree.orbax._manager_arguments import ManagerItems, step_number
from ckptree.orbax._manager_metrics import StepMetrics
from ckptree.orbax._manager_options import (
    CheckpointManagerOptions,
    Kept,
    as_options,
    check_options,
)
from ckptree.orbax._registry import DefaultCheckpointHandlerRegistry
from ckptree.orbax._remote import RemoteOptions, remote_of
from ckptree.orbax._tree_save import copied
from ckptree.orbax.checkpoint_args import CheckpointArgs
from ckptree.orbax.checkpoint_managers import (
    DecisionContext,
    PolicyCheckpointInfo,
)
from ckptree.orbax.checkpoint_managers.save_decision_policy import decision_of
from ckptree.orbax.logging import StandardLogger
from ckptree.orbax.metadata import RootMetadata, StepMetadata
from ckptree.orbax.options import (
    AsyncOptions,
    FileOptions,
    MultiprocessingOptions,
)
from ckptree.orbax.path.step import name_format_of
from ckptree.paths import local_path

if TYPE_CHECKING:
    from ckptree.handle import SaveHandle
    from ckptree.orbax._items import Item
    from ckptree.step import Step
    from ckptree.store import Store

__all__ = [
    "AbstractCheckpointManager",
    "AsyncOptions",
    "CheckpointInfo",
    "CheckpointManager",
    "CheckpointManagerOptions",
    "DEFAULT_ITEM_NAME",
    "FileOptions",
    "METADATA_ITEM_NAME",
    "METRIC_ITEM_NAME",
    "MultiprocessingOptions",
    "RESERVED_ITEM_NAMES",
    "StepAlreadyExistsError",
]

DEFAULT_ITEM_NAME = _items.DEFAULT
METRIC_ITEM_NAME = _items.METRICS
METADATA_ITEM_NAME = "metadata"
RESERVED_ITEM_NAMES: list[str] = []

_log = logging.getLogger("ckptree.orbax")


class StepAlreadyExistsError(ValueError):
    """There is a step of that number."""


class CheckpointInfo(PolicyCheckpointInfo):
    """A step of a manager."""


class AbstractCheckpointManager:
    """What all managers are."""


class CheckpointManager(AbstractCheckpointManager, Closing):
    """The steps of a training loop, in one store at `directory`, or at an
    address: s3://bucket/run, rados://pool/run.

    As Orbax's: README.md lists what differs. Any number of managers read a
    directory, and in one process save to it; the first save or delete makes
    this process the one that writes. An address is read where it is until
    then; from then on the store is in a folder of this machine, too (see
    RemoteOptions), and a save is done when it is durable at the address.

    >>> import ckptree.orbax as ocp, numpy as np
    >>> options = ocp.CheckpointManagerOptions(max_to_keep=2)
    >>> with ocp.CheckpointManager(tmp / "run", options=options) as manager:
    ...     for step in range(4):
    ...         saved = manager.save(
    ...             step, args=ocp.args.StandardSave({"w": np.full(2, step)}))
    ...     manager.all_steps(), manager.restore(3)
    ([2, 3], {'w': array([3, 3])})
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        checkpointers: Any = None,
        options: CheckpointManagerOptions | None = None,
        metadata: Mapping[str, Any] | None = None,
        item_names: Sequence[str] | None = None,
        item_handlers: Any = None,
        logger: Any = None,
        handler_registry: DefaultCheckpointHandlerRegistry | None = None,
        *,
        remote_options: RemoteOptions | None = None,
    ) -> None:
        self._options = as_options(options)
        check_options(self._options)
        remote = remote_of(directory, remote_options, self._options.read_only)
        here = pathlib.Path(
            local_path(directory) if remote is None else remote.directory
        )
        # For messages: where what is there is looked for.
        self._named = str(here) if remote is None else remote.address
        self._names = name_format_of(self._options)
        self._logger = StandardLogger() if logger is None else logger
        # One item without a name, or several: the first use says which.
        self._items = ManagerItems(
            checkpointers, item_names, item_handlers, handler_registry
        )
        self._metrics = StepMetrics(self._options)
        self._kept = Kept(self._metrics.of)
        self._timeout = (
            self._options.async_options or AsyncOptions()
        ).timeout_secs
        # What waits for a handler of the user's own; what follows a commit.
        self._deferred: Deferred | None = None
        self._following: Following | None = None
        self._saving: CheckpointInfo | None = None
        self._given = dict(metadata or {})
        self._engines = Engines(here, self._options, self._kept, remote)
        self._directory = self._engines.directory
        self._engines.begin(metadata)

    # ---- What is open ----

    @property
    def _engine(self) -> ckptree.CheckpointManager:
        """To read. FileNotFoundError: there is nothing yet."""
        found = self._engines.reading()
        if found is None:
            raise FileNotFoundError(f"No steps found in {self._named}")
        return found

    def _settle(self) -> None:
        """Waits for what is in flight; what that fails of stays for whoever
        waits for it."""
        if self._deferred is not None:
            self._deferred.join(self._timeout)
        if self._engines.writer is not None:
            self._engines.writer._engine.settle()

    @property
    def _store(self) -> Store:
        return self._engine.store

    def _step(self, step: int) -> Step:
        try:
            return self._store[step]
        except NotFoundError:
            # Another manager may have saved it since the last look.
            self._engine.reload()
        try:
            return self._store[step]
        except NotFoundError as error:
            raise FileNotFoundError(str(error)) from None

    # ---- Saving ----

    def should_save(self, step: int) -> bool:
        """Whether save() would. Never for a step that is not after the
        latest."""
        if self._options.read_only:
            _log.warning("should_save(%d): read_only", step)
            return False
        manager = self._engines.writing()
        if self.reached_preemption(step):
            manager.request_preemption()
            if self._engines.job is not None:
                manager.reached_preemption(step_number(step))  # All know it.
        policy = self._options.save_decision_policy
        sees_saves = (
            self._options.enable_should_save_is_saving_in_progress_check
        )
        if policy is None or (sees_saves and decision_of(policy) is not None):
            return manager.should_save(step_number(step))
        job = self._engines.job
        if job is None:
            return self._decided(step, policy, sees_saves)
        # One process decides: clocks and saves in progress differ.
        call = _processes.Call(job, f"should save {step} to {self._named}")
        decided = False
        with call.telling():
            if job.is_primary:
                decided = self._decided(step, policy, sees_saves)
        return bool(call.agree(decided, lambda says: says[0]))

    def _decided(self, step: int, policy: Any, sees_saves: bool) -> bool:
        """By a policy of the user's own."""
        manager = self._engines.writing()
        infos = self._infos()  # Waits for no save: the policy may ask for one.
        if infos and infos[-1].step >= step:
            return False
        now = datetime.datetime.now(datetime.timezone.utc)
        context = DecisionContext(
            is_saving_in_progress=sees_saves and self.is_saving_in_progress(),
            reached_preemption=manager.reached_preemption(),
            multiprocessing_options=self._options.multiprocessing_options,
        )
        info = PolicyCheckpointInfo(step_number(step), now)
        return bool(policy.should_save(info, infos, context=context))

    def save(
        self,
        step: int,
        items: Any = None,
        save_kwargs: Any = None,
        metrics: Any = None,
        force: bool | None = False,
        args: CheckpointArgs | None = None,
        custom_metadata: dict[str, Any] | None = None,
    ) -> bool:
        """Saves what `args` say, where the step is to be saved: returns
        whether. It goes on in the background, unless async checkpointing is
        disabled; what it fails of is raised by the next save(),
        wait_until_finished(), check_for_errors() or close(), once.

        StepAlreadyExistsError: there is such a step; `force` does not replace
        it, it is for steps that would not be saved. `metrics`: what JSON can
        write; kept whatever the policy is.
        """
        step = step_number(step)
        given = self._items.of_call(items, save_kwargs, args, 0)
        if given is None:
            raise ValueError("Must provide `args` for `save`.")
        if self._options.read_only:
            _log.warning("save(%d): read_only", step)
            return False
        if not force and not self.should_save(step):
            return False
        entry = Entry("save", step, self._directory)
        entry.add(
            reached_preemption=self._engines.writing().reached_preemption(),
            synchronous=not self._options.enable_async_checkpointing,
        )
        with entry.timed("checkpoint_manager_blocking"):
            self._save(step, given, metrics, custom_metadata, entry)
        self._logger.log_entry(entry.fields())
        return True

    def _save(
        self, step: int, given: Any, metrics: Any, custom: Any, entry: Entry
    ) -> None:
        self._engines.writing()

        def pack() -> dict[str, Item]:
            self.check_for_errors()
            with entry.timed("wait_for_prev"):
                self._settle()
            self.check_for_errors()
            if step in self.all_steps():
                raise StepAlreadyExistsError(
                    f"{self._directory}: there is a step {step}"
                )
            return _composite_handler.pack(self._items.table, given)

        with entry.timed("checkpointer_blocking"):
            self._begin(step, pack, metrics, custom)
        if not self._options.enable_async_checkpointing:
            self.wait_until_finished()

    def _begin(
        self,
        step: int,
        pack: Callable[[], dict[str, Item]],
        metrics: Any,
        custom: Any,
        *,
        overwrite: bool = False,
    ) -> None:
        """Begins to save the items that `pack` makes, whatever the policies
        say. `overwrite` replaces a step, in one commit."""
        agreement = Agreement(
            self._engines.job,
            f"save step {step} to {self._named}",
            self._directory if self._engines.shares_folder else None,
        )
        with agreement.telling():
            made = pack()
            self._wait_for_callback()
        now = datetime.datetime.now(datetime.timezone.utc)
        if not any(item.later for item in made.values()):
            self._commit(step, made, metrics, custom, overwrite, agreement)
        else:
            # The arrays may change as soon as save() returns.
            kept = copied(made)

            def run() -> SaveHandle | None:
                with agreement.telling():
                    items = finished(kept)
                return self._commit(
                    step, items, metrics, custom, overwrite, agreement
                )

            self._deferred = Deferred(step, run)
        self._saving = CheckpointInfo(step, now, self._metrics.given(step))

    def _commit(
        self,
        step: int,
        made: dict[str, Item],
        metrics: Any,
        custom: Any,
        overwrite: bool,
        agreement: Agreement,
    ) -> SaveHandle | None:
        manager = self._engines.writing()
        with agreement.telling():
            self._metrics.learn(self._store)
            kept = _items.about(made, custom)
            given = None
            if agreement.is_primary:  # Its metrics count.
                given = self._metrics.checked(step, metrics)
        said = self._metrics.told(given)
        told = agreement.on(made, said, lambda says: says[0])
        if not agreement.is_primary:
            given = told
        put = self._metrics.put(step, made, given)
        with self._told(step), put as stored:
            manager.save(
                step,
                _items.states(made),
                metrics=stored,
                metadata=kept,
                force=True,
                overwrite=overwrite,
            )
        callback = (
            self._options.async_options or AsyncOptions()
        ).post_finalization_callback
        saved = manager.last_save
        self._metrics.begun(step, saved)
        if callback is not None and saved is not None and agreement.is_primary:
            self._following = after_commit(saved, callback)
        return saved

    def wait_until_finished(self) -> None:
        """Until no save is in flight, and the callback of the options has run.
        Raises what failed, once."""
        deferred = self._deferred
        if deferred is not None:
            try:
                deferred.wait(self._timeout)
            finally:
                if deferred.ended():
                    self._deferred = None
        if self._engines.writer is not None:
            with self._told():
                self._engines.writer.wait_until_finished()
        self._wait_for_callback()

    def check_for_errors(self) -> None:
        """Raises what failed, once; never waits."""
        if self._deferred is not None and self._deferred.ended():
            deferred, self._deferred = self._deferred, None
            deferred.wait()
        if self._engines.writer is not None:
            with self._told():
                self._engines.writer.check_for_errors()
        if self._following is not None and self._following.ended():
            self._wait_for_callback()

    def _wait_for_callback(self) -> None:
        if self._following is not None:
            self._following.wait()

    @contextlib.contextmanager
    def _told(self, step: int | None = None) -> Iterator[None]:
        """What functions of the user raised, as they raised it."""
        try:
            yield
        except TypeError as error:
            raise ValueError(str(error)) from error  # What is no leaf.
        except AlreadyExistsError as error:
            if step is None:
                raise
            # Another manager began it since this one looked.
            raise StepAlreadyExistsError(str(error)) from None
        except Error as error:
            raised = self._kept.take(str(error))
            if raised is not None:
                raise raised from None
            raise

    def is_saving_in_progress(self) -> bool:
        """Also while the callback of the options runs."""
        if self._following is not None and not self._following.ended():
            return True
        if self._deferred is not None and not self._deferred.ended():
            return True
        writer = self._engines.writer
        return writer is not None and writer.is_saving_in_progress()

    def reached_preemption(self, step: int) -> bool:
        """As JAX says, where it runs distributed."""
        return multihost.reached_preemption(step)

    # ---- Restoring ----

    def restore(
        self,
        step: int | None = None,
        items: Any = None,
        restore_kwargs: Any = None,
        directory: str | os.PathLike[str] | None = None,
        args: CheckpointArgs | None = None,
    ) -> Any:
        """What was saved: None: of the latest step. Without `args` every item,
        by the handlers that saved them. FileNotFoundError: no such step;
        KeyError: no such item, with those there are. `directory`: of another
        manager."""
        if directory is not None:
            options = CheckpointManagerOptions(read_only=True)
            with CheckpointManager(directory, options=options) as other:
                other._items = self._items
                return other.restore(step, items, restore_kwargs, args=args)
        self._settle()
        if step is None:
            step = self.latest_step()
            if step is None:
                raise FileNotFoundError(f"No steps found in {self._named}")
        opened = self._step(step_number(step))
        given = self._items.of_call(items, restore_kwargs, args, 1)
        self._items.see(_items.names(opened))
        entry = Entry("restore", opened.step, self._directory)
        with entry.timed("checkpoint_manager"), entry.timed("checkpointer"):
            made = _composite_handler.unpack(
                self._items.table, opened, self._path(opened.step), given
            )
        self._logger.log_entry(entry.fields())
        return made[DEFAULT_ITEM_NAME] if self._items.single else made

    # ---- What there is ----

    def all_steps(self, read: bool = False) -> Sequence[int]:
        """Ascending. Waits for saves in flight: what is listed is durable."""
        if read:
            _log.warning("all_steps(read=True): use reload()")
            self.reload()
        manager = self._settled()
        return [] if manager is None else manager.all_steps()

    def latest_step(self) -> int | None:
        """The greatest number, also of a save that is in flight: a loop may ask
        for it without waiting."""
        underway = self._underway()
        found = self._engines.reading()
        latest = None if found is None else found.latest_step()
        if underway is None or latest is None:
            return underway if latest is None else latest
        return max(underway, latest)

    def _underway(self) -> int | None:
        """The step that is in flight."""
        if self._deferred is not None and not self._deferred.ended():
            return self._deferred.step
        writer = self._engines.writer
        last = None if writer is None else writer.last_save
        return None if last is None or last.done() else last.step

    def best_step(self) -> int | None:
        """By best_fn; the latest where there is none; None where no step has
        metrics."""
        manager = self._settled()
        if manager is None:
            return None
        if self._options.best_fn is None:
            return manager.latest_step()
        self._metrics.learn(self._store)
        return manager.best_step()

    def _settled(self) -> ckptree.CheckpointManager | None:
        self._settle()
        return self._engines.reading()

    def _infos(self) -> list[PolicyCheckpointInfo]:
        """The steps there are, and the one on its way; by number."""
        saving = self._saving  # Before the list: it may be in it by then.
        underway = self._underway() is not None
        infos: dict[int, PolicyCheckpointInfo] = {
            info.step: CheckpointInfo(
                info.step,
                datetime.datetime.fromtimestamp(
                    info.begun_ns / 1e9, datetime.timezone.utc
                ),
                self._metrics.of(info.step, info.metrics),
            )
            for info in self._store.steps()
        }
        if saving is not None and underway:
            infos.setdefault(saving.step, saving)
        return [infos[number] for number in sorted(infos)]

    def metrics(self, step: int) -> Any:
        """As they were given; None: there are none."""
        number = step_number(step)
        self._settle()
        self._step(number)  # FileNotFoundError.
        return self._metrics.read(self._store, number)

    def item_metadata(self, step: int) -> Any:
        """Of the item, or a Composite of those of the items."""
        if step is None:
            raise ValueError("item_metadata wants a step")
        found = self.metadata(step)
        assert isinstance(found, StepMetadata)
        return found.item_metadata

    def metadata(self, step: int | None = None) -> RootMetadata | StepMetadata:
        """Of a step; without one, of the run."""
        if step is None:
            found = self._engines.reading()
            custom = None if found is None else found.metadata()
            if custom is None and self._options.read_only:
                custom = self._given  # It could not be written.
            return RootMetadata({}, custom or {})
        opened = self._step(step_number(step))
        self._items.see(_items.names(opened))
        about = describe(self._items.table, opened, self._path(opened.step))
        if self._items.single:
            about.item_metadata = about.item_metadata.get(_items.DEFAULT)
        return about

    @property
    def directory(self) -> pathlib.Path:
        """Of an address: the folder of this machine that has the store."""
        return self._directory

    def _path(self, step: int) -> pathlib.Path:
        return self._directory / self._names.build_name(step)

    # ---- Changing ----

    def delete(self, step: int) -> None:
        """FileNotFoundError: there is no such step."""
        if self._options.read_only:
            _log.warning("delete(%d): read_only", step)
            return
        self._settle()
        writer = self._engines.writing()
        if self._engines.job is not None:
            # Not before the others have listed it for the last time.
            what = f"delete step {step} of {self._named}"
            _processes.Call(self._engines.job, what).agree()
        try:
            writer.delete(step_number(step))
        except NotFoundError:
            raise FileNotFoundError(
                f"Requested deleting a non-existent step: {step}"
            ) from None

    def reload(self) -> None:
        """Sees what another process has saved since the last look."""
        self._metrics.forget()
        found = self._engines.reading()
        if found is not None:
            found.reload()

    def close(self) -> None:
        """Waits for saves in flight and closes; raises what failed, once.
        StateError in a function of its policy: it is as before."""
        if self._engines.current is not None:
            refuse_in_function()
        try:
            self._items.table.close()
        finally:
            try:
                if self._deferred is not None:
                    self.wait_until_finished()
            finally:
                try:
                    with self._told():
                        self._engines.close()
                finally:
                    self._wait_for_callback()
