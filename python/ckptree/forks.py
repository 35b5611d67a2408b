# SPDX-License-Identifier: Apache-2.0
"""Forks that have no step yet: where training goes on. `branches` are all of
the store."""

from __future__ import annotations

from ckptree.errors import NotFoundError
from ckptree.hints import TYPE_CHECKING
from ckptree.selector import branch_and_rest, on_branch

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ckptree.records import BranchInfo


def origin(branches: Iterable[BranchInfo], selector: str) -> str | None:
    """Where a fork parted that has no step yet, for what names one of it;
    None: for all else. NotFoundError: there is no such branch."""
    branch, _ = branch_and_rest(selector)
    if not branch:
        return None
    known_branches = list(branches)
    for known in known_branches:
        if known.name == branch:
            at = on_branch(known.origin_branch, known.origin_step)
            return None if known.steps else at
    names = ", ".join(known.name for known in known_branches if known.name)
    raise NotFoundError(
        f"no branch {branch!r}; "
        + (f"there are {names}" if names else "there is only the main one")
    )


def latest_or_origin(branches: Iterable[BranchInfo], selector: str) -> str | None:
    """What a manager goes on from (core/manage/manager_reading.cc), for a
    selector that names no step: that which the fork was made of, for its latest
    one. None: there is nothing to go on from. NotFoundError: as origin()."""
    parted = origin(branches, selector)
    _, rest = branch_and_rest(selector)
    return parted if rest in ("latest", "latest~0") else None


def advised(
    branches: Iterable[BranchInfo], error: NotFoundError, selector: str
) -> NotFoundError:
    """With what to restore, where a fork has no step yet."""
    try:
        parted = origin(branches, selector)
    except NotFoundError:
        return error  # It says so.
    if parted is None:
        return error
    branch, _ = branch_and_rest(selector)
    asked = parted if not parted.isdecimal() else int(parted)
    return NotFoundError(
        f"{error}; it was forked from step {parted}: restore({asked!r}) gives "
        f"that, and restore_or(state, {branch + '/latest'!r}) goes on from there"
    )
