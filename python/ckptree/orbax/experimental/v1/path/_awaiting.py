# SPDX-License-Identifier: Apache-2.0
"""A directory that a handler may have to wait for."""

from __future__ import annotations

import pathlib


class PathAwaitingCreation:
    """A directory; await_creation() returns its path when it is there."""

    def __init__(self, path: pathlib.Path) -> None:
        self._path = path

    @property
    def path(self) -> pathlib.Path:
        return self._path

    def __truediv__(self, name: str) -> PathAwaitingCreation:
        return PathAwaitingCreation(self._path / name)

    async def await_creation(self) -> pathlib.Path:
        self._path.mkdir(parents=True, exist_ok=True)
        return self._path
