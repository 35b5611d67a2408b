# SPDX-License-Identifier: Apache-2.0
"""The programs that have the cases: ckptree_bench and bench/python. Each case
is a process of its own that writes one JSON object a line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass, field
from typing import Any, Callable

from figure import Figure, Row

ROOT = os.path.dirname(
    os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
)
PYTHON = os.path.join(ROOT, "bench/python")

# What bench/python exits with: floors were missed, nothing is known about
# some, no device. That the first two are so the lines say, too.
_ORDINARY = (0, 3, 4)
NO_DEVICE = 5

# Starts a server for one command; exits with SKIPPED where it cannot.
SERVERS = os.path.join(ROOT, "tests/objects/servers.py")
SKIPPED = 77


class NotRun(RuntimeError):
    """A program could not be built, or a case ended without its figures."""


@dataclass
class Result:
    """What came of one case."""

    case: str
    rows: list[Row] = field(default_factory=list)
    not_measured: list[dict[str, str]] = field(default_factory=list)
    seconds: float = 0
    failed: str = ""  # Why it has no figures.
    no_device: bool = False
    skipped: bool = False  # There is no such server.


@dataclass
class Programs:
    """`engine` is ckptree_bench, `python` the interpreter that has the package
    and its peers; each is made when it is first asked for, unless it is
    given."""

    directory: str
    options: list[str]
    engine: str | None = None
    python: str | None = None

    def names(self) -> dict[str, list[str]]:
        """The cases of each program."""
        return {
            "engine": _said([self._engine(), "--list"]),
            "python": _said([sys.executable, PYTHON, "--list"]),
        }

    def machine(self) -> dict[str, float]:
        """GB/s of raw writes, raw reads and copies, now."""
        os.makedirs(self.directory, exist_ok=True)
        return {
            row.what: row.ours.median
            for row in self._run(
                "machine",
                [self._engine(), "--machine", "--json"]
                + ["--dir", self.directory],
                lambda row: None,
            ).rows
        }

    def run(
        self, program: str, case: str, show: Callable[[Row], None]
    ) -> Result:
        """`show` gets each row as it comes."""
        begin = (
            [self._engine()]
            if program == "engine"
            else [self.interpreter(), PYTHON]
        )
        options = self.options
        if program == "engine":
            options = _of_engine(options)
        command = [*begin, "--json", "--dir", self.directory, *options, case]
        if not case.startswith("remote_"):
            return self._run(case, command, show)
        # Ceph's gateway; where that is not installed, moto.
        result = Result(case)
        for server in ("ceph", "moto"):
            result = self._run(
                case, [sys.executable, SERVERS, server, "--", *command], show
            )
            if not result.skipped:
                return result
        result.not_measured.append(
            {
                "what": "stores in an object store",
                "why": "neither Ceph nor moto is installed: "
                "scripts/install_packages remote",
            }
        )
        return result

    def interpreter(self) -> str:
        if self.python is None:
            self.python = _prepare("python")
        return self.python

    def _engine(self) -> str:
        if self.engine is None:
            self.engine = _prepare("engine")
        return self.engine

    def _run(
        self, case: str, command: list[str], show: Callable[[Row], None]
    ) -> Result:
        result = Result(case)
        begun = time.monotonic()
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout is not None
            for text in process.stdout:
                _take(text, result, show)
        result.seconds = round(time.monotonic() - begun, 1)
        if process.returncode == NO_DEVICE:
            result.no_device = True
        elif process.returncode == SKIPPED and not result.rows:
            result.skipped = True
        elif process.returncode not in _ORDINARY:
            result.failed = f"exit code {process.returncode}"
        elif not result.rows and not result.not_measured:
            result.failed = "it gave no figure"
        return result


def _of_engine(options: list[str]) -> list[str]:
    """Those that ckptree_bench has."""
    taken = []
    for i, option in enumerate(options):
        if option == "--quick":
            taken.append(option)
        elif option == "--mib":
            taken += options[i : i + 2]
    return taken


def _take(text: str, result: Result, show: Callable[[Row], None]) -> None:
    """What is no object is for the one who watches."""
    try:
        found: Any = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        print(text, end="", file=sys.stderr, flush=True)
    elif "why" in found:
        result.not_measured.append(
            {"what": found["what"], "why": found["why"]}
        )
    else:
        row = Row.of(Figure.from_json(found))
        result.rows.append(row)
        show(row)


def _prepare(what: str) -> str:
    """The last line of it is the path of what it made."""
    done = subprocess.run(
        [os.path.join(ROOT, "bench/prepare"), what],
        stdout=subprocess.PIPE,
        text=True,
    )
    lines = done.stdout.splitlines()
    if done.returncode != 0 or not lines:
        raise NotRun(f"bench/prepare {what} failed: NOTHING WAS MEASURED")
    return lines[-1]


def _said(command: list[str]) -> list[str]:
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        raise NotRun(f"failed: {' '.join(command)}")
    return done.stdout.split()
