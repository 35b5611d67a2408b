# SPDX-License-Identifier: Apache-2.0
"""The steps of a training loop, under the names of v1."""

from __future__ import annotations

import os
import pathlib
from typing import TYPE_CHECKING, Any, Callable, Sequence

from ckptree.closing import Closing
from ckptree.orbax import _items
from ckptree.orbax._manager_arguments import step_number
from ckptree.orbax._manager_options import CheckpointManagerOptions
from ckptree.orbax._remote import RemoteOptions
from ckptree.orbax.checkpoint_manager import CheckpointManager
from ckptree.orbax.checkpoint_managers import (
    AnySavePolicy,
    ContinuousCheckpointingPolicy,
    InitialSavePolicy,
    PreemptionCheckpointingPolicy,
    PreserveAll,
)
from ckptree.orbax.experimental.v1 import _checkpointables
from ckptree.orbax.experimental.v1._context import get_context
from ckptree.orbax.experimental.v1._deprecated import renamed
from ckptree.orbax.experimental.v1._metadata import (
    CheckpointMetadata as AnyMetadata,
)
from ckptree.orbax.experimental.v1._response import AsyncResponse
from ckptree.orbax.experimental.v1.training._metadata import (
    CheckpointMetadata,
    RootMetadata,
)
from ckptree.orbax.experimental.v1.training.errors import (
    StepAlreadyExistsError,
    StepNotFoundError,
)
from ckptree.orbax.options import (
    AsyncOptions,
    FileOptions,
    MultiprocessingOptions,
)

if TYPE_CHECKING:
    from ckptree.orbax._items import Item
    from ckptree.orbax.experimental.v1._context import Context
    from ckptree.step import Step

    StepLike = int | CheckpointMetadata[Any] | None


