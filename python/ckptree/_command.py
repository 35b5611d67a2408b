# SPDX-License-Identifier: Apache-2.0
"""The `ckptree` command: the program that the package brings along."""

from __future__ import annotations

import os
import sys

from ckptree.hints import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import NoReturn

PROGRAM = os.path.join(os.path.dirname(__file__), "bin", "ckptree")


def main() -> NoReturn:
    """Becomes the program: signals and the exit code are its own. What it reads
    through Python it reads by this one, where no other is named."""
    os.environ.setdefault("CKPTREE_PYTHON", sys.executable)
    os.execv(PROGRAM, ["ckptree", *sys.argv[1:]])
