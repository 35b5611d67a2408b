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


def new_fork(
    branches: Iterable[BranchInfo], selector: str
) -> BranchInfo | None:
    """The fork that has no step yet, where `selector` names one of it; None:
    for all else. NotFoundError: there is no such branch."""
    branch, _ = branch_and_rest(selector)
    if not branch:
        return None
    known_branches = list(branches)
    for known in known_branches:
        if known.name == branch:
            return None if known.steps else known
    names = ", ".join(known.name for known in known_branches if known.name)
    raise NotFoundError(
        f"no branch {branch!r}; "
        + (f"there are {names}" if names else "there is only the main one")
    )


def names_latest(selector: str) -> bool:
    """Of a branch; of its fork's origin nothing else goes on."""
    return branch_and_rest(selector)[1] in ("latest", "latest~0")


def origin(fork: BranchInfo) -> str:
    """The step that it was made of, if its save is still there."""
    return on_branch(fork.origin_branch, fork.origin_step)


def origin_is_dropped(fork: BranchInfo) -> bool:
    """Whether the branch that it was made of is gone."""
    return fork.origin_branch == "?"  # No branch has such a name.


def origin_gone(fork: BranchInfo, why: str) -> NotFoundError:
    what = f"step {origin(fork)}"
    if origin_is_dropped(fork):
        what = f"step {fork.origin_step} of a branch"
    return NotFoundError(
        f"branch {fork.name!r} has no step to go on from: {what}, which it was "
        f"forked from, {why} since: fork it anew, or save a step to it first"
    )


def advised(
    branches: Iterable[BranchInfo], error: NotFoundError, selector: str
) -> NotFoundError:
    """With what to restore, where a fork has no step yet."""
    try:
        fork = new_fork(branches, selector)
    except NotFoundError:
        return error  # It says so.
    if fork is None:
        return error
    if origin_is_dropped(fork):
        return origin_gone(fork, "was dropped")
    parted = origin(fork)
    asked = parted if not parted.isdecimal() else int(parted)
    return NotFoundError(
        f"{error}; it was forked from step {parted}: restore({asked!r}) gives "
        f"that, and restore_or(state, {fork.name + '/latest'!r}) goes on from "
        "there"
    )
