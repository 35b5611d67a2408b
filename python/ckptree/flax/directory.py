# SPDX-License-Identifier: Apache-2.0
"""Directories of checkpoints: where the store of a prefix is, and what Flax
wrote there itself."""

from __future__ import annotations

import os
import pathlib
import re
from typing import TYPE_CHECKING

import ckptree
from ckptree.orbax import _flax_files, _place
from ckptree.orbax._place import OrbaxCheckpointError
from ckptree.paths import local_path

if TYPE_CHECKING:
    PathLike = str | os.PathLike[str]

_NUMBER = re.compile(r"-?\d+")
_DIGITS = re.compile(r"(.*?)(\d+)")


def integer(step: int | float) -> int:
    """ValueError: it is no whole number."""
    number = int(step)
    if number != step:
        raise ValueError(
            f"step {step}: steps of a store are whole numbers; save it as "
            "int(step * 1000), say"
        )
    return number


def name(ckpt_dir: PathLike, prefix: str, step: int | float) -> str:
    """What save_checkpoint() returns."""
    return os.path.join(os.fspath(ckpt_dir), f"{prefix}{integer(step)}")


def folder(ckpt_dir: PathLike, prefix: str) -> pathlib.Path:
    """Of the store of a prefix."""
    below = _flax_files.folder_name(prefix)
    return pathlib.Path(local_path(ckpt_dir)) / below


def find(path: PathLike, prefix: str) -> tuple[pathlib.Path, int | None]:
    """The store, and the step where the path is the name of one, whatever its
    prefix. `prefix`: where the path is a directory."""
    below = folder(path, prefix)
    given = pathlib.Path(local_path(path))
    if _place.is_store(below):
        return below, None
    if _place.is_store(given):
        return given, None
    found = [
        (above, number)
        for named, number in _readings(given.name, prefix)
        if _place.is_store(above := folder(given.parent, named))
    ]
    for above, number in found if len(found) > 1 else ():
        with ckptree.open(above) as store:
            if number in store:
                return above, number
    return found[0] if found else (below, None)


def _readings(name: str, prefix: str) -> list[tuple[str, int]]:
    """The prefixes and steps that a name may be of: "v23" is step 23 of "v", or
    step 3 of "v2"."""
    found = []
    if name.startswith(prefix) and _NUMBER.fullmatch(name[len(prefix) :]):
        found.append((prefix, int(name[len(prefix) :])))
    digits = _DIGITS.fullmatch(name)
    if digits is not None:
        before, number = digits.groups()
        for i in range(len(number)):
            found.append((before + number[:i], int(number[i:])))
    return [(p, n) for p, n in found if p not in (".", "..")]


def find_store(ckpt_dir: PathLike, prefix: str) -> pathlib.Path | None:
    """The store of a prefix; None where there is none. As
    check_not_of_flax()."""
    found = folder(ckpt_dir, prefix)
    if _place.is_store(found):
        return found
    check_not_of_flax(ckpt_dir, prefix)
    return None


def check_not_of_flax(ckpt_dir: PathLike, prefix: str) -> None:
    """OrbaxCheckpointError where Flax wrote that file, or checkpoints of that
    prefix into that directory."""
    given = pathlib.Path(local_path(ckpt_dir))
    if not given.is_dir():
        wrote = _flax_files.is_file(given)
    else:
        wrote = _flax_files.is_tree_folder(given) or bool(
            _flax_files.steps_in(given, prefix)
        )
    if wrote:
        raise OrbaxCheckpointError(
            f"{given} was written by Flax: python -m ckptree.orbax import "
            f"{given} NEW_PATH, or ckptree.orbax.import_checkpoint(), makes a "
            "directory of it that ckptree.flax reads"
        )
