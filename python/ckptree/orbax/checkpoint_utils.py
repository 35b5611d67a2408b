# SPDX-License-Identifier: Apache-2.0
"""Helpers around restoring."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from typing import TYPE_CHECKING, Any, Callable, Generator, Iterator

import numpy as np

import ckptree
from ckptree.errors import StoreNotFoundError
from ckptree.orbax import _place
from ckptree.orbax._keys import keys_of
from ckptree.orbax._option_states import tell
from ckptree.orbax._tree_save import map_leaves
from ckptree.orbax._absent import absent
from ckptree.orbax._wanted import ABSTRACT
from ckptree.orbax.metadata import (
    ArrayMetadata,
    ScalarMetadata,
    StringMetadata,
    tree_of,
)
from ckptree.orbax.metadata.sharding import wanted_here
from ckptree.orbax.type_handlers import ArrayRestoreArgs, RestoreArgs

if TYPE_CHECKING:
    from ckptree.store import Store

    Format = Any


def __getattr__(name: str) -> Any:
    # Of JAX, which is imported only where somebody asks.
    if name == "Format":
        from jax.experimental import layout

        return layout.Format
    absent(__name__)(name)


def construct_restore_args(
    target: Any,
    sharding_tree: Any = None,
    set_global_shape: bool = True,
    support_layout: bool = False,
    strict: bool = True,
) -> Any:
    """RestoreArgs for each leaf of `target`, in a tree like it: arrays of JAX
    and jax.ShapeDtypeStruct with a sharding as arrays of JAX, what has none as
    arrays of NumPy, numbers and str as such. Elements are converted to the
    types of `target`. `sharding_tree`: shardings instead of the target's.

    >>> import numpy as np
    >>> construct_restore_args({"w": np.zeros(2, "f4"), "n": 1})["n"]
    RestoreArgs(restore_type=<class 'int'>, dtype=None)
    """
    tell("construct_restore_args", locals(), construct_restore_args)
    shardings: dict[Any, Any] = {}
    if sharding_tree is not None:
        map_leaves(
            sharding_tree,
            lambda name, leaf: shardings.setdefault(keys_of(name), leaf),
        )

    def args(name: str, leaf: Any) -> Any:
        return _args_of(
            leaf, shardings.get(keys_of(name)), set_global_shape, strict, name
        )

    return map_leaves(tree_of(target), args, leaves=ABSTRACT)


def _args_of(
    leaf: Any, sharding: Any, set_shape: bool, strict: bool, name: str
) -> RestoreArgs:
    if isinstance(leaf, StringMetadata):
        return RestoreArgs(restore_type=str)
    if isinstance(leaf, ScalarMetadata):
        kind = "f" if leaf.dtype is None else np.dtype(leaf.dtype).kind
        of = {"b": bool, "i": int, "u": int}.get(kind, float)
        return RestoreArgs(restore_type=of, dtype=leaf.dtype)
    if isinstance(leaf, (bool, int, float, str, bytes)):
        return RestoreArgs(restore_type=type(leaf))
    if isinstance(leaf, np.ndarray):
        return RestoreArgs(restore_type=np.ndarray, dtype=leaf.dtype)
    if leaf is ...:
        return RestoreArgs()
    jax = sys.modules.get("jax")
    of_jax = jax is not None and isinstance(
        leaf, (jax.Array, jax.ShapeDtypeStruct)
    )
    if not of_jax and not isinstance(leaf, ArrayMetadata):
        raise ValueError(f"Unsupported type: {type(leaf)} at {name}")
    placed = wanted_here(sharding if sharding is not None else leaf.sharding)
    if placed is None:
        return RestoreArgs(restore_type=np.ndarray, dtype=leaf.dtype)
    if jax is None:
        import jax as imported

        jax = imported
    is_key = jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key)
    return ArrayRestoreArgs(
        dtype=None if is_key else leaf.dtype,
        sharding=placed,
        global_shape=tuple(leaf.shape) if set_shape and not is_key else None,
        strict=strict,
    )


@contextlib.contextmanager
def wait_for_new_checkpoint(
    checkpoint_dir: str | os.PathLike[str],
    *,
    until_step: int | None = None,
    seconds_to_sleep: float = 1,
    timeout: float | None = None,
    timeout_fn: Callable[[], bool] | None = None,
    step_prefix: str | None = None,
    step_format_fixed_length: int | None = None,
    step_name_format: Any = None,
    snapshot_dir: Any = None,
    set_immutable: bool | None = None,
    ignore_snapshot_errors: bool | None = True,
) -> Iterator[int]:
    """A context of the latest step, as soon as there is one of at least
    `until_step`; of -1 after `timeout` seconds, where `timeout_fn` says so, if
    there is one. Steps are found whatever their names are."""
    tell("wait_for_new_checkpoint", locals(), wait_for_new_checkpoint)
    with contextlib.closing(
        _steps_from(
            checkpoint_dir, until_step, seconds_to_sleep, timeout, timeout_fn
        )
    ) as steps:
        yield next(steps, -1)


def _steps_from(
    directory: str | os.PathLike[str],
    first: int | None,
    pause: float,
    timeout: float | None,
    timeout_fn: Callable[[], bool] | None,
) -> Generator[int, None, None]:
    """Each time the latest step, if it is a new one."""
    store: Store | None = None
    deadline = None if timeout is None else time.monotonic() + timeout
    try:
        while True:
            if store is None and _place.is_store(directory):
                with contextlib.suppress(StoreNotFoundError):  # Being made.
                    store = ckptree.open(directory)
            elif store is not None:
                store.refresh()
            latest = _latest(store)
            if latest is not None and (first is None or latest >= first):
                yield latest
                first = latest + 1
                if timeout is not None:
                    deadline = time.monotonic() + timeout
                continue
            if deadline is not None and time.monotonic() + pause > deadline:
                if timeout_fn is None or timeout_fn():
                    return
            time.sleep(pause)
    finally:
        if store is not None:
            store.close()


def _latest(store: Store | None) -> int | None:
    if store is None or "latest" not in store:
        return None
    return store.step_info().step


def checkpoints_iterator(
    checkpoint_dir: str | os.PathLike[str],
    *,
    min_interval_secs: float = 0,
    seconds_to_sleep: float = 1,
    timeout: float | None = None,
    timeout_fn: Callable[[], bool] | None = None,
    step_prefix: str | None = None,
    step_format_fixed_length: int | None = None,
    step_name_format: Any = None,
    snapshot_dir: Any = None,
    set_immutable: bool | None = None,
    ignore_snapshot_errors: bool | None = True,
) -> Iterator[int]:
    """The latest step, each time there is a later one; ends after `timeout`
    seconds without one. Steps that come while the loop works are skipped but
    for the last. Once a step is open, all it holds can be read, even if the
    trainer deletes it."""
    tell("checkpoints_iterator", locals(), checkpoints_iterator)
    for found in _steps_from(
        checkpoint_dir, None, seconds_to_sleep, timeout, timeout_fn
    ):
        begun = time.monotonic()
        yield found
        rest = min_interval_secs - (time.monotonic() - begun)
        if rest > 0:
            time.sleep(rest)
