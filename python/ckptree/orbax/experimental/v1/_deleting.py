# SPDX-License-Identifier: Apache-2.0
"""Deleting a checkpoint at a path of its own, or a step of a run."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import ckptree
from ckptree.errors import NotFoundError
from ckptree.orbax import _place, _processes
from ckptree.orbax.experimental.v1._context import get_context
from ckptree.orbax.experimental.v1._response import AsyncResponse
from ckptree.paths import local_path
from ckptree.removing import remove_store
from ckptree.sharing import is_open, ranks_of

if TYPE_CHECKING:
    PathLike = str | os.PathLike[str]


def delete(
    path: PathLike,
    *,
    checkpointable_name: str | None = None,
    missing_ok: bool = False,
) -> bool:
    """Deletes a checkpoint: a store with one step, or the step of a run that
    the path names. Returns whether there was one.

    Parameters
    ----------
    path
        As of save(), or DIRECTORY/STEP of a run.
    checkpointable_name
        Refused: a step is whole.
    missing_ok
        Where nothing is there: False instead of an error.

    Raises
    ------
    FileNotFoundError
        There is no checkpoint.
    ValueError
        The path is a run with several steps, those of branches among them: name
        one, or remove the directory by yourself. Or a manager of this process
        has it open.
    ckptree.StateError
        The step is pinned or tagged, or the directory holds files of others.
    ckptree.UnavailableError
        Another process writes to it.
    NotImplementedError
        `checkpointable_name` was given.

    >>> import ckptree.orbax.experimental.v1 as ocp, numpy as np
    >>> ocp.save(tmp / "tree", {"w": np.arange(3)})
    >>> ocp.delete(tmp / "tree"), ocp.delete(tmp / "tree", missing_ok=True)
    (True, False)
    """
    context = get_context()
    context.check()
    job = _processes.job(context.multiprocessing)
    if job is None:
        return _delete(path, checkpointable_name, missing_ok)
    # One process deletes; the others hear what came of it.
    call = _processes.Call(job, f"delete {os.path.abspath(local_path(path))}")
    call.agree()  # Nobody reads it any more.
    deleted = False
    with call.telling():
        if job.is_primary:
            deleted = _delete(path, checkpointable_name, missing_ok)
    return bool(call.agree(deleted, lambda says: says[0]))


def _delete(
    path: PathLike, checkpointable_name: str | None, missing_ok: bool
) -> bool:
    if checkpointable_name is not None:
        raise NotImplementedError(
            f"checkpointable_name={checkpointable_name!r}: a step is whole; "
            "load what is to stay, and save it with overwrite=True"
        )
    try:
        place = _place.locate(path)
    except FileNotFoundError:
        if missing_ok:
            return False
        raise
    if place.item is not None:
        raise NotImplementedError(
            f"{os.fspath(path)} is one item: a step is whole; load what is to "
            "stay, and save it with overwrite=True"
        )
    ranks = ranks_of(place.store)
    with ckptree.Store(place.store, mode="write", ranks=ranks) as store:
        if place.step is not None:
            return _delete_step(store, place.step, path, missing_ok)
        count = sum(branch.steps for branch in store.branches())
        if count > 1:
            raise ValueError(
                f"{place.store} is a run with {count} steps: delete one by its "
                "path, DIRECTORY/STEP, or all by shutil.rmtree()"
            )
    if is_open(place.store):
        raise ValueError(
            f"{place.store} is open in this process: close its managers first, "
            "or all by ckptree.close_all(), or delete the step by its path, "
            "DIRECTORY/STEP"
        )
    # It looks once more, while nobody else can save to it.
    remove_store(place.store, most_steps=1)
    return True


def _delete_step(
    store: ckptree.Store, step: int, path: PathLike, missing_ok: bool
) -> bool:
    try:
        store.delete(step)
    except NotFoundError:
        if missing_ok:
            return False
        raise FileNotFoundError(
            f"there is no checkpoint at {os.fspath(path)}"
        ) from None
    return True


def delete_async(
    path: PathLike,
    *,
    checkpointable_name: str | None = None,
    missing_ok: bool = False,
) -> AsyncResponse[bool]:
    """As delete(). A step goes in one commit, so nothing is left to wait
    for.

    >>> import ckptree.orbax.experimental.v1 as ocp, numpy as np
    >>> ocp.save(tmp / "tree", {"w": np.arange(3)})
    >>> ocp.delete_async(tmp / "tree").result()
    True
    """
    deleted = delete(
        path, checkpointable_name=checkpointable_name, missing_ok=missing_ok
    )
    return AsyncResponse(lambda: deleted)
