"""flax.training.checkpoints on a store: `from ckptree.flax import checkpoints`.

A directory has one store for each prefix, in a folder of its own, so that other
files may lie beside it. What save_checkpoint() returns is a name for
restore_checkpoint(): there is no such file.
"""

from __future__ import annotations

import concurrent.futures
import os
import pathlib
import re
import warnings
from typing import TYPE_CHECKING, Any, Callable, Iterable

from flax import errors

import ckptree
from ckptree.errors import AlreadyExistsError
from ckptree.flax.params import convert_pre_linen
from ckptree.flax.restoring import args_of
from ckptree.orbax import _items, _place
from ckptree.orbax._items import StoredItem
from ckptree.orbax._tree_restore import Strictness, restore
from ckptree.orbax._tree_save import save as _item_of
from ckptree.orbax.checkpointers import AsyncCheckpointer
from ckptree.orbax.type_handlers import SaveArgs
from ckptree.policies import EveryN, Latest, Policy

if TYPE_CHECKING:
    from ckptree.handle import SaveHandle
    from ckptree.step import Step
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

_NUMBER = re.compile(r"-?\d+")
_SPLIT = re.compile(r"([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)")
_SPLIT_UNSIGNED = re.compile(r"((?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)")


class InvalidCheckpointError(errors.InvalidCheckpointError, ValueError):  # type: ignore[misc]
    """There is such a step, and `overwrite` was not set."""


class AsyncManager:
    """Saves one after the other in the background.

    >>> manager = AsyncManager()
    >>> manager.save_async(lambda: None)
    >>> manager.wait_previous_save()
    """

    def __init__(self, max_workers: int = 1) -> None:
        self._pool = concurrent.futures.ThreadPoolExecutor(max_workers)
        self._last: concurrent.futures.Future[Any] | None = None

    def wait_previous_save(self) -> None:
        """Until the last save is done; raises what it failed of, once."""
        last, self._last = self._last, None
        if last is not None:
            last.result()

    def save_async(self, task: Callable[[], Any]) -> None:
        """Waits for the last save, and starts this one."""
        self.wait_previous_save()
        self._last = self._pool.submit(task)


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
) -> str:
    """Saves `target`, any tree, as step number `step`; returns a name for it.
    Durable when it returns, but with an `async_manager`, or an AsyncCheckpointer
    as `orbax_checkpointer`: then when that has waited.

    Kept are the last `keep` steps, and besides each that is at least
    `keep_every_n_steps` after the one kept before. InvalidCheckpointError: the
    step is there; `overwrite` replaces it and deletes all later ones.

    >>> import numpy as np
    >>> save_checkpoint(tmp / "run", {"w": np.ones(2)}, step=3).rpartition("/")[2]
    'checkpoint_3'
    >>> restore_checkpoint(tmp / "run", target=None)
    {'w': array([1., 1.])}
    """
    number = _integer(step)
    policy = _policy(keep, keep_every_n_steps)
    if async_manager is not None:
        async_manager.wait_previous_save()
    if isinstance(orbax_checkpointer, AsyncCheckpointer):
        orbax_checkpointer.wait_until_finished()
    if not _is_tree(target):
        raise ValueError(
            f"a tree is wanted as target, not one {type(target).__name__}: put "
            "it into a dict"
        )
    item = _item_of(target, None)
    name = os.path.join(os.fspath(ckpt_dir), f"{prefix}{number}")
    folder = _folder(ckpt_dir, prefix)
    folder.parent.mkdir(parents=True, exist_ok=True)
    store = ckptree.Store(folder)
    try:
        handle = _begin(store, number, item, policy, overwrite)
    except AlreadyExistsError:
        store.close()
        raise InvalidCheckpointError(name, number) from None
    except BaseException:
        store.close()
        raise

    if isinstance(orbax_checkpointer, AsyncCheckpointer):
        orbax_checkpointer.follow(store, handle)
        return name

    def finish() -> None:
        with store:
            handle.result()

    if async_manager is not None:
        async_manager.save_async(finish)
    else:
        finish()
    return name


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
) -> str:
    """As save_checkpoint(), which takes sharded arrays, too; of one process.

    >>> import numpy as np
    >>> save_checkpoint_multiprocess(
    ...     tmp / "run", {"w": np.ones(2)}, step=3).rpartition("/")[2]
    'checkpoint_3'
    """
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
    )


