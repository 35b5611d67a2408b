# SPDX-License-Identifier: Apache-2.0
"""What DCP saves by: each rank a part, rank 0 the step."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import uuid
from typing import TYPE_CHECKING, Any, Mapping, NamedTuple

from torch.distributed.checkpoint.metadata import (
    Metadata,
    MetadataIndex,
    StorageMeta,
)
from torch.distributed.checkpoint.planner import SavePlanner
from torch.distributed.checkpoint.storage import StorageWriter, WriteResult
from torch.futures import Future

from ckptree import _engine
from ckptree.arguments import checked, real
from ckptree.closing import Closing
from ckptree.errors import InvalidArgumentError, StateError, UnsupportedError
from ckptree.handle import SaveHandle
from ckptree.metadata import to_json
from ckptree.store import Store
from ckptree.torch._dcp_folder import check_folder
from ckptree.torch._dcp_items import Rules, part_of
from ckptree.torch._dcp_store import STORE, Opened

if TYPE_CHECKING:
    from torch.distributed.checkpoint.planner import SavePlan


class _Attempt(NamedTuple):
    """What the coordinator tells each rank of one save."""

    directory: str
    plan: bytes
    rank: int
    step: int


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
    >>> import torch
    >>> import torch.distributed.checkpoint as dcp
    >>> from ckptree.torch.dcp import StoreWriter
    >>> writer = StoreWriter(tmp / "run")
    >>> state = {"w": torch.ones(3), "step": 7}
    >>> saved = dcp.save(state, checkpoint_id=7, storage_writer=writer)
    >>> with ckptree.open(tmp / "run") as store:
    ...     store[7].torch()
    {'step': 7, 'w': tensor([1., 1., 1.])}
    """

    @checked({"store": STORE, "deadline": real(low=1e-3)})
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
        self._store = Opened(store)
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
        except BaseException as error:
            # The other ranks hear of it from DCP; finish() is called nowhere.
            # A part of an attempt that is over is refused: why it is over is
            # known here alone.
            self._give_up(
                "rank 0 could not write its part",
                tell=isinstance(error, StateError),
            )
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

    def _give_up(self, why: str, *, tell: bool = False) -> None:
        save, self._save = self._save, None
        if save is not None:
            save.fail(why, tell)

    def __getstate__(self) -> Any:
        """Of DCP's process executor: the store is opened there."""
        return {**vars(self), "_save": None}

    def __del__(self) -> None:
        if hasattr(self, "_save"):
            with contextlib.suppress(Exception):
                self.close()


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
