# SPDX-License-Identifier: Apache-2.0
"""What a checkpoint says of itself."""

from __future__ import annotations

import datetime
import pathlib
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from ckptree.orbax._place import Address

_T = TypeVar("_T")

PyTreeMetadata = Any  # A tree like the one that was saved.


class CheckpointMetadata(Generic[_T]):
    """`metadata`: of the object, or a dict of those of several by name; may
    stand for the abstract state when it is loaded."""

    def __init__(
        self,
        path: pathlib.Path | Address | None,
        *,
        metadata: _T,
        init_timestamp_nsecs: int | None = None,
        commit_timestamp_nsecs: int | None = None,
        custom_metadata: Any = None,
    ) -> None:
        self.path = path
        self.metadata = metadata
        self.init_timestamp_nsecs = init_timestamp_nsecs
        self.commit_timestamp_nsecs = commit_timestamp_nsecs
        self.custom_metadata = custom_metadata

    @property
    def init_timestamp(self) -> datetime.datetime | None:
        """Aware, UTC."""
        return _time(self.init_timestamp_nsecs)

    @property
    def commit_timestamp(self) -> datetime.datetime | None:
        """Aware, UTC."""
        return _time(self.commit_timestamp_nsecs)

    def __repr__(self) -> str:
        shown = ", ".join(
            f"{name}={value!r}" for name, value in vars(self).items()
        )
        return f"{type(self).__name__}({shown})"


def _time(nsecs: int | None) -> datetime.datetime | None:
    if nsecs is None:
        return None
    return datetime.datetime.fromtimestamp(nsecs / 1e9, datetime.timezone.utc)
