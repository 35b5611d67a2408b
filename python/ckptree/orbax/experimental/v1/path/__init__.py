# SPDX-License-Identifier: Apache-2.0
"""Paths."""

import os
import pathlib

from ckptree.orbax.experimental.v1.path._awaiting import PathAwaitingCreation
from ckptree.orbax.path import step

Path = pathlib.Path
PathLike = str | os.PathLike[str]

__all__ = ["Path", "PathAwaitingCreation", "PathLike", "step"]
