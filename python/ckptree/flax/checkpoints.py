# SPDX-License-Identifier: Apache-2.0
"""flax.training.checkpoints on a store: `from ckptree.flax import checkpoints`.

A directory has one store for each prefix, in a folder of its own, so that other
files may lie beside it; an address, s3://bucket/run, has one below it for each.
What save_checkpoint() returns is a name for restore_checkpoint(): there is no
such file.
"""

from __future__ import annotations

import concurrent.futures
import os
import pathlib
import re
import warnings
from typing import TYPE_CHECKING, Any, Callable, Iterable

from flax import config, errors

import ckptree
from ckptree.errors import AlreadyExistsError, StateError
from ckptree.flax import directory
from ckptree.flax.params import convert_pre_linen
from ckptree.flax.restoring import args_of
from ckptree.orbax import _items, _place
from ckptree.orbax._array_handlers import ArrayCheckpointHandler
from ckptree.orbax._handler import overrides
from ckptree.orbax._items import StoredItem
from ckptree.orbax._keys import keys_of
from ckptree.orbax._option_states import tell
from ckptree.orbax._tree_handlers import PyTreeCheckpointHandler
from ckptree.orbax._tree_restore import Strictness, restore
from ckptree.orbax._tree_save import save as _item_of
from ckptree.orbax.args import PyTreeRestore
from ckptree.orbax.checkpointers import AsyncCheckpointer, Checkpointer
from ckptree.orbax.type_handlers import SaveArgs
from ckptree.paths import local_path
from ckptree.policies import EveryN, Latest, Policy

if TYPE_CHECKING:
    from ckptree.handle import SaveHandle
    from ckptree.store import Store

    PathLike = str | os.PathLike[str]

__all__ = [
    "AsyncManager",
    "InvalidCheckpointError",
    "available_steps",
    "convert_pre_linen",
    "latest_checkpoint",
    "natural_sort",
    "restore_args_from_target",
    "restore_checkpoint",
    "safe_normpath",
    "save_args_from_target",
    "save_checkpoint",
    "save_checkpoint_multiprocess",
]

_SPLIT = re.compile(r"([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)")
_SPLIT_UNSIGNED = re.compile(r"((?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)")


class InvalidCheckpointError(errors.InvalidCheckpointError, ValueError):  # type: ignore[misc]
    """There is such a step, and `overwrite` was not set.

    >>> _ = save_checkpoint(tmp / "run", {"w": 1}, step=3)
    >>> save_checkpoint(tmp / "run", {"w": 2}, step=3)
    Traceback (most recent call last):
    ckptree.flax.checkpoints.InvalidCheckpointError: ...
    """

    def __init__(self, path: str, step: int) -> None:
        super().__init__(path, step)
        # The page that Flax links has its own name of it.
        anchor = f"{type(self).__module__}.{type(self).__name__}"
        own = "flax.errors.InvalidCheckpointError"
        self.args = (str(self).replace(f"#{anchor}", f"#{own}"),)


class AsyncManager:
    """Saves one after the other in the background.

    >>> manager = AsyncManager()
    >>> manager.save_async(lambda: None)
    >>> manager.wait_previous_save()
    """

    def __init__(self, max_workers: int = 1) -> None:
        self.executor = concurrent.futures.ThreadPoolExecutor(max_workers)
        # Of the last save, until somebody has waited for it.
        self.save_future: concurrent.futures.Future[Any] | None = None

    def wait_previous_save(self) -> None:
        """Until the last save is done; raises what it failed of, once.

        >>> manager.wait_previous_save()
        """
        last, self.save_future = self.save_future, None
        if last is not None:
            last.result()

    def save_async(self, task: Callable[[], Any]) -> None:
        """Waits for the last save, and starts this one.

        >>> manager.save_async(lambda: print("saves"))
        >>> manager.wait_previous_save()
        saves
        """
        self.wait_previous_save()
        self.save_future = self.executor.submit(task)


