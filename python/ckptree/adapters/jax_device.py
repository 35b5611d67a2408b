# SPDX-License-Identifier: Apache-2.0
"""Arrays of JAX that lie on one device, as a save asks for their bytes: views
of them on a CPU; of other devices a piece at a time, into memory of the
engine: of CUDA by its driver, without JAX and Python, of others by JAX."""

from __future__ import annotations

import math
from typing import Any

import jax
import numpy as np

from ckptree.adapters import cuda
from ckptree.adapters.boxes import of_run
from ckptree.adapters.protocol import Direct, Fetched


def is_on_host(data: Any) -> bool:
    """Whether the memory of an array of one device can be viewed."""
    (device,) = data.devices()
    return bool(device.platform == "cpu")


def memory_of(data: Any) -> np.ndarray[Any, Any] | Fetched:
    """That of an array of one device."""
    if is_on_host(data):
        return np.asarray(data)
    source = _Device(data)
    return Fetched(tuple(data.shape), source.fetch, _direct(source, data))


def _direct(source: _Device, data: Any) -> Direct | None:
    """Where the driver of CUDA finds the array; None where no such device has
    it, or not as dense, row-major bytes."""
    try:
        layout = data.format.layout
        if (
            data.size == 0
            or layout.tiling
            or layout.major_to_minor != tuple(range(data.ndim))
            or data.on_device_size_in_bytes() != data.nbytes
        ):
            return None
        address = data.unsafe_buffer_pointer()
    except Exception:  # Of a JAX, or of a device, that does not tell.
        return None
    return cuda.direct(address, source.settle)


class _Device:
    """An array of one device, as a save asks for it. JAX keeps what an array
    was copied to as long as that array lives: so only arrays are copied that
    are made for it, on the device and no larger than what is asked for."""

    def __init__(self, data: Any) -> None:
        self._data = data
        self._itemsize = np.dtype(data.dtype).itemsize

    def settle(self) -> None:
        """As Direct.check says. An array is deleted before its memory gets to
        another one: what is not deleted behind a copy was whole before."""
        if self._data.is_deleted():
            raise RuntimeError(
                "the array was deleted, or donated to a function of jit, while "
                "it was saved with borrow=True: call wait_staged() of the "
                "handle before, or save without borrow=True"
            )
        self._data.block_until_ready()

    def fetch(self, offset: int, into: memoryview) -> None:
        """As Fetched.fetch says."""
        data = self._data
        self.settle()
        if len(into) == self._itemsize * math.prod(data.shape):
            to_host(_again(data), into)
            return
        first = offset // self._itemsize
        count = len(into) // self._itemsize
        filled = 0
        for start, shape in of_run(data.shape, first, count):
            nbytes = math.prod(shape) * self._itemsize
            to_host(_cut(data, start, shape), into[filled : filled + nbytes])
            filled += nbytes


def to_host(data: Any, into: memoryview) -> None:
    """Copies a piece of an array of one device."""
    host = np.ascontiguousarray(np.asarray(data)).reshape(-1)
    np.frombuffer(into, np.uint8)[:] = host.view(np.uint8)


def _again(data: Any) -> Any:
    """The same memory of the device as another array."""
    return jax.make_array_from_single_device_arrays(
        data.shape, data.sharding, [data]
    )


def _cut(data: Any, start: tuple[int, ...], shape: tuple[int, ...]) -> Any:
    if max(data.shape) > _MOST_INDEX:
        # Compiled for each place.
        stop = [a + n for a, n in zip(start, shape)]
        return jax.lax.slice(data, start, stop)
    return _cut_at(data, start, shape)


# An index is an int32 on a device.
_MOST_INDEX = (1 << 31) - 1
# Compiled for each shape of an array and of a piece.
_cut_at = jax.jit(jax.lax.dynamic_slice, static_argnums=2)
