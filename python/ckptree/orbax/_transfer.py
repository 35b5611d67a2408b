# SPDX-License-Identifier: Apache-2.0
"""Checkpoints of Orbax and Flax into a store. Needs Orbax, which reads its
own."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
from typing import TYPE_CHECKING, Any, Iterable, Iterator, NamedTuple

import numpy as np

import ckptree
from ckptree.errors import (
    MAX_SHOWN,
    AlreadyExistsError,
    CorruptionError,
    Error,
)
from ckptree.orbax import _flax_files, _items, _place, _random_keys, _saving
from ckptree.orbax._document_handlers import json_item
from ckptree.orbax._items import Item
from ckptree.orbax._keys import keys_of
from ckptree.orbax._manager_arguments import ordered_metrics
from ckptree.orbax._sharding import to_plain
from ckptree.orbax._tree_save import ROOT, map_leaves
from ckptree.orbax._tree_save import save as tree_item
from ckptree.paths import local_path
from ckptree.progress import showing
from ckptree.removing import remove_store

if TYPE_CHECKING:
    from ckptree.orbax._flax_files import FlaxStep
    from ckptree.progress import Meter, Progress

    PathLike = str | os.PathLike[str]

# Names of handlers, as Orbax keeps them and as we do.
OURS = "ckptree.orbax."
# What older managers kept of their run, beside its steps.
_OF_A_RUN = "metadata"
_TREES = ("StandardCheckpointHandler", "PyTreeCheckpointHandler")


def _orbax() -> Any:
    try:
        import orbax.checkpoint
    except ImportError:
        raise ImportError(
            "Orbax reads and writes its own checkpoints: pip install "
            "orbax-checkpoint"
        ) from None
    return orbax.checkpoint


def import_checkpoint(
    source: PathLike,
    destination: PathLike,
    *,
    steps: Iterable[int] | None = None,
    progress: Progress = None,
    verify: bool = True,
) -> list[int]:
    """Makes a store of what Orbax or Flax wrote. Returns the steps, those of
    `steps` only where it is given. Where nothing could be imported, no store is
    made.

    Of a manager's directory, with all its steps, whatever their names; of one
    checkpoint, or one file of Flax: a store with one step. Of a directory of
    flax.training.checkpoints, with files or folders, one that ckptree.flax
    reads. Arrays come back with the same bits, on the same devices where those
    are there. What a handler wrote that is not known here: NotImplementedError.
    ValueError: beside steps, or without any, there are checkpoints with other
    names, which are imported each by its own path.

    `progress`: True shows a bar of tqdm; a function is called after each step
    with the steps that are done and those in all. A step that is in the store
    already is left as it is, so that an import that was interrupted can go on.
    Steps keep their times, by which policies order them. `verify` reads each
    step back from the disk when it is saved; CorruptionError names it.

    One checkpoint with one number in `steps` is saved as that step, of a store
    that may have others; AlreadyExistsError: it has this one.
    """
    return import_steps(source, destination, steps, progress, verify)


def import_steps(
    source: PathLike,
    destination: PathLike,
    steps: Iterable[int] | None,
    progress: Progress = None,
    verify: bool = True,
    *,
    new: bool = False,
) -> list[int]:
    """As import_checkpoint(). `new`: one checkpoint, too, is left out where
    the store has such a step."""
    root = pathlib.Path(local_path(source)).absolute()
    destination = local_path(destination)
    if not root.is_file() and not root.is_dir():
        raise FileNotFoundError(f"there is no directory {root}")
    one = root.is_file() or _is_checkpoint(root)
    if one and steps is not None:
        return [_import_as(root, destination, list(steps), new, verify)]
    if one and new and _has_step(destination, _place.ONLY_STEP):
        return [_place.ONLY_STEP]
    if root.is_file():
        _saving.save(destination, _read_file(root))
        _verify_all(destination, verify)
        return [_place.ONLY_STEP]
    if one:
        ocp = _orbax()
        items = _read_items(ocp, root)
        custom = _custom_metadata(ocp, root)
        _saving.save(destination, items, custom)
        _verify_all(destination, verify)
        return [_place.ONLY_STEP]
    folders = _step_folders(root)
    of_flax = [] if folders else _flax_files.steps_in(root)
    there = sorted(folders) or [step.step for step in of_flax]
    wanted = set(there if steps is None else steps)
    taken = [*folders.values(), *(step.path for step in of_flax)]
    if not taken or steps is None:
        _check_left_out(root, taken)
    if not wanted:
        raise ValueError(f"{root} holds no checkpoint of Orbax or Flax")
    lacking = wanted.difference(there)
    if lacking:
        raise FileNotFoundError(f"{root}: there is no step {min(lacking)}")
    chosen = [step for step in of_flax if step.step in wanted]
    with showing(progress, "import", " steps", rare=True) as meter:
        if folders:
            _import_manager(
                root, folders, sorted(wanted), destination, meter, verify
            )
            return sorted(wanted)
        _import_flax(
            chosen, pathlib.Path(os.fspath(destination)), meter, verify
        )
    return [step.step for step in chosen]


def _has_step(directory: PathLike, step: int) -> bool:
    if not _place.is_store(directory):
        return False
    with ckptree.open(directory) as store:
        return step in store


def _import_as(
    root: pathlib.Path,
    destination: PathLike,
    steps: list[int],
    new: bool,
    verify: bool,
) -> int:
    """One checkpoint, or one file, as the only one of `steps`."""
    if len(steps) != 1:
        raise ValueError(f"{root} is one checkpoint: it gets one number")
    (step,) = steps
    if _has_step(destination, step):
        if new:
            return step
        raise AlreadyExistsError(f"step {step} is there already")
    # No store is made where there is nothing to put into it.
    if root.is_file():
        read = _Read(_read_file(root), {}, {})
    else:
        read = _read_step(_orbax(), root)
    with _opened(pathlib.Path(destination)) as store:
        _save(store, step, read, _time(root))
        _verify(store, step, verify)
    return step


@contextlib.contextmanager
def _opened(directory: pathlib.Path) -> Iterator[ckptree.Store]:
    """The store to import to. One that was made for it, and the folders above,
    go where nothing was saved."""
    made = not _place.is_store(directory)
    lacking = [p for p in (directory, *directory.parents) if not p.exists()]
    directory.parent.mkdir(parents=True, exist_ok=True)
    try:
        with ckptree.Store(directory) as store:
            yield store
    except BaseException:
        # With a step, or open elsewhere, it stays.
        with contextlib.suppress(Error, OSError):
            if made:
                remove_store(directory)
            if directory not in lacking:
                directory.mkdir(exist_ok=True)
            for above in lacking[1:]:
                above.rmdir()
        raise


def _import_manager(
    root: pathlib.Path,
    folders: dict[int, pathlib.Path],
    wanted: list[int],
    destination: PathLike,
    meter: Meter | None,
    verify: bool,
) -> None:
    ocp = _orbax()
    options = ocp.CheckpointManagerOptions(read_only=True)
    with ocp.CheckpointManager(root, options=options) as manager:
        said = dict(manager.metadata().custom_metadata or {})
    with _opened(pathlib.Path(destination)) as store:
        if said and store.metadata() is None:
            store.set_metadata(said)
        for done, step in enumerate(wanted, 1):
            if step not in store:
                _import_step(ocp, store, step, folders[step])
                _verify(store, step, verify)
            if meter is not None:
                meter(done, len(wanted))


def _step_folders(root: pathlib.Path) -> dict[int, pathlib.Path]:
    """The steps of a manager, whatever name format it has. ValueError: two
    folders may be of one step."""
    found: dict[int, pathlib.Path] = {}
    for child in sorted(root.iterdir()):
        number = _place.step_number(child.name)
        if number is None or _flax_files.UNFINISHED in child.name:
            continue
        if not child.is_dir() or not _has_items(child):
            continue
        if number in found:
            raise ValueError(
                f"{found[number]} and {child} may both be step {number}: move "
                "one elsewhere"
            )
        found[number] = child
    return found


def _check_left_out(root: pathlib.Path, taken: list[pathlib.Path]) -> None:
    """ValueError where `root` has checkpoints beside those of `taken`, its
    steps: an import of it would leave them out."""
    left = {
        child
        for child in root.iterdir()
        if child not in taken
        and child.is_dir()
        and child.name != _OF_A_RUN
        and _flax_files.UNFINISHED not in child.name
        and _is_checkpoint(child)
    }
    if not left:
        return
    every = sorted(left.union(taken))
    each = f"import each by its own path, as {min(left)}, with --step N"
    if taken:
        each += "; --step N here takes that step alone"
    raise ValueError(
        f"{root} holds {_listed(every)}, and no step by its name is "
        f"{_listed(sorted(left))}: {each} (in Python steps=[N])"
    )


def _listed(paths: list[pathlib.Path]) -> str:
    """The names of the first of them."""
    names = [path.name for path in paths[:MAX_SHOWN]]
    if len(paths) > MAX_SHOWN:
        names.append(f"{len(paths) - MAX_SHOWN} more")
    return ", ".join(names)


def _has_items(folder: pathlib.Path) -> bool:
    if _flax_files.is_tree_folder(folder):
        return False  # Flax's, or a loop's own.
    below = [child for child in folder.iterdir() if child.is_dir()]
    if (folder / "_CHECKPOINT_METADATA").exists() or folder.name.isdigit():
        return bool(below)
    return any(_flax_files.is_tree_folder(child) for child in below)


def _import_flax(
    chosen: list[FlaxStep],
    destination: pathlib.Path,
    meter: Meter | None,
    verify: bool,
) -> None:
    """Each prefix into a store of its own, as ckptree.flax has them."""
    for done, found in enumerate(chosen, 1):
        # Without a prefix they are a loop's own, PATH/STEP.
        below = _flax_files.folder_name(found.prefix) if found.prefix else ""
        with _opened(destination / below) as store:
            if found.step not in store:
                if found.path.is_dir():
                    _import_step(_orbax(), store, found.step, found.path)
                else:
                    read = _Read(_read_file(found.path), {}, {})
                    _save(store, found.step, read, _time(found.path))
                _verify(store, found.step, verify)
        if meter is not None:
            meter(done, len(chosen))


def _verify(store: ckptree.Store, step: int, wanted: bool) -> None:
    """Reads a step from the disk. CorruptionError."""
    if not wanted:
        return
    report = store.verify("full", steps=[step])
    if not report.ok:
        found = "; ".join(map(str, report.findings))
        raise CorruptionError(
            f"{store.path}: step {step} is not what was saved: {found}"
        )


def _verify_all(directory: PathLike, wanted: bool) -> None:
    with ckptree.open(directory) as store:
        _verify(store, _place.ONLY_STEP, wanted)


def _time(path: pathlib.Path) -> int:
    """When a step was saved, in ns: as Orbax says it, else of the folder or
    file."""
    try:
        return int(_said_of(path)["commit_timestamp_nsecs"])
    except (ValueError, KeyError, TypeError):
        return path.stat().st_mtime_ns


def _said_of(path: pathlib.Path) -> dict[str, Any]:
    """What Orbax wrote beside the items of a step; nothing, of a file and of
    older versions."""
    try:
        found = json.loads((path / "_CHECKPOINT_METADATA").read_text())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _read_file(path: pathlib.Path) -> dict[str, Item]:
    """Of a file of Flax."""
    item = tree_item(_flax_files.read(path), None)
    return {_items.DEFAULT: _of(item, _TREES[1])}


def _is_checkpoint(path: pathlib.Path) -> bool:
    return _flax_files.is_tree_folder(path) or (
        path / "_CHECKPOINT_METADATA"
    ).exists()


class _Read(NamedTuple):
    """What a step is made of."""

    items: dict[str, Item]
    metrics: dict[str, float]
    custom: dict[str, Any]


def _import_step(
    ocp: Any, store: ckptree.Store, step: int, folder: pathlib.Path
) -> None:
    _save(store, step, _read_step(ocp, folder), _time(folder))


def _read_step(ocp: Any, folder: pathlib.Path) -> _Read:
    items = _read_items(ocp, folder)
    metrics = {}
    if _items.METRICS in items:
        found = json.loads(
            (folder / _items.METRICS / _items.METRICS).read_text()
        )
        if isinstance(found, dict):
            # The others are in the item.
            metrics = ordered_metrics(found)
    return _Read(items, metrics, _custom_metadata(ocp, folder))


def _save(store: ckptree.Store, step: int, read: _Read, time_ns: int) -> None:
    store.save(
        step,
        _items.states(read.items),
        metrics=read.metrics,
        metadata=_items.about(read.items, read.custom),
        time=time_ns / 1e9,
    ).result()


def _custom_metadata(ocp: Any, folder: pathlib.Path) -> dict[str, Any]:
    said = _said_of(folder).get("custom_metadata")
    if isinstance(said, dict):
        # Orbax, asked for it, warns of each item that it has no handler for.
        return said
    single = _flax_files.is_tree_folder(folder)
    handler = (
        ocp.PyTreeCheckpointHandler()
        if single
        else ocp.CompositeCheckpointHandler()
    )
    found = ocp.Checkpointer(handler).metadata(folder)
    return dict(found.custom_metadata or {})


def _read_items(ocp: Any, folder: pathlib.Path) -> dict[str, Item]:
    if _flax_files.is_tree_folder(folder):
        return {_items.DEFAULT: _read_tree(ocp, folder)}
    made = {}
    for child in sorted(folder.iterdir()):
        if child.is_dir():
            made[child.name] = _read_item(ocp, child)
    return made


def _read_item(ocp: Any, folder: pathlib.Path) -> Item:
    if (folder / "checkpoint" / ".zarray").exists():
        handler = ocp.ArrayCheckpointHandler()
        args = ocp.args.ArrayRestore(restore_args=ocp.RestoreArgs(np.ndarray))
        array = handler.restore(folder, args=args)
        return _of(tree_item(array, None), "ArrayCheckpointHandler")
    if (folder / "_METADATA").exists():
        return _read_tree(ocp, folder)
    if folder.name == _items.METRICS and (folder / _items.METRICS).is_file():
        return json_item(json.loads((folder / _items.METRICS).read_text()))
    if (folder / "metadata").is_file():
        handler = ocp.JsonCheckpointHandler()
        found = handler.restore(folder, args=ocp.args.JsonRestore())
        return _of(json_item(found), "JsonCheckpointHandler")
    key = _random_keys.key_folder(folder)
    if key is not None and key.of_jax:
        item = tree_item(_random_keys.read_of_jax(ocp, key), None)
        return _of(item, "JaxRandomKeyCheckpointHandler")
    if key is not None:
        state = _read_tree(ocp, key.path).state
        state = tuple(state) if key.marked else state
        item = Item(state, {"tuple": key.marked})
        return _of(item, "NumpyRandomKeyCheckpointHandler")
    raise NotImplementedError(
        f"{folder}: this item was written by a handler that cannot be "
        "imported: restore it by Orbax, and save it"
    )


def item_folders(folder: pathlib.Path) -> dict[str, pathlib.Path]:
    """The items of a checkpoint by their names; "" where it is one tree."""
    if _flax_files.is_tree_folder(folder):
        return {"": folder}
    below = [child for child in sorted(folder.iterdir()) if child.is_dir()]
    return {child.name: child for child in below}


def array_kinds(folder: pathlib.Path) -> dict[str, Any] | None:
    """What Orbax knows of the arrays of an item, by their names as
    item_arrays() has them; None where the item is no tree."""
    ocp = _orbax()
    if not (folder / "_METADATA").exists():
        return None
    described = ocp.PyTreeCheckpointHandler().metadata(folder)
    value_types = ocp.metadata.value
    kinds: dict[str, Any] = {}

    def on_leaf(name: str, leaf: Any) -> Any:
        # A scalar is an array to Orbax.
        if isinstance(leaf, value_types.ArrayMetadata) and not isinstance(
            leaf, value_types.ScalarMetadata
        ):
            kinds[name] = leaf
        return leaf

    map_leaves(described.tree, on_leaf, leaves=_described(value_types))
    return kinds


def _described(value_types: Any) -> tuple[type, ...]:
    """What Orbax describes leaves of a tree by."""
    return (
        value_types.ArrayMetadata,
        value_types.ScalarMetadata,
        value_types.StringMetadata,
    )


def item_arrays(folder: pathlib.Path) -> dict[str, np.ndarray[Any, Any]]:
    """All arrays of an item, read, by their names. NotImplementedError."""
    arrays: dict[str, np.ndarray[Any, Any]] = {}

    def on_leaf(name: str, leaf: Any) -> Any:
        if isinstance(leaf, np.ndarray):
            arrays[name] = leaf
        elif _random_keys.is_typed(leaf):
            arrays[name] = _random_keys.numbers(leaf)
        return leaf

    map_leaves(_read_item(_orbax(), folder).state, on_leaf)
    return arrays


def _of(item: Item, handler: str) -> Item:
    return item._replace(about={**item.about, "handler": OURS + handler})


def _read_tree(ocp: Any, folder: pathlib.Path) -> Item:
    """As arrays of the host, but for typed keys, and where those of JAX
    lay."""
    handler = ocp.PyTreeCheckpointHandler()
    described = handler.metadata(folder)
    kinds: dict[Any, Any] = {}
    value_types = ocp.metadata.value
    impls = _random_keys.implementations(folder)

    def args(name: str, leaf: Any) -> Any:
        kinds[keys_of(name)] = leaf
        if isinstance(leaf, value_types.StringMetadata):
            return ocp.RestoreArgs(restore_type=str)
        if isinstance(leaf, value_types.ScalarMetadata):
            return ocp.RestoreArgs()
        return ocp.RestoreArgs(restore_type=np.ndarray)

    restore_args = map_leaves(
        described.tree, args, leaves=_described(value_types)
    )
    tree = handler.restore(
        folder, args=ocp.args.PyTreeRestore(restore_args=restore_args)
    )
    if impls:

        def with_keys(name: str, leaf: Any) -> Any:
            impl = impls.get(getattr(kinds[keys_of(name)], "name", ""))
            if impl is None:
                return leaf
            below = name.removeprefix(ROOT + "/")
            return _random_keys.typed(leaf, impl, f"{folder}: {below}")

        tree = map_leaves(tree, with_keys)
    made = tree_item(tree, None)
    about = _about_arrays(tree, kinds)
    if described.custom_metadata:
        about["custom"] = described.custom_metadata
    return _of(made._replace(about=about), _TREES[1])


def _about_arrays(tree: Any, kinds: dict[Any, Any]) -> dict[str, Any]:
    """What _tree_save says of a tree that has arrays of JAX."""
    placements: list[Any] = []
    placed: dict[str, int] = {}
    others: list[str] = []

    def see(name: str, leaf: Any) -> Any:
        sharding = getattr(kinds.get(keys_of(name)), "sharding", None)
        below = name[len("item") :]
        if sharding is None:
            others.append(below)
            return leaf
        try:
            plain = to_plain(sharding.to_jax_sharding())
        except (ValueError, KeyError, RuntimeError):
            plain = None  # Its devices are not here.
        if plain and "spec" in plain and _random_keys.is_typed(leaf):
            # Orbax says it of the numbers, which have one more axis.
            plain["spec"] = plain["spec"][: leaf.ndim]
        if plain not in placements:
            placements.append(plain)
        placed[below] = placements.index(plain)
        return leaf

    map_leaves(tree, see)
    if not placed:
        return {}
    most = max(set(placed.values()), key=list(placed.values()).count)
    return {
        "not_of_jax": others,
        "placements": placements,
        "placed": {
            "most": most,
            "others": {k: v for k, v in placed.items() if v != most},
        },
    }
