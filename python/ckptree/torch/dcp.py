# SPDX-License-Identifier: Apache-2.0
"""PyTorch's Distributed Checkpoint (DCP) over a store: all processes of a
training save one step, each what its planner gives it, and load it again in as
many processes as there are then.

StoreWriter and StoreReader stand where FileSystemWriter and FileSystemReader
do. The number of the step is the checkpoint_id:

>>> import torch.distributed.checkpoint as dcp
>>> from ckptree.torch.dcp import StoreReader, StoreWriter
>>> model = torch.nn.Linear(3, 1)
>>> state = {"model": model.state_dict(), "lr": 0.5}
>>> with StoreWriter(tmp / "run") as writer:
...     for step in (100, 200):
...         _ = dcp.save(state, checkpoint_id=step, storage_writer=writer)
>>> state["lr"] = 0.0
>>> with StoreReader(tmp / "run") as reader:
...     dcp.load(state, checkpoint_id="latest", storage_reader=reader)
>>> state["lr"]
0.5

It is a step as any other: what did not change since the last one costs nothing,
`ckptree show` lists it, and step.torch() reads it without DCP. What
Store.save() saved, StoreReader loads.

All of a step is there, or nothing: the coordinator (rank 0) commits it when it
has the parts of all ranks. Where a rank raises, or is lost, DCP tells the
storage nothing. The attempt ends at the next save of that writer, when it is
closed, or at its deadline; other saves of the store wait until then.

Each rank has a writer of its own, and uses it for all its saves: it knows what
it saved last. dcp.async_save() runs collectives in a thread; give it a process
group of its own, of gloo, and wait for one save before the next. Its process
executor opens the store in its process: no other may have it open for writing
then, and the writer is made from a path.

Values that are no tensors are stored as the data that they are: None, bool,
int, float, complex, str, bytes, arrays of NumPy, lists, tuples and dicts. Of
other types those are saved that torch.load(weights_only=True) reads; all others
are a TypeError that names the entry. No pickle of a store is ever executed.
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
import os
import uuid
from typing import TYPE_CHECKING, Any, Mapping, NamedTuple

import torch
from torch.distributed.checkpoint.metadata import (
    BytesStorageMetadata,
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    StorageMeta,
    TensorProperties,
    TensorStorageMetadata,
)
from torch.distributed.checkpoint.planner import LoadItemType, SavePlanner
from torch.distributed.checkpoint.storage import (
    StorageReader,
    StorageWriter,
    WriteResult,
)
from torch.futures import Future

from ckptree import _engine
from ckptree.arguments import BOOL, PATH, checked, either, instance, real
from ckptree.closing import Closing
from ckptree.errors import (
    Difference,
    InvalidArgumentError,
    MismatchError,
    StateError,
    UnsupportedError,
)
from ckptree.handle import SaveHandle
from ckptree.metadata import to_json
from ckptree.paths import local_path, place_to_read
from ckptree.selector import SELECTOR, Selector, selector_text
from ckptree.store import Store
from ckptree.torch._dcp_folder import check_folder
from ckptree.torch._dcp_items import (
    Entry,
    Rules,
    dtype_of,
    entries_of,
    memory_of,
    part_of,
    values_of,
)

if TYPE_CHECKING:
    from torch.distributed.checkpoint.planner import (
        LoadPlan,
        LoadPlanner,
        ReadItem,
        SavePlan,
    )

    from ckptree.step import Step

__all__ = ["StoreReader", "StoreWriter"]

_STORE = either(PATH, instance("a Store", Store))
# What is read beside its tensor, and copied there, at once.
_COPY_BYTES = 256 << 20


class _Attempt(NamedTuple):
    """What the coordinator tells each rank of one save."""

    directory: str
    plan: bytes
    rank: int
    step: int


class _Opened(Closing):
    """The store of a writer or reader: the caller's, or opened by its path."""

    def __init__(
        self, store: Store | str | os.PathLike[str], *, reads: bool = False
    ) -> None:
        self._given = store if isinstance(store, Store) else None
        self.path = (
            store.path
            if isinstance(store, Store)
            else place_to_read(store)
            if reads
            else local_path(store)
        )
        self._opened: Store | None = None

    def to_write(self) -> Store:
        return self._given or self._open("write or create")

    def to_read(self) -> Store:
        """Any that is open, and sees what was committed so far."""
        store = self._given or self._opened or self._open("read")
        if store.info().read_only:
            store.refresh()
        return store

    def _open(self, mode: str) -> Store:
        opened = self._opened
        if opened is not None and (mode == "read") != opened.info().read_only:
            self.close()
            opened = None
        if opened is None or opened.closed:
            opened = self._opened = Store(self.path, mode=mode)
        return opened

    def close(self) -> None:
        opened, self._opened = self._opened, None
        if opened is not None:
            opened.close()

    def __getstate__(self) -> Any:
        if self._given is not None:
            raise TypeError(
                f"{self._given!r} cannot go to another process: make the "
                "writer or reader from the path of the store"
            )
        return {**vars(self), "_opened": None}


