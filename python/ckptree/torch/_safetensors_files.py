# SPDX-License-Identifier: Apache-2.0
"""Files of safetensors: one, or several with an index of which has what.

The package of that name reads them, for it checks what a file says of itself.
They are written here, for it would want all tensors in memory at once: a file
is eight bytes, a header of JSON, and the bytes of the tensors, which pass
through one buffer.
"""

from __future__ import annotations

import json
import math
import pathlib
import re
from typing import (
    TYPE_CHECKING,
    Any,
    BinaryIO,
    Iterator,
    Mapping,
    NamedTuple,
    Sequence,
)

import numpy as np
import torch

from ckptree.adapters.torch_dtypes import DTYPES, array_of
from ckptree.errors import CorruptionError, InvalidArgumentError

if TYPE_CHECKING:
    from ckptree import _engine

SUFFIX = ".safetensors"
INDEX = ".safetensors.index.json"
# As a header calls the element types of the engine.
DTYPE_NAMES = {
    "bool": "BOOL",
    "uint8": "U8",
    "int8": "I8",
    "uint16": "U16",
    "int16": "I16",
    "float16": "F16",
    "bfloat16": "BF16",
    "uint32": "U32",
    "int32": "I32",
    "float32": "F32",
    "uint64": "U64",
    "int64": "I64",
    "float64": "F64",
    "complex64": "C64",
    "float8_e4m3fn": "F8_E4M3",
    "float8_e5m2": "F8_E5M2",
    "float8_e4m3fnuz": "F8_E4M3FNUZ",
    "float8_e5m2fnuz": "F8_E5M2FNUZ",
    "float8_e8m0fnu": "F8_E8M0",
}
_METADATA = "__metadata__"
# How the name of a file goes on after that of the index.
_SHARD = re.compile(r"-\d{5}-of-\d{5}\.safetensors")
# A header is padded by blanks to a multiple of it.
_ALIGNMENT = 8
# What a file may have, by the package of safetensors.
_MAX_HEADER = 100_000_000
# What is read of a step at once.
BUFFER_BYTES = 64 << 20


# ---- Reading ----


