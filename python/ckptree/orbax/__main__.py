# SPDX-License-Identifier: Apache-2.0
"""python -m ckptree.orbax import|export: checkpoints of Orbax and Flax into a
store, and back to Orbax."""

from __future__ import annotations

import argparse
import pathlib
import sys

from ckptree.lending import add_verbs, lend, say_steps
from ckptree.orbax import _lending
from ckptree.orbax._transfer import export_orbax, import_checkpoint
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
            help="only this step; may be given again",
        )
        verb.add_argument(
            "--json", action="store_true", help="the steps, for programs"
        )
    add_verbs(verbs)
    given = parser.parse_args(arguments)
    if given.verb == "lend":
        source = pathlib.Path(given.source)
        return lend(lambda: _lending.find(source))
    move = import_checkpoint if given.verb == "import" else export_orbax
    try:
        if given.verb == "write":
            _lending.write(given.source, given.destination)
            return 0
        steps = move(
            given.source,
            given.destination,
            steps=given.step,
            progress=steps_on_stderr(),
        )
    except KeyboardInterrupt:
        print(
            "stopped: what was moved stays; the same call goes on",
            file=sys.stderr,
        )
        return 130
    except (OSError, ValueError, NotImplementedError, ImportError) as error:
        print(f"python -m ckptree.orbax: {error}", file=sys.stderr)
        return 1
    say_steps(given, steps)
    return 0


if __name__ == "__main__":
    sys.exit(main())
