# SPDX-License-Identifier: Apache-2.0
"""A step that all processes of a group load: the first of them reads it, and
sends what it read to the others by the group's own collectives.

All load the same, so all make the same reads in the same order. At each of them
they tell each other that, or what went wrong; so none waits for one that has
failed, and all fail together.
"""

from __future__ import annotations

import contextlib
import hashlib
from types import TracebackType
from typing import TYPE_CHECKING, Any, Callable, Sequence

import torch
import torch.distributed as dist

from ckptree.arguments import Kind
from ckptree.errors import InvalidArgumentError, StateError

if TYPE_CHECKING:
    import numpy as np

    from ckptree import _engine
    from ckptree.step import Step

    Asked = tuple[str, str]  # The name of a leaf, and how it is read.

# Arrays below it are sent together, in messages of so many bytes.
_SMALL_BYTES = 1 << 20
_MESSAGE_BYTES = 32 << 20


def _group(name: str, value: Any) -> Any:
    if value is None or value is True:
        return value
    known = getattr(dist, "ProcessGroup", None)
    if known is not None and isinstance(value, known):
        return value
    return NotImplemented


GROUP = Kind("a process group of torch.distributed, True or None", _group)


class Together:
    """One load of a group of processes; `with` ends it for all of them."""

    def __init__(self, group: Any) -> None:
        if not dist.is_available() or not dist.is_initialized():
            raise InvalidArgumentError(
                "broadcast: torch.distributed is not initialized"
            )
        self._group = None if group is True else group
        self._rank = dist.get_rank(self._group)
        if self._rank < 0:
            raise InvalidArgumentError("broadcast: this process is not of it")
        config = str(dist.get_backend_config(self._group))
        if "cpu:" not in config:
            raise InvalidArgumentError(
                f"broadcast: a group of {config} sends no memory of the host: "
                "pass dist.new_group(backend='gloo')"
            )
        # None: the group is the one of all processes.
        self._first = (
            0 if group is True else dist.get_global_rank(self._group, 0)
        )
        self._failed = False

    @property
    def reads(self) -> bool:
        """Whether this process is the one that reads."""
        return bool(self._rank == 0)

    def __enter__(self) -> Together:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            self.meet("the end")
        elif not self._failed:
            with contextlib.suppress(Exception):  # The group is gone, too.
                self._say(error, "", [])

    def meet(self, what: str, asked: Sequence[Asked] = ()) -> None:
        """All processes are at the same place, which is called so, and ask for
        the same. StateError: one does not, or has failed."""
        self._say(None, what, asked)

    def _say(
        self, error: BaseException | None, what: str, asked: Sequence[Asked]
    ) -> None:
        said = None
        if error is not None:
            said = f"{type(error).__name__}: {error}"
        digest = hashlib.sha256(repr(asked).encode()).hexdigest()
        heard = self._gathered((said, what, digest))
        if error is not None:
            return  # It is raised here as it is.
        for rank, (failure, *_) in enumerate(heard):
            if failure is not None:
                self._failed = True
                raise StateError(f"rank {rank} of the group: {failure}")
        others = [r for r, said in enumerate(heard) if said != heard[0]]
        if not others:
            return
        # All have heard that, and no one has failed: all tell each other more.
        self._failed = True
        rank = others[0]
        in_full = self._gathered(asked)
        raise StateError(
            f"rank {rank} of the group loads something else than rank 0: "
            f"{heard[rank][1]}, and {heard[0][1]}"
            + _difference(in_full[rank], in_full[0])
        )

    def _gathered(self, mine: Any) -> list[Any]:
        heard: list[Any] = [None] * dist.get_world_size(self._group)
        dist.all_gather_object(heard, mine, group=self._group)
        return heard

    def first_of(self, value: Any) -> Any:
        """What the process that reads has for it; what others pass counts for
        nothing."""
        values = [value]
        dist.broadcast_object_list(values, src=self._first, group=self._group)
        return values[0]

    def same(self, step: Step) -> Reader:
        """What to read of it. StateError: it is another one elsewhere."""
        info = step.info
        self.meet(f"step {info.step}, version {info.version}")
        return Reader(step._engine, self)

    def send(self, arrays: list[np.ndarray[Any, Any]]) -> None:
        """Fills the arrays of all with those of the process that reads."""
        batch: list[torch.Tensor] = []
        used = 0
        for array in arrays:
            assert array.flags.c_contiguous
            flat = torch.from_numpy(array.reshape(-1).view("u1"))
            if flat.numel() >= _SMALL_BYTES:
                self._broadcast(flat)
            elif flat.numel() > 0:
                batch.append(flat)
                used += flat.numel()
                if used >= _MESSAGE_BYTES:
                    self._send_batch(batch)
                    batch, used = [], 0
        if batch:
            self._send_batch(batch)

    def _send_batch(self, batch: list[torch.Tensor]) -> None:
        message = torch.cat(batch)
        self._broadcast(message)
        if not self.reads:
            parts = message.split([flat.numel() for flat in batch])
            for flat, part in zip(batch, parts):
                flat.copy_(part)

    def _broadcast(self, flat: torch.Tensor) -> None:
        dist.broadcast(flat, src=self._first, group=self._group)


def _difference(here: Sequence[Asked], there: Sequence[Asked]) -> str:
    """Names the first leaf that two processes do not ask for alike.

    >>> _difference([("w", "f4[2]")], [("b", "f4[3]"), ("w", "f4[2]")])
    '; b differs in its shape, type, strides or device'
    >>> _difference([], [])
    ''
    """
    alike = set(here) & set(there)
    for one in [*here, *there]:
        if one not in alike:
            return f"; {one[0]} differs in its shape, type, strides or device"
    return ""


class Reader:
    """In the place of a step of the engine: its bytes are read by one process.
    Its records, which are few, are read by each."""

    def __init__(self, step: _engine.Step, together: Together) -> None:
        self._step = step
        self._together = together

    def read(
        self,
        requests: list[Any],
        progress: Callable[[int, int], object] | None = None,
    ) -> None:
        asked = [
            (info.name, repr((array.shape, array.dtype.str, start, shape)))
            for info, array, start, shape in requests
        ]
        if self._together.reads:
            if progress is None:
                self._step.read(requests)
            else:
                self._step.read(requests, progress)
        self._together.meet(f"a read of {len(requests)} arrays", asked)
        self._together.send([array for _, array, _, _ in requests])

    def values(
        self,
        leaves: list[_engine.LeafInfo],
        progress: Callable[[int, int], object] | None = None,
    ) -> list[Any]:
        found: list[Any] = []
        if self._together.reads:
            if progress is None:
                found = self._step.values(leaves)
            else:
                found = self._step.values(leaves, progress)
        asked = [(info.name, "") for info in leaves]
        self._together.meet(f"a read of {len(leaves)} values", asked)
        values: list[Any] = self._together.first_of(found)
        return values

    def __getattr__(self, name: str) -> Any:
        return getattr(self._step, name)
