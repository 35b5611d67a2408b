# SPDX-License-Identifier: Apache-2.0
"""What a manager's logger is told: an entry for each save and restore."""

from __future__ import annotations

import os
import time
from typing import Any


class Entry:
    """One entry, under Orbax's names: what is done, and how long its parts
    take."""

    def __init__(
        self, kind: str, step: int, directory: str | os.PathLike[str]
    ) -> None:
        self._fields: dict[str, Any] = {
            "step": step,
            "event_type": kind,
            "directory": os.fspath(directory),
        }

    def add(self, **fields: Any) -> None:
        self._fields.update(fields)

    def timed(self, name: str) -> _Timed:
        """A block of which the entry says when it began, and how long it
        was."""
        return _Timed(self._fields, name)

    def fields(self) -> dict[str, Any]:
        return dict(self._fields)


class _Timed:
    def __init__(self, fields: dict[str, Any], name: str) -> None:
        self._fields = fields
        self._name = name

    def __enter__(self) -> None:
        self._begun = time.time()

    def __exit__(self, *error: object) -> None:
        self._fields[f"{self._name}_start_time"] = self._begun
        self._fields[f"{self._name}_duration_secs"] = time.time() - self._begun
