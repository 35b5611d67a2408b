# SPDX-License-Identifier: Apache-2.0
"""Beside: raw I/O and the engine without Python, in turns with the package."""

from __future__ import annotations

import os
import subprocess
from types import TracebackType
from typing import Callable

from measure import Settings, fail

PROGRAM = os.path.join(
    os.path.dirname(os.path.abspath(__file__)),
    "../../build/release/bench/ckptree_beside",
)


class Beside:
    """The process bench/beside.cc, with a state of so many leaves."""

    def __init__(
        self, settings: Settings, leaves: int, leaf_bytes: int
    ) -> None:
        directory = os.path.join(settings.directory, "beside")
        os.makedirs(directory, exist_ok=True)
        self._process = subprocess.Popen(
            [PROGRAM, directory, str(leaves), str(leaf_bytes)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def seconds(self, what: str) -> float:
        """What beside.cc calls `what`, done once."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(what + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            fail(f"ckptree_beside ended while it did {what}")
        return float(answer)

    def doing(self, what: str) -> Callable[[], float]:
        return lambda: self.seconds(what)

    def __enter__(self) -> Beside:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()
