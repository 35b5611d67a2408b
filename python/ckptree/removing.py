# SPDX-License-Identifier: Apache-2.0
"""Removing a whole store, while nobody else writes to it."""

from __future__ import annotations

import os

from ckptree import _engine


def remove_store(
    directory: str | os.PathLike[str], most_steps: int = 0
) -> None:
    """Removes it and its directory, in one step for whoever looks. Files of
    others stay, and the directory with them.

    StateError: it has more steps than `most_steps` over all branches, or one of
    them is pinned or tagged. UnavailableError: it is open for writing.
    NotFoundError: there is none. It is as before then."""
    _engine.remove_store(os.fspath(directory), most_steps)
