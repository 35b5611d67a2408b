# SPDX-License-Identifier: Apache-2.0
"""python -m ckptree.orbax import|export: checkpoints of Orbax and Flax into a
store, and back to Orbax."""

from __future__ import annotations

import argparse
import pathlib
import sys
import warnings

import ckptree
from ckptree.lending import add_verbs, lend, say_steps
from ckptree.orbax import _lending
from ckptree.orbax._exporting import export_orbax
from ckptree.orbax._transfer import import_steps
from ckptree.progress import steps_on_stderr


def main(arguments: list[str] | None = None) -> int:
    """Exit code 0, 1 where it failed, 2 for wrong usage, 130 for Ctrl-C."""
    parser = argparse.ArgumentParser(
        prog="python -m ckptree.orbax",
        description="Moves checkpoints of Orbax and Flax into ckptree, and "
        "back to Orbax. Needs Orbax, but for files of Flax.",
    )
    verbs = parser.add_subparsers(dest="verb", required=True)
    for name, what in (
        ("import", "makes a store of what Orbax or Flax wrote"),
        ("export", "writes the steps of a store as Orbax would"),
    ):
        verb = verbs.add_parser(name, help=what, description=what)
        verb.add_argument("source")
        verb.add_argument("destination")
        verb.add_argument(
            "--step",
            type=int,
            action="append",
            help="only this step; may be given again. Of one checkpoint the "
            "number it gets in a store of several",
        )
        if name == "import":
            verb.add_argument(
                "--new",
                action="store_true",
                help="leave one checkpoint out where the store has such a step",
            )
        else:
            verb.add_argument(
                "--skip",
                action="store_true",
                help="leave out what Orbax does not save, e.g. arrays without "
                "elements",
            )
        verb.add_argument(
            "--json", action="store_true", help="the steps, for programs"
        )
    add_verbs(verbs)
    given = parser.parse_args(arguments)
    if given.verb == "lend":
        source = pathlib.Path(given.source)
        return lend(lambda: _lending.find(source))
    try:
        if given.verb == "write":
            _lending.write(given.source, given.destination)
            return 0
        if given.verb == "import":
            steps = import_steps(
                given.source,
                given.destination,
                given.step,
                progress=steps_on_stderr(),
                new=given.new,
            )
        else:
            with warnings.catch_warnings():
                warnings.showwarning = _say
                steps = export_orbax(
                    given.source,
                    given.destination,
                    steps=given.step,
                    progress=steps_on_stderr(),
                    skip=given.skip,
                )
    except KeyboardInterrupt:
        print(
            "stopped: what was moved stays; the same call goes on"
            if given.verb == "import"
            else "stopped: nothing was written",
            file=sys.stderr,
        )
        return 130
    except ckptree.AlreadyExistsError as error:
        print(
            f"python -m ckptree.orbax: {error}: --step N gives it another "
            "number, --new leaves it out",
            file=sys.stderr,
        )
        return 1
    except (OSError, ValueError, NotImplementedError, ImportError) as error:
        print(f"python -m ckptree.orbax: {error}", file=sys.stderr)
        return 1
    say_steps(given, steps)
    return 0


def _say(message: Warning | str, *_: object, **__: object) -> None:
    print(f"python -m ckptree.orbax: {message}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
