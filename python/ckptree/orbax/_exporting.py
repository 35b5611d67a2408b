# SPDX-License-Identifier: Apache-2.0
"""Steps of a store as checkpoints of Orbax, which writes them."""

from __future__ import annotations

import json
import os
import pathlib
from typing import TYPE_CHECKING, Any, Iterable

import ckptree
from ckptree.orbax import _items, _place, _random_keys, _transfer
from ckptree.orbax._items import About
from ckptree.orbax._variables import as_orbax_saves, variables_of
from ckptree.paths import local_path
from ckptree.progress import showing

if TYPE_CHECKING:
    from ckptree.progress import Meter, Progress
    from ckptree.step import Step

    PathLike = str | os.PathLike[str]


def export_orbax(
    source: PathLike,
    destination: PathLike,
    *,
    steps: Iterable[int] | None = None,
    progress: Progress = None,
) -> list[int]:
    """Writes the steps of a store, or `steps`, as Orbax's CheckpointManager
    would: at destination/STEP. Returns the steps. ValueError: the destination
    has something in it. Files of handlers of your own: NotImplementedError.
    A variable of NNX becomes a dict with `value`, as Orbax has it: with a state
    as the template Orbax restores it, whoever saved the step. `progress` is
    that of import_checkpoint()."""
    with showing(progress, "export", " steps", rare=True) as meter:
        return _export(source, destination, steps, meter)


def _export(
    source: PathLike,
    destination: PathLike,
    steps: Iterable[int] | None,
    meter: Meter | None,
) -> list[int]:
    root = pathlib.Path(local_path(destination)).absolute()
    source = local_path(source)
    ocp = _transfer._orbax()
    if root.exists() and any(root.iterdir()):
        raise ValueError(f"{root} is not empty: choose another directory")
    with ckptree.open(source) as store:
        wanted = (
            [info.step for info in store.steps()]
            if steps is None
            else list(steps)
        )
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
                manager.wait_until_finished()
                _keep_times(root / str(number), step)
                if meter is not None:
                    meter(done, len(wanted))
    return sorted(wanted)


def _keep_times(folder: pathlib.Path, step: Step) -> None:
    """Says in a step that was written for Orbax when it was saved."""
    about = folder / "_CHECKPOINT_METADATA"
    found = json.loads(about.read_text())
    found["commit_timestamp_nsecs"] = step.info.begun_ns
    found["init_timestamp_nsecs"] = step.info.begun_ns
    temporary = about.with_name(about.name + ".new")
    temporary.write_text(json.dumps(found))
    temporary.replace(about)


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
        tree = _tree_restore.restore(item, sharding=first)
        return as_orbax_saves(tree, variables_of(item))

    made: dict[str, Any] = {}
    for name in _items.names(step):
        item = _items.stored(step, name, directory)
        kind = step.metadata.items[name]
        handler = str(item.about.get("handler", ""))
        handler = handler.removeprefix(_transfer.OURS)
        if kind == "json":
            if name != _items.METRICS:
                made[name] = ocp.args.JsonSave(item.document())
        elif kind != "tree" or item.files() is not None:
            raise NotImplementedError(
                f"step {step.step}: the item {name!r} is of a handler of your "
                f"own ({handler or kind}), which Orbax lacks"
            )
        elif handler == "ArrayCheckpointHandler":
            made[name] = ocp.args.ArraySave(restore(item))
        elif handler == "JaxRandomKeyCheckpointHandler":
            key = jax.numpy.asarray(restore(item))
            made[name] = ocp.args.JaxRandomKeySave(key)
        elif handler == "NumpyRandomKeyCheckpointHandler":
            made[name] = ocp.args.NumpyRandomKeySave(
                tuple(restore(item))
                if item.about.get("tuple")
                else restore(item)
            )
        else:
            made[name] = ocp.args.PyTreeSave(restore(item))
    return made

