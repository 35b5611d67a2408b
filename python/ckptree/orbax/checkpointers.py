# SPDX-License-Identifier: Apache-2.0
"""Checkpointers: one checkpoint at a path of its own."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Callable

from ckptree.closing import Closing
from ckptree.orbax import _checkpoint, _items, _place, _tree_save
from ckptree.orbax._composite_handler import (
    CompositeCheckpointHandler,
    describe,
    of_one_item,
    one_of,
    pack_composite,
    pack_item,
    unpack_item,
)
from ckptree.orbax._files_handler import PlainArgs
from ckptree.orbax._following import Deferred, Following
from ckptree.orbax._handler import CheckpointHandler, StoreHandler, arguments
from ckptree.orbax._option_states import check_processes, tell, tell_of
from ckptree.orbax._registry import HandlerTable
from ckptree.orbax._saving import saving_to
from ckptree.orbax._tree_handlers import (
    PyTreeCheckpointHandler,
    StandardCheckpointHandler,
)
from ckptree.orbax.args import StandardRestore, StandardSave
from ckptree.orbax.checkpoint_args import CheckpointArgs
from ckptree.orbax.metadata import StepMetadata, TreeMetadata
from ckptree.orbax.options import (
    AsyncOptions,
    AtomicityOptions,
    FileOptions,
    MultiprocessingOptions,
)

if TYPE_CHECKING:
    from ckptree.handle import SaveHandle
    from ckptree.orbax._items import Item, StoredItem
    from ckptree.orbax._remote_saving import RemoteSaving
    from ckptree.orbax._saving import Saving

    PathLike = str | os.PathLike[str]


def _check_context(kwargs: dict[str, Any]) -> None:
    if kwargs.pop("save_context", None) is not None:
        raise NotImplementedError(
            "save_context: a save of a store takes nothing of that kind: "
            "leave it out"
        )


class AbstractCheckpointer:
    """What all checkpointers are."""


class Checkpointer(AbstractCheckpointer, Closing):
    """Saves by `handler` to a path, or to an address as s3://bucket/one, which
    becomes a store with one step; save() returns when it is durable there.

    >>> import ckptree.orbax as ocp, numpy as np
    >>> checkpointer = ocp.Checkpointer(ocp.PyTreeCheckpointHandler())
    >>> checkpointer.save(tmp / "one", {"w": np.ones(2), "name": "x"})
    >>> checkpointer.restore(tmp / "one")
    {'name': 'x', 'w': array([1., 1.])}
    """

    _synchronous = True  # By save() of its handler, where it has another one.

    def __init__(
        self,
        handler: CheckpointHandler,
        *,
        multiprocessing_options: MultiprocessingOptions | None = None,
        file_options: FileOptions | None = None,
        atomicity_options: AtomicityOptions | None = None,
        checkpoint_metadata_store: Any = None,
        temporary_path_class: Any = None,
    ) -> None:
        check_processes(multiprocessing_options)
        tell("Checkpointer", locals(), Checkpointer)
        tell_of(file_options)
        tell_of(atomicity_options)
        self._handler = handler
        self._permissions = (file_options or FileOptions()).path_permission_mode
        self._processes = multiprocessing_options

    @property
    def handler(self) -> CheckpointHandler:
        return self._handler

    def save(
        self,
        directory: PathLike,
        *args: Any,
        force: bool = False,
        custom_metadata: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """Saves `args=`, arguments of the handler, or an item and what else
        they take. ValueError: something is there; `force` replaces a
        checkpoint."""
        _check_context(kwargs)
        saving = self._saving(directory, force)
        with saving.telling():
            saving.check_free()
            items = _items.finished(self._pack(args, kwargs))
        saving.begin(items, custom_metadata)
        saving.finish()

    def _saving(
        self, directory: PathLike, force: bool
    ) -> Saving | RemoteSaving:
        return saving_to(
            directory,
            force=force,
            permissions=self._permissions,
            processes=self._processes,
        )

    def _pack(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> dict[str, Item]:
        if isinstance(self._handler, CompositeCheckpointHandler):
            given = one_of(args, kwargs)
            return pack_composite(self._handler, given, self._synchronous)
        wanted = self._args(0, args, kwargs)
        return {
            _items.DEFAULT: pack_item(self._handler, wanted, self._synchronous)
        }

    def _args(
        self, which: int, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> CheckpointArgs | PlainArgs:
        try:
            return arguments(self._handler, which, args, kwargs)
        except ValueError:
            if isinstance(self._handler, StoreHandler) or "args" in kwargs:
                raise
            return PlainArgs(
                args, kwargs
            )  # A handler without a class for them.

    def restore(self, directory: PathLike, *args: Any, **kwargs: Any) -> Any:
        """What was saved at a path, or is of a step or item of a manager.
        FileNotFoundError."""
        if isinstance(self._handler, CompositeCheckpointHandler):
            return self._handler.restore(directory, *args, **kwargs)
        given = self._args(1, args, kwargs)
        with _checkpoint.opened(directory) as (step, place):
            item = _checkpoint.only_item(step, place)
            return unpack_item(self._handler, item, given)

    def _unpack(self, item: StoredItem, kwargs: dict[str, Any]) -> Any:
        return unpack_item(self._handler, item, self._args(1, (), kwargs))

    def metadata(self, directory: PathLike) -> StepMetadata:
        """What is known of it; reads no array."""
        if isinstance(self._handler, CompositeCheckpointHandler):
            return self._handler.metadata(directory)
        with _checkpoint.opened(directory) as (step, place):
            item = _checkpoint.only_item(step, place)
            table = HandlerTable(None, {item.name: self._handler})
            found = describe(table, step, place.store / str(step.step))
            if item.name != _items.DEFAULT:
                found.item_metadata = found.item_metadata[item.name]
                return found
            return of_one_item(found)

    def structure(self, directory: PathLike) -> Any:
        """The tree of metadata of its leaves."""
        found = self.metadata(directory).item_metadata
        return found.tree if isinstance(found, TreeMetadata) else found

    def close(self) -> None:
        """Frees what the handler holds."""
        self._handler.close()


class AsyncCheckpointer(Checkpointer):
    """A checkpointer whose save() returns when the arrays may change again.
    The next save(), wait_until_finished(), restore() and close() wait for the
    one before, and raise what it failed of, once."""

    _synchronous = False

    def __init__(
        self,
        handler: CheckpointHandler,
        timeout_secs: int | None = None,
        *,
        async_options: AsyncOptions | None = None,
        multiprocessing_options: MultiprocessingOptions | None = None,
        file_options: FileOptions | None = None,
        atomicity_options: AtomicityOptions | None = None,
        checkpoint_metadata_store: Any = None,
        temporary_path_class: Any = None,
    ) -> None:
        super().__init__(
            handler,
            multiprocessing_options=multiprocessing_options,
            file_options=file_options,
            atomicity_options=atomicity_options,
            checkpoint_metadata_store=checkpoint_metadata_store,
            temporary_path_class=temporary_path_class,
        )
        self._options = async_options or AsyncOptions()
        tell_of(self._options)
        timeout = timeout_secs or self._options.timeout_secs
        if timeout < 0:
            raise ValueError(f"timeout_secs={timeout}: it must be positive")
        self._timeout = timeout
        self._going_on: Following | Deferred | None = None

    def save(
        self,
        directory: PathLike,
        *args: Any,
        force: bool = False,
        custom_metadata: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """As Checkpointer.save(); goes on in the background."""
        _check_context(kwargs)
        saving = self._saving(directory, force)
        with saving.telling():
            self.wait_until_finished()
            saving.check_free()
            items = self._pack(args, kwargs)
        if not any(item.later for item in items.values()):
            saving.begin(items, custom_metadata)
            self.follow(saving.handle, saving.finish, saving.is_primary)
            return
        kept = _tree_save.copied(items)  # Those of the user may change now.

        def run() -> None:
            with saving.telling():
                made = _items.finished(kept)
            saving.begin(made, custom_metadata)
            saving.finish()
            self._call_back(saving.is_primary)

        self._going_on = Deferred(_place.ONLY_STEP, run)

    def _saving(
        self, directory: PathLike, force: bool
    ) -> Saving | RemoteSaving:
        return saving_to(
            directory,
            force=force,
            permissions=self._permissions,
            processes=self._processes,
            deadline=self._timeout,
        )

    def restore(self, directory: PathLike, *args: Any, **kwargs: Any) -> Any:
        self.wait_until_finished()
        return super().restore(directory, *args, **kwargs)

    def metadata(self, directory: PathLike) -> StepMetadata:
        self.wait_until_finished()
        return super().metadata(directory)

    def wait_until_finished(self) -> None:
        """Until the save is durable, and the callback of the options has run.
        TimeoutError: it goes on."""
        following = self._going_on
        if following is None:
            return
        try:
            following.wait(self._timeout)
        finally:
            if following.ended():
                self._going_on = None

    def follow(
        self,
        handle: SaveHandle,
        finish: Callable[[], object],
        is_primary: bool = True,
    ) -> None:
        """A save becomes this one's: when it has ended `finish` is called, and
        waited for."""

        def run(handle: SaveHandle) -> None:
            finish()
            self._call_back(is_primary)

        self._going_on = Following(handle, run)

    def _call_back(self, is_primary: bool) -> None:
        callback = self._options.post_finalization_callback
        if callback is not None and is_primary:
            callback()

    def check_for_errors(self) -> None:
        """Raises what a save failed of, if it did by now."""
        if self._going_on is not None and self._going_on.ended():
            self.wait_until_finished()

    def close(self) -> None:
        self.wait_until_finished()
        super().close()


class PyTreeCheckpointer(Checkpointer):
    """Trees of arrays, numbers, str and None.

    >>> import ckptree.orbax as ocp, numpy as np
    >>> ocp.PyTreeCheckpointer().save(tmp / "tree", {"w": np.arange(3)})
    >>> ocp.PyTreeCheckpointer().restore(tmp / "tree")
    {'w': array([0, 1, 2])}
    """

    def __init__(
        self,
        primary_host: int | None = 0,
        use_ocdbt: bool = True,
        use_zarr3: bool = False,
        use_compression: bool = True,
    ) -> None:
        tell("PyTreeCheckpointer", locals(), PyTreeCheckpointer)
        super().__init__(
            PyTreeCheckpointHandler(),
            multiprocessing_options=MultiprocessingOptions(primary_host),
        )


class StandardCheckpointer(AsyncCheckpointer):
    """Trees of arrays and numbers, in the background.

    >>> import ckptree.orbax as ocp, numpy as np
    >>> with ocp.StandardCheckpointer() as checkpointer:
    ...     checkpointer.save(tmp / "standard", {"w": np.arange(3)})
    ...     checkpointer.wait_until_finished()
    ...     checkpointer.restore(tmp / "standard", {"w": np.zeros(3, int)})
    {'w': array([0, 1, 2])}
    """

    def __init__(
        self,
        *,
        async_options: AsyncOptions | None = None,
        multiprocessing_options: MultiprocessingOptions | None = None,
        file_options: FileOptions | None = None,
        atomicity_options: AtomicityOptions | None = None,
        checkpoint_metadata_store: Any = None,
        temporary_path_class: Any = None,
        **kwargs: Any,
    ) -> None:
        """`kwargs`: those of StandardCheckpointHandler. TypeError: it has no
        such option."""
        super().__init__(
            StandardCheckpointHandler(**kwargs),
            async_options=async_options,
            multiprocessing_options=multiprocessing_options,
            file_options=file_options,
            atomicity_options=atomicity_options,
            checkpoint_metadata_store=checkpoint_metadata_store,
            temporary_path_class=temporary_path_class,
        )

    def save(  # type: ignore[override]
        self,
        directory: PathLike,
        state: Any = None,
        *,
        save_args: Any = None,
        force: bool = False,
        custom_metadata: dict[str, Any] | None = None,
        args: Any = None,
    ) -> None:
        """`state`, or `args`: a tree, or StandardSave."""
        given = state if args is None else args
        if not isinstance(given, CheckpointArgs):
            given = StandardSave(given, save_args)
        super().save(
            directory, args=given, force=force, custom_metadata=custom_metadata
        )

    def restore(
        self,
        directory: PathLike,
        target: Any = None,
        *,
        strict: bool = True,
        args: Any = None,
    ) -> Any:
        """`target`: a template; see StandardRestore, which `args` may be."""
        given = target if args is None else args
        if not isinstance(given, CheckpointArgs):
            given = StandardRestore(given, strict)
        return super().restore(directory, args=given)
