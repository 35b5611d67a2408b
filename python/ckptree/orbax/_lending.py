# SPDX-License-Identifier: Apache-2.0
"""Arrays of folders of Orbax, for the command."""

from __future__ import annotations

import functools
import os
import pathlib
from typing import Any

import numpy as np

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


def write(arrays: str, path: str) -> None:
    """A file of safetensors as a checkpoint of Orbax: dicts within each other,
    by the dots of the names. ValueError: one name is the beginning of another.
    """
    ocp = _transfer._orbax()
    try:
        from safetensors import safe_open
    except ImportError:
        raise ImportError(
            "the arrays come through a file of safetensors: pip install "
            "safetensors"
        ) from None
    tree: dict[str, Any] = {}
    with safe_open(arrays, framework="flax") as file:
        for name in file.keys():
            node = tree
            *parents, last = name.split(".")
            for parent in parents:
                node = node.setdefault(parent, {})
                if not isinstance(node, dict):
                    raise ValueError(f"{name}: {parent} is an array itself")
            if last in node:
                raise ValueError(f"{name}: other names begin with it")
            node[last] = np.asarray(file.get_tensor(name))
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(pathlib.Path(os.path.abspath(path)), tree)
        checkpointer.wait_until_finished()
