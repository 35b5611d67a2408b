# SPDX-License-Identifier: Apache-2.0
"""Directories of checkpoints: where the store of a prefix is, and what Flax
wrote there itself."""

from __future__ import annotations

import os
import pathlib
import re
from typing import TYPE_CHECKING, Any

import ckptree
from ckptree.errors import (
    InvalidArgumentError,
    StoreNotFoundError,
    UnsupportedError,
)
from ckptree.orbax import _flax_files, _place, _processes
from ckptree.orbax._place import Address, OrbaxCheckpointError
from ckptree.orbax._remote import Remote, RemoteOptions
from ckptree.paths import local_path

if TYPE_CHECKING:
    PathLike = str | os.PathLike[str]

# A folder of this machine, or an address.
Where = pathlib.Path | Address

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


def folder(ckpt_dir: PathLike, prefix: str) -> Where:
    """Of the store of a prefix."""
    below = _flax_files.folder_name(prefix)
    given = os.fspath(ckpt_dir)
    if isinstance(given, str) and "://" in given:
        _where(given)  # What is wrong is told of the argument.
        return _where(f"{given.rstrip('/')}/{below}")
    return pathlib.Path(local_path(ckpt_dir)) / below


def _where(path: PathLike) -> Where:
    return _place.address_of(path) or pathlib.Path(local_path(path))


def is_there(store: Where) -> bool:
    """Whether there is a store."""
    if not isinstance(store, Address):
        return _place.is_store(store)
    try:
        ckptree.open(store).close()
    except StoreNotFoundError:
        return False
    return True


def check_alone(store: Where) -> None:
    """UnsupportedError: several processes cannot save to an address here."""
    if isinstance(store, Address) and not _processes.is_alone():
        raise UnsupportedError(
            f"{store}: ckptree.flax.checkpoints saves to an address from one "
            "process, and JAX runs in several: they save together by "
            "ckptree.orbax.CheckpointManager"
        )


def remote_options(
    store: Where, take_over: bool, local_keep: Any
) -> RemoteOptions:
    """TypeError, InvalidArgumentError: they cannot be, or not of an address."""
    options = RemoteOptions(take_over=take_over, local_keep=local_keep)
    for name in ("take_over", "local_keep"):
        if getattr(options, name) and not isinstance(store, Address):
            raise InvalidArgumentError(
                f"{name} is of an address, as s3://bucket/run, and {store} is "
                "in a directory: leave it out"
            )
    return options


def to_save(store: Where, of_remote: RemoteOptions) -> ckptree.Store:
    """The store, open to be saved to; it is made where there is none."""
    if isinstance(store, Address):
        remote = Remote(store, of_remote)
        options = remote.opening(_processes.DEADLINE)
        return remote.opened(
            lambda: ckptree.Store(remote.directory, **options),
            "For a save of ckptree.flax.checkpoints: pass take_over=True",
        )
    store.parent.mkdir(parents=True, exist_ok=True)
    return ckptree.Store(store)


def find(path: PathLike, prefix: str) -> tuple[Where, int | None]:
    """The store, and the step where the path is the name of one, whatever its
    prefix. `prefix`: where the path is a directory."""
    below = folder(path, prefix)
    if is_there(below):
        return below, None
    given = _where(path)
    if is_there(given):
        return given, None
    parent: PathLike = given.parent
    url = os.fspath(path)
    if isinstance(url, str) and "://" in url:
        parent = url.rstrip("/").rpartition("/")[0]
    found = [
        (above, number)
        for named, number in _readings(given.name, prefix)
        if is_there(above := folder(parent, named))
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


def find_store(ckpt_dir: PathLike, prefix: str) -> Where | None:
    """The store of a prefix; None where there is none. As
    check_not_of_flax()."""
    found = folder(ckpt_dir, prefix)
    if is_there(found):
        return found
    check_not_of_flax(ckpt_dir, prefix)
    return None


def check_not_of_flax(ckpt_dir: PathLike, prefix: str) -> None:
    """OrbaxCheckpointError where Flax wrote that file, or checkpoints of that
    prefix into that directory."""
    if isinstance(folder(ckpt_dir, prefix), Address):
        return  # It writes there by other libraries.
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