class StoreWriter(Closing, StorageWriter):  # type: ignore[misc]
    """Saves what dcp.save() and dcp.async_save() are given as steps of a store.

    The number of the step is the `checkpoint_id`, which every dcp.save() has,
    the same on all ranks. Every rank makes a writer; rank 0 opens the store
    for writing, and makes it where there is none, the others open it to read.
    Closed by close() or `with`: it saves no more then.

    Parameters
    ----------
    store : str, os.PathLike or Store
        The directory of the store, which all ranks see; or, of rank 0, a store
        that is open for writing, of others one that is open to read. To save
        to an address: rank 0's, with `remote` and durable="remote".
    overwrite : bool
        Replaces a step of that number.
    delete_later : bool
        Deletes all steps after it when it is committed, to go on from an older
        one.
    branch : str
        A fork to save to; "": the main branch.
    deadline : float
        Seconds from the plan of a save to its last part, above 0: a save of
        which a rank was lost ends then.

    Raises
    ------
    AlreadyExistsError
        Out of dcp.save(), in its CheckpointException, as all others: there is
        such a step.
    UnavailableError
        Another process writes.
    TypeError, ValueError
        What cannot be saved, by its name; no `checkpoint_id`, or another one
        on another rank.
    StateError
        The writer was closed.
    UnsupportedError
        A store of ranks that share no folder; `use_collectives=False`; or two
        classes of planners that cache their plans (`enable_plan_caching=True`)
        in one process.

    Examples
    --------
    >>> import torch.distributed.checkpoint as dcp
    >>> from ckptree.torch.dcp import StoreWriter
    >>> writer = StoreWriter(tmp / "run")
    >>> state = {"w": torch.ones(3), "step": 7}
    >>> saved = dcp.save(state, checkpoint_id=7, storage_writer=writer)
    >>> with ckptree.open(tmp / "run") as store:
    ...     store[7].torch()
    {'step': 7, 'w': tensor([1., 1., 1.])}
    """

    @checked({"store": _STORE, "deadline": real(low=1e-3)})
    def __init__(
        self,
        store: Store | str | os.PathLike[str],
        *,
        overwrite: bool = False,
        delete_later: bool = False,
        branch: str = "",
        deadline: float = 1800.0,
    ) -> None:
        super().__init__()
        if isinstance(store, Store):
            check_folder(store)
        self._store = _Opened(store)
        self._options: dict[str, Any] = {
            "overwrite": overwrite,
            "delete_later": delete_later,
            "branch": branch,
            "deadline": deadline,
        }
        self._about = _about(None, "", None)
        self._step: int | None = None
        # Whether the next save was told its step: each is told its own.
        self._is_named = False
        self._is_closed = False
        self._save_id = ""
        self._is_coordinator = False
        self._save: _engine.RankedSave | None = None

    @checked()
    def describe(
        self,
        *,
        metrics: Mapping[str, float] | None = None,
        note: str = "",
        metadata: Any = None,
    ) -> None:
        """Says more of the next save. What rank 0 says counts.

        Parameters
        ----------
        metrics : dict of str to float, optional
            At most 16 numbers, for "best:NAME:min" and "best:NAME:max".
        note : str
            A line for people.
        metadata : optional
            What json can write.

        Examples
        --------
        >>> with StoreWriter(tmp / "run") as writer:
        ...     writer.describe(metrics={"loss": 0.25}, note="warm")
        ...     _ = dcp.save(state, checkpoint_id=8, storage_writer=writer)
        >>> with ckptree.open(tmp / "run") as store:
        ...     store["best:loss:min"].step
        8
        """
        self._about = _about(metrics, note, metadata)

    # ---- What DCP calls, in this order ----

    def reset(self, checkpoint_id: Any = None) -> None:
        """All ranks: a save begins, of that step.

        Examples
        --------
        >>> writer.reset("epoch-3")
        Traceback (most recent call last):
        ckptree.errors.InvalidArgumentError: checkpoint_id is the number of...
        """
        self._give_up("the writer began another save")
        self._is_named = False
        if checkpoint_id is not None:
            self._step = _step_of(checkpoint_id)
            self._is_named = True

    def set_up_storage_writer(
        self, is_coordinator: bool, *args: Any, **kwargs: Any
    ) -> None:
        """All ranks.

        Examples
        --------
        >>> writer.set_up_storage_writer(True, use_collectives=False)
        Traceback (most recent call last):
        ckptree.errors.UnsupportedError: use_collectives=False: ...
        """
        self._give_up("the writer began another save")
        # DCP calls reset() only where it has a checkpoint_id.
        is_named, self._is_named = self._is_named, False
        if self._is_closed:
            raise StateError(
                f"this StoreWriter of {self._store.path} was closed: make "
                "another one"
            )
        if not kwargs.get("use_collectives", True):
            raise UnsupportedError(
                "use_collectives=False: the ranks of a save are committed "
                "together, by rank 0: leave it out"
            )
        if not is_named:
            raise InvalidArgumentError(
                "which step? call dcp.save(state, checkpoint_id=STEP, "
                "storage_writer=...) with its number"
            )
        self._is_coordinator = is_coordinator
        self._save_id = uuid.uuid4().hex
        if is_coordinator:
            self._store.to_write()

    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        """All ranks.

        Examples
        --------
        >>> writer.prepare_local_plan(dcp.SavePlan([])).items
        []
        """
        return plan

    def prepare_global_plan(self, plans: list[SavePlan]) -> list[SavePlan]:
        """The coordinator: begins the save, and tells all ranks its plan. Waits
        for the saves of the store that are in flight.

        Examples
        --------
        >>> writer.reset(9)
        >>> writer.set_up_storage_writer(True)
        >>> len(writer.prepare_global_plan([dcp.SavePlan([])] * 2))
        2
        >>> writer.close()  # Nothing came of it.
        """
        assert self._step is not None
        plans = _whole(plans)
        about, self._about = self._about, _about(None, "", None)
        store = self._store.to_write()
        save = _engine.begin_ranked(
            store._live(),
            step=self._step,
            world=len(plans),
            **self._options,
            **about,
        )
        self._save = save
        return [
            dataclasses.replace(
                plan,
                storage_data=_Attempt(
                    self._store.path, save.plan, rank, self._step
                ),
            )
            for rank, plan in enumerate(plans)
        ]

    def write_data(
        self, plan: SavePlan, planner: SavePlanner
    ) -> Future[list[WriteResult]]:
        """All ranks: writes this rank's part. Tensors may change when it
        returns.

        Examples
        --------
        >>> writer.reset(9)
        >>> writer.set_up_storage_writer(True)
        >>> (plan,) = writer.prepare_global_plan([dcp.SavePlan([])])
        >>> len(writer.write_data(plan, dcp.DefaultSavePlanner()).value())
        1
        >>> writer.close()
        """
        attempt = plan.storage_data
        if not isinstance(attempt, _Attempt):
            raise StateError(
                f"the plan carries {attempt!r} as its storage_data, not what "
                "this writer has put there: a planner keeps it"
            )
        if attempt.step != self._step:
            raise InvalidArgumentError(
                f"checkpoint_id={self._step} on rank {attempt.rank}, and "
                f"{attempt.step} on rank 0: all ranks save the same step"
            )
        try:
            token = self._build(attempt, plan, planner)
        except BaseException:
            # The other ranks hear of it from DCP; finish() is called nowhere.
            self._give_up("rank 0 could not write its part")
            raise
        result = WriteResult(MetadataIndex(""), len(token), token)
        written: Future[list[WriteResult]] = Future()
        written.set_result([result])
        return written

    def _build(
        self, attempt: _Attempt, plan: SavePlan, planner: SavePlanner
    ) -> bytes:
        part = part_of(plan.items, plan.planner_data, planner)
        if self._is_coordinator:
            store = self._store.to_write()
        else:
            store = self._store.to_read()
        return _engine.build_part(
            store._live(),
            plan=attempt.plan,
            rank=attempt.rank,
            state=part,
            rules=Rules(),
        )

    def finish(
        self, metadata: Metadata, results: list[list[WriteResult]]
    ) -> None:
        """The coordinator: commits the step, and waits until it is durable.

        Examples
        --------
        >>> writer.reset(9)
        >>> writer.set_up_storage_writer(True)
        >>> (plan,) = writer.prepare_global_plan([dcp.SavePlan([])])
        >>> part = writer.write_data(plan, dcp.DefaultSavePlanner()).value()
        >>> writer.finish(dcp.Metadata({}), [part])
        >>> writer.close()
        """
        save, self._save = self._save, None
        if save is None:
            raise StateError(
                f"step {self._step}: the save was given up before all ranks "
                "had written"
            )
        tokens = [part.storage_data for of_rank in results for part in of_rank]
        SaveHandle(save.commit(tokens)).result()
        metadata.storage_meta = self.storage_meta()

    def storage_meta(self) -> StorageMeta | None:
        """What a planner is told.

        Examples
        --------
        >>> writer.storage_meta().checkpoint_id
        '7'
        """
        step = None if self._step is None else str(self._step)
        return StorageMeta(checkpoint_id=step, save_id=self._save_id)

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: Any) -> bool:
        """Whether that is the number of a step.

        Examples
        --------
        >>> StoreWriter.validate_checkpoint_id("run/epoch-3")
        False
        """
        try:
            _step_of(checkpoint_id)
        except InvalidArgumentError:
            return False
        return True

    @property
    def checkpoint_id(self) -> int | None:
        """The number of the step; None before the first save.

        Examples
        --------
        >>> writer.checkpoint_id
        7
        """
        return self._step

    def close(self) -> None:
        """Gives up a save that was not finished, and closes the store, unless
        it was given as one that is open.

        Examples
        --------
        >>> writer.close()
        """
        self._is_closed = True
        self._give_up("the writer was closed")
        self._store.close()

    def _give_up(self, why: str) -> None:
        save, self._save = self._save, None
        if save is not None:
            save.fail(why)

    def __getstate__(self) -> Any:
        """Of DCP's process executor: the store is opened there."""
        return {**vars(self), "_save": None}

    def __del__(self) -> None:
        if hasattr(self, "_save"):
            with contextlib.suppress(Exception):
                self.close()


