# SPDX-License-Identifier: Apache-2.0
"""Options of a Context, by group. What has no meaning for a store is taken and
does nothing: its comment says so."""

from __future__ import annotations

import dataclasses
import enum
from typing import Any, Callable

from ckptree.orbax.experimental.v1._handler_registry import (
    CheckpointableHandlerRegistry,
    global_registry,
)
from ckptree.orbax.experimental.v1._option_group import OptionGroup
from ckptree.orbax.options import AtomicityMode

__all__ = [
    "ArrayOptions",
    "AsyncOptions",
    "AtomicityMode",
    "AtomicityOptions",
    "CheckpointLayout",
    "CheckpointablesOptions",
    "DeletionOptions",
    "FileOptions",
    "MemoryOptions",
    "MultiprocessingOptions",
    "PathwaysOptions",
    "PyTreeOptions",
    "SafetensorsOptions",
]


class CheckpointLayout(enum.Enum):
    """ORBAX and AUTO: a store. SAFETENSORS is refused."""

    ORBAX = "orbax"
    SAFETENSORS = "safetensors"
    AUTO = "auto"


@dataclasses.dataclass(kw_only=True)
class AsyncOptions(OptionGroup):
    """How saves go on in the background."""

    timeout_secs: int = 1200  # How long a save waits for the one before.
    # Called when a step is durable.
    post_finalization_callback: Callable[[], None] | None = None
    create_directories_asynchronously: bool = True  # Does nothing.


@dataclasses.dataclass(kw_only=True)
class MultiprocessingOptions(OptionGroup):
    """Which process does what; see ckptree.orbax.options."""

    primary_host: int | None = 0
    active_processes: set[int] | None = None
    barrier_sync_key_prefix: str | None = None


@dataclasses.dataclass(kw_only=True)
class FileOptions(OptionGroup):
    """`path_permission_mode`: of the directory of a store that is made."""

    path_permission_mode: int | None = None
    path_class: Any = None  # Does nothing.
    skip_sync_file_validations: bool = False  # Does nothing.


@dataclasses.dataclass(kw_only=True)
class PyTreeOptions(OptionGroup):
    """Of trees."""

    @dataclasses.dataclass(kw_only=True)
    class Saving(OptionGroup):
        """Does nothing: a store keeps all containers it knows."""

        pytree_metadata_options: Any = None

    @dataclasses.dataclass(kw_only=True)
    class Loading(OptionGroup):
        """`partial_load`: what the abstract state lacks is left out, and what
        the checkpoint lacks stays as the abstract state has it."""

        partial_load: bool = False

    saving: Saving = dataclasses.field(default_factory=Saving)
    loading: Loading = dataclasses.field(default_factory=Loading)


@dataclasses.dataclass(kw_only=True)
class ArrayOptions(OptionGroup):
    """Of arrays."""

    @dataclasses.dataclass(kw_only=True)
    class Saving(OptionGroup):
        """Only `storage_options.dtype`, and that of what
        `scoped_storage_options_creator` returns, do something: a store has one
        way to write arrays."""

        @dataclasses.dataclass(kw_only=True)
        class StorageOptions(OptionGroup):
            """`dtype`: elements of arrays are converted to it."""

            dtype: Any = None
            chunk_byte_size: int | None = None  # Does nothing.
            shard_axes: tuple[int, ...] | None = None  # Does nothing.

        storage_options: StorageOptions = dataclasses.field(
            default_factory=StorageOptions
        )
        use_ocdbt: bool = True
        use_zarr3: bool = True
        use_compression: bool = True
        ocdbt_target_data_file_size: int | None = None
        enable_pinned_host_transfer: bool | None = None
        enable_post_merge_validation: bool = True
        use_replica_parallel: bool | None = None
        min_slice_bytes_for_replica_parallel: int | None = None
        max_replicas_for_replica_parallel: int | None = None
        enable_replica_parallel_separate_folder: bool = False
        enable_write_sharding_file: bool = True
        array_metadata_store: Any = None
        # Called with the path and value of each leaf: its StorageOptions, or
        # None for storage_options.
        scoped_storage_options_creator: Callable[..., Any] | None = None

    @dataclasses.dataclass(kw_only=True)
    class Loading(OptionGroup):
        """`enable_padding_and_truncation`: arrays of other shapes are cut or
        filled, elements of other types converted, which is an error else."""

        @dataclasses.dataclass(kw_only=True)
        class LoadAndBroadcastOptions(OptionGroup):
            """Does nothing: one process reads a store."""

            replica_axis_index: int = 0
            primary_replica_id: int = 0
            broadcast_memory_limit_bytes: int | None = None
            broadcast_memory_scaling_factor: float | None = 0.75

        enable_padding_and_truncation: bool = False
        raise_array_data_missing_error: bool = True  # It is always raised.
        use_load_and_broadcast: bool = False
        load_and_broadcast_options: LoadAndBroadcastOptions = dataclasses.field(
            default_factory=LoadAndBroadcastOptions
        )

    saving: Saving = dataclasses.field(default_factory=Saving)
    loading: Loading = dataclasses.field(default_factory=Loading)


@dataclasses.dataclass(kw_only=True)
class CheckpointablesOptions(OptionGroup):
    """`registry`: the handlers, of local_registry()."""

    registry: CheckpointableHandlerRegistry = dataclasses.field(
        default_factory=global_registry
    )


@dataclasses.dataclass(kw_only=True)
class DeletionOptions(OptionGroup):
    """Steps have no directories to move: `todelete_full_path` is refused."""

    @dataclasses.dataclass(kw_only=True)
    class GcsDeletionOptions(OptionGroup):
        """Refused, where it is set."""

        todelete_full_path: str | None = None

    gcs_deletion_options: GcsDeletionOptions = dataclasses.field(
        default_factory=GcsDeletionOptions
    )


@dataclasses.dataclass(kw_only=True)
class PathwaysOptions(OptionGroup):
    """Does nothing."""

    checkpointing_impl: Any = None


@dataclasses.dataclass(kw_only=True)
class MemoryOptions(OptionGroup):
    """Does nothing: a store bounds its memory by itself."""

    @dataclasses.dataclass(kw_only=True)
    class RegulatorOptions(OptionGroup):
        """As MemoryOptions."""

        max_memory_limit_gib: float | None = None
        profiler: Any = None
        target_ratio: float | None = None
        min_memory_limit_gib: float | None = None
        kp: float | None = None
        ki: float | None = None
        kd: float | None = None

    write_concurrent_bytes: int | None = None
    read_concurrent_bytes: int | None = None
    transfer_concurrent_bytes: int | None = None
    regulator_options: Any = None
    expected_surge_bytes: int | float | None = None
    is_prioritized_key_fn: Any = None
    serialization_status_callback: Any = None
    deepcopy_host_arrays: bool = True


@dataclasses.dataclass(kw_only=True)
class SafetensorsOptions(OptionGroup):
    """Does nothing."""

    max_over_read_ratio: float | None = None
    read_chunk_bytes: int | None = None


@dataclasses.dataclass(kw_only=True)
class AtomicityOptions(OptionGroup):
    """Does nothing: a commit of a store is atomic."""

    mode: AtomicityMode = AtomicityMode.AUTO
    allow_legacy_atomic_rename: bool = False
