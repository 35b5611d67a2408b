# SPDX-License-Identifier: Apache-2.0
"""Tensors of files of torch.save() and of folders of DCP, for the command."""

from __future__ import annotations

import functools
import pathlib
import zlib
from typing import Any, Callable, Literal

import numpy as np
import torch

from ckptree import _engine, _rules
from ckptree.adapters.protocol import Container
from ckptree.adapters.torch_dtypes import NAMES, array_of
from ckptree.adapters.torch_parts import Part
from ckptree.errors import InvalidArgumentError
from ckptree.lending import Lent, named
from ckptree.torch import (
    _dcp_files,
    _found,
    _safetensors_files,
    _torch_files,
    _torch_records,
)

_ROOT = "state"


def find(path: pathlib.Path) -> tuple[list[Lent], int]:
    """The tensors that lie there, none of them read yet, and how many entries
    are something else. Errors are those of reading."""
    found = _found.look(path, None, ())
    if not isinstance(found, _found.Checkpoint) or len(found.parts) != 1:
        raise InvalidArgumentError(f"{path} is not one checkpoint of PyTorch")
    part = found.parts[0]
    if part.format == _found.DCP:
        return _of_dcp(part.path)
    return _of_state(_torch_files.read(part.path), _Compared(part.path))


class _Compared:
    """The tensors of a mapped file, each compared with what was written when it
    is asked for: to look at one of them does not read all others."""

    def __init__(self, path: pathlib.Path) -> None:
        self._path = path
        self._done: set[int] = set()  # Where their memory begins.
        self._whole = False
        with open(path, "rb") as file:
            self._sums = _torch_records.sums_of(file)

    def read(self, tensor: torch.Tensor) -> torch.Tensor:
        """CorruptionError: its bytes are not those that were written."""
        storage = tensor.untyped_storage()
        begin, size = storage.data_ptr(), storage.nbytes()
        if not self._sums or self._whole or size == 0 or begin in self._done:
            return tensor
        held = torch.empty(0, dtype=torch.uint8).set_(storage).numpy()
        if zlib.crc32(held) not in self._sums.get(size, ()):
            # Damaged; or made of what was read, as the parts of a quantized
            # tensor are. All records say which of them it is.
            _torch_files.read(self._path, whole=True)
            self._whole = True
        self._done.add(begin)
        return tensor


def _of_state(state: Any, compared: _Compared) -> tuple[list[Lent], int]:
    lent: list[Lent] = []
    others = 0

    def on_leaf(name: str, leaf: Any) -> Any:
        nonlocal others
        value = leaf.tensor if isinstance(leaf, Part) else leaf
        if isinstance(value, np.ndarray):
            lent.append(
                Lent(
                    named(name, _ROOT),
                    value.dtype.name,
                    value.shape,
                    lambda: np.ascontiguousarray(value).tobytes(),
                )
            )
        elif _is_plain(value) and not value.is_meta:
            read = functools.partial(compared.read, value)
            lent.append(_lent(name, value, read))
        else:
            others += 1
        # Of a tensor in parts: with those that it has it is not made again.
        return leaf

    _engine.map_state({_ROOT: state}, _Listed(), _no_node, on_leaf)
    return lent, others


class _Listed:
    """The rules of a list: what no step can have is one of the others."""

    def __getattr__(self, name: str) -> Any:
        return getattr(_rules, name)

    @staticmethod
    def container(value: Any) -> Container | Literal[False] | None:
        try:
            return _rules.container(value)
        except TypeError:
            return False  # Others of its type may have parts.


def _of_dcp(folder: pathlib.Path) -> tuple[list[Lent], int]:
    # Their places in the state come from what is on no device at all.
    found, names, state = _dcp_files.described(folder)
    lent: list[Lent] = []
    # Beside what else is None in `state`.
    about = found.state_dict_metadata.values()
    others = sum(map(_dcp_files.is_quantized, about))

    def on_leaf(name: str, leaf: Any) -> Any:
        nonlocal others
        if _is_plain(leaf):
            read = functools.partial(
                _dcp_files.read_tensor, folder, found, names[id(leaf)]
            )
            lent.append(_lent(name, leaf, read))
        else:
            others += 1
        return None

    _engine.map_state({_ROOT: state}, _rules, _no_node, on_leaf)
    return lent, others


def _lent(
    name: str, leaf: torch.Tensor, read: Callable[[], torch.Tensor]
) -> Lent:
    return Lent(
        named(name, _ROOT),
        NAMES[leaf.dtype],
        tuple(leaf.shape),
        lambda: _bytes_of(read()),
    )


def _no_node(name: str, kind: str, empty: bool, tag: str) -> None:
    return None


def _is_plain(leaf: Any) -> bool:
    return (
        isinstance(leaf, torch.Tensor)
        and leaf.layout == torch.strided
        and not leaf.is_nested
        and not leaf.is_quantized
        and leaf.dtype in NAMES
    )


def _bytes_of(tensor: torch.Tensor) -> bytes:
    plain = tensor.detach().resolve_conj().resolve_neg().contiguous()
    return array_of(plain).tobytes()


def write(arrays: pathlib.Path, path: pathlib.Path, format: str) -> None:
    """A file of safetensors as one of torch.save(), or as a folder of DCP: a
    dict of its tensors by their names."""
    state, _ = _safetensors_files.read(arrays)
    # Of each its own memory: a tensor is written with all that it lies in.
    state = {name: tensor.clone() for name, tensor in state.items()}
    # It is named by the command: `path` is beside what it gets to be.
    with _torch_files.writing(""):
        if format == _found.DCP:
            _dcp_files.write(state, path, name="")
        else:
            _torch_files.write(state, path, name="")
