# SPDX-License-Identifier: Apache-2.0
"""import_checkpoint(): files of torch.save(), of safetensors and folders of
DCP, into a store."""

from __future__ import annotations

import json
import os
import pathlib
from typing import TYPE_CHECKING, Any, Iterable, Mapping

from ckptree.arguments import (
    BOOL,
    INT64,
    TEXT,
    checked,
    instance,
    integer,
    listed,
    optional,
)
from ckptree.errors import (
    AlreadyExistsError,
    CorruptionError,
    InvalidArgumentError,
    UnsupportedError,
)
from ckptree.paths import local_path
from ckptree.progress import showing
from ckptree.selector import on_branch
from ckptree.store import Store
from ckptree.torch import (
    _dcp_files,
    _found,
    _safetensors_files,
    _torch_files,
)
from ckptree.torch._subtree import IMPORTED

if TYPE_CHECKING:
    from ckptree.progress import Progress
    from ckptree.torch._found import Checkpoint, Part


@checked(
    {
        "store": instance("a ckptree.Store", Store),
        "step": optional(integer(low=0)),
        "format": _found.FORMAT,
        "item": TEXT,
        # Names of files may be no UTF-8.
        "skip": listed(instance("a str", str), "a list of str"),
        "verify": BOOL,
    }
)
def import_checkpoint(
    store: Store,
    path: str | os.PathLike[str],
    *,
    step: int | None = None,
    format: str | None = None,
    item: str = "",
    skip: Iterable[str] = (),
    metrics: Mapping[str, float] | None = None,
    note: str = "",
    overwrite: bool = False,
    branch: str = "",
    verify: bool = True,
    progress: Progress = None,
) -> list[int]:
    """Saves a checkpoint that other programs wrote as a step of a store, or
    all those of a folder.

    It takes

    * files of torch.save(): .pt, .pth, .bin, .ckpt. Read as data, by
      torch.load(weights_only=True), with arrays of NumPy.
    * files of safetensors, and several with their index
      (model.safetensors.index.json).
    * folders of torch.distributed.checkpoint (DCP), by how many processes
      they were written.
    * a folder with several of these, as the Trainer of transformers writes it:
      each becomes an item, called as its file: "model", "optimizer",
      "scheduler"; trainer_state.json is one, too. Other files are left out, and
      listed in the step's metadata.
    * a folder of such checkpoints, whose names end with the number of their
      step: checkpoint-500, step_500.pt. What else lies in it belongs to no
      step, and is left there.

    Tensors come back with the same bits. Those that are the same memory stay
    tied; of safetensors, whose files know no ties, there are none. The host
    holds a file at no time: it is mapped. Of DCP it holds each step once, and
    of files of torch.save() from before PyTorch 1.6.

    A step is there whole or not at all. Steps of a folder of several that are
    in the store already are left as they are, so that an import that was
    interrupted can go on.

    Parameters
    ----------
    store : Store
        Where to.
    path : str or os.PathLike
        The file or folder.
    step : int, optional
        Its number; of a folder of several the one to take. None: as its name
        ends, and all of a folder.
    format : str, optional
        "torch", "dcp" or "safetensors", where the name does not say it.
    item : str
        The name to put the state under, as "model"; "": its entries are those
        of the step.
    skip : list of str
        Names of files in folders, with '*', that are left out.
    metrics, note, overwrite, branch
        As Store.save() takes them; metrics and note of one checkpoint.
    verify : bool
        Reads each step back from the disk when it is saved.
    progress : bool or callable, optional
        As in Store.restore(), of the steps.

    Returns
    -------
    list of int
        The steps that the store has now.

    Raises
    ------
    FileNotFoundError
        There is no such file, folder or step.
    AlreadyExistsError
        There is such a step, of one checkpoint: a FileExistsError.
    UnsupportedError
        Reading would execute code, which is named with its file.
    CorruptionError
        A file is cut, or what it says of itself is not so.
    ValueError
        There is no checkpoint, or what it is cannot be told; an index is wrong;
        the name says no step.
    ImportError
        The package of safetensors is needed.

    Examples
    --------
    >>> import torch
    >>> model = torch.nn.Linear(3, 1)
    >>> torch.save(model.state_dict(), tmp / "model-300.pt")
    >>> with ckptree.Store(tmp / "run") as store:
    ...     import_checkpoint(store, tmp / "model-300.pt", item="model")
    ...     list(store[300])
    [300]
    ['model/bias', 'model/weight']
    """
    source = pathlib.Path(local_path(path))
    if store._is_spread:
        raise UnsupportedError(
            "one process imports: open the store without ranks="
        )
    found = _found.look(source, format, list(skip))
    if isinstance(found, dict):
        if metrics or note:
            raise InvalidArgumentError(
                f"{source} holds several checkpoints: metrics and note are of "
                "one; import them one by one"
            )
        wanted = sorted(found) if step is None else [step]
        if step is not None and step not in found:
            raise FileNotFoundError(
                f"{source} has no checkpoint of step {step}"
            )
        several = step is None
    else:
        number = _found.number_of(source) if step is None else step
        if number is None or number > INT64:
            raise InvalidArgumentError(
                f"{source}: its name does not end with the number of a step: "
                "pass step="
            )
        found, wanted, several = {number: found}, [number], False
    there = {info.step for info in store.steps(branch)}
    with showing(progress, "import", " steps", rare=True) as meter:
        for done, number in enumerate(wanted, 1):
            if number in there and not overwrite:
                if not several:
                    raise AlreadyExistsError(
                        f"step {number} is there already: pass overwrite=True "
                        "to replace it, or another step="
                    )
            else:
                state, about = _read(found[number], item)
                store.save(
                    number,
                    state,
                    metrics=metrics,
                    note=note,
                    metadata={IMPORTED: about},
                    overwrite=overwrite,
                    branch=branch,
                    borrow=True,
                    time=found[number].path.stat().st_mtime,
                ).result()
                del state
                if verify:
                    _verify(store, number, branch)
            if meter is not None:
                meter(done, len(wanted))
    return wanted


