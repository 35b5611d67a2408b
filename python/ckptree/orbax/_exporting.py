# SPDX-License-Identifier: Apache-2.0
"""Steps of a store as checkpoints of Orbax, which writes them."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import shutil
from typing import TYPE_CHECKING, Any, Iterable, Iterator

import ckptree
from ckptree.orbax import _items, _leaving_out, _place, _transfer
from ckptree.orbax._items import About
from ckptree.orbax._variables import as_orbax_saves, variables_of
from ckptree.paths import local_path
from ckptree.progress import showing

if TYPE_CHECKING:
    from ckptree.orbax._leaving_out import Refused
    from ckptree.progress import Meter, Progress
    from ckptree.step import Step

    PathLike = str | os.PathLike[str]


def export_orbax(
    source: PathLike,
    destination: PathLike,
    *,
    steps: Iterable[int] | None = None,
    progress: Progress = None,
    skip: bool = False,
) -> list[int]:
    """Writes the steps of a store, or `steps`, as Orbax's CheckpointManager
    would: at destination/STEP. Returns the steps. ValueError: the destination
    has something in it. A variable of NNX becomes a dict with `value`, as Orbax
    has it: with a state as the template Orbax restores it, whoever saved the
    step. `progress` is that of import_checkpoint().

    What Orbax does not save is an error that names the step and the key, before
    anything is written. With `skip` it is left out, None stands for it in a
    list, and a UserWarning says what it was. Orbax does not save arrays without
    elements, items that are an empty container or None, bytes, complex numbers
    of Python, and element types that it lacks: a ValueError; and files of
    handlers of your own: a NotImplementedError. An export that fails leaves the
    destination as it was.
    """
    with showing(progress, "export", " steps", rare=True) as meter:
        return _export(source, destination, steps, meter, skip)


def _export(
    source: PathLike,
    destination: PathLike,
    steps: Iterable[int] | None,
    meter: Meter | None,
    skip: bool,
) -> list[int]:
    root = pathlib.Path(local_path(destination)).absolute()
    source = local_path(source)
    ocp = _transfer._orbax()
    _check_empty(root)
    with ckptree.open(source) as store:
        wanted = (
            [info.step for info in store.steps()]
            if steps is None
            else list(steps)
        )
        refused: dict[int, Refused] = {}
        for number in sorted(wanted):
            step = _place.open_step(store, _place.Place(root, number))
            refused[number] = _leaving_out.look(step, str(root), skip)
        _leaving_out.tell(refused, stacklevel=3)
        # With a function of metrics they are written; all steps are kept.
        options = ocp.CheckpointManagerOptions(
            enable_async_checkpointing=False, best_fn=lambda metrics: 0.0
        )
        # All steps were looked at since: others may have come.
        _check_empty(root)
        with _all_or_nothing(root), ocp.CheckpointManager(
            root, options=options, metadata=store.metadata()
        ) as manager:
            for done, number in enumerate(sorted(wanted), 1):
                step = _place.open_step(store, _place.Place(root, number))
                _save(ocp, manager, step, root, refused[number])
                _keep_times(root / str(number), step)
                if meter is not None:
                    meter(done, len(wanted))
    return sorted(wanted)


def _check_empty(root: pathlib.Path) -> None:
    if root.exists() and any(root.iterdir()):
        raise ValueError(f"{root} is not empty: choose another directory")


@contextlib.contextmanager
def _all_or_nothing(root: pathlib.Path) -> Iterator[None]:
    """Removes what an export that fails has written, as well as the folders
    that were made for it: it had begun with an empty one."""
    lacking = [p for p in (root, *root.parents) if not p.exists()]
    try:
        yield
    except BaseException:
        with contextlib.suppress(OSError):
            for child in root.iterdir():
                # Steps, and what becomes one. Others may have come since.
                if child.name.partition(".")[0].isdecimal():
                    shutil.rmtree(child, ignore_errors=True)
                elif child.name == "metadata":
                    shutil.rmtree(child, ignore_errors=True)
            for folder in lacking:
                folder.rmdir()
        raise


def _save(
    ocp: Any, manager: Any, step: Step, root: pathlib.Path, refused: Refused
) -> None:
    arguments = _arguments(ocp, step, str(root), refused)
    metrics = _metrics(step, str(root))
    try:
        manager.save(
            step.step,
            args=ocp.args.Composite(**arguments),
            metrics=metrics,
            custom_metadata=About.of(step).custom or None,
            force=True,
        )
        manager.wait_until_finished()
    except (ValueError, TypeError) as error:
        raise ValueError(
            f"step {step.step}: Orbax does not save it: {error}"
        ) from error


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
    if step.metadata.items.get(_items.METRICS) != "json":
        return dict(step.metrics) or None
    return _items.stored(step, _items.METRICS, directory).document()


def _arguments(
    ocp: Any, step: Step, directory: str, refused: Refused
) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for name in _items.names(step):
        if name in refused.items:
            continue
        item = _items.stored(step, name, directory)
        if step.metadata.items[name] == "json":
            if name != _items.METRICS:
                made[name] = ocp.args.JsonSave(item.document())
            continue
        handler = _leaving_out.handler_of(item)
        if handler == "JaxRandomKeyCheckpointHandler":
            made[name] = ocp.args.JaxRandomKeySave(_leaving_out.key_of(item))
            continue
        tree = _leaving_out.restored(item)
        if handler == "ArrayCheckpointHandler":
            made[name] = ocp.args.ArraySave(tree)
        elif handler == "NumpyRandomKeyCheckpointHandler":
            tree = tuple(tree) if item.about.get("tuple") else tree
            made[name] = ocp.args.NumpyRandomKeySave(tree)
        else:
            tree = _leaving_out.without(tree, refused.below(name))
            made[name] = ocp.args.PyTreeSave(
                as_orbax_saves(tree, variables_of(item))
            )
    return made
