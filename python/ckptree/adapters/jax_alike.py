# SPDX-License-Identifier: Apache-2.0
"""Very many small arrays of JAX of one shape, type and place: they are sent as
few and taken apart on their device."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Sequence

import jax

from ckptree.adapters.protocol import Request
from ckptree.arrays import dtypes, memory
from ckptree.garbage import without_collection

if TYPE_CHECKING:
    from ckptree import _engine
    from ckptree.arrays.values import ReadRequest

# What the tag of a random key begins with.
PRNG_TAG = "prng:"

# JAX takes 10 us and more over each array that is sent by itself. What
# does that is compiled for each shape and type, which has to be worth it.
_ALIKE_AT_ONCE = 128
_ALIKE_AT_LEAST = 8192
_ALIKE_BYTES = 4 << 10

# Read at once and then sent.
_BYTES_AT_ONCE = 64 << 20


def dtype_of(request: Request) -> str:
    """The type of the elements that is asked for."""
    return request.dtype or request.info.dtype_name


def is_weak(request: Request) -> bool:
    like = request.like
    return like is not None and bool(getattr(like, "weak_type", False))


def find(
    requests: Sequence[Request],
) -> tuple[list[list[int]], Sequence[int]]:
    """The places of requests of which very many are alike, and of the
    others."""
    if len(requests) < _ALIKE_AT_LEAST:
        return [], range(len(requests))
    found: dict[Any, list[int]] = {}
    for i, request in enumerate(requests):
        info = request.info
        key = (
            info.dtype,
            info.shape,
            request.place,
            request.dtype,
            info.tag,
            is_weak(request),
        )
        found.setdefault(key, []).append(i)
    groups: list[list[int]] = []
    others: list[int] = []
    for alike in found.values():
        if _worth_it(requests[alike[0]], len(alike)):
            groups.append(alike)
        else:
            others += alike
    return groups, sorted(others)


def _worth_it(request: Request, count: int) -> bool:
    info, place = request.info, request.place
    item = dtypes.to_numpy(info.dtype).itemsize
    return (
        count >= _ALIKE_AT_LEAST
        and 0 < item * math.prod(info.shape) <= _ALIKE_BYTES
        and dtype_of(request) == info.dtype_name
        and not is_weak(request)
        and not info.tag.startswith(PRNG_TAG)
        and (place is None or _is_one_device(place))
    )


def _is_one_device(place: Any) -> bool:
    """Whether it is a device's own memory, as functions of jit give it."""
    if type(place) is not jax.sharding.SingleDeviceSharding:
        return False
    (device,) = place.device_set
    if device.process_index != jax.process_index():
        return False
    return bool(place == jax.device_put(0, device).sharding)


def load(
    step: _engine.Step,
    requests: Sequence[Request],
    group: Sequence[int],
    arrays: list[Any],
) -> None:
    """Arrays of one shape, type and place, into their places in `arrays`."""
    info, place = requests[group[0]].info, requests[group[0]].place
    dtype = dtypes.to_numpy(info.dtype)
    row = dtype.itemsize * math.prod(info.shape)
    most = max(1, _BYTES_AT_ONCE // (row * _ALIKE_AT_ONCE)) * _ALIKE_AT_ONCE
    for first in range(0, len(group), most):
        some = group[first : first + most]
        # Whole blocks: what takes them apart is compiled for one length.
        rows = -(-len(some) // _ALIKE_AT_ONCE) * _ALIKE_AT_ONCE
        host = memory.empty((rows, *info.shape), dtype)
        host[len(some) :] = 0
        with without_collection():
            reads: list[ReadRequest] = [
                (requests[i].info, host[j : j + 1], None, None)
                for j, i in enumerate(some)
            ]
        step.read(reads)
        blocks = [
            host[j : j + _ALIKE_AT_ONCE] for j in range(0, rows, _ALIKE_AT_ONCE)
        ]
        with without_collection():
            made = (
                array
                for block in jax.device_put(blocks, place)
                for array in _apart(block)
            )
            for i, array in zip(some, made):
                arrays[i] = array


def _each(block: Any) -> Any:
    return tuple(block[i] for i in range(_ALIKE_AT_ONCE))


_apart = jax.jit(_each)
