# SPDX-License-Identifier: Apache-2.0
"""Classes of temporary paths, for `temporary_path_class`: a store has one
atomic commit and no such paths, so each of them means the same."""

from __future__ import annotations

# Of directories that Orbax has not finished.
TMP_DIR_SUFFIX = ".orbax-checkpoint-tmp"
COMMIT_SUCCESS_FILE = "commit_success.txt"


class TemporaryPath:
    """A name only: nothing is made of it."""

    def __init__(self, *args: object, **kwargs: object) -> None:
        raise NotImplementedError(
            f"{type(self).__name__}: a store commits a step at once, and has "
            "no temporary paths"
        )


class AtomicRenameTemporaryPath(TemporaryPath):
    """As TemporaryPath."""


class CommitFileTemporaryPath(TemporaryPath):
    """As TemporaryPath."""
