# SPDX-License-Identifier: Apache-2.0
"""Loading from a path: a checkpoint of its own, or a step of a run."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, Any, Iterator

from ckptree.orbax import _checkpoint, _place
from ckptree.orbax.experimental.v1 import _checkpointables
from ckptree.orbax.experimental.v1._context import get_context
from ckptree.orbax.experimental.v1._metadata import CheckpointMetadata
from ckptree.orbax.experimental.v1.errors import InvalidLayoutError

if TYPE_CHECKING:
    import pathlib

    from ckptree.orbax._place import Place
    from ckptree.orbax.experimental.v1._context import Context
    from ckptree.orbax.experimental.v1._response import AsyncResponse
    from ckptree.step import Step

    PathLike = str | os.PathLike[str]

_NO_ASYNC = (
    "only the layout SAFETENSORS, which a store cannot have, is loaded in the "
    "background; call it from a thread of your own"
)


def load(
    path: PathLike,
    abstract_state: Any = None,
    *,
    checkpointable_name: str | None = _checkpointables.AUTO,
) -> Any:
    """The tree that was saved. `abstract_state`: one like it, of
    jax.ShapeDtypeStruct, types, values, metadata, or PLACEHOLDER for what is
    not read. InvalidLayoutError: there is none; TypeError: the abstract state
    has a leaf that nothing can be loaded as; ValueError: it does not fit."""
    context = get_context()
    with opened(path) as (step, place):
        name = _name(step, place, checkpointable_name, context)
        return _checkpointables.unpack_one(
            step, _folder(step, place), name, abstract_state, context
        )


def load_async(
    path: PathLike,
    abstract_state: Any = None,
    *,
    checkpointable_name: str | None = _checkpointables.STATE,
) -> AsyncResponse[Any]:
    """NotImplementedError."""
    raise NotImplementedError(_NO_ASYNC)


def load_checkpointables(
    path: PathLike, abstract_checkpointables: Any = None
) -> dict[str, Any]:
    """The objects by name: all, or those of `abstract_checkpointables`, where
    None is as they were saved. KeyError: there is none of a name."""
    if isinstance(abstract_checkpointables, CheckpointMetadata):
        abstract_checkpointables = abstract_checkpointables.metadata
    with opened(path) as (step, place):
        return _checkpointables.unpack(
            step, _folder(step, place), abstract_checkpointables, get_context()
        )


def load_checkpointables_async(
    path: PathLike, abstract_checkpointables: Any = None
) -> AsyncResponse[dict[str, Any]]:
    """NotImplementedError."""
    raise NotImplementedError(_NO_ASYNC)


def metadata(
    path: PathLike, checkpointable_name: str | None = _checkpointables.AUTO
) -> CheckpointMetadata[Any]:
    """What describes the tree; reads no array. May be an abstract state."""
    context = get_context()
    with opened(path) as (step, place):
        name = _name(step, place, checkpointable_name, context)
        found = _checkpointables.describe_one(
            step, _folder(step, place), name, context
        )
        return _about(step, place, found)


def checkpointables_metadata(
    path: PathLike,
) -> CheckpointMetadata[dict[str, Any]]:
    """As metadata(), of all objects by name."""
    with opened(path) as (step, place):
        found = _checkpointables.describe(
            step, _folder(step, place), get_context()
        )
        return _about(step, place, found)


def is_orbax_checkpoint(path: PathLike) -> bool:
    """Whether load() finds a checkpoint. InvalidLayoutError: it is one that
    Orbax wrote, which has to be imported first."""
    try:
        if _place.address_of(path) is None:
            place = _place.locate(path)
            if place.item is not None:
                return False
    except FileNotFoundError:
        return False
    except ValueError as error:
        raise InvalidLayoutError(str(error)) from error
    try:
        with _checkpoint.opened(path) as (_, place):
            return place.item is None
    except FileNotFoundError:
        return False


@contextlib.contextmanager
def opened(path: PathLike) -> Iterator[tuple[Step, Place]]:
    """InvalidLayoutError: there is nothing to load."""
    get_context().check()
    with contextlib.ExitStack() as stack:
        try:
            found = stack.enter_context(_checkpoint.opened(path))
        except (FileNotFoundError, _place.OrbaxCheckpointError) as error:
            raise InvalidLayoutError(str(error)) from error
        yield found


def _name(step: Step, place: Place, given: str | None, context: Context) -> str:
    """Of the tree that is meant. InvalidLayoutError: there is none."""
    if place.item is not None:
        return place.item
    name = given
    if given in (None, _checkpointables.AUTO):
        name = _checkpointables.automatic(step, context)
    there = _checkpointables.names(step)
    if name is None or name not in there:
        raise InvalidLayoutError(
            f"{place.store}: no tree {given!r}; there are {', '.join(there)}: "
            "pass checkpointable_name, or use load_checkpointables()"
        )
    return name


def _folder(step: Step, place: Place) -> pathlib.Path | _place.Address:
    return place.store / str(step.step)


def _about(step: Step, place: Place, found: Any) -> CheckpointMetadata[Any]:
    from ckptree.orbax._items import About

    about = About.of(step)
    return CheckpointMetadata(
        place.store if place.step is None else _folder(step, place),
        metadata=found,
        init_timestamp_nsecs=about.begun_ns,
        commit_timestamp_nsecs=step.info.committed_ns,
        custom_metadata=about.custom,
    )