class Checkpointer(Closing):
    """The steps of a training loop, in one store at `directory`: a
    CheckpointManager under other names. `remote_options`, of ckptree: as there,
    where `directory` is an address.

    >>> import ckptree.orbax.experimental.v1 as ocp, numpy as np
    >>> with ocp.training.Checkpointer(tmp / "run") as checkpointer:
    ...     for step in range(3):
    ...         saved = checkpointer.save(step, {"w": np.full(2, step)})
    ...     checkpointer.latest.step, checkpointer.load()
    (2, {'w': array([2, 2])})
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        *,
        context: Context | None = None,
        save_decision_policy: Any = None,
        preservation_policy: Any = None,
        step_name_format: Any = None,
        custom_metadata: Any = None,
        cleanup_tmp_directories: bool = False,
        lightweight_initialize: bool = False,
        logger: Any = None,
        remote_options: RemoteOptions | None = None,
    ) -> None:
        self._context = context or get_context()
        self._context.check()
        asynchronous = self._context.asynchronous
        processes = self._context.multiprocessing
        self._manager = CheckpointManager(
            directory,
            options=CheckpointManagerOptions(
                save_decision_policy=save_decision_policy
                or AnySavePolicy(
                    [
                        InitialSavePolicy(),
                        ContinuousCheckpointingPolicy(),
                        PreemptionCheckpointingPolicy(),
                    ]
                ),
                preservation_policy=preservation_policy or PreserveAll(),
                step_name_format=step_name_format,
                cleanup_tmp_directories=cleanup_tmp_directories,
                lightweight_initialize=lightweight_initialize,
                async_options=AsyncOptions(
                    timeout_secs=asynchronous.timeout_secs,
                    post_finalization_callback=asynchronous.post_finalization_callback,
                ),
                multiprocessing_options=MultiprocessingOptions(
                    processes.primary_host,
                    processes.active_processes,
                    processes.barrier_sync_key_prefix,
                ),
                # Made by the first save, where some processes save.
                create=not processes.active_processes,
                file_options=FileOptions(
                    self._context.file.path_permission_mode
                ),
            ),
            metadata=custom_metadata,
            logger=logger,
            remote_options=remote_options,
        )

    @property
    def directory(self) -> pathlib.Path:
        return self._manager.directory

    # ---- Saving ----

    def should_save(self, step: int) -> bool:
        """Whether save() would. Never for a step that is not after the
        latest."""
        return self._manager.should_save(step)

    def save(
        self,
        step: int,
        state: Any,
        *,
        checkpointable_name: str = _checkpointables.STATE,
        force: bool = False,
        overwrite: bool = False,
        metrics: Any = None,
        custom_metadata: Any = None,
    ) -> bool:
        """Saves a tree, where the step is to be saved: returns whether.
        `force`: whatever the policies say. StepAlreadyExistsError: there is
        such a step; `overwrite` replaces it, in one commit, whatever the
        policies say. `metrics`: what JSON can write."""
        response = self.save_async(
            step,
            state,
            checkpointable_name=checkpointable_name,
            force=force,
            overwrite=overwrite,
            metrics=metrics,
            custom_metadata=custom_metadata,
        )
        return response is not None and response.result()

    def save_async(
        self,
        step: int,
        state: Any,
        *,
        checkpointable_name: str = _checkpointables.STATE,
        force: bool = False,
        overwrite: bool = False,
        metrics: Any = None,
        custom_metadata: Any = None,
    ) -> AsyncResponse[bool] | None:
        """As save(); returns when the arrays may change again. None: it is not
        saved."""
        if not self._wants(step, force, overwrite):
            return None

        def pack() -> dict[str, Item]:
            return _checkpointables.pack_tree(
                state, checkpointable_name, self._context
            )

        return self._begin(step, pack, metrics, custom_metadata, overwrite)

    def save_checkpointables(
        self,
        step: int,
        checkpointables: dict[str, Any],
        *,
        force: bool = False,
        overwrite: bool = False,
        metrics: Any = None,
        custom_metadata: Any = None,
    ) -> bool:
        """As save(), of several objects by name, each by its handler."""
        response = self.save_checkpointables_async(
            step,
            checkpointables,
            force=force,
            overwrite=overwrite,
            metrics=metrics,
            custom_metadata=custom_metadata,
        )
        return response is not None and response.result()

    def save_checkpointables_async(
        self,
        step: int,
        checkpointables: dict[str, Any],
        *,
        force: bool = False,
        overwrite: bool = False,
        metrics: Any = None,
        custom_metadata: Any = None,
    ) -> AsyncResponse[bool] | None:
        """As save_checkpointables(), and save_async()."""
        if not self._wants(step, force, overwrite):
            return None

        def pack() -> dict[str, Item]:
            return _checkpointables.pack(checkpointables, self._context)

        return self._begin(step, pack, metrics, custom_metadata, overwrite)

    def _wants(self, step: int, force: bool, overwrite: bool) -> bool:
        if self._manager._engines.job is None:
            self._manager.check_for_errors()
        else:
            # Failures of one process are raised by all, in _begin().
            self._manager._engines.writing()
        if self._is_there(step_number(step)):
            if not overwrite:
                raise StepAlreadyExistsError(
                    f"{self.directory}: Step {step} already exists: pass "
                    "overwrite=True to replace it"
                )
            return True
        return force or self._manager.should_save(step)

    def _is_there(self, step: int) -> bool:
        """Also where it is being saved. Does not wait for that: policies may
        leave out a step instead."""
        last = self._manager._engine.last_save
        if last is not None and not last.done() and last.step == step:
            return True
        return any(info.step == step for info in self._manager._store.steps())

    def _begin(
        self,
        step: int,
        pack: Callable[[], dict[str, Item]],
        metrics: Any,
        custom: Any,
        overwrite: bool,
    ) -> AsyncResponse[bool]:
        manager = self._manager
        manager._engines.writing()

        def settled() -> dict[str, Item]:
            # Failures of the one before are raised.
            manager.check_for_errors()
            manager._settle()
            manager.check_for_errors()
            # Not before: what a handler begins has to be ended.
            return pack()

        manager._begin(
            step_number(step), settled, metrics, custom, overwrite=overwrite
        )
        deferred = manager._deferred
        begun = manager._engine.last_save

        def finish() -> bool:
            handle = begun if deferred is None else deferred.wait()
            assert handle is not None
            with manager._told():
                handle.result()
            manager._wait_for_callback()
            return True

        return AsyncResponse(finish)

    def is_saving_in_progress(self) -> bool:
        return self._manager.is_saving_in_progress()

    def wait(self) -> None:
        """Until no save is in flight. Raises what failed, once."""
        self._manager.wait_until_finished()

    # ---- Loading ----

    def load(
        self,
        step: StepLike = None,
        abstract_state: Any = None,
        *,
        checkpointable_name: str = _checkpointables.STATE,
    ) -> Any:
        """A tree, like `abstract_state`; of the latest step without one.
        StepNotFoundError: there is no such step; KeyError: no such tree in
        it."""
        opened = self._opened(step)
        return _checkpointables.unpack_one(
            opened,
            self._path(opened),
            checkpointable_name,
            abstract_state,
            self._context,
        )

    def load_async(
        self, step: StepLike = None, abstract_state: Any = None
    ) -> AsyncResponse[Any]:
        """NotImplementedError."""
        raise NotImplementedError("load_async: call load() from a thread")

    def load_checkpointables(
        self, step: StepLike = None, abstract_checkpointables: Any = None
    ) -> dict[str, Any]:
        """The objects by name: all, or those that are named, where None is as
        they were saved. KeyError: there is none of a name."""
        if isinstance(abstract_checkpointables, AnyMetadata):
            abstract_checkpointables = abstract_checkpointables.metadata
        opened = self._opened(step)
        return _checkpointables.unpack(
            opened, self._path(opened), abstract_checkpointables, self._context
        )

    def load_checkpointables_async(
        self, step: StepLike = None, abstract_checkpointables: Any = None
    ) -> AsyncResponse[dict[str, Any]]:
        """NotImplementedError."""
        raise NotImplementedError(
            "load_checkpointables_async: call load_checkpointables() from a "
            "thread"
        )

    # ---- What there is ----

    @property
    def checkpoints(self) -> Sequence[CheckpointMetadata[None]]:
        """All steps, ascending."""
        return [self._listed(step) for step in self._manager.all_steps()]

    @property
    def latest(self) -> CheckpointMetadata[None] | None:
        """Of the greatest number."""
        step = self._manager.latest_step()
        return None if step is None else self._listed(step)

    def metadata(self, step: StepLike = None) -> CheckpointMetadata[Any]:
        """Of a step, and what describes its tree; of the latest without one."""
        opened = self._opened(step)
        name = _checkpointables.automatic(opened, self._context)
        if name is None:
            raise KeyError(
                f"{self._path(opened)}: no tree: use checkpointables_metadata()"
            )
        found = _checkpointables.describe_one(
            opened, self._path(opened), name, self._context
        )
        return self._described(opened, found)

    def checkpointables_metadata(
        self, step: StepLike = None
    ) -> CheckpointMetadata[dict[str, Any]]:
        """As metadata(), of all objects by name."""
        opened = self._opened(step)
        found = _checkpointables.describe(
            opened, self._path(opened), self._context
        )
        return self._described(opened, found)

    def root_metadata(self) -> RootMetadata:
        """Of the run."""
        found: Any = self._manager.metadata()
        return RootMetadata(self.directory, found.custom_metadata)

    def _opened(self, step: StepLike) -> Step:
        """StepNotFoundError: there is none."""
        if isinstance(step, CheckpointMetadata):
            step = step.step
        if step is None:
            step = self._manager.latest_step()
            if step is None:
                raise StepNotFoundError(
                    "Specified `step=None`, but no checkpoints were found: "
                    f"{self.directory} has none"
                )
        self._manager.all_steps()  # Waits for saves in flight.
        try:
            return self._manager._step(step_number(step))
        except FileNotFoundError:
            raise StepNotFoundError(
                f"{self.directory}: No checkpoint found at step {step}"
            ) from None

    def _path(self, step: Step) -> pathlib.Path:
        return self._manager._path(step.step)

    def _listed(self, step: int) -> CheckpointMetadata[None]:
        return self._described(self._manager._step(step), None)

    def _described(self, step: Step, found: Any) -> CheckpointMetadata[Any]:
        about = _items.About.of(step)
        return CheckpointMetadata(
            step.step,
            self._path(step),
            metadata=found,
            metrics=self._manager.metrics(step.step),
            init_timestamp_nsecs=about.begun_ns,
            commit_timestamp_nsecs=step.info.committed_ns,
            custom_metadata=about.custom,
        )

    # ---- Changing ----

    def delete(
        self, step: int | CheckpointMetadata[Any], *, missing_ok: bool = False
    ) -> bool:
        """Whether it was there. StepNotFoundError, without `missing_ok`."""
        number = step.step if isinstance(step, CheckpointMetadata) else step
        try:
            self._manager.delete(number)
        except FileNotFoundError:
            if missing_ok:
                return False
            raise StepNotFoundError(
                f"{self.directory}: No checkpoint found at step {number}"
            ) from None
        return True

    def reload(self) -> None:
        """Sees what another process has saved since the last look."""
        self._manager.reload()

    def close(self) -> None:
        """Waits for saves in flight and closes; raises what failed, once."""
        self._manager.close()

    save_pytree = renamed(save)
    save_pytree_async = renamed(save_async)
    load_pytree = renamed(load)
    load_pytree_async = renamed(load_async)
    pytree_metadata = renamed(metadata)
