# SPDX-License-Identifier: Apache-2.0
"""Arrays of folders of Orbax, for the command."""

from __future__ import annotations

import functools
import json
import os
import pathlib
from typing import Any, Iterator

import numpy as np

from ckptree.arrays.dtypes import by_name
from ckptree.lending import Lent, named
from ckptree.orbax import _transfer
from ckptree.orbax._tree_save import ROOT


def find(path: pathlib.Path) -> tuple[list[Lent], int]:
    """The arrays of one checkpoint, described by Orbax without reading them,
    and how many items are no trees. An item is read as a whole when the first
    of its arrays is. Errors are those of reading."""
    # Orbax takes absolute paths only.
    root = pathlib.Path(os.path.abspath(path))
    lent: list[Lent] = []
    others = 0
    for item, folder in _transfer.item_folders(root).items():
        kinds = _transfer.array_kinds(folder)
        if kinds is None:
            others += 1
            continue
        read = functools.cache(functools.partial(_transfer.item_arrays, folder))
        for name, kind in kinds.items():
            below = named(name, ROOT)
            lent.append(
                Lent(
                    f"{item}/{below}" if item else below,
                    np.dtype(kind.dtype).name,
                    tuple(kind.shape),
                    functools.partial(_bytes_of, read, name),
                )
            )
    return lent, others


def _bytes_of(read: Any, name: str) -> bytes:
    array: np.ndarray[Any, Any] = read()[name]
    return np.ascontiguousarray(array).tobytes()


# The words of safetensors for the types that the command writes; of the package
# of that name NumPy gets none of the narrow ones.
_TYPES = {
    "BOOL": "bool",
    "I8": "int8",
    "I16": "int16",
    "I32": "int32",
    "I64": "int64",
    "U8": "uint8",
    "U16": "uint16",
    "U32": "uint32",
    "U64": "uint64",
    "F16": "float16",
    "F32": "float32",
    "F64": "float64",
    "C64": "complex64",
    "BF16": "bfloat16",
    "F8_E4M3": "float8_e4m3fn",
    "F8_E5M2": "float8_e5m2",
    "F8_E8M0": "float8_e8m0fnu",
}


def _arrays_in(path: str) -> Iterator[tuple[str, np.ndarray[Any, Any]]]:
    """Of a file of safetensors, one after the other, in memory of their own."""
    with open(path, "rb") as file:
        size = int.from_bytes(file.read(8), "little")
        head = json.loads(file.read(size))
        for name, about in head.items():
            if name == "__metadata__":
                continue
            begin, end = about["data_offsets"]
            file.seek(8 + size + begin)
            dtype = by_name(_TYPES[about["dtype"]])
            array = np.frombuffer(bytearray(file.read(end - begin)), dtype)
            yield name, array.reshape(about["shape"])


def write(arrays: str, path: str) -> None:
    """A file of safetensors that the command wrote as a checkpoint of Orbax:
    dicts within each other, by the dots of the names. ValueError: one name is
    the beginning of another."""
    ocp = _transfer._orbax()
    tree: dict[str, Any] = {}
    for name, array in _arrays_in(arrays):
        node = tree
        *parents, last = name.split(".")
        for parent in parents:
            node = node.setdefault(parent, {})
            if not isinstance(node, dict):
                raise ValueError(f"{name}: {parent} is an array itself")
        if last in node:
            raise ValueError(f"{name}: other names begin with it")
        node[last] = array
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(pathlib.Path(os.path.abspath(path)), tree)
        checkpointer.wait_until_finished()
