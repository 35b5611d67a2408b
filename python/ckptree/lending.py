# SPDX-License-Identifier: Apache-2.0
"""Arrays of other formats for the command `ckptree`, which reads them through a
pipe.

One line of JSON says what there is: {"arrays": [{"name", "dtype", "shape"}],
"others": N}, N being entries that are no arrays; or {"error": TEXT}. Then each
line on standard input is the place of an array in that list, and the answer its
length in 8 bytes, the lowest first, and its bytes, row-major; or the length -1
and a line {"error": TEXT}.
"""

from __future__ import annotations

import argparse
import json
import os
import struct
import sys
from typing import Any, BinaryIO, Callable, NamedTuple, Sequence


class Lent(NamedTuple):
    """One array; `read` returns its bytes."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    read: Callable[[], bytes]


def lend(find: Callable[[], tuple[Sequence[Lent], int]]) -> int:
    """Answers until the command has enough. Returns the exit code: 1 where
    `find` raised, which is told. What libraries print goes to standard error.
    """
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    try:
        arrays, others = find()
    except Exception as error:
        _say(out, {"error": _told(error)})
        return 1
    said = [
        {"name": a.name, "dtype": a.dtype, "shape": list(a.shape)}
        for a in arrays
    ]
    _say(out, {"arrays": said, "others": others})
    for line in sys.stdin.buffer:
        try:
            data = arrays[int(line)].read()
        except Exception as error:
            out.write(struct.pack("<q", -1))
            _say(out, {"error": _told(error)})
            continue
        out.write(struct.pack("<q", len(data)))
        out.write(data)
        out.flush()
    return 0


def _say(out: BinaryIO, what: dict[str, Any]) -> None:
    out.write(json.dumps(what).encode() + b"\n")
    out.flush()


def _told(error: Exception) -> str:
    """In one line."""
    if isinstance(error, MemoryError):
        return "there is not enough memory to read it"
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


def add_verbs(verbs: Any) -> argparse.ArgumentParser:
    """Adds what the command calls: `lend SOURCE`, and `write SOURCE
    DESTINATION`, which is returned for more options."""
    verb = verbs.add_parser("lend", help="for the command ckptree")
    verb.add_argument("source")
    verb = verbs.add_parser("write", help="for the command ckptree")
    verb.add_argument("source")
    verb.add_argument("destination")
    made: argparse.ArgumentParser = verb
    return made


def say_steps(given: argparse.Namespace, steps: Sequence[int]) -> None:
    """Says what was imported or exported, as --json or in words."""
    if given.json:
        print(json.dumps({"steps": list(steps)}))
        return
    what = "step" if len(steps) == 1 else "steps"
    print(f"{given.destination}: {len(steps)} {what}")


def named(name: str, root: str) -> str:
    """A name below `root`; of the root itself "value".

    >>> named("item/params/w", "item"), named("item", "item")
    ('params/w', 'value')
    """
    return name[len(root) + 1 :] or "value"
