# SPDX-License-Identifier: Apache-2.0
"""export_checkpoint(): steps of a store as files of torch.save(), of
safetensors and folders of DCP."""

from __future__ import annotations

import os
import pathlib
from typing import TYPE_CHECKING, Mapping

from ckptree import beside
from ckptree.arguments import (
    TEXT,
    Kind,
    checked,
    instance,
    integer,
    optional,
)
from ckptree.arrays import values
from ckptree.errors import InvalidArgumentError
from ckptree.manager import CheckpointManager
from ckptree.paths import local_path
from ckptree.progress import showing
from ckptree.restoring.template import warn_of_loss
from ckptree.selector import SELECTOR
from ckptree.step import Step
from ckptree.store import Store
from ckptree.torch import (
    _dcp_files,
    _found,
    _safetensors_files,
    _torch_files,
)
from ckptree.torch._subtree import Subtree

if TYPE_CHECKING:
    from ckptree.progress import Progress
    from ckptree.selector import Selector

_STRINGS = optional(
    Kind(
        "a dict of str to str",
        lambda name, value: (
            dict(value)
            if isinstance(value, Mapping)
            and all(isinstance(x, str) for pair in value.items() for x in pair)
            else NotImplemented
        ),
    )
)


@checked(
    {
        "source": instance(
            "a step, a ckptree.Store or a ckptree.CheckpointManager",
            Step,
            Store,
            CheckpointManager,
        ),
        "step": SELECTOR,
        "format": _found.FORMAT,
        "item": TEXT,
        "max_shard_bytes": optional(integer(low=1)),
        "metadata": _STRINGS,
    }
)
def export_checkpoint(
    source: Step | Store | CheckpointManager,
    path: str | os.PathLike[str],
    *,
    step: Selector = "latest",
    format: str | None = None,
    item: str = "",
    max_shard_bytes: int | None = None,
    metadata: Mapping[str, str] | None = None,
    overwrite: bool = False,
    progress: Progress = None,
) -> pathlib.Path:
    """Writes a step, or a part of it, as a checkpoint for other programs.

    * "model.pt", .pth, .bin, .ckpt: a file of torch.save(), which
      torch.load(weights_only=True) reads. Tied tensors stay tied.
    * "model.safetensors": one file of tensors. Their names are the keys on the
      way to them, joined by dots.
    * a folder with format="safetensors": model.safetensors, or, with
      `max_shard_bytes`, model-00001-of-00002.safetensors and so on, with
      model.safetensors.index.json, as transformers load it.
    * a folder with format="dcp": as torch.distributed.checkpoint writes it
      from one process; dcp.load() reads it in any number of them.

    Tensors have the same bits. In files of safetensors, and of DCP, tied
    tensors are written under each of their names. Of what is no tensor, files
    of safetensors hold nothing: it is an error that names it.

    The host holds 64 MiB of a step that goes to safetensors, and else the step
    once. What is written is on the disk, whole, when it gets its name.

    Parameters
    ----------
    source : Step, Store or CheckpointManager
        Where from.
    path : str or os.PathLike
        The file or folder to write; the folder that it is in exists.
    step : int or str
        Which one of a store or manager: as Store.restore() takes it.
    format : str, optional
        "torch", "dcp" or "safetensors"; None: as the end of the name says.
    item : str
        The subtree to write, as "model"; "": the whole step.
    max_shard_bytes : int, optional
        Of tensors in each file of safetensors; one that is larger has a file of
        its own.
    metadata : dict of str to str, optional
        What files of safetensors say of themselves. None: what the file said
        that was imported, or {"format": "pt"}.
    overwrite : bool
        Replaces such a file or folder; of a link, what it leads to. A device
        or a pipe is a ValueError.
    progress : bool or callable, optional
        As in Store.restore().

    Returns
    -------
    pathlib.Path
        What was written.

    Raises
    ------
    NotFoundError
        No step matches, or it has no such item: a KeyError.
    AlreadyExistsError
        There is such a file or folder: a FileExistsError.
    ValueError
        The format cannot be told, or cannot hold what the step has, by its
        path.
    CorruptionError
        The bytes are not those that were saved.

    Examples
    --------
    >>> import torch
    >>> with ckptree.Store(tmp / "run") as store:
    ...     state = {"model": {"w": torch.ones(3)}, "lr": 0.5}
    ...     _ = store.save(7, state).result()
    ...     file = export_checkpoint(
    ...         store, tmp / "w.safetensors", step=7, item="model")
    ...     other = export_checkpoint(store, tmp / "all.pt", step=7)
    >>> file.name, torch.load(other)
    ('w.safetensors', {'lr': 0.5, 'model': {'w': tensor([1., 1., 1.])}})
    """
    target = pathlib.Path(local_path(path))
    opened = source if isinstance(source, Step) else source[step]
    chosen, is_file = _format_for(target, format, max_shard_bytes)
    if metadata is not None and chosen != _found.SAFETENSORS:
        raise InvalidArgumentError(
            f"metadata is of files of safetensors, not of format={chosen!r}"
        )
    part = Subtree(opened, item)
    warn_of_loss(opened._engine)
    with showing(progress, "export") as meter:
        if chosen != _found.SAFETENSORS:
            state = part.state(meter)
            if chosen == _found.TORCH:
                with (
                    _torch_files.writing(str(target)),
                    beside.whole_file(target, overwrite) as new,
                ):
                    _torch_files.write(state, new, name=item)
                return target
            if not isinstance(state, dict):
                raise InvalidArgumentError(
                    f"DCP has folders of dicts: {item or 'the state'} is a "
                    f"{type(state).__name__}"
                )
            may_go = _dcp_files.is_ours
            with (
                _torch_files.writing(str(target)),
                beside.whole_folder(target, overwrite, may_go) as new,
            ):
                _dcp_files.write(state, new, name=item)
            return target
        tensors = part.tensors()
        _safetensors_files.check(tensors)
        said, of_index = part.said()
        if metadata is not None:
            said = dict(metadata)
        reading = values.reading(
            opened._engine, [tensor.info for tensor in tensors], meter
        )
        if is_file:
            with beside.whole_file(target, overwrite) as new:
                _safetensors_files.write(reading, tensors, said, new)
            return target
        may_go = _safetensors_files.is_ours
        with beside.whole_folder(target, overwrite, may_go) as new:
            _safetensors_files.write_sharded(
                reading, tensors, said, of_index, new, max_shard_bytes
            )
    return target


def _format_for(
    target: pathlib.Path, format: str | None, max_shard_bytes: int | None
) -> tuple[str, bool]:
    """The format, and whether it is one file."""
    name = target.name
    is_safetensors = name.endswith(_safetensors_files.SUFFIX)
    chosen = format
    if chosen is None and is_safetensors:
        chosen = _found.SAFETENSORS
    if chosen is None and name.endswith(_found.TORCH_SUFFIXES):
        chosen = _found.TORCH
    if chosen is None and max_shard_bytes is not None:
        chosen = _found.SAFETENSORS
    if chosen is None:
        raise InvalidArgumentError(
            f"{target}: a file of which format? Call it .pt or .safetensors, "
            "or pass format='dcp' or 'safetensors' for a folder"
        )
    if max_shard_bytes is not None:
        if chosen != _found.SAFETENSORS:
            raise InvalidArgumentError(
                "max_shard_bytes is of format='safetensors', not of "
                f"format={chosen!r}"
            )
        if is_safetensors:
            raise InvalidArgumentError(
                f"{target}: max_shard_bytes writes several files: name a folder"
            )
    is_file = chosen == _found.TORCH or is_safetensors
    return chosen, is_file
