# SPDX-License-Identifier: Apache-2.0
"""How the bytes of leaves get into tensors.

Those of the host that are dense are read straight into, all in one parallel
pass. What is elsewhere, or not dense, gets its bytes through a pool of a few
buffers: while one is read, the copies out of the one before go on. So a restore
needs no more of the host's memory than the pool, and the device holds each
tensor once.
"""

from __future__ import annotations

import math
from typing import (
    TYPE_CHECKING,
    Any,
    Callable,
    Iterable,
    Iterator,
    NamedTuple,
    Sequence,
)

from ckptree.adapters.boxes import cut
from ckptree.adapters.torch_dtypes import array_of

import torch  # After torch_dtypes, which says what to install.

if TYPE_CHECKING:
    from ckptree import _engine
    from ckptree.arrays.values import ReadRequest

    Want = tuple[_engine.LeafInfo, torch.Tensor]

# The pool: while one buffer is read the other is copied from.
BUFFERS = 2
BUFFER_BYTES = 64 << 20
# Of elements in a buffer, so that every type may lie there.
_ALIGNMENT = 64


class Staging:
    """How bytes get from the host to tensors of one device: at once."""

    def __init__(self, device: torch.device) -> None:
        self.device = device

    def buffer(self, nbytes: int) -> torch.Tensor:
        """Memory of the host that copies begin in."""
        return torch.empty(nbytes, dtype=torch.uint8, device="cpu")

    def copy(self, source: torch.Tensor, target: torch.Tensor) -> None:
        """Begins to copy from a buffer, which stays as it is until then."""
        with torch.inference_mode(target.is_inference()):
            target.copy_(source)

    def mark(self) -> Callable[[], object]:
        """What waits for all copies that have begun."""
        return lambda: None


class _OfCuda(Staging):
    """From pinned memory, beside the reads; on the current stream, so that what
    the caller does next with the tensors comes after."""

    def buffer(self, nbytes: int) -> torch.Tensor:
        return torch.empty(
            nbytes, dtype=torch.uint8, device="cpu", pin_memory=True
        )

    def copy(self, source: torch.Tensor, target: torch.Tensor) -> None:
        with torch.inference_mode(target.is_inference()):
            target.copy_(source, non_blocking=True)

    def mark(self) -> Callable[[], object]:
        event = torch.cuda.Event()
        event.record(torch.cuda.current_stream(self.device))
        done: Callable[[], object] = event.synchronize
        return done


# By the type of the device; others copy at once.
STAGING: dict[str, Callable[[torch.device], Staging]] = {"cuda": _OfCuda}


def read(step: _engine.Step, wanted: Sequence[Want]) -> None:
    """Reads leaves into tensors of their type and shape, wherever these are."""
    straight: list[ReadRequest] = []
    filled: list[torch.Tensor] = []
    others: dict[torch.device, list[Want]] = {}
    for info, tensor in wanted:
        tensor = tensor.detach()
        if is_straight(tensor):
            straight.append((info, array_of(tensor), None, None))
            filled.append(tensor)
        elif tensor.numel() > 0:
            others.setdefault(tensor.device, []).append((info, tensor))
    try:
        step.read(straight)
    finally:
        changed(filled)
    for device, here in others.items():
        staging = STAGING.get(device.type, Staging)(device)
        _read_staged(step, staging, here)


def changed(tensors: Iterable[torch.Tensor]) -> None:
    """Tells autograd that there are other bytes in their memory: backward() of
    what was computed with those before is an error then, as after copy_()."""
    bump = getattr(torch.autograd.graph, "increment_version", None)
    if bump is None:
        return  # Older versions of PyTorch.
    for tensor in tensors:
        if not tensor.is_inference():  # Which have no version.
            bump(tensor)


def is_straight(tensor: torch.Tensor) -> bool:
    """Whether the engine can read into its memory.

    >>> is_straight(torch.ones(2, 3)), is_straight(torch.ones(2, 3).T)
    (True, False)
    """
    return (
        tensor.device.type == "cpu"
        and tensor.is_contiguous()
        and not tensor.is_conj()
        and not tensor.is_neg()
    )


