# SPDX-License-Identifier: Apache-2.0
"""Tensors of files of torch.save() and of folders of DCP, for the command."""

from __future__ import annotations

import functools
import pathlib
from typing import Any, Callable

import numpy as np
import torch

from ckptree import _engine, _rules
from ckptree.adapters.torch_dtypes import NAMES, array_of
from ckptree.errors import InvalidArgumentError
from ckptree.lending import Lent, named
from ckptree.torch import _dcp_files, _found, _safetensors_files, _torch_files

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
    return _of_state(_torch_files.read(part.path))


def _of_state(state: Any) -> tuple[list[Lent], int]:
    lent: list[Lent] = []
    others = 0

    def on_leaf(name: str, leaf: Any) -> Any:
        nonlocal others
        if isinstance(leaf, np.ndarray):
            array = leaf
            lent.append(
                Lent(
                    named(name, _ROOT),
                    array.dtype.name,
                    array.shape,
                    lambda: np.ascontiguousarray(array).tobytes(),
                )
            )
        elif _is_plain(leaf):
            lent.append(_lent(name, leaf, lambda: leaf))
        else:
            others += 1
        return None

    _engine.map_state({_ROOT: state}, _rules, _no_node, on_leaf)
    return lent, others


def _of_dcp(folder: pathlib.Path) -> tuple[list[Lent], int]:
    # Their places in the state come from what is on no device at all.
    found, names, state = _dcp_files.described(folder)
    lent: list[Lent] = []
    others = 0  # Beside what is None in `state`.

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
    if format == _found.DCP:
        _dcp_files.write(state, path)
    else:
        _torch_files.write(state, path, name="")
