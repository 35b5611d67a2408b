# SPDX-License-Identifier: Apache-2.0
"""Saving to a path of its own: a store with one step."""

from __future__ import annotations

import os
import pathlib
from typing import TYPE_CHECKING, Any, Callable

from ckptree.orbax import _items, _tree_save
from ckptree.orbax._saving import Saving
from ckptree.orbax.experimental.v1 import _checkpointables
from ckptree.orbax.experimental.v1._context import get_context
from ckptree.orbax.experimental.v1._response import AsyncResponse
from ckptree.paths import local_path

if TYPE_CHECKING:
    from ckptree.orbax._items import Item
    from ckptree.orbax.experimental.v1._context import Context

    PathLike = str | os.PathLike[str]


def save(
    path: PathLike,
    state: Any,
    *,
    checkpointable_name: str = _checkpointables.STATE,
    overwrite: bool = False,
    custom_metadata: Any = None,
) -> None:
    """Saves a tree; it is durable when this returns. ValueError: something is
    there already, or a leaf cannot be saved; `overwrite` replaces a checkpoint,
    in one commit.

    >>> import ckptree.orbax.experimental.v1 as ocp, numpy as np
    >>> ocp.save(tmp / "tree", {"w": np.arange(3), "n": 1})
    >>> ocp.load(tmp / "tree")
    {'n': 1, 'w': array([0, 1, 2])}
    """
    context = get_context()

    def pack() -> dict[str, Item]:
        return _checkpointables.pack_tree(state, checkpointable_name, context)

    _begin(path, pack, overwrite, custom_metadata, context)()


def save_async(
    path: PathLike,
    state: Any,
    *,
    checkpointable_name: str = _checkpointables.STATE,
    overwrite: bool = False,
    custom_metadata: Any = None,
) -> AsyncResponse[None]:
    """As save(); returns when the arrays may change again."""
    context = get_context()

    def pack() -> dict[str, Item]:
        return _checkpointables.pack_tree(state, checkpointable_name, context)

    return AsyncResponse(
        _begin(path, pack, overwrite, custom_metadata, context)
    )


def save_checkpointables(
    path: PathLike,
    checkpointables: dict[str, Any],
    *,
    overwrite: bool = False,
    custom_metadata: Any = None,
) -> None:
    """As save(), of several objects by name, each by its handler."""
    context = get_context()

    def pack() -> dict[str, Item]:
        return _checkpointables.pack(checkpointables, context)

    _begin(path, pack, overwrite, custom_metadata, context)()


def save_checkpointables_async(
    path: PathLike,
    checkpointables: dict[str, Any],
    *,
    overwrite: bool = False,
    custom_metadata: Any = None,
) -> AsyncResponse[None]:
    """As save_checkpointables(), and save_async()."""
    context = get_context()

    def pack() -> dict[str, Item]:
        return _checkpointables.pack(checkpointables, context)

    return AsyncResponse(
        _begin(path, pack, overwrite, custom_metadata, context)
    )


def _begin(
    path: PathLike,
    pack: Callable[[], dict[str, Item]],
    overwrite: bool,
    custom: Any,
    context: Context,
) -> Callable[[], None]:
    """Starts it; returns what waits for it, and closes the store."""
    directory = pathlib.Path(local_path(path))
    saving = Saving(
        directory,
        force=overwrite,
        permissions=context.file.path_permission_mode,
        processes=context.multiprocessing,
        deadline=context.asynchronous.timeout_secs,
    )
    with saving.telling():
        if saving.is_primary and directory.exists() and not overwrite:
            raise ValueError(
                f"Destination {directory} already exists: pass overwrite=True "
                "to replace a checkpoint"
            )
        saving.check_free()
        # Not before: what a handler begins has to be ended.
        items = pack()
    callback = context.asynchronous.post_finalization_callback
    kept: dict[str, Item] | None = None
    if any(item.later for item in items.values()):
        # The arrays may change as soon as this returns.
        kept = _tree_save.copied(items)
    else:
        saving.begin(items, custom)

    def finish() -> None:
        if kept is not None:
            with saving.telling():
                made = _items.finished(kept)
            saving.begin(made, custom)
        saving.finish()
        if callback is not None and saving.is_primary:
            callback()

    return finish
