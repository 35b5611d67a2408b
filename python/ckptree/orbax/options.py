# SPDX-License-Identifier: Apache-2.0
"""Options, under Orbax's names. What has no meaning for a store is taken and
does nothing: its comment says so."""

from __future__ import annotations

import dataclasses
import enum
from typing import Any, Callable


@dataclasses.dataclass(frozen=True, kw_only=True)
class AsyncOptions:
    """How saves go on in the background.

    >>> AsyncOptions(timeout_secs=60).timeout_secs
    60
    """

    timeout_secs: int = 1200  # How long a save waits for the one before.
    barrier_sync_fn: Any = None  # Does nothing: processes wait otherwise.
    # Called when a step is durable, on a thread of the engine.
    post_finalization_callback: Callable[[], None] | None = None
    create_directories_asynchronously: bool = True  # Does nothing.


@dataclasses.dataclass(frozen=True)
class MultiprocessingOptions:
    """Which processes save together. None, of `primary_host`, is refused where
    there are several.

    >>> MultiprocessingOptions(primary_host=1, active_processes={1, 3})
    MultiprocessingOptions(primary_host=1, active_processes={1, 3}, ...)
    """

    primary_host: int | None = 0
    active_processes: set[int] | None = None
    barrier_sync_key_prefix: str | None = None


@dataclasses.dataclass(frozen=True)
class FileOptions:
    """`path_permission_mode`: of the directory of a store that is made."""

    path_permission_mode: int | None = None
    skip_sync_file_validations: bool = False  # Does nothing.


class AtomicityMode(enum.Enum):
    """A commit of a store is atomic whichever it is."""

    AUTO = "auto"
    ATOMIC_RENAME = "atomic_rename"
    COMMIT_FILE = "commit_file"


@dataclasses.dataclass(frozen=True, kw_only=True)
class AtomicityOptions:
    """Does nothing."""

    mode: AtomicityMode = AtomicityMode.AUTO
    allow_legacy_atomic_rename: bool = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class MemoryLimitOptions:
    """Does nothing: a store bounds its memory by itself."""

    max_transfer_concurrent_gb: int | None = None
