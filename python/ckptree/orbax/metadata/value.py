# SPDX-License-Identifier: Apache-2.0
"""Metadata of single leaves."""

from __future__ import annotations

import dataclasses
import pathlib
from typing import Any


@dataclasses.dataclass
class StorageMetadata:
    """How an array is cut: into boxes of this shape."""

    chunk_shape: tuple[int, ...] | None = None
    write_shape: tuple[int, ...] | None = None


@dataclasses.dataclass
class Metadata:
    """Of a leaf. `directory`: where Orbax would have it; there is no such
    directory in a store."""

    name: str
    directory: pathlib.Path | None = None


@dataclasses.dataclass
class ArrayMetadata(Metadata):
    """Of an array; may stand in a template for it."""

    shape: tuple[int, ...] = ()
    sharding: Any = None  # A ShardingMetadata, of arrays of JAX.
    dtype: Any = None
    storage: StorageMetadata | None = None

    @property
    def storage_metadata(self) -> StorageMetadata | None:
        """As `storage`, under its other name. A store cuts arrays by itself
        and does not say how: None."""
        return self.storage


@dataclasses.dataclass
class ScalarMetadata(ArrayMetadata):
    """Of a number."""


@dataclasses.dataclass
class StringMetadata(Metadata):
    """Of a str."""
