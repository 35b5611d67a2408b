# SPDX-License-Identifier: Apache-2.0
"""What DCP loads by: the bytes that a rank needs of a step."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import os
from typing import TYPE_CHECKING, Any

import torch
from torch.distributed.checkpoint.metadata import (
    BytesStorageMetadata,
    ChunkStorageMetadata,
    Metadata,
    StorageMeta,
    TensorProperties,
    TensorStorageMetadata,
)
from torch.distributed.checkpoint.planner import LoadItemType
from torch.distributed.checkpoint.storage import StorageReader
from torch.futures import Future

from ckptree import _engine
from ckptree.adapters import torch_memory
from ckptree.arguments import BOOL, checked
from ckptree.closing import Closing
from ckptree.errors import (
    Difference,
    InvalidArgumentError,
    MismatchError,
    StateError,
)
from ckptree.selector import SELECTOR, Selector, selector_text
from ckptree.store import Store
from ckptree.torch._dcp_items import (
    Entry,
    dtype_of,
    entries_of,
    memory_of,
    values_of,
)
from ckptree.torch._dcp_store import STORE, Opened

if TYPE_CHECKING:
    from torch.distributed.checkpoint.planner import (
        LoadPlan,
        LoadPlanner,
        ReadItem,
    )

    from ckptree.step import Step

# What is read beside its tensor, and copied there, at once.
_COPY_BYTES = 256 << 20


class StoreReader(Closing, StorageReader):  # type: ignore[misc]
    """Loads steps of a store by dcp.load(), whoever saved them: dicts of every
    class, as the state_dict() of a module, are gone into as DCP does it.

    The `checkpoint_id` is the number of the step, or "latest", "best:loss:min",
    "@tag" and what else Store takes; without one the latest. Each rank reads
    the bytes that it needs. Closed by close() or `with`.

    Parameters
    ----------
    store : str, os.PathLike or Store
        The directory of the store, its address in an object store, or an open
        one.
    cast : bool
        Tensors are converted to the types of those that they are loaded into,
        whatever is lost.

    Raises
    ------
    StoreNotFoundError, NotFoundError
        Out of read_metadata(): there is no store, or no such step. dcp.load()
        makes an AssertionError with the same text of it, in its
        CheckpointException, which is no Exception. So ask before whether there
        is anything to load, by ckptree.open() and its steps().
    MismatchError
        Out of dcp.load(), in its CheckpointException, as what is left: a tensor
        is of another type than what it is loaded into.
    CorruptionError
        The bytes are not those that were saved.

    Examples
    --------
    >>> import torch
    >>> import torch.distributed.checkpoint as dcp
    >>> from ckptree.torch.dcp import StoreReader
    >>> with ckptree.Store(tmp / "run") as store:
    ...     _ = store.save(7, {"w": torch.ones(3), "lr": 0.5}).result()
    >>> state = {"w": torch.zeros(3)}
    >>> reader = StoreReader(tmp / "run")
    >>> dcp.load(state, checkpoint_id=7, storage_reader=reader)
    >>> state["w"]
    tensor([1., 1., 1.])
    """

    @checked({"store": STORE, "cast": BOOL})
    def __init__(
        self, store: Store | str | os.PathLike[str], *, cast: bool = False
    ) -> None:
        super().__init__()
        self._store = Opened(store, reads=True)
        self._cast = cast
        self._selector: Selector = "latest"
        self._step: Step | None = None
        self._entries: dict[str, Entry] = {}

    # ---- What DCP calls, in this order ----

    def reset(self, checkpoint_id: Any = None) -> None:
        """All ranks: a load begins, of that step.

        Examples
        --------
        >>> reader.reset("latest")
        """
        self._step = None
        if checkpoint_id is not None:
            self._selector = SELECTOR("checkpoint_id", checkpoint_id)

    def read_metadata(self) -> Metadata:
        """All ranks: what the step holds, from its records. A tensor is one
        chunk, however many processes saved it: any part of it can be read.

        Examples
        --------
        >>> sorted(reader.read_metadata().state_dict_metadata)
        ['lr', 'w']
        """
        store = self._store.to_read()
        self._step = store[self._selector]
        self._entries = entries_of(self._step._engine)
        return Metadata(
            {
                name: _metadata_of(entry)
                for name, entry in self._entries.items()
            },
            planner_data={
                name: entry.place for name, entry in self._entries.items()
            },
            storage_meta=StorageMeta(checkpoint_id=str(self._step.step)),
        )

    def set_up_storage_reader(
        self,
        metadata: Metadata,
        is_coordinator: bool,
        *args: Any,
        **kwargs: Any,
    ) -> None:
        """All ranks.

        Examples
        --------
        >>> reader.set_up_storage_reader(reader.read_metadata(), True)
        """

    def prepare_local_plan(self, plan: LoadPlan) -> LoadPlan:
        """All ranks: says which step it is here.

        Examples
        --------
        >>> reader.prepare_local_plan(dcp.LoadPlan([])).storage_data[1]
        7
        """
        info = self._read_step().info
        version = (info.branch, info.step, info.version)
        return dataclasses.replace(plan, storage_data=version)

    def prepare_global_plan(self, plans: list[LoadPlan]) -> list[LoadPlan]:
        """The coordinator: all ranks read the same step.

        Examples
        --------
        >>> plan = reader.prepare_local_plan(dcp.LoadPlan([]))
        >>> reader.prepare_global_plan([plan])[0].items
        []
        """
        for rank, plan in enumerate(plans):
            if plan.storage_data != plans[0].storage_data:
                raise StateError(
                    f"{self._selector!r} is step {plan.storage_data[1]} on "
                    f"rank {rank}, and step {plans[0].storage_data[1]} on rank "
                    "0: it was saved just now; name the step by its number"
                )
        return plans

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        """All ranks: reads what this rank needs.

        Examples
        --------
        >>> reader.read_data(dcp.LoadPlan([]), dcp.DefaultLoadPlanner()).wait()
        """
        step = self._read_step()._engine
        objects = [i for i in plan.items if i.type == LoadItemType.BYTE_IO]
        nodes = [self._entry(item).node for item in objects]
        for item, value in zip(objects, values_of(step, nodes)):
            # It wants what torch.save() writes: written here, of plain data.
            stream = io.BytesIO()
            torch.save(value, stream)
            stream.seek(0)
            planner.load_bytes(item, stream)
        reads = _Reads(step, planner)
        for item in plan.items:
            if item.type != LoadItemType.BYTE_IO:
                self._add(reads, item, planner)
        reads.run()
        read: Future[None] = Future()
        read.set_result(None)
        return read

    def _add(
        self, reads: _Reads, item: ReadItem, planner: LoadPlanner
    ) -> None:
        info = self._entry(item).node.info
        assert info is not None
        name = item.dest_index.fqn
        target = planner.resolve_tensor(item).detach()
        lengths = tuple(item.lengths)
        if tuple(target.shape) != lengths:
            raise InvalidArgumentError(
                f"{name}: the planner gave a tensor of {list(target.shape)} "
                f"for a part of {list(lengths)}"
            )
        if target.layout is torch.strided:
            _check_memory(name, target)
        dtype = dtype_of(info)
        if target.dtype != dtype and not self._cast:
            expected, found = str(target.dtype), str(dtype)
            raise MismatchError(
                str(self._read_step().step),
                [Difference(name, "dtype", expected, found)],
                "or pass StoreReader(..., cast=True)",
            )
        chunk = item.storage_index.offset or [0] * len(lengths)
        start = tuple(c + o for c, o in zip(chunk, item.storage_offsets))
        reads.add(item, info, start, target, dtype)

    def _entry(self, item: ReadItem) -> Entry:
        return self._entries[item.storage_index.fqn]

    def _read_step(self) -> Step:
        if self._step is None:
            raise StateError("read_metadata() comes first: it opens the step")
        return self._step

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: Any) -> bool:
        """Whether that can name a step.

        Examples
        --------
        >>> StoreReader.validate_checkpoint_id("best:loss:min")
        True
        """
        try:
            _engine_selector(checkpoint_id)
        except (TypeError, InvalidArgumentError):
            return False
        return True

    @property
    def checkpoint_id(self) -> Selector:
        """As it was given.

        Examples
        --------
        >>> reader.checkpoint_id
        7
        """
        return self._selector

    def close(self) -> None:
        """Closes the store, unless it was given as one that is open.

        Examples
        --------
        >>> reader.close()
        """
        self._step = None
        self._entries = {}
        self._store.close()

    def __getstate__(self) -> Any:
        return {**vars(self), "_step": None, "_entries": {}}

    def __del__(self) -> None:
        if hasattr(self, "_entries"):
            with contextlib.suppress(Exception):
                self.close()


class _Reads:
    """Parts of tensors, read into place in few reads, or beside it."""

    def __init__(self, step: _engine.Step, planner: LoadPlanner) -> None:
        self._step = step
        self._planner = planner
        self._requests: list[Any] = []
        self._copies: list[tuple[torch.Tensor, torch.Tensor]] = []
        self._filled: list[torch.Tensor] = []
        self._done: list[tuple[ReadItem, torch.Tensor]] = []
        self._bytes = 0

    def add(
        self,
        item: ReadItem,
        info: _engine.LeafInfo,
        start: tuple[int, ...],
        target: torch.Tensor,
        dtype: torch.dtype,
    ) -> None:
        self._done.append((item, target))
        if target.numel() == 0:
            return
        memory = memory_of(target) if target.dtype == dtype else None
        if memory is not None:
            self._filled.append(target)
        else:
            beside = torch.empty(target.shape, dtype=dtype)
            memory = memory_of(beside)
            self._copies.append((target, beside))
            self._bytes += beside.nbytes
        shape = tuple(target.shape)
        box = (start, shape) if shape else (None, None)
        self._requests.append((info, memory, *box))
        if self._bytes >= _COPY_BYTES:
            self.run()

    def run(self) -> None:
        try:
            self._step.read(self._requests)
        finally:
            torch_memory.changed(self._filled)
        for target, beside in self._copies:
            target.copy_(beside)
        for item, target in self._done:
            self._planner.commit_tensor(item, target)
        self._requests, self._copies, self._done = [], [], []
        self._filled = []
        self._bytes = 0


def _check_memory(name: str, target: torch.Tensor) -> None:
    if target.device.type == "meta":
        return
    why = ""
    if torch_memory.is_freed(target):
        why = "its memory was freed"
    elif torch_memory.overlaps(target):
        why = "several of its elements are one in memory"
    if why:
        raise InvalidArgumentError(
            f"{name}: {why}: nothing can be read into it"
        )


def _engine_selector(checkpoint_id: Any) -> str:
    return selector_text(SELECTOR("checkpoint_id", checkpoint_id))


def _metadata_of(entry: Entry) -> TensorStorageMetadata | BytesStorageMetadata:
    info = entry.node.info
    if info is None or not entry.node.is_tensor():
        return BytesStorageMetadata()
    size = torch.Size(info.shape)
    whole = ChunkStorageMetadata(torch.Size([0] * len(size)), size)
    return TensorStorageMetadata(
        TensorProperties(dtype=dtype_of(info)), size, [whole]
    )
