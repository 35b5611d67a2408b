# SPDX-License-Identifier: Apache-2.0
"""A checkpoint at a path of its own: a store with one step, or the step of a
run that the path names. What may be saved there, and what is there."""

from __future__ import annotations

import contextlib
import os
import pathlib
import re
from typing import TYPE_CHECKING, Iterator

import ckptree
from ckptree.errors import StoreNotFoundError
from ckptree.orbax import _items, _place
from ckptree.paths import local_path

if TYPE_CHECKING:
    from ckptree.orbax._place import Address, Place
    from ckptree.step import Step
    from ckptree.store import Store

_OF_A_STEP = re.compile(r"(?:.*_)?\d+")


def step_to_save(path: pathlib.Path) -> Place | None:
    """The step of a run that `path` means. To read, any name that ends in
    digits does; here "exp2" may well be meant as a folder."""
    place = _place.of_a_run(path)
    if place is None:
        return None
    name = path.name if place.item is None else path.parent.name
    return place if _OF_A_STEP.fullmatch(name) else None


def check_no_run(store: Store) -> None:
    """ValueError: one checkpoint cannot replace all of them."""
    steps = list(store)
    if steps not in ([], [_place.ONLY_STEP]):
        raise ValueError(
            f"{store.path} is a run, with steps up to {steps[-1]}: save to one "
            f"of them, {os.path.join(store.path, str(steps[-1] + 1))} say, or "
            "by its CheckpointManager"
        )


def _check_step(place: Place, path: pathlib.Path, *, force: bool) -> None:
    """ValueError: the step is there, and is not to be, or not to be
    replaced."""
    assert place.step is not None
    with ckptree.open(place.store) as store:
        if place.step not in store:
            return
        there = _items.names(store[place.step])
    if place.item is not None and there != [place.item]:
        raise ValueError(
            f"{path}: step {place.step} has the items {', '.join(there)}, and "
            "is saved as a whole: save all its items to "
            f"{place.store / str(place.step)}, or by a CheckpointManager"
        )
    if not force:
        raise ValueError(
            f"Destination {path} already exists: pass force=True to replace it"
        )


def check_free(path: pathlib.Path, *, force: bool) -> bool:
    """Whether a checkpoint is there, which `force` replaces. ValueError: it
    must not be, or something else is."""
    if _place.is_store(path):
        if not force:
            raise ValueError(
                f"Destination {path} already exists: pass force=True to "
                "replace it"
            )
        return True
    place = step_to_save(path)
    if place is not None:
        _check_step(place, path, force=force)
        return True
    for above in path.parents[:2]:
        if _place.is_store(above):
            raise ValueError(
                f"{path} is inside of the store {above}, and names no step of "
                "it: save by its CheckpointManager, or to DIRECTORY/STEP, or "
                "choose a path outside"
            )
    if path.exists():
        _place.check_not_of_orbax(path)
        if not path.is_dir() or any(path.iterdir()):
            raise ValueError(
                f"Destination {path} already exists, and is no checkpoint of "
                "ckptree: choose another path, or remove it"
            )
        if not force:
            raise ValueError(
                f"Destination {path} already exists: remove the empty "
                "directory, or pass force=True"
            )
    return False


@contextlib.contextmanager
def opened(path: str | os.PathLike[str]) -> Iterator[tuple[Step, Place]]:
    """The step at `path`, or at an address, and what of it is meant.
    FileNotFoundError."""
    address = _place.address_of(path)
    if address is not None:
        store, place = open_at(address)
        with store:
            yield _place.open_step(store, place), place
        return
    place = _place.locate(path)
    with ckptree.open(place.store) as store:
        yield _place.open_step(store, place), place


def open_at(address: Address) -> tuple[Store, Place]:
    """The store that an address means, to read. FileNotFoundError."""
    for place in _place.readings(address):
        with contextlib.suppress(StoreNotFoundError):
            return ckptree.open(place.store), place
    raise StoreNotFoundError(f"there is no checkpoint at {address}")


def only_item(step: Step, place: Place) -> _items.StoredItem:
    """The item that is meant where one is. ValueError: there are more."""
    name = place.item
    if name is None:
        there = [n for n in _items.names(step) if n != _items.METRICS]
        if _items.DEFAULT in there:
            name = _items.DEFAULT
        elif len(there) == 1:
            (name,) = there
        else:
            raise ValueError(
                f"{place.store} has the items {', '.join(there)}: restore them "
                "by a CompositeCheckpointHandler or a CheckpointManager, or "
                "add the step and the name of one to the path"
            )
    folder = place.store / str(step.step)
    return _items.stored(step, name, folder)
