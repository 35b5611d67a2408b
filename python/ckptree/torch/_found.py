# SPDX-License-Identifier: Apache-2.0
"""What checkpoints of other formats lie at a path: which formats, under which
names, of which steps. Judged by the names of files alone; nothing is read but
the beginning of an index.json."""

from __future__ import annotations

import pathlib
import re
from fnmatch import fnmatchcase
from typing import NamedTuple, Sequence

from ckptree.arguments import choice, optional
from ckptree.errors import InvalidArgumentError
from ckptree.torch import _dcp_files, _safetensors_files

TORCH, DCP, SAFETENSORS = "torch", "dcp", "safetensors"
TORCH_SUFFIXES = (".pt", ".pth", ".bin", ".ckpt")
# Of transformers' Trainer: where it was. It is plain data.
JSON = "json"
FORMAT = optional(choice(TORCH, DCP, SAFETENSORS))
TRAINER_STATE = "trainer_state.json"

# What `ckptree export --format raw` writes, beside files that end as PyTorch's.
_RAW_INDEX = "index.json"
_RAW = re.compile(rb'\s*\{\s*"schema"\s*:\s*"ckptree\.raw/')

_SHARD = re.compile(r"-\d{5}-of-\d{5}$")
_LAST_NUMBER = re.compile(r"(\d+)$")
# Folders of DCP that Accelerate writes into a checkpoint: no steps.
_OF_ACCELERATE = re.compile(r"(pytorch_model_fsdp|optimizer)_\d+$")


class Part(NamedTuple):
    """A file, an index with its files, or a folder of DCP."""

    item: str  # Its name without what says the format.
    format: str
    path: pathlib.Path


class Checkpoint(NamedTuple):
    """One state: a part alone, or several, each an item of it."""

    path: pathlib.Path
    parts: list[Part]
    left_out: list[str]  # Other files.


def number_of(path: pathlib.Path) -> int | None:
    """The step that a name says at its end.

    >>> [number_of(pathlib.Path(name)) for name in (
    ...     "checkpoint-500", "step_20.pt", "epoch=1-step=7.ckpt", "m2.5",
    ...     "model.pt")]
    [500, 20, 7, 5, None]
    """
    found = _LAST_NUMBER.search(_stem(path.name))
    return None if found is None else int(found[1])


def _stem(name: str) -> str:
    for suffix in (
        _safetensors_files.INDEX,
        _safetensors_files.SUFFIX,
        *TORCH_SUFFIXES,
    ):
        if name.endswith(suffix):
            return name[: -len(suffix)]
    return name


def look(
    path: pathlib.Path, format: str | None, skip: Sequence[str]
) -> Checkpoint | dict[int, Checkpoint]:
    """What is there: one checkpoint, or several by their steps. `format`: what
    a file is whose name does not say it. InvalidArgumentError: nothing, or two
    of one step."""
    if path.is_file():
        return Checkpoint(path, [_file(path, format)], [])
    if not path.is_dir():
        raise FileNotFoundError(f"there is no file or folder {path}")
    if format == TORCH:
        raise InvalidArgumentError(
            f"{path} is a folder, and format='torch' is a file: leave "
            "format out"
        )
    if (path / _dcp_files.METADATA).is_file():
        return Checkpoint(path, [Part("", DCP, path)], [])
    whole = _folder(path, skip)
    if format is not None and any(p.format != format for p in whole.parts):
        raise InvalidArgumentError(f"{path} is no folder of format={format!r}")
    steps = _steps(path, whole, skip)
    if steps:
        return steps
    if not whole.parts:
        raise InvalidArgumentError(
            f"{path} holds no checkpoint: no file of torch.save() "
            f"({', '.join(TORCH_SUFFIXES)}), none of safetensors, no "
            f"{_dcp_files.METADATA} of DCP, and no folder like checkpoint-500"
        )
    return whole


