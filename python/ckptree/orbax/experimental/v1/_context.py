# SPDX-License-Identifier: Apache-2.0
"""The options that are in force."""

from __future__ import annotations

import contextvars
from typing import TYPE_CHECKING, Any

from ckptree.orbax._option_states import check_processes
from ckptree.orbax.experimental.v1.options import (
    ArrayOptions,
    AsyncOptions,
    AtomicityOptions,
    CheckpointablesOptions,
    CheckpointLayout,
    DeletionOptions,
    FileOptions,
    MemoryOptions,
    MultiprocessingOptions,
    PathwaysOptions,
    PyTreeOptions,
    SafetensorsOptions,
)

if TYPE_CHECKING:
    from types import TracebackType

    from ckptree.orbax.experimental.v1._option_group import OptionGroup

_KINDS: dict[str, Any] = {
    "pytree": PyTreeOptions,
    "array": ArrayOptions,
    "asynchronous": AsyncOptions,
    "multiprocessing": MultiprocessingOptions,
    "file": FileOptions,
    "checkpointables": CheckpointablesOptions,
    "pathways": PathwaysOptions,
    "deletion": DeletionOptions,
    "memory": MemoryOptions,
    "safetensors": SafetensorsOptions,
    "atomicity": AtomicityOptions,
}


class Context:
    """Options for what is called in its `with` block, and for a Checkpointer
    that is given it. They change by their names until then. `context`: one to
    start from, a copy.

    >>> import ckptree.orbax.experimental.v1 as ocp
    >>> context = ocp.Context()
    >>> context.pytree.loading.partial_load = True
    >>> with context:
    ...     pass
    """

    def __init__(
        self,
        context: Context | None = None,
        *,
        pytree_options: PyTreeOptions | None = None,
        array_options: ArrayOptions | None = None,
        async_options: AsyncOptions | None = None,
        multiprocessing_options: MultiprocessingOptions | None = None,
        file_options: FileOptions | None = None,
        checkpointables_options: CheckpointablesOptions | None = None,
        pathways_options: PathwaysOptions | None = None,
        checkpoint_layout: CheckpointLayout | str | None = None,
        deletion_options: DeletionOptions | None = None,
        memory_options: MemoryOptions | None = None,
        safetensors_options: SafetensorsOptions | None = None,
        atomicity_options: AtomicityOptions | None = None,
    ) -> None:
        given: dict[str, OptionGroup | None] = {
            "pytree": pytree_options,
            "array": array_options,
            "asynchronous": async_options,
            "multiprocessing": multiprocessing_options,
            "file": file_options,
            "checkpointables": checkpointables_options,
            "pathways": pathways_options,
            "deletion": deletion_options,
            "memory": memory_options,
            "safetensors": safetensors_options,
            "atomicity": atomicity_options,
        }
        self._groups: dict[str, OptionGroup] = {}
        for name, kind in _KINDS.items():
            group = given[name]
            if group is None and context is not None:
                group = context._groups[name].copied()
            self._groups[name] = kind() if group is None else group
        if checkpoint_layout is not None:
            self._layout = CheckpointLayout(checkpoint_layout)
        elif context is not None:
            self._layout = context._layout
        else:
            self._layout = CheckpointLayout.ORBAX
        self._tokens: list[contextvars.Token[Context | None]] = []

    def _group(self, name: str) -> Any:
        return self._groups[name]

    @property
    def pytree(self) -> PyTreeOptions:
        found: PyTreeOptions = self._group("pytree")
        return found

    @property
    def array(self) -> ArrayOptions:
        found: ArrayOptions = self._group("array")
        return found

    @property
    def asynchronous(self) -> AsyncOptions:
        found: AsyncOptions = self._group("asynchronous")
        return found

    @property
    def multiprocessing(self) -> MultiprocessingOptions:
        found: MultiprocessingOptions = self._group("multiprocessing")
        return found

    @property
    def file(self) -> FileOptions:
        found: FileOptions = self._group("file")
        return found

    @property
    def checkpointables(self) -> CheckpointablesOptions:
        found: CheckpointablesOptions = self._group("checkpointables")
        return found

    @property
    def pathways(self) -> PathwaysOptions:
        found: PathwaysOptions = self._group("pathways")
        return found

    @property
    def deletion(self) -> DeletionOptions:
        found: DeletionOptions = self._group("deletion")
        return found

    @property
    def memory(self) -> MemoryOptions:
        found: MemoryOptions = self._group("memory")
        return found

    @property
    def safetensors(self) -> SafetensorsOptions:
        found: SafetensorsOptions = self._group("safetensors")
        return found

    @property
    def atomicity(self) -> AtomicityOptions:
        found: AtomicityOptions = self._group("atomicity")
        return found

    @property
    def checkpoint_layout(self) -> CheckpointLayout:
        return self._layout

    @checkpoint_layout.setter
    def checkpoint_layout(self, layout: CheckpointLayout | str) -> None:
        if self._tokens:
            raise RuntimeError(
                "Cannot mutate an active Context: set its options before the "
                "`with` block"
            )
        self._layout = CheckpointLayout(layout)

    # The same under the names of the arguments.
    pytree_options = pytree
    array_options = array
    async_options = asynchronous
    multiprocessing_options = multiprocessing
    file_options = file
    checkpointables_options = checkpointables
    pathways_options = pathways
    deletion_options = deletion
    memory_options = memory
    safetensors_options = safetensors
    atomicity_options = atomicity

    def check(self) -> None:
        """NotImplementedError where it asks for what a store cannot do."""
        if self._layout is CheckpointLayout.SAFETENSORS:
            raise NotImplementedError(
                "checkpoint_layout SAFETENSORS: a store is read and written as "
                "ORBAX; read such files by safetensors.numpy.load_file() and "
                "save what it returns"
            )
        if self.deletion.gcs_deletion_options.todelete_full_path is not None:
            raise NotImplementedError(
                "todelete_full_path: steps have no directories to move: leave "
                "it out"
            )
        check_processes(self.multiprocessing)
        for group in self._groups.values():
            group.tell()

    def __enter__(self) -> Context:
        self._tokens.append(_current.set(self))
        for group in self._groups.values():
            group.use(1)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for group in self._groups.values():
            group.use(-1)
        _current.reset(self._tokens.pop())


_current: contextvars.ContextVar[Context | None] = contextvars.ContextVar(
    "ckptree.orbax context", default=None
)


def get_context() -> Context:
    """That of the innermost `with` block; the defaults outside of any."""
    return _current.get() or Context()
