# SPDX-License-Identifier: Apache-2.0
"""What a run and its steps say of themselves."""

from __future__ import annotations

import datetime
import pathlib
from typing import Any, TypeVar

from ckptree.orbax.experimental.v1 import _metadata

_T = TypeVar("_T")


class CheckpointMetadata(_metadata.CheckpointMetadata[_T]):
    """Of a step. `metadata` is None in Checkpointer.checkpoints and latest."""

    def __init__(
        self,
        step: int,
        path: pathlib.Path,
        *,
        metadata: _T,
        metrics: Any = None,
        init_timestamp_nsecs: int | None = None,
        commit_timestamp_nsecs: int | None = None,
        custom_metadata: Any = None,
    ) -> None:
        super().__init__(
            path,
            metadata=metadata,
            init_timestamp_nsecs=init_timestamp_nsecs,
            commit_timestamp_nsecs=commit_timestamp_nsecs,
            custom_metadata=custom_metadata,
        )
        self.step = step
        self.metrics = metrics

    @property
    def time(self) -> datetime.datetime | None:
        """When it was durable."""
        return self.commit_timestamp


class RootMetadata:
    """`custom_metadata`: what was said of the run when it began."""

    def __init__(self, directory: pathlib.Path, custom_metadata: Any) -> None:
        self.directory = directory
        self.custom_metadata = custom_metadata

    def __repr__(self) -> str:
        return (
            f"RootMetadata(directory={self.directory!r}, "
            f"custom_metadata={self.custom_metadata!r})"
        )