def _file(path: pathlib.Path, format: str | None) -> Part:
    if path.name == _dcp_files.METADATA or path.suffix == ".distcp":
        raise InvalidArgumentError(f"{path}: pass its folder, {path.parent}")
    known = _format_of(path.name)
    if format == DCP:
        raise InvalidArgumentError(f"{path} is a file, and DCP has folders")
    if known is None and format is None:
        raise InvalidArgumentError(
            f"{path}: what is it? pass format='torch' or 'safetensors'"
        )
    return Part(_stem(path.name), format or known or "", path)


def _format_of(name: str) -> str | None:
    if name.endswith((_safetensors_files.SUFFIX, _safetensors_files.INDEX)):
        return SAFETENSORS
    return TORCH if name.endswith(TORCH_SUFFIXES) else None


def _folder(path: pathlib.Path, skip: Sequence[str]) -> Checkpoint:
    """The parts that lie in a folder itself."""
    parts: list[Part] = []
    left_out: list[str] = []
    names = sorted(child.name for child in path.iterdir())
    indices = [n for n in names if n.endswith(_safetensors_files.INDEX)]
    of_index = tuple(f"{_stem(name)}-" for name in indices)
    for name in names:
        child = path / name
        if name == _RAW_INDEX and _is_raw(child):
            raise InvalidArgumentError(
                f"{path} was written by `ckptree export --format raw`, which "
                "nothing imports: export the step as safetensors, npz or npy "
                "(--format), or to a file of torch.save() or a folder of DCP "
                "by ckptree.torch.export_checkpoint()"
            )
        if any(fnmatchcase(name, glob) for glob in skip):
            left_out.append(name)
        elif name == TRAINER_STATE:
            parts.append(Part(name[: -len(".json")], JSON, child))
        elif name.endswith(".bin.index.json"):
            raise InvalidArgumentError(
                f"{child}: files of torch.save() with an index are not read: "
                "load them by transformers, and save the state"
            )
        elif child.is_dir():
            if (child / _dcp_files.METADATA).is_file():
                parts.append(Part(name, DCP, child))
        elif _SHARD.search(_stem(name)) and _format_of(name) is not None:
            if not (of_index and name.startswith(of_index)):
                raise InvalidArgumentError(
                    f"{child} is one of several, and there is no index of "
                    "them, as model.safetensors.index.json"
                )
        elif _format_of(name) is not None:
            parts.append(Part(_stem(name), _format_of(name) or "", child))
        else:
            left_out.append(name)
    seen: dict[str, pathlib.Path] = {}
    for part in parts:
        if part.item in seen:
            raise InvalidArgumentError(
                f"{seen[part.item]} and {part.path} would both be the item "
                f"{part.item!r}: name one of them in skip="
            )
        seen[part.item] = part.path
    return Checkpoint(path, parts, left_out)


def _is_raw(index: pathlib.Path) -> bool:
    if not index.is_file():
        return False
    with open(index, "rb") as file:
        return _RAW.match(file.read(200)) is not None


def _steps(
    path: pathlib.Path, whole: Checkpoint, skip: Sequence[str]
) -> dict[int, Checkpoint]:
    """The checkpoints of a folder that holds several; none where it is one."""
    found: dict[int, Checkpoint] = {}

    def add(checkpoint: Checkpoint) -> None:
        number = number_of(checkpoint.path)
        if number is None:
            return
        if number in found:
            raise InvalidArgumentError(
                f"{found[number].path} and {checkpoint.path} may both be step "
                f"{number}: move one elsewhere, or import it alone"
            )
        found[number] = checkpoint

    for child in sorted(path.iterdir()):
        if not child.is_dir() or number_of(child) is None:
            continue
        if _OF_ACCELERATE.match(child.name):
            continue
        if any(fnmatchcase(child.name, glob) for glob in skip):
            continue
        if (child / _dcp_files.METADATA).is_file():
            add(Checkpoint(child, [Part("", DCP, child)], []))
        else:
            inner = _folder(child, skip)
            if inner.parts:
                add(inner)
    files = [part for part in whole.parts if part.path.is_file()]
    numbered = all(number_of(part.path) is not None for part in files)
    if not found and files and numbered and len(files) == len(whole.parts):
        for part in files:
            add(Checkpoint(part.path, [part], []))
    return found