def _verify(store: Store, step: int, branch: str) -> None:
    report = store.verify("full", steps=[on_branch(branch, step)])
    if not report.ok:
        found = "; ".join(map(str, report.findings))
        raise CorruptionError(
            f"{store.path}: step {step} is not what was saved: {found}"
        )


def _read(checkpoint: Checkpoint, item: str) -> tuple[Any, dict[str, Any]]:
    """The state, and what is said of it beside it."""
    about: dict[str, Any] = {"path": checkpoint.path.name, "files": {}}
    alone = len(checkpoint.parts) == 1
    states: dict[str, Any] = {}
    for part in checkpoint.parts:
        name = "" if alone else part.item
        inner = "/".join(filter(None, (item, name)))
        states[name], said = _read_part(part)
        about["files"][inner] = {
            "file": part.path.name,
            "format": part.format,
            **said,
        }
    if checkpoint.left_out:
        about["left_out"] = checkpoint.left_out
    state = states[""] if alone else states
    if item:
        return {item: state}, about
    if not isinstance(state, (dict, list, tuple)):
        raise InvalidArgumentError(
            f"{checkpoint.path} holds one {type(state).__name__}: item= gives "
            "it a name"
        )
    # As state_dict() makes it: its keys name the items, as `ckptree ls FILE`
    # shows them.
    return dict(state) if isinstance(state, dict) else state, about


def _read_part(part: Part) -> tuple[Any, dict[str, Any]]:
    if part.format == _found.TORCH:
        return _torch_files.read(part.path, whole=True), {}
    if part.format == _found.DCP:
        return _dcp_files.read(part.path), {}
    if part.format == _found.JSON:
        try:
            return json.loads(part.path.read_text(encoding="utf-8")), {}
        except (ValueError, RecursionError) as error:
            raise CorruptionError(f"{part.path} is no JSON: {error}") from error
    if part.path.name.endswith(_safetensors_files.INDEX):
        return _safetensors_files.read_sharded(part.path)
    tensors, metadata = _safetensors_files.read(part.path)
    return tensors, {"metadata": metadata}
