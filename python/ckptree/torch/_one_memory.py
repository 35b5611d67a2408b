# SPDX-License-Identifier: Apache-2.0
"""Tensors of an app that have memory in common: wholly, as tied parameters
have, or in part, as a tensor and a view of it of another shape.

What is read into one of them is then in the other one, too. So a load looks
before it reads: where which tensor lies is sorted, and only of those whose
bytes begin before those of another one end it is asked whether an element is
the same.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple, Sequence

import torch

from ckptree.adapters.torch_dtypes import memory_of
from ckptree.adapters.torch_memory import span


class Place(NamedTuple):
    """Where a value of a step is to be read to."""

    tensor: torch.Tensor
    value: str  # Its name in the step.
    is_fixed: bool  # Whether nothing else will do.


def lost(places: Sequence[Place]) -> list[int]:
    """Which of those that are not fixed would be read into memory that a fixed
    one, or one before them, gets another value in.

    >>> w = torch.zeros(4)
    >>> lost([Place(w[2:], "a", False), Place(w, "b", True)])
    [0]
    """
    found: list[int] = []
    for group in groups([place.tensor for place in places]):
        group.sort(key=lambda i: (not places[i].is_fixed, i))
        memories = [memory_of(places[i].tensor) for i in group]
        run = None
        if len(set(memories)) > 1:
            run = _Run([places[i].tensor for i in group])
        values: dict[Any, str] = {}
        for memory, i in zip(memories, group):
            tensor, value, is_fixed = places[i]
            if memory in values:
                if values[memory] != value and not is_fixed:
                    found.append(i)
            elif is_fixed or run is None or run.is_free(tensor):
                values[memory] = value
                if run is not None:
                    run.take(tensor)
            else:
                found.append(i)
    return found


def have_common(tensors: Sequence[torch.Tensor]) -> bool:
    """Whether an element is of two tensors of a group."""
    run = _Run(tensors)
    for tensor in tensors:
        if not run.is_free(tensor):
            return True
        run.take(tensor)
    return False


def conflict(
    tensors: Sequence[torch.Tensor], values: Sequence[torch.Tensor]
) -> tuple[int, int] | None:
    """Two of a group that cannot both have the value that is for them."""
    run = _Run(tensors)
    for tensor, value in zip(tensors, values):
        run.put(tensor, value)
    for i, (tensor, value) in enumerate(zip(tensors, values)):
        if run.has(tensor, value):
            continue
        for k in range(i + 1, len(tensors)):  # One of these was put over it.
            run.put(tensor, value)
            run.put(tensors[k], values[k])
            if not run.has(tensor, value):
                return i, k
    return None


def groups(tensors: Sequence[torch.Tensor]) -> list[list[int]]:
    """Those whose bytes begin before those of another one end, by their
    numbers. Most are in none.

    >>> w, b = torch.zeros(4), torch.zeros(4)
    >>> groups([w[:2], b, w[2:]]), groups([w[:3], b, w[2:]])
    ([], [[0, 2]])
    """
    runs: dict[Any, list[tuple[int, int, int]]] = {}
    for i, tensor in enumerate(tensors):
        if tensor.numel() > 0:
            memory, begin, end = _extent(tensor)
            runs.setdefault(memory, []).append((begin, end, i))
    found: list[list[int]] = []
    for run in runs.values():
        run.sort()
        open_until, group = 0, list[int]()
        for begin, end, i in run:
            if begin >= open_until or not group:
                if len(group) > 1:
                    found.append(sorted(group))
                group, open_until = [], end
            group.append(i)
            open_until = max(open_until, end)
        if len(group) > 1:
            found.append(sorted(group))
    return sorted(found)


def _extent(tensor: torch.Tensor) -> tuple[Any, int, int]:
    """The memory that it is in, and where in that its bytes begin and end. The
    host's is one memory: of an array of NumPy there may be several storages. On
    other devices an address need not be a number of bytes."""
    size = tensor.itemsize
    if tensor.is_contiguous():
        nbytes = tensor.numel() * size
    else:
        nbytes = span(tensor.shape, tensor.stride()) * size
    if tensor.device.type == "cpu":
        begin = tensor.data_ptr()
        return "cpu", begin, begin + nbytes
    begin = tensor.storage_offset() * size
    memory = tensor.device, tensor.untyped_storage().data_ptr()
    return memory, begin, begin + nbytes


class _Run:
    """The bytes that the tensors of a group lie in, in memory of its own."""

    def __init__(self, tensors: Sequence[torch.Tensor]) -> None:
        extents = [_extent(tensor) for tensor in tensors]
        self._begin = min(begin for _, begin, _ in extents)
        self._nbytes = max(end for _, _, end in extents) - self._begin
        # Elements begin at multiples of it, and end there.
        self._unit = math.gcd(
            *(begin - self._begin for _, begin, _ in extents),
            *(tensor.itemsize for tensor in tensors),
        )
        self._taken: torch.Tensor | None = None
        self._bytes: torch.Tensor | None = None

    def is_free(self, tensor: torch.Tensor) -> bool:
        """Whether none of its elements was taken."""
        return not bool(self._view(self._marks(), tensor, self._unit).any())

    def take(self, tensor: torch.Tensor) -> None:
        self._view(self._marks(), tensor, self._unit).fill_(True)

    def _marks(self) -> torch.Tensor:
        if self._taken is None:
            size = self._nbytes // self._unit
            self._taken = torch.zeros(size, dtype=torch.bool, device="cpu")
        return self._taken

    def put(self, tensor: torch.Tensor, value: torch.Tensor) -> None:
        """As a copy of the value to the tensor would."""
        if self._bytes is None:
            self._bytes = torch.zeros(
                self._nbytes, dtype=torch.uint8, device=tensor.device
            )
        view = self._view(self._bytes, tensor, 1)
        view.copy_(_bytes_of(tensor, value))

    def has(self, tensor: torch.Tensor, value: torch.Tensor) -> bool:
        """Whether that value is there, which was put before."""
        assert self._bytes is not None
        view = self._view(self._bytes, tensor, 1)
        return bool(torch.equal(view, _bytes_of(tensor, value)))

    def _view(
        self, memory: torch.Tensor, tensor: torch.Tensor, unit: int
    ) -> torch.Tensor:
        units = tensor.itemsize // unit
        return memory.as_strided(
            (*tensor.shape, units),
            (*(stride * units for stride in tensor.stride()), 1),
            (_extent(tensor)[1] - self._begin) // unit,
        )


def _bytes_of(tensor: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """Those that are in memory where the tensor has the value."""
    raw = value.detach()
    if tensor.is_conj():
        raw = raw.conj()
    if tensor.is_neg():
        raw = -raw
    flat = raw.resolve_conj().resolve_neg().contiguous().view(-1)
    return flat.view(torch.uint8).view(*tensor.shape, tensor.itemsize)
