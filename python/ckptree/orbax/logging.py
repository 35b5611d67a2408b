# SPDX-License-Identifier: Apache-2.0
"""Loggers of what a manager does."""

from __future__ import annotations

import abc
import logging
from typing import Any

_log = logging.getLogger("ckptree.orbax")


class AbstractLogger(abc.ABC):
    """Takes an entry for each save and restore."""

    @abc.abstractmethod
    def log_entry(self, entry: dict[str, Any]) -> None:
        """`entry`: plain data."""


class StandardLogger(AbstractLogger):
    """Writes entries to Python's log "ckptree.orbax"."""

    def log_entry(self, entry: dict[str, Any]) -> None:
        _log.info("%s", entry)


class CompositeLogger(AbstractLogger):
    """Gives entries to several."""

    def __init__(self, *loggers: AbstractLogger) -> None:
        self._loggers = loggers

    def log_entry(self, entry: dict[str, Any]) -> None:
        for logger in self._loggers:
            logger.log_entry(entry)
