"""Checkpoints of Orbax into a store, and back. Needs Orbax, which reads and
writes them."""

from __future__ import annotations

import json
import os
import pathlib
from typing import TYPE_CHECKING, Any, Callable, Iterable

import numpy as np

import ckptree
from ckptree.orbax import _checkpoint, _items, _place
from ckptree.orbax._document_handlers import json_item
from ckptree.orbax._items import About, Item
from ckptree.orbax._keys import keys_of
from ckptree.orbax._sharding import to_plain
from ckptree.orbax._tree_save import map_leaves
from ckptree.orbax._tree_save import save as tree_item

if TYPE_CHECKING:
    from ckptree.step import Step

    PathLike = str | os.PathLike[str]
    Progress = Callable[[int, int], None]

# Names of handlers, as Orbax keeps them and as we do.
_OURS = "ckptree.orbax."
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
    progress: Progress | None = None,
) -> list[int]:
    """Makes a store of a directory that Orbax wrote: of a manager, with all its
    steps or `steps`, or of one checkpoint. Returns the steps. Arrays come back
    with the same bits, on the same devices where those are there. What a handler
    wrote that is not known here: NotImplementedError.

    `progress(done, all)` is called after each step. A step that is in the store
    already is left as it is, so that an import that was interrupted can go on.
    """
    ocp = _orbax()
    root = pathlib.Path(os.fspath(source)).absolute()
    if not root.is_dir():
        raise FileNotFoundError(f"there is no directory {root}")
    if _is_checkpoint(root):
        items = _read_items(ocp, root)
        custom = _custom_metadata(ocp, root)
        _checkpoint.save(destination, items, custom)
        return [_place.ONLY_STEP]
    options = ocp.CheckpointManagerOptions(read_only=True)
    with ocp.CheckpointManager(root, options=options) as manager:
        wanted = sorted(manager.all_steps() if steps is None else steps)
        if not wanted:
            raise ValueError(f"{root} holds no checkpoint of Orbax")
        pathlib.Path(destination).parent.mkdir(parents=True, exist_ok=True)
        with ckptree.Store(destination) as store:
            said = dict(manager.metadata().custom_metadata or {})
            if said and store.metadata() is None:
                store.set_metadata(said)
            for done, step in enumerate(wanted, 1):
                if step not in store:
                    folder = _step_folder(root, step)
                    _import_step(ocp, store, step, folder)
                if progress is not None:
                    progress(done, len(wanted))
    return wanted


def _step_folder(root: pathlib.Path, step: int) -> pathlib.Path:
    for child in root.iterdir():
        if child.is_dir() and _place.step_number(child.name) == step:
            return child
    raise FileNotFoundError(f"{root}: there is no step {step}")


def _is_checkpoint(path: pathlib.Path) -> bool:
    return (path / "_METADATA").exists() or (path / "_CHECKPOINT_METADATA").exists()


def _import_step(
    ocp: Any, store: ckptree.Store, step: int, folder: pathlib.Path
) -> None:
    items = _read_items(ocp, folder)
    metrics = {}
    if _items.METRICS in items:
        found = json.loads((folder / _items.METRICS / _items.METRICS).read_text())
        if isinstance(found, dict):
            metrics = {
                name: float(value)
                for name, value in found.items()
                if isinstance(value, (int, float))
            }
    store.save(
        step,
        {name: item.state for name, item in items.items()},
        metrics=metrics,
        metadata=_items.about(items, _custom_metadata(ocp, folder)),
    ).result()


def _custom_metadata(ocp: Any, folder: pathlib.Path) -> dict[str, Any]:
    single = (folder / "_METADATA").exists()
    handler = (
        ocp.PyTreeCheckpointHandler() if single else ocp.CompositeCheckpointHandler()
    )
    found = ocp.Checkpointer(handler).metadata(folder)
    return dict(found.custom_metadata or {})


def _read_items(ocp: Any, folder: pathlib.Path) -> dict[str, Item]:
    if (folder / "_METADATA").exists():
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
    raise NotImplementedError(
        f"{folder}: this item was written by a handler that cannot be imported: "
        "restore it by Orbax, and save it"
    )


