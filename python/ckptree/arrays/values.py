# SPDX-License-Identifier: Apache-2.0
"""Values of many leaves at once, as NumPy and Python have them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Iterable, Sequence

from ckptree.arrays import dtypes, memory
from ckptree.garbage import without_collection
from ckptree.progress import SMALL, Reading

if TYPE_CHECKING:
    from ckptree import _engine
    from ckptree.progress import Meter

    # A leaf, where to, and a box of it: start and shape, or None and None.
    ReadRequest = tuple[_engine.LeafInfo, Any, Any, Any]

# The marks that saving a Python state leaves on arrays.
SCALAR_TAG = "scalar"  # Of NumPy's scalars.
INT_TAG = "int"  # Of int beyond 64 bits: bytes, little-endian.


def kind_of(info: _engine.LeafInfo) -> str:
    """The kind of a value as Python sees it."""
    if info.tag == INT_TAG and info.kind == "array":
        return "int"
    return info.kind


def read(step: _engine.Step, infos: Sequence[_engine.LeafInfo]) -> list[Any]:
    """The values in order; arrays in one parallel pass."""

    others = iter(step.values([i for i in infos if i.kind != "array"]))
    values: list[Any] = []
    requests: list[ReadRequest] = []
    with without_collection():
        for info in infos:
            if info.kind != "array":
                value = next(others)
                values.append(
                    _json(info, value) if info.kind == "json" else value
                )
                continue
            if info.packed:
                raise NotImplementedError(
                    f"{info.name}: packed elements of {info.dtype_name} cannot "
                    "be read here yet"
                )
            array = memory.empty(info.shape, dtypes.to_numpy(info.dtype))
            requests.append((info, array, None, None))
            values.append(array)
    step.read(requests)
    for i, info in enumerate(infos):
        if info.kind == "array" and info.tag:
            values[i] = _untagged(info, values[i])
    return values


def reading(
    step: _engine.Step, infos: Iterable[_engine.LeafInfo], meter: Meter | None
) -> Any:
    """What to read these leaves of, so that the meter is told of it; None: the
    step itself."""
    if meter is None:
        return step
    return Reading(step, meter, sum(map(_bytes_of, infos)))


def _bytes_of(info: _engine.LeafInfo) -> int:
    if info.kind != "array":
        return SMALL
    return math.prod(info.shape) * int(dtypes.to_numpy(info.dtype).itemsize)


def _json(info: _engine.LeafInfo, text: str) -> Any:
    import json

    try:
        return json.loads(text)
    except ValueError as error:
        raise ValueError(f"{info.name}: it is no JSON: {error}") from None


def _untagged(info: _engine.LeafInfo, array: Any) -> Any:
    if info.tag == SCALAR_TAG and array.ndim == 0:
        return array[()]
    if info.tag == INT_TAG and array.ndim == 1:
        return int.from_bytes(array.tobytes(), "little", signed=True)
    return array
