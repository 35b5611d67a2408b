# SPDX-License-Identifier: Apache-2.0
"""Paths of checkpoints: a store, a step of one, or an item of that.

Orbax has a directory for each; a store has none of them. Code that joins the
names of a step and an item to a manager's directory finds them all the same.
"""

from __future__ import annotations

import os
import pathlib
import re
from typing import TYPE_CHECKING, NamedTuple

from ckptree.errors import NotFoundError, StoreNotFoundError
from ckptree.orbax import _flax_files
from ckptree.paths import local_path, plain_address, place_to_read

if TYPE_CHECKING:
    from ckptree.step import Step
    from ckptree.store import Store

# The step of a checkpoint that has no number.
ONLY_STEP = 0

_STEP_NAME = re.compile(r"(?:.*\D)?(\d+)")
_OF_A_JOURNAL = re.compile(r"(?:[ab]|rows)-\d+|tip")
_OF_ORBAX = ("_CHECKPOINT_METADATA", "_METADATA", "manifest.ocdbt")


class Address(str):
    """Of a store in an object store; names are joined to it as to a path."""

    __slots__ = ()

    def __truediv__(self, name: str) -> Address:
        return Address(f"{self}/{name}")

    @property
    def name(self) -> str:
        return self.rpartition("/")[2]

    @property
    def parent(self) -> Address:
        return Address(self.rpartition("/")[0])

    @property
    def has_parent(self) -> bool:
        """Whether more than a bucket, a pool or a root is above."""
        return self.count("/") > 3


class Place(NamedTuple):
    """A store, and what of it is meant."""

    store: pathlib.Path | Address
    step: int | None = None  # None: there is one only, or the latest.
    item: str | None = None  # None: all, or the only one.


class OrbaxCheckpointError(ValueError):
    """The directory was written by Orbax."""


def is_store(path: str | os.PathLike[str]) -> bool:
    """By its journal: what else is missing or damaged the engine tells, or
    makes anew."""
    try:
        names = os.listdir(os.path.join(path, "journal"))
    except PermissionError:
        return True  # For the engine to say.
    except OSError:
        return False
    return any(_OF_A_JOURNAL.fullmatch(name) for name in names)


def address_of(path: str | os.PathLike[str]) -> Address | None:
    """None: it is a path of this machine. An address of a folder, file:///...,
    is one where a store was shipped there, or two folders above."""
    given = os.fspath(path)
    if not isinstance(given, str) or "://" not in given:
        return None
    found = Address(plain_address(given))
    above = found
    for _ in range(3):
        if "://" in place_to_read(above):
            return found
        if not above.has_parent:
            break
        above = above.parent
    return None


def readings(address: Address) -> list[Place]:
    """What an address may mean: a store, the step of one, or an item of one."""
    found = [Place(address)]
    above = address.parent
    if address.has_parent:
        number = step_number(address.name)
        if number is not None:
            found.append(Place(above, number))
    if address.has_parent and above.has_parent:
        number = step_number(above.name)
        if number is not None:
            found.append(Place(above.parent, number, address.name))
    return found


def locate(path: str | os.PathLike[str]) -> Place:
    """FileNotFoundError: there is nothing. ValueError: it is Orbax's."""
    given = pathlib.Path(local_path(path))
    if is_store(given):
        return Place(given)
    found = of_a_run(given)
    if found is not None:
        return found
    check_not_of_orbax(given)
    if given.is_dir():
        raise StoreNotFoundError(f"{given} holds no checkpoint")
    raise StoreNotFoundError(f"there is no checkpoint at {given}")


def of_a_run(path: pathlib.Path) -> Place | None:
    """The step of a store, or an item of one, that `path` means by its name,
    whether or not it is there."""
    if is_store(path.parent):
        number = step_number(path.name)
        if number is not None:
            return Place(path.parent, number)
    if is_store(path.parent.parent):
        number = step_number(path.parent.name)
        if number is not None:
            return Place(path.parent.parent, number, path.name)
    return None


def step_number(name: str) -> int | None:
    """Of the name of a step: its digits at the end.

    >>> step_number("step_0042"), step_number("state")
    (42, None)
    """
    found = _STEP_NAME.fullmatch(name)
    return int(found.group(1)) if found else None


def check_not_of_orbax(path: pathlib.Path) -> None:
    """OrbaxCheckpointError where Orbax or Flax wrote `path` or a step in it."""
    if _flax_files.is_file(path):
        raise OrbaxCheckpointError(
            f"{path} was written by Flax: python -m ckptree.orbax import "
            f"{path} NEW_PATH, or ckptree.orbax.import_checkpoint(), makes a "
            "store of it, which this can read"
        )
    for folder in (path, *_steps_in(path)):
        if any((folder / name).exists() for name in _OF_ORBAX):
            raise OrbaxCheckpointError(
                f"{path} was written by Orbax: python -m ckptree.orbax import "
                f"{path} NEW_PATH, or ckptree.orbax.import_checkpoint(), makes "
                "a store of it, which this can read"
            )


def _steps_in(path: pathlib.Path) -> list[pathlib.Path]:
    if not path.is_dir():
        return []
    return [
        child
        for child in path.iterdir()
        if child.is_dir() and step_number(child.name) is not None
    ]


def open_step(store: Store, place: Place) -> Step:
    """FileNotFoundError where there is no such step."""
    try:
        return store["latest" if place.step is None else place.step]
    except NotFoundError as error:
        raise StoreNotFoundError(f"{place.store}: {error}") from None