def _begin(
    store: Store,
    step: int,
    item: _items.Item,
    policy: Policy,
    overwrite: bool,
) -> SaveHandle:
    kept = _items.about({_items.DEFAULT: item}, None)
    if overwrite:
        later = [info.step for info in store.steps() if info.step > step]
        if later:
            store.delete(*later)
    store.set_policy(policy)
    return store.save(
        step, {_items.DEFAULT: item.state}, metadata=kept, overwrite=overwrite
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
    lists too, by their places as str. Shapes and types are those that were
    saved; where `target` has arrays of JAX with a sharding, their sharding.

    `ckpt_dir`: a directory, or a name that save_checkpoint() returned. Where
    there is no checkpoint `target` is returned, with a warning. ValueError:
    there is no such step, or it lacks what `target` has; what `target` lacks is
    left out.
    """
    if orbax_transforms is not None:
        raise NotImplementedError(
            "orbax_transforms: restore by ckptree.orbax.PyTreeCheckpointer, with "
            "transforms"
        )
    folder, number = _find(ckpt_dir, prefix)
    number = number if step is None else _integer(step)
    if not _place.is_store(folder):
        _place.check_not_of_orbax(pathlib.Path(os.fspath(ckpt_dir)))
        if step is not None:
            raise ValueError(f"Matching checkpoint not found: {_name(ckpt_dir, prefix, step)}")
        return _nothing(ckpt_dir, target)
    with ckptree.open(folder) as store:
        if number is None:
            if "latest" not in store:
                return _nothing(ckpt_dir, target)
            number = store.info().step
        if number not in store:
            raise ValueError(
                f"Matching checkpoint not found: {_name(ckpt_dir, prefix, number)}"
            )
        return _restored(store[number], str(folder), target)


def _restored(step: Step, folder: str, target: Any) -> Any:
    item: StoredItem = _items.stored(step, _items.DEFAULT, folder)
    if target is None:
        return _state_dict(restore(item))
    return restore(
        item,
        target,
        restore_args_from_target(target),
        Strictness(extra=True),
    )


def _state_dict(tree: Any) -> Any:
    """Lists as dicts by their places, as Flax has them."""
    if isinstance(tree, list):
        return {str(i): _state_dict(value) for i, value in enumerate(tree)}
    if isinstance(tree, dict):
        return {str(key): _state_dict(value) for key, value in tree.items()}
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
    """The name of the latest one; None: there is none.

    >>> latest_checkpoint(tmp / "nothing") is None
    True
    """
    steps = available_steps(ckpt_dir, prefix)
    return _name(ckpt_dir, prefix, steps[-1]) if steps else None


def available_steps(
    ckpt_dir: PathLike,
    prefix: str = "checkpoint_",
    step_type: type[int] | type[float] = int,
) -> list[int | float]:
    """The steps there are, ascending.

    >>> available_steps(tmp / "nothing")
    []
    """
    folder = _folder(ckpt_dir, prefix)
    if not _place.is_store(folder):
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
    {'a': SaveArgs(aggregate=False, dtype=None, chunk_byte_size=None, shard_axes=())}
    """
    import jax

    return jax.tree_util.tree_map(lambda leaf: SaveArgs(), target)


def restore_args_from_target(target: Any, mesh: Any = None) -> Any:
    """RestoreArgs for each leaf: arrays of JAX that lie on several devices come
    back as `target` has them, but in the shape that was saved; all others as
    arrays of NumPy.

    >>> import numpy as np
    >>> restore_args_from_target({"a": np.ones(2)})["a"].restore_type
    <class 'numpy.ndarray'>
    """
    return args_of(target)


def _policy(keep: int, every: int | None) -> Policy:
    if keep < 1:
        raise ValueError(f"keep={keep}: at least the step that is saved is kept")
    if every is None:
        return Latest(keep)
    if every < 1:
        raise ValueError(f"keep_every_n_steps={every}: it must be positive")
    return Latest(keep) | EveryN(every, spaced=True)


def _is_tree(target: Any) -> bool:
    import jax

    leaf = jax.tree_util.tree_structure(0)
    return bool(jax.tree_util.tree_structure(target) != leaf)


def _integer(step: int | float) -> int:
    number = int(step)
    if number != step:
        raise ValueError(
            f"step {step}: steps of a store are whole numbers; save it as "
            "int(step * 1000), say"
        )
    return number


def _folder(ckpt_dir: PathLike, prefix: str) -> pathlib.Path:
    name = prefix.rstrip("_") or "checkpoint"
    if "/" in name or name in (".", ".."):
        raise ValueError(f"prefix {prefix!r}: it becomes the name of a folder")
    return pathlib.Path(os.fspath(ckpt_dir)) / name


def _find(path: PathLike, prefix: str) -> tuple[pathlib.Path, int | None]:
    """The store, and the step where the path names one."""
    folder = _folder(path, prefix)
    if _place.is_store(folder):
        return folder, None
    given = pathlib.Path(os.fspath(path))
    if given.name.startswith(prefix) and _NUMBER.fullmatch(given.name[len(prefix) :]):
        above = _folder(given.parent, prefix)
        if _place.is_store(above):
            return above, int(given.name[len(prefix) :])
    return folder, None


def _name(ckpt_dir: PathLike, prefix: str, step: int | float) -> str:
    return os.path.join(os.fspath(ckpt_dir), f"{prefix}{_integer(step)}")