def save_checkpoint(
    ckpt_dir: PathLike,
    target: Any,
    step: int | float,
    prefix: str = "checkpoint_",
    keep: int = 1,
    overwrite: bool = False,
    keep_every_n_steps: int | None = None,
    async_manager: AsyncManager | None = None,
    orbax_checkpointer: Any = None,
    *,
    take_over: bool = False,
    local_keep: Policy | str | None = None,
) -> str:
    """Saves `target`, any tree, as step number `step`; returns a name for it.
    Durable when it returns, but with an `async_manager`, or an
    AsyncCheckpointer as `orbax_checkpointer`: then when that has waited.

    The last `keep` steps are kept, and also each step that is at least
    `keep_every_n_steps` after the one kept before. InvalidCheckpointError: the
    step is there; `overwrite` replaces it and deletes all later ones.

    Of ckptree, at an address: `take_over` saves also where another process
    wrote there less than ten minutes ago and did not close the store; its saves
    fail from then on. Without it that is a StateError. `local_keep`, a policy
    or its text, says which steps keep their arrays in the folder of this
    machine, too: as in ckptree.Store.

    >>> import numpy as np
    >>> path = save_checkpoint(tmp / "run", {"w": np.ones(2)}, step=3)
    >>> path.rpartition("/")[2]
    'checkpoint_3'
    >>> restore_checkpoint(tmp / "run", target=None)
    {'w': array([1., 1.])}
    """
    number = directory.integer(step)
    policy = _policy(keep, keep_every_n_steps)
    if async_manager is not None:
        async_manager.wait_previous_save()
    _wait(orbax_checkpointer)
    items = _items_of(target, orbax_checkpointer)
    name = directory.name(ckpt_dir, prefix, number)
    folder = directory.folder(ckpt_dir, prefix)
    of_remote = directory.remote_options(folder, take_over, local_keep)
    directory.check_alone(folder)
    if not directory.is_there(folder):
        directory.check_not_of_flax(ckpt_dir, prefix)
    store = directory.to_save(folder, of_remote)
    try:
        store.set_policy(policy)
        handle = _begin(store, number, items, overwrite)
    except AlreadyExistsError:
        store.close()
        raise InvalidCheckpointError(name, number) from None
    except StateError as error:
        store.close()
        raise _advised(error) from None
    except BaseException:
        store.close()
        raise

    def finish() -> None:
        with store:
            try:
                handle.result()
            except StateError as error:
                raise _advised(error) from None

    if isinstance(orbax_checkpointer, AsyncCheckpointer):
        orbax_checkpointer.follow(handle, finish)
        return name
    if async_manager is not None:
        async_manager.save_async(finish)
    else:
        finish()
    return name


def _advised(error: StateError) -> StateError:
    """With what a caller of this module can do about later steps."""
    said, engine, _ = str(error).partition(": to go on from an older step")
    if not engine:
        return error
    return StateError(
        f"{said}: overwrite=True goes on from there, and deletes those after it"
    )


def _wait(orbax_checkpointer: Any) -> None:
    """For what an asynchronous checkpointer saves."""
    wait = getattr(orbax_checkpointer, "wait_until_finished", None)
    if wait is not None:
        wait()


def save_checkpoint_multiprocess(
    ckpt_dir: PathLike,
    target: Any,
    step: int | float,
    prefix: str = "checkpoint_",
    keep: int = 1,
    overwrite: bool = False,
    keep_every_n_steps: int | None = None,
    async_manager: AsyncManager | None = None,
    gda_manager: Any = None,
    orbax_checkpointer: Any = None,
    *,
    take_over: bool = False,
    local_keep: Policy | str | None = None,
) -> str:
    """As save_checkpoint(), which takes sharded arrays, too; of one process.

    >>> import numpy as np
    >>> save_checkpoint_multiprocess(
    ...     tmp / "run", {"w": np.ones(2)}, step=3).rpartition("/")[2]
    'checkpoint_3'
    """
    tell("save_checkpoint_multiprocess", locals(), save_checkpoint_multiprocess)
    return save_checkpoint(
        ckpt_dir,
        target,
        step,
        prefix,
        keep,
        overwrite,
        keep_every_n_steps,
        async_manager,
        orbax_checkpointer,
        take_over=take_over,
        local_keep=local_keep,
    )