def _of(item: Item, handler: str) -> Item:
    return item._replace(about={**item.about, "handler": _OURS + handler})


def _read_tree(ocp: Any, folder: pathlib.Path) -> Item:
    """As arrays of the host, and where those of JAX lay."""
    handler = ocp.PyTreeCheckpointHandler()
    described = handler.metadata(folder)
    kinds: dict[Any, Any] = {}
    value_types = ocp.metadata.value

    def args(name: str, leaf: Any) -> Any:
        kinds[keys_of(name)] = leaf
        if isinstance(leaf, value_types.StringMetadata):
            return ocp.RestoreArgs(restore_type=str)
        if isinstance(leaf, value_types.ScalarMetadata):
            return ocp.RestoreArgs()
        return ocp.RestoreArgs(restore_type=np.ndarray)

    types = (
        value_types.ArrayMetadata,
        value_types.ScalarMetadata,
        value_types.StringMetadata,
    )
    restore_args = map_leaves(described.tree, args, leaves=types)
    tree = handler.restore(
        folder, args=ocp.args.PyTreeRestore(restore_args=restore_args)
    )
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


def export_orbax(
    source: PathLike,
    destination: PathLike,
    *,
    steps: Iterable[int] | None = None,
    progress: Progress | None = None,
) -> list[int]:
    """Writes the steps of a store, or `steps`, as Orbax's CheckpointManager
    would: at destination/STEP. Returns the steps. ValueError: the destination
    has something in it. Files of handlers of your own: NotImplementedError."""
    ocp = _orbax()
    root = pathlib.Path(os.fspath(destination)).absolute()
    if root.exists() and any(root.iterdir()):
        raise ValueError(f"{root} is not empty: choose another directory")
    with ckptree.open(source) as store:
        wanted = [info.step for info in store.steps()] if steps is None else list(steps)
        # With a function of metrics they are written; all steps are kept.
        options = ocp.CheckpointManagerOptions(
            enable_async_checkpointing=False, best_fn=lambda metrics: 0.0
        )
        with ocp.CheckpointManager(
            root, options=options, metadata=store.metadata()
        ) as manager:
            for done, number in enumerate(sorted(wanted), 1):
                step = _place.open_step(store, _place.Place(root, number))
                manager.save(
                    number,
                    args=ocp.args.Composite(**_arguments(ocp, step, str(root))),
                    metrics=_metrics(step, str(root)),
                    custom_metadata=About.of(step).custom or None,
                    force=True,
                )
                if progress is not None:
                    progress(done, len(wanted))
    return sorted(wanted)


def _metrics(step: Step, directory: str) -> Any:
    if _items.METRICS not in _items.names(step):
        return dict(step.metrics) or None
    return _items.stored(step, _items.METRICS, directory).document()


def _arguments(ocp: Any, step: Step, directory: str) -> dict[str, Any]:
    import jax
    from ckptree.orbax import _tree_restore

    # Arrays that lay on devices that are not here.
    first = jax.sharding.SingleDeviceSharding(jax.local_devices()[0])

    def restore(item: _items.StoredItem) -> Any:
        return _tree_restore.restore(item, sharding=first)

    made: dict[str, Any] = {}
    for name in _items.names(step):
        item = _items.stored(step, name, directory)
        kind = step.metadata.items[name]
        handler = str(item.about.get("handler", "")).removeprefix(_OURS)
        if kind == "json":
            if name != _items.METRICS:
                made[name] = ocp.args.JsonSave(item.document())
        elif kind != "tree":
            raise NotImplementedError(
                f"step {step.step}: the item {name!r} is of a handler of your own "
                f"({handler or kind}), which Orbax lacks"
            )
        elif handler == "ArrayCheckpointHandler":
            made[name] = ocp.args.ArraySave(restore(item))
        else:
            made[name] = ocp.args.PyTreeSave(restore(item))
    return made

