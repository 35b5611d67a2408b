# SPDX-License-Identifier: Apache-2.0
"""python -m ckptree.torch import|export: files of torch.save() and of
safetensors, and folders of DCP, into a store, and back."""

from __future__ import annotations

import argparse
import contextlib
import pathlib
import sys

import ckptree
from ckptree.lending import add_verbs, lend, say_steps
from ckptree.paths import local_path
from ckptree.progress import steps_on_stderr
from ckptree.removing import remove_store
from ckptree.torch import (
    _found,
    _lending,
    export_checkpoint,
    import_checkpoint,
)

_FORMATS = (_found.TORCH, _found.DCP, _found.SAFETENSORS)


def _has_store(path: pathlib.Path) -> bool:
    try:
        ckptree.open(path).close()
    except ckptree.NotFoundError:
        return False
    except ckptree.Error:
        pass  # Whatever is wrong with it is said by who opens it to write.
    return True


def _remove_empty(made: pathlib.Path, had_folder: bool = False) -> None:
    """Of a store that was made for what could not be read nothing stays."""
    # It is in use by now, or has steps, of whatever branch: it stays.
    with contextlib.suppress(ckptree.Error, OSError):
        remove_store(made)
        if had_folder:
            made.mkdir(exist_ok=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m ckptree.torch",
        description="Moves checkpoints of PyTorch into ckptree, and back.",
    )
    verbs = parser.add_subparsers(dest="verb", required=True)
    what = (
        "saves files of torch.save() (.pt, .pth, .bin, .ckpt), of safetensors "
        "(one, or shards with their index) and folders of DCP to a store"
    )
    verb = verbs.add_parser("import", help=what, description=what)
    verb.add_argument(
        "source",
        help="a file or folder; or a folder of several, whose names end with "
        "their steps: checkpoint-500, step_500.pt",
    )
    verb.add_argument("destination", help="a store; made where there is none")
    verb.add_argument(
        "--step",
        type=int,
        help="its number, where the name does not end with it; of a folder of "
        "several only this one",
    )
    verb.add_argument(
        "--format",
        choices=_FORMATS,
        help="what it is, where the name does not say it",
    )
    verb.add_argument(
        "--item", default="", help="the name to put the state under: model"
    )
    verb.add_argument(
        "--skip",
        action="append",
        default=[],
        metavar="GLOB",
        help="names of files in folders that are left out, as "
        "training_args.bin; may be given again",
    )
    verb.add_argument(
        "--new",
        action="store_true",
        help="leave it out where the store has such a step",
    )
    verb.add_argument(
        "--json", action="store_true", help="the steps, for programs"
    )
    what = (
        "writes a step, or an item of it, as a file of torch.save() or of "
        "safetensors, or as a folder of DCP"
    )
    verb = verbs.add_parser("export", help=what, description=what)
    verb.add_argument("source", help="a store")
    verb.add_argument(
        "destination",
        help="a file, .pt, .pth, .bin, .ckpt or .safetensors; or a folder, "
        "with --format or --max-shard-bytes",
    )
    verb.add_argument(
        "--step",
        default="latest",
        help="which one: a number, latest, best:loss:min, ...; the latest "
        "where it is not said",
    )
    verb.add_argument(
        "--format",
        choices=_FORMATS,
        help="what to write, where the name does not say it",
    )
    verb.add_argument(
        "--item", default="", help="only the state of that name: model"
    )
    verb.add_argument(
        "--max-shard-bytes",
        type=int,
        metavar="N",
        help="a folder of files of safetensors with so many bytes each, and "
        "their index",
    )
    verb.add_argument(
        "--overwrite",
        action="store_true",
        help="replace what is there",
    )
    verb.add_argument(
        "--json", action="store_true", help="the step, for programs"
    )
    verb = add_verbs(verbs)
    verb.add_argument("--format", choices=(_found.TORCH, _found.DCP))
    return parser


def main(arguments: list[str] | None = None) -> int:
    """Exit code 0, 1 where it failed, 2 for wrong usage, 130 for Ctrl-C."""
    given = _parser().parse_args(arguments)
    if given.verb == "lend":
        source = pathlib.Path(given.source)
        return lend(lambda: _lending.find(source))
    try:
        if given.verb == "write":
            _lending.write(
                pathlib.Path(given.source),
                pathlib.Path(given.destination),
                given.format,
            )
            return 0
        steps = _import(given) if given.verb == "import" else _export(given)
    except KeyboardInterrupt:
        print(
            "stopped: nothing was written"
            if given.verb == "export"
            else "stopped: what was saved stays; the same call goes on",
            file=sys.stderr,
        )
        return 130
    except (
        ckptree.Error,
        OSError,
        ValueError,
        TypeError,  # A value that is no leaf of a step, by its path.
        NotImplementedError,
        ImportError,
        RecursionError,  # Lists in lists in lists, in a file or in a state.
        MemoryError,
    ) as error:
        said = _said(given, error)
        print(f"python -m ckptree.torch: {said}", file=sys.stderr)
        return 1
    say_steps(given, steps)
    return 0


def _said(given: argparse.Namespace, error: Exception) -> str:
    """With options in place of the arguments of a call."""
    said = str(error)
    if isinstance(error, MemoryError):
        return f"{given.source}: there is not enough memory for it"
    if isinstance(error, RecursionError):
        return f"{given.source}: it is nested too deep: {said}"
    if given.verb == "export":
        for call, option in _OPTIONS.items():
            said = said.replace(call, option)
    elif isinstance(error, ckptree.AlreadyExistsError):
        said = (
            f"{said.partition(':')[0]}: --step N gives it another number, "
            "--new leaves it out"
        )
    return said


_OPTIONS = {
    "pass overwrite=True to replace it": "--overwrite replaces it",
    "pass format='dcp' or 'safetensors'": "say --format dcp or safetensors",
    "pass item=": "say --item NAME",
    "max_shard_bytes": "--max-shard-bytes",
    "format='": "--format '",
}


def _import(given: argparse.Namespace) -> list[int]:
    # No store is made where there is nothing to put into it.
    source = pathlib.Path(local_path(given.source))
    found = _found.look(source, given.format, given.skip)
    several = isinstance(found, dict)
    number = given.step
    if number is None and not several:
        number = _found.number_of(source)
    if number is None and not several:
        raise ckptree.InvalidArgumentError(
            f"{source}: its name does not end with the number of a "
            "step: --step N says it"
        )
    made = None  # The store, where there was none.
    folder = pathlib.Path(local_path(given.destination))
    had_folder = folder.exists()
    if not _has_store(folder):
        made = folder
    try:
        with ckptree.Store(given.destination) as store:
            if given.new and number is not None and number in store:
                return [number]
            return import_checkpoint(
                store,
                given.source,
                step=given.step,
                format=given.format,
                item=given.item,
                skip=given.skip,
                progress=steps_on_stderr(),
            )
    except BaseException:
        if made is not None:
            _remove_empty(made, had_folder)
        raise


def _export(given: argparse.Namespace) -> list[int]:
    with ckptree.open(given.source) as store:
        step = store[given.step]
        export_checkpoint(
            step,
            given.destination,
            format=given.format,
            item=given.item,
            max_shard_bytes=given.max_shard_bytes,
            overwrite=given.overwrite,
        )
        return [step.step]


if __name__ == "__main__":
    sys.exit(main())