def _items_of(target: Any, orbax_checkpointer: Any) -> dict[str, _items.Item]:
    """What the handler of the checkpointer makes of it, where one is given."""
    handler = getattr(orbax_checkpointer, "handler", None)
    if not _is_tree(target) and not isinstance(handler, ArrayCheckpointHandler):
        raise ValueError(
            f"the target must be a tree, not one {type(target).__name__}: put "
            "it into a dict"
        )
    if isinstance(orbax_checkpointer, Checkpointer):
        return _items.finished(orbax_checkpointer._pack((target,), {}))
    return {_items.DEFAULT: _item_of(target, None)}


def _begin(
    store: Store,
    step: int,
    items: dict[str, _items.Item],
    overwrite: bool,
) -> SaveHandle:
    kept = _items.about(items, None)
    return store.save(
        step,
        _items.states(items),
        metadata=kept,
        overwrite=overwrite,
        delete_later=overwrite,
    )


def restore_checkpoint(
    ckpt_dir: PathLike,
    target: Any,
    step: int | float | None = None,
    prefix: str = "checkpoint_",
    parallel: bool = True,
    gda_manager: Any = None,
    allow_partial_mpa_restoration: bool = False,
    orbax_checkpointer: Any = None,
    orbax_transforms: dict[str, Any] | None = None,
) -> Any:
    """The latest step, or `step`, in the containers of `target`; None: dicts,
    lists too, by their places as str. Shapes are those that were saved. Where
    `target` has arrays of JAX with a sharding, theirs is taken, and arrays come
    back in the element types of `target`, as astype() makes them (300 as int8
    is 44); else, and where Flax is told not to save by Orbax, as they were
    saved.

    `ckpt_dir`: a directory, or a name that save_checkpoint() returned. Where
    there is no checkpoint `target` is returned, with a warning. Waits for what
    `orbax_checkpointer` saves. ValueError: there is no such step, it lacks what
    `target` has, or Flax wrote it: import it first; what `target` lacks is left
    out. `orbax_transforms`: see ckptree.orbax.transform_utils; with them, or
    {}, what was not saved stays as `target` has it, with a warning.

    >>> import numpy as np
    >>> _ = save_checkpoint(tmp / "run", {"w": np.ones(2)}, step=3)
    >>> restore_checkpoint(tmp / "run", target={"w": np.zeros(2)})
    {'w': array([1., 1.])}
    """
    tell("restore_checkpoint", locals(), restore_checkpoint)
    _wait(orbax_checkpointer)
    folder, number = directory.find(ckpt_dir, prefix)
    number = number if step is None else directory.integer(step)
    if not directory.is_there(folder):
        directory.check_not_of_flax(ckpt_dir, prefix)
        if isinstance(folder, pathlib.Path):
            _place.check_not_of_orbax(pathlib.Path(local_path(ckpt_dir)))
        if step is not None:
            raise ValueError(
                "Matching checkpoint not found: "
                f"{directory.name(ckpt_dir, prefix, step)}"
            )
        return _nothing(ckpt_dir, target)
    with ckptree.open(folder) as store:
        if number is None:
            if "latest" not in store:
                return _nothing(ckpt_dir, target)
            number = store.step_info().step
        if number not in store:
            raise ValueError(
                "Matching checkpoint not found: "
                f"{directory.name(ckpt_dir, prefix, number)}"
            )
        item = _items.stored(store[number], _items.DEFAULT, str(folder))
        if isinstance(orbax_checkpointer, Checkpointer):
            handler = orbax_checkpointer.handler
            if overrides(handler):
                asked = {} if target is None else {"item": target}
                return orbax_checkpointer._unpack(item, asked)
        return _restored(item, target, orbax_transforms)


def _restored(item: StoredItem, target: Any, transforms: Any) -> Any:
    by_orbax = config.flax_use_orbax_checkpointing
    if target is None:
        made = _state_dict(restore(item))
        return made if by_orbax else _filled(made, item)
    if transforms is not None:
        args = PyTreeRestore(
            target, restore_args_from_target(target), transforms
        )
        return PyTreeCheckpointHandler().unpack(item, args)
    numbers = frozenset(
        keys_of(info.name)
        for info in ([] if by_orbax else item.infos())
        if info.kind in ("bool", "int", "float", "complex")
    )
    return restore(
        item,
        target,
        args_of(target, by_orbax=by_orbax, numbers=numbers),
        Strictness(extra=True),
    )