def read(path: pathlib.Path) -> tuple[dict[str, torch.Tensor], dict[str, str]]:
    """The tensors of one file, which lie in the mapped file, and what its
    header says of it. CorruptionError: it is cut, or its sizes are not right.
    """
    try:
        from safetensors import SafetensorError, safe_open
    except ImportError:
        raise ImportError(
            f"{path}: files of safetensors are read by the package of that "
            "name: pip install safetensors"
        ) from None
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}")
    try:
        with safe_open(path, framework="pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}
            return tensors, dict(file.metadata() or {})
    except (SafetensorError, RuntimeError, ValueError, KeyError) as error:
        raise CorruptionError(
            f"{path} is cut or damaged, or no file of safetensors: {error}"
        ) from error


def read_sharded(
    index: pathlib.Path,
) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    """The tensors of the files that an index names, and what it and these say
    of themselves. InvalidArgumentError: it is no such index, or names
    another folder. CorruptionError: the files have other tensors."""
    weight_map, said = _read_index(index)
    tensors: dict[str, torch.Tensor] = {}
    about: dict[str, Any] = {"index": said, "metadata": {}}
    first: dict[str, str] = {}
    files = sorted(set(weight_map.values()))
    stem = index.name[: -len(INDEX)]
    for path in sorted(index.parent.iterdir()):
        is_shard = _SHARD.fullmatch(path.name[len(stem) :])
        if path.name.startswith(stem) and is_shard and path.name not in files:
            raise CorruptionError(f"{index} does not name {path.name}")
    for file in files:
        path = index.parent / file
        if not path.is_file():
            raise CorruptionError(f"{index} names {file!r}, which is not there")
        found, metadata = read(path)
        wanted = {name for name, at in weight_map.items() if at == file}
        for name in [*sorted(wanted - found.keys())[:1]]:
            raise CorruptionError(f"{index}: {file} has no tensor {name!r}")
        for name in [*sorted(found.keys() - wanted)[:1]]:
            raise CorruptionError(
                f"{index}: {file} has the tensor {name!r}, which the index "
                f"{'puts elsewhere' if name in weight_map else 'lacks'}"
            )
        tensors.update(found)
        for key, value in metadata.items():
            if about["metadata"].setdefault(key, value) != value:
                raise InvalidArgumentError(
                    f"{path}: its metadata has {key}={value!r}, that of "
                    f"{first[key]} has {about['metadata'][key]!r}"
                )
            first.setdefault(key, file)
    return tensors, about


def _read_index(index: pathlib.Path) -> tuple[dict[str, str], dict[str, Any]]:
    try:
        found = json.loads(index.read_text(encoding="utf-8"))
        weight_map = found["weight_map"]
        said = found.get("metadata") or {}
        if not isinstance(weight_map, dict) or not isinstance(said, dict):
            raise TypeError("weight_map and metadata are objects")
    except (
        ValueError,
        TypeError,
        KeyError,
        AttributeError,
        RecursionError,
    ) as error:
        raise InvalidArgumentError(
            f"{index} is no index of safetensors: {error}"
        ) from error
    for name, file in weight_map.items():
        if not is_plain_name(file):
            raise InvalidArgumentError(
                f"{index}: {name!r} is said to be in {file!r}, which is no "
                "file of this folder"
            )
    # Of other programs it is not always right, and nothing depends on it.
    said = {key: value for key, value in said.items() if key != "total_size"}
    return weight_map, said


def is_plain_name(file: Any) -> bool:
    """Whether it names something in a folder, and nothing elsewhere.

    >>> [is_plain_name(n) for n in ("a.pt", "../a", "/a", "..", "", "a\\0", 3)]
    [True, False, False, False, False, False, False]
    """
    return (
        isinstance(file, str)
        and file not in ("", ".", "..")
        and not any(mark in file for mark in "/\\\0")
    )


# ---- Writing ----


class Tensor(NamedTuple):
    """A leaf of a step by the name that it gets in a file."""

    name: str
    info: _engine.LeafInfo

    @property
    def item_bytes(self) -> int:
        return int(DTYPES[self.info.dtype_name].itemsize)

    @property
    def nbytes(self) -> int:
        return math.prod(self.info.shape) * self.item_bytes


def check(tensors: Sequence[Tensor]) -> None:
    """InvalidArgumentError: a file of safetensors cannot hold one of them."""
    for name, info in tensors:
        if info.dtype_name not in DTYPE_NAMES or info.packed:
            raise InvalidArgumentError(
                f"{info.name}: safetensors has no {info.dtype_name}: export "
                "to a file of torch.save() (.pt)"
            )
        if name == _METADATA:
            raise InvalidArgumentError(
                f"{info.name}: no tensor of a file of safetensors can be "
                f"called {name!r}"
            )


def write(
    step: Any,
    tensors: Sequence[Tensor],
    metadata: Mapping[str, str],
    path: pathlib.Path,
) -> None:
    """Writes one file. Of the step no more than a buffer is in memory."""
    # As the package does it: so each tensor is aligned.
    ordered = sorted(tensors, key=lambda t: (-t.item_bytes, t.name))
    with open(path, "wb") as file:
        file.write(_header(ordered, metadata))
        for data in _data(step, ordered):
            file.write(data)


def _header(tensors: Sequence[Tensor], metadata: Mapping[str, str]) -> bytes:
    head: dict[str, Any] = {_METADATA: dict(metadata)} if metadata else {}
    end = 0
    for tensor in tensors:
        start, end = end, end + tensor.nbytes
        head[tensor.name] = {
            "dtype": DTYPE_NAMES[tensor.info.dtype_name],
            "shape": list(tensor.info.shape),
            "data_offsets": [start, end],
        }
    text = json.dumps(head, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _ALIGNMENT)
    if len(text) > _MAX_HEADER:
        raise InvalidArgumentError(
            f"the names of {len(tensors)} tensors take {len(text)} bytes, and "
            f"a file of safetensors may have {_MAX_HEADER}: pass "
            "max_shard_bytes"
        )
    return len(text).to_bytes(8, "little") + text


def _data(step: Any, tensors: Sequence[Tensor]) -> Iterator[memoryview]:
    """The bytes of the tensors, in order."""
    most = min(BUFFER_BYTES, sum(tensor.nbytes for tensor in tensors))
    buffer = torch.empty(most, dtype=torch.uint8)
    requests: list[Any] = []
    used = 0

    def filled() -> memoryview:
        step.read(requests)
        requests.clear()
        return memoryview(buffer.numpy())[:used]

    for tensor in tensors:
        dtype = DTYPES[tensor.info.dtype_name]
        for start, box in _boxes(tensor.info.shape, tensor.item_bytes, most):
            nbytes = math.prod(box) * tensor.item_bytes
            if used + nbytes > most:
                yield filled()
                used = 0
            part = buffer[used : used + nbytes].view(dtype).view(box)
            at = (start, box) if box else (None, None)
            requests.append((tensor.info, array_of(part), *at))
            used += nbytes
    if used:
        yield filled()


def _boxes(
    shape: tuple[int, ...], item_bytes: int, most: int
) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Boxes of an array, in the order of its memory, each one run of it of at
    most so many bytes.

    >>> list(_boxes((2, 3), 4, 8))
    [((0, 0), (1, 2)), ((0, 2), (1, 1)), ((1, 0), (1, 2)), ((1, 2), (1, 1))]
    >>> list(_boxes((3, 2), 4, 16)), list(_boxes((), 4, 8))
    ([((0, 0), (2, 2)), ((2, 0), (1, 2))], [((), ())])
    """
    if 0 in shape:
        return
    if not shape:
        yield (), ()
        return
    axis = 0
    while math.prod(shape[axis + 1 :]) * item_bytes > most:
        axis += 1
    inner = shape[axis + 1 :]
    rows = max(1, most // (math.prod(inner) * item_bytes))
    for outer in np.ndindex(*shape[:axis]):
        for first in range(0, shape[axis], rows):
            count = min(rows, shape[axis] - first)
            yield (
                (*outer, first, *(0 for _ in inner)),
                (*(1 for _ in outer), count, *inner),
            )


def shards(
    tensors: Sequence[Tensor], max_shard_bytes: int
) -> list[list[Tensor]]:
    """In their order, as many into each as fit; one that alone is larger has
    one of its own."""
    made: list[list[Tensor]] = [[]]
    used = 0
    for tensor in tensors:
        if made[-1] and used + tensor.nbytes > max_shard_bytes:
            made.append([])
            used = 0
        made[-1].append(tensor)
        used += tensor.nbytes
    return made


def write_sharded(
    step: Any,
    tensors: Sequence[Tensor],
    metadata: Mapping[str, str],
    said: Mapping[str, Any],
    folder: pathlib.Path,
    max_shard_bytes: int | None,
) -> None:
    """Writes files of at most so many bytes of tensors, and their index; where
    one is enough, that alone."""
    stem = "model"
    if max_shard_bytes is None:
        parts = [list(tensors)]
    else:
        parts = shards(tensors, max_shard_bytes)
    if len(parts) == 1:
        write(step, parts[0], metadata, folder / f"{stem}{SUFFIX}")
        return
    weight_map: dict[str, str] = {}
    for number, part in enumerate(parts, 1):
        file = f"{stem}-{number:05}-of-{len(parts):05}{SUFFIX}"
        write(step, part, metadata, folder / file)
        weight_map.update((tensor.name, file) for tensor in part)
    total = sum(tensor.nbytes for tensor in tensors)
    index = {
        "metadata": {**said, "total_size": total},
        "weight_map": dict(sorted(weight_map.items())),
    }
    text = json.dumps(index, indent=2, ensure_ascii=False) + "\n"
    (folder / f"{stem}{INDEX}").write_text(text, encoding="utf-8")


def is_ours(name: str) -> bool:
    """Whether write_sharded() may have written a file of that name."""
    return name.endswith(SUFFIX) or name == f"model{INDEX}"
