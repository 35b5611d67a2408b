# SPDX-License-Identifier: Apache-2.0
"""Tensors on a device, as a save asks for their bytes: a piece at a time, into
memory of the engine.

A copy goes on a stream of its own, so that it neither waits for what the
training queues later nor holds that up. What was queued before the save is
waited for when the tensor is met. Nothing is copied on the device, but the
pieces of a tensor that is not row-major there. A row-major one of CUDA is
copied by the driver itself, without Python.
"""

from __future__ import annotations

import math
import threading
from typing import Any, Callable

import torch

from ckptree import _engine
from ckptree.adapters import cuda
from ckptree.adapters.boxes import of_run
from ckptree.adapters.protocol import Direct, Fetched


class Device:
    """One device. Its methods are called by several threads at once, but for
    settle()."""

    def __init__(self, device: torch.device) -> None:
        self.device = device

    def settle(self) -> None:
        """Waits for what the calling thread has queued: what it wrote is then
        there for every other thread and stream."""
        module = torch.get_device_module(self.device)
        current = getattr(module, "current_stream", None)
        if current is not None:
            current(self.device).synchronize()
        else:
            module.synchronize()

    def copy(self, source: torch.Tensor, target: torch.Tensor) -> None:
        """Copies to the host; returns when the bytes are there."""
        target.copy_(source)

    def direct(self, address: int) -> Direct | None:
        """Who copies from there; None where only copy() can."""
        return None


class _Cuda(Device):
    """By a stream of each thread that copies."""

    def __init__(self, device: torch.device) -> None:
        super().__init__(device)
        self._own = threading.local()
        # As long as no driver is there, which locks it itself: of ROCm none is.
        _engine.lock_staging(_lock, _unlock)

    def copy(self, source: torch.Tensor, target: torch.Tensor) -> None:
        stream = getattr(self._own, "stream", None)
        if stream is None:
            stream = self._own.stream = torch.cuda.Stream(self.device)
        with torch.cuda.stream(stream):
            target.copy_(source, non_blocking=True)
        stream.synchronize()

    def direct(self, address: int) -> Direct | None:
        return cuda.direct(address)


def _lock(address: int, nbytes: int) -> bool:
    """Makes memory of the host known to all devices: a copy to other memory
    waits for the stream, and goes through buffers of the driver."""
    portable = 1
    result = torch.cuda.cudart().cudaHostRegister(address, nbytes, portable)
    return int(result) == 0


def _unlock(address: int) -> None:
    torch.cuda.cudart().cudaHostUnregister(address)


# By the type of the device; others copy at once.
DEVICES: dict[str, Callable[[torch.device], Device]] = {"cuda": _Cuda}
_found: dict[torch.device, Device | None] = {}


def of(tensor: torch.Tensor) -> Device | None:
    """The device of a tensor, with all that is queued for the tensor done. None
    where it is the host, or where nobody knows what waits for the device: then
    tensor.cpu() copies, on this thread."""
    kind = tensor.device.type
    if kind == "cpu" and kind not in DEVICES:
        return None
    if tensor.device not in _found:
        _found[tensor.device] = _device(tensor.device)
    device = _found[tensor.device]
    if device is not None:
        device.settle()
    return device


def _device(device: torch.device) -> Device | None:
    try:
        module = torch.get_device_module(device)
    except (AttributeError, RuntimeError):
        return None
    if not hasattr(module, "synchronize"):
        return None
    return DEVICES.get(device.type, Device)(device)


class Source:
    """A tensor on a device, which stays as long as this does."""

    def __init__(self, device: Device, tensor: torch.Tensor) -> None:
        self._device = device
        self._tensor = tensor.detach()

    def fetched(self) -> Fetched:
        """All of it."""
        tensor = self._tensor
        plain = (
            tensor.is_contiguous()
            and not tensor.is_conj()
            and not tensor.is_neg()
            and tensor.numel() > 0
        )
        return Fetched(
            tuple(tensor.shape),
            self.fetch,
            self._device.direct(tensor.data_ptr()) if plain else None,
        )

    def fetch(self, offset: int, into: memoryview) -> None:
        """As Fetched.fetch says."""
        tensor = self._tensor
        itemsize = tensor.itemsize
        first, count = offset // itemsize, len(into) // itemsize
        target = torch.frombuffer(into, dtype=torch.uint8).view(tensor.dtype)
        with torch.no_grad():
            if tensor.is_contiguous():
                self._copy(tensor.view(-1)[first : first + count], target)
                return
            filled = 0
            for start, shape in of_run(tuple(tensor.shape), first, count):
                box = tuple(slice(a, a + n) for a, n in zip(start, shape))
                taken = math.prod(shape)
                self._copy(
                    tensor[box], target[filled : filled + taken].view(shape)
                )
                filled += taken

    def _copy(self, source: torch.Tensor, target: torch.Tensor) -> None:
        self._device.copy(source.resolve_conj().resolve_neg(), target)