class StoreReader(Closing, StorageReader):  # type: ignore[misc]
    """Loads steps of a store by dcp.load(), whoever saved them.

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
    StoreNotFoundError
        Out of dcp.load(), in its CheckpointException, as all others.
    NotFoundError
        No step matches.
    MismatchError
        A tensor is of another type than what it is loaded into.
    CorruptionError
        The bytes are not those that were saved.

    Examples
    --------
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

    @checked({"store": _STORE, "cast": BOOL})
    def __init__(
        self, store: Store | str | os.PathLike[str], *, cast: bool = False
    ) -> None:
        super().__init__()
        self._store = _Opened(store, reads=True)
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
        if memory is None:
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
        self._step.read(self._requests)
        for target, beside in self._copies:
            target.copy_(beside)
        for item, target in self._done:
            self._planner.commit_tensor(item, target)
        self._requests, self._copies, self._done = [], [], []
        self._bytes = 0


def _about(
    metrics: Mapping[str, float] | None, note: str, metadata: Any
) -> dict[str, Any]:
    return {
        "metrics": dict(metrics or {}),
        "note": note,
        "metadata": to_json(metadata),
    }


def _step_of(checkpoint_id: Any) -> int:
    try:
        if isinstance(checkpoint_id, bool):
            raise TypeError
        if isinstance(checkpoint_id, str):
            step = int(checkpoint_id)
        else:
            step = checkpoint_id.__index__()
    except (AttributeError, TypeError, ValueError):
        step = -1
    if not 0 <= step < 2**63:
        raise InvalidArgumentError(
            f"checkpoint_id is the number of the step, not {checkpoint_id!r}; "
            "the directory of the store is that of the StoreWriter"
        )
    return int(step)


def _engine_selector(checkpoint_id: Any) -> str:
    return selector_text(SELECTOR("checkpoint_id", checkpoint_id))


def _whole(plans: list[SavePlan]) -> list[SavePlan]:
    """The plans with those that their planner left out, as nothing has changed
    in them since it made them: it has them in its cache. Each rank gets its
    plan again, for with it goes which save it is of."""
    if all(plan.usable for plan in plans):
        return plans
    # By the names of planners' classes; which one it is, nobody says here.
    cached = list(getattr(SavePlanner, "_cached_global_plan", {}).values())
    if len(cached) != 1 or len(cached[0]) != len(plans):
        raise UnsupportedError(
            "enable_plan_caching=True: the plans of two classes of planners, "
            "or none of so many ranks, are cached in this process: let one "
            "class cache them, or none"
        )
    return [
        plan if plan.usable else known for plan, known in zip(plans, cached[0])
    ]


def _metadata_of(entry: Entry) -> TensorStorageMetadata | BytesStorageMetadata:
    info = entry.node.info
    if info is None or not entry.node.is_tensor():
        return BytesStorageMetadata()
    size = torch.Size(info.shape)
    whole = ChunkStorageMetadata(torch.Size([0] * len(size)), size)
    return TensorStorageMetadata(
        TensorProperties(dtype=dtype_of(info)), size, [whole]
    )