def _state_dict(tree: Any) -> Any:
    """Lists as dicts by their places, as Flax has them."""
    if isinstance(tree, list):
        return {str(i): _state_dict(value) for i, value in enumerate(tree)}
    if isinstance(tree, dict):
        return {str(key): _state_dict(value) for key, value in tree.items()}
    return tree


def _filled(tree: Any, item: StoredItem) -> Any:
    """With empty dicts for empty objects, as Flax has them where it does not
    save by Orbax; None of the user's stays."""
    for info in item.infos():
        node, keys = tree, keys_of(info.name)
        if info.is_leaf or info.kind == "none" or not keys:
            continue
        for key in keys[:-1]:
            node = node[key]
        if node[keys[-1]] is None:
            node[keys[-1]] = {}
    return tree


def _nothing(ckpt_dir: PathLike, target: Any) -> Any:
    warnings.warn(
        f"no checkpoint in {os.fspath(ckpt_dir)}: returns the target as it is",
        stacklevel=3,
    )
    return target


def latest_checkpoint(
    ckpt_dir: PathLike, prefix: str = "checkpoint_"
) -> str | None:
    """The name of the latest one; None: there is none. CorruptionError: nobody
    can say which it is, as rows of steps cannot be read.

    >>> latest_checkpoint(tmp / "nothing") is None
    True
    """
    folder = directory.find_store(ckpt_dir, prefix)
    if folder is None:
        return None
    with ckptree.open(folder) as store:
        if "latest" not in store:
            return None
        return directory.name(ckpt_dir, prefix, store["latest"].step)


def available_steps(
    ckpt_dir: PathLike,
    prefix: str = "checkpoint_",
    step_type: type[int] | type[float] = int,
) -> list[int | float]:
    """The steps there are, ascending.

    >>> available_steps(tmp / "nothing")
    []
    """
    folder = directory.find_store(ckpt_dir, prefix)
    if folder is None:
        return []
    with ckptree.open(folder) as store:
        return [step_type(info.step) for info in store.steps()]


def natural_sort(file_list: Iterable[str], signed: bool = True) -> list[str]:
    """Names in the order of the numbers in them.

    >>> natural_sort(["step_10", "step_9", "step_1e5", "step_-1.5"])
    ['step_-1.5', 'step_9', 'step_10', 'step_1e5']
    """
    split = _SPLIT if signed else _SPLIT_UNSIGNED

    def key(name: str) -> list[Any]:
        parts = split.split(name)
        return [float(p) if i % 2 else p for i, p in enumerate(parts)]

    return sorted(file_list, key=key)


def safe_normpath(path: str) -> str:
    """The path without what does nothing in it; a URL keeps its slashes.

    >>> safe_normpath("a//b/../c"), safe_normpath("gs://a//b")
    ('a/c', 'gs://a/b')
    """
    scheme, mark, rest = path.rpartition("://")
    return f"{scheme}{mark}{os.path.normpath(rest)}"


def save_args_from_target(target: Any) -> Any:
    """SaveArgs for each leaf, in a tree like `target`.

    >>> save_args_from_target({"a": 1})
    {'a': SaveArgs(aggregate=False, dtype=None, chunk_byte_size=None,
                   shard_axes=())}
    """
    import jax

    return jax.tree_util.tree_map(lambda leaf: SaveArgs(), target)


def restore_args_from_target(target: Any, mesh: Any = None) -> Any:
    """RestoreArgs for each leaf: arrays of JAX come back as such, and where
    they lie in `target`, but in the shape that was saved; those of NumPy as
    these. Where there is one of JAX, all in the element types of `target`.

    >>> import numpy as np
    >>> restore_args_from_target({"a": np.ones(2)})["a"].restore_type
    <class 'numpy.ndarray'>
    """
    return args_of(target)


def _policy(keep: int, every: int | None) -> Policy:
    if keep < 1:
        raise ValueError(
            f"keep={keep}: at least the step that is saved is kept"
        )
    if every is None:
        return Latest(keep)
    if every < 1:
        raise ValueError(f"keep_every_n_steps={every}: it must be positive")
    return Latest(keep) | EveryN(every, spaced=True)


def _is_tree(target: Any) -> bool:
    import jax

    leaf = jax.tree_util.tree_structure(0)
    return bool(jax.tree_util.tree_structure(target) != leaf)