def is_freed(tensor: torch.Tensor) -> bool:
    """Whether some of its elements lie beyond the end of its storage.

    >>> w = torch.ones(3)
    >>> is_freed(w), is_freed(w.untyped_storage().resize_(8) and w)
    (False, True)
    """
    if tensor.numel() == 0:
        return False
    end = tensor.storage_offset() + span(tensor.shape, tensor.stride())
    return bool(end * tensor.itemsize > tensor.untyped_storage().nbytes())


def overlaps(tensor: torch.Tensor) -> bool:
    """Whether elements of it are, or may be, the same memory.

    >>> overlaps(torch.ones(3).expand(2, 3)), overlaps(torch.ones(3, 2).T)
    (True, False)
    >>> overlaps(torch.ones(5).unfold(0, 3, 1))  # Windows.
    True
    """
    below: list[tuple[int, int]] = []  # Strides and sizes.
    for stride, size in sorted(zip(tensor.stride(), tensor.shape)):
        if size > 1:
            if stride < span([n for _, n in below], [s for s, _ in below]):
                return True
            below.append((stride, size))
    return False


def span(shape: Sequence[int], strides: Sequence[int]) -> int:
    """From the first element to behind the last one."""
    return 1 + sum((n - 1) * stride for n, stride in zip(shape, strides))


class _Piece(NamedTuple):
    """A box of a leaf that fits into a buffer."""

    info: _engine.LeafInfo
    tensor: torch.Tensor
    start: tuple[int, ...]
    shape: tuple[int, ...]
    nbytes: int


def _read_staged(
    step: _engine.Step, staging: Staging, wanted: list[Want]
) -> None:
    most = min(BUFFER_BYTES, sum(_room(t.nbytes) for _, t in wanted))
    pool: list[torch.Tensor] = []
    waits: list[Callable[[], object]] = []
    try:
        for number, batch in enumerate(_batches(_pieces(step, wanted))):
            turn = number % BUFFERS
            if number < BUFFERS:
                pool.append(staging.buffer(most))
            else:
                waits[turn]()
            sources = list(_sources(pool[turn], batch))
            step.read(
                [
                    (piece.info, array_of(source), piece.start, piece.shape)
                    for piece, source in zip(batch, sources)
                ]
            )
            for piece, source in zip(batch, sources):
                ends = [a + n for a, n in zip(piece.start, piece.shape)]
                box = tuple(map(slice, piece.start, ends))
                staging.copy(source, piece.tensor[box])
            waits[turn : turn + 1] = [staging.mark()]
    finally:
        # The buffers go: nothing may still be copied from them.
        for wait in waits:
            wait()


def _room(nbytes: int) -> int:
    return -(-nbytes // _ALIGNMENT) * _ALIGNMENT


def _sources(
    buffer: torch.Tensor, batch: list[_Piece]
) -> Iterator[torch.Tensor]:
    """Where in the buffer the pieces are read to."""
    offset = 0
    for piece in batch:
        flat = buffer[offset : offset + piece.nbytes]
        yield flat.view(piece.tensor.dtype).view(piece.shape)
        offset += _room(piece.nbytes)


def _batches(pieces: Iterator[_Piece]) -> Iterator[list[_Piece]]:
    """Pieces that fit into one buffer together."""
    batch: list[_Piece] = []
    used = 0
    for piece in pieces:
        room = _room(piece.nbytes)
        if batch and used + room > BUFFER_BYTES:
            yield batch
            batch, used = [], 0
        batch.append(piece)
        used += room
    if batch:
        yield batch


def _pieces(step: _engine.Step, wanted: list[Want]) -> Iterator[_Piece]:
    large = [info for info, tensor in wanted if tensor.nbytes > BUFFER_BYTES]
    grids: dict[str, tuple[int, ...]] = {
        info.name: detail["chunk_shape"]
        for info, detail in zip(large, step.details(large))
    }
    for info, tensor in wanted:
        grid = grids.get(info.name, ())
        for start, shape in cut(
            tuple(tensor.shape), tensor.itemsize, grid, BUFFER_BYTES
        ):
            nbytes = math.prod(shape) * tensor.itemsize
            yield _Piece(info, tensor, start, shape, nbytes)
