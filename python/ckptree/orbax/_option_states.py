# SPDX-License-Identifier: Apache-2.0
"""What becomes of each option of Orbax's: it works, it does nothing and says so
once, or it is refused. What is here under no name is a TypeError."""

from __future__ import annotations

import dataclasses
import inspect
import warnings
from typing import Any, Callable, Mapping

from ckptree.orbax import _processes

# It has its effect, or has it always.
WORKS = "works"
# It is an error that names it; where it is used says when.
REFUSED = "refused"
# A group of options, which has rows of its own.
GROUP = "group"

# Everything else is why an option does nothing.
_FILES = "a store has one format, and cuts and packs arrays by itself"
_MEMORY = "a store bounds by itself what it holds in memory"
_SAFE = "every array may change when save() returns"
_COMMIT = "a step is one atomic commit, whatever the mode"
_ALONE = "one process writes a store"
_BOXES = "each process reads its boxes, and no byte twice"
_OF_ALL = "the first replica of each shard is saved, by the process that has it"
_NAMES = "items of a store have no files"
_SNAPSHOTS = "a step that is open can be read to its end, without a copy"

_PROCESSES = {"multiprocessing_options": GROUP}
_TREE_FILES = {
    "use_ocdbt": _FILES,
    "use_zarr3": _FILES,
    "use_compression": _FILES,
}
_TREE = {
    **_PROCESSES,
    "use_ocdbt": _FILES,
    "pytree_metadata_options": "without a template a tree has lists and dicts",
}
_PYTREE = {
    **_TREE,
    **_TREE_FILES,
    "memory_limit_options": GROUP,
    "type_handler_registry": REFUSED,
    "array_metadata_validator": "metadata are checked with their record",
    "enable_pinned_host_transfer": _MEMORY,
    "is_prioritized_key_fn": _SAFE,
}
_CHECKPOINTER = {
    **_PROCESSES,
    "handler": WORKS,
    "file_options": GROUP,
    "atomicity_options": GROUP,
    "checkpoint_metadata_store": "metadata are part of the step",
    "temporary_path_class": _COMMIT,
}
_REPLICAS = {
    "use_replica_parallel": "each shard is written once",
    "min_slice_bytes_for_replica_parallel": "each shard is written once",
    "max_replicas_for_replica_parallel": "each shard is written once",
    "enable_replica_parallel_separate_folder": _FILES,
    "enable_write_sharding_file": "shardings are part of the step",
    "array_metadata_store": "metadata are part of the step",
}
_BROADCAST = {
    "replica_axis_index": _BOXES,
    "primary_replica_id": _BOXES,
    "broadcast_memory_limit_bytes": _BOXES,
    "broadcast_memory_scaling_factor": _BOXES,
}
_WAITING = {
    "checkpoint_dir": WORKS,
    "seconds_to_sleep": WORKS,
    "timeout": WORKS,
    "timeout_fn": WORKS,
    "step_prefix": WORKS,
    "step_format_fixed_length": WORKS,
    "step_name_format": WORKS,
    "snapshot_dir": _SNAPSHOTS,
    "set_immutable": _SNAPSHOTS,
    "ignore_snapshot_errors": _SNAPSHOTS,
}


def _working(*names: str) -> dict[str, str]:
    return dict.fromkeys(names, WORKS)


# By the class or function that has them.
STATES: Mapping[str, Mapping[str, str]] = {
    "CheckpointManagerOptions": {
        **_working(
            "save_interval_steps",
            "max_to_keep",
            "keep_time_interval",
            "keep_period",
            "should_keep_fn",
            "best_fn",
            "best_mode",
            "keep_checkpoints_without_metrics",
            "step_prefix",
            "step_format_fixed_length",
            "step_name_format",
            "create",
            "cleanup_tmp_directories",
            "save_on_steps",
            "single_host_load_and_broadcast",
            "enable_background_delete",
            "read_only",
            "enable_async_checkpointing",
            "should_save_fn",
            "save_root_metadata",
            "save_decision_policy",
            "preservation_policy",
            "enable_should_save_is_saving_in_progress_check",
            "lightweight_initialize",
        ),
        **_PROCESSES,
        "async_options": GROUP,
        "file_options": GROUP,
        "atomicity_options": GROUP,
        "todelete_subdir": REFUSED,
        "todelete_full_path": REFUSED,
        "enable_per_process_directory_creation": REFUSED,
        "num_deletion_threads": "no files are deleted with a step",
        "temporary_path_class": _COMMIT,
        "prevent_write_metrics": "metrics that JSON can hold are stored all "
        "the same, so that the best steps are the same after a restart",
    },
    "CheckpointManager": _working(
        "directory",
        "checkpointers",
        "options",
        "metadata",
        "item_names",
        "item_handlers",
        "logger",
        "handler_registry",
    ),
    "AsyncOptions": {
        **_working("timeout_secs", "post_finalization_callback"),
        "barrier_sync_fn": "processes meet by the coordination service of JAX",
        "create_directories_asynchronously": WORKS,
    },
    "MultiprocessingOptions": _working(
        "primary_host", "active_processes", "barrier_sync_key_prefix"
    ),
    "FileOptions": {
        "path_permission_mode": WORKS,
        "path_class": _FILES,
        "skip_sync_file_validations": _FILES,
    },
    "AtomicityOptions": {
        "mode": _COMMIT,
        "allow_legacy_atomic_rename": _COMMIT,
    },
    "MemoryLimitOptions": {"max_transfer_concurrent_gb": _MEMORY},
    "CompositeOptions": {
        **_PROCESSES,
        "temporary_path_class": _COMMIT,
        "file_options": GROUP,
        "atomicity_options": GROUP,
        "async_options": GROUP,
    },
    "Checkpointer": _CHECKPOINTER,
    "AsyncCheckpointer": {
        **_CHECKPOINTER,
        "timeout_secs": WORKS,
        "async_options": GROUP,
    },
    "PyTreeCheckpointer": {"primary_host": WORKS, **_TREE_FILES},
    "StandardCheckpointer": {
        **_CHECKPOINTER,
        "async_options": GROUP,
        "kwargs": GROUP,
    },
    "StandardCheckpointHandler": {
        **_TREE,
        "save_concurrent_gb": _MEMORY,
        "restore_concurrent_gb": _MEMORY,
    },
    "PyTreeCheckpointHandler": {
        **_PYTREE,
        "aggregate_filename": _FILES,
        "save_concurrent_gb": _MEMORY,
        "restore_concurrent_gb": _MEMORY,
        "save_device_host_concurrent_gb": _MEMORY,
        "handler_impl": REFUSED,
    },
    "BasePyTreeCheckpointHandler": {
        **_PYTREE,
        "save_concurrent_bytes": _MEMORY,
        "restore_concurrent_bytes": _MEMORY,
        "save_device_host_concurrent_bytes": _MEMORY,
        "enable_post_merge_validation": _FILES,
    },
    "JsonCheckpointHandler": {**_PROCESSES, "filename": _NAMES},
    "ProtoCheckpointHandler": {**_PROCESSES, "filename": _NAMES},
    "ArrayCheckpointHandler": {"checkpoint_name": _NAMES},
    "JaxRandomKeyCheckpointHandler": {"key_name": _NAMES},
    "NumpyRandomKeyCheckpointHandler": {"key_name": _NAMES},
    "CompositeCheckpointHandler": {
        **_working("item_names", "handler_registry", "items_and_handlers"),
        "composite_options": GROUP,
    },
    "ArrayHandler": {
        **_REPLICAS,
        "metadata_key": _FILES,
        "primary_host": _OF_ALL,
        "replica_id": _OF_ALL,
        "dispatcher": _ALONE,
        "callback": "SaveHandle.progress() of ckptree.Store.save() says it",
    },
    "NumpyHandler": {
        "metadata_key": _FILES,
        "ocdbt_process_id": _FILES,
        "deepcopy_host_arrays": _SAFE,
    },
    "ScalarHandler": {"metadata_key": _FILES, "ocdbt_process_id": _FILES},
    "StringHandler": {"filename": _FILES},
    "SaveArgs": {
        "dtype": WORKS,
        "aggregate": "small leaves are packed by themselves",
        "chunk_byte_size": _FILES,
        "shard_axes": _FILES,
    },
    "RestoreArgs": _working("restore_type", "dtype"),
    "ArrayRestoreArgs": _working(
        "restore_type",
        "dtype",
        "mesh",
        "mesh_axes",
        "sharding",
        "global_shape",
        "shape",
        "strict",
    ),
    "StandardSave": _working("item", "save_args", "custom_metadata"),
    "StandardRestore": {
        **_working("item", "strict", "fallback_sharding"),
        "support_layout": "arrays lie in memory as JAX has them by default",
    },
    "PyTreeSave": {
        **_working("item", "save_args", "custom_metadata"),
        "ocdbt_target_data_file_size": _FILES,
    },
    "PyTreeRestore": {
        **_working(
            "item",
            "restore_args",
            "transforms",
            "transforms_default_to_original",
            "partial_restore",
        ),
        "legacy_transform_fn": REFUSED,
    },
    "construct_restore_args": {
        **_working("target", "sharding_tree", "set_global_shape", "strict"),
        "support_layout": "arrays lie in memory as JAX has them by default",
    },
    "wait_for_new_checkpoint": {**_WAITING, "until_step": WORKS},
    "checkpoints_iterator": {**_WAITING, "min_interval_secs": WORKS},
    # Of a Context of v1.
    "PyTreeOptions": _working("saving", "loading"),
    "PyTreeOptions.Saving": {
        "pytree_metadata_options": "a store keeps all containers it knows",
    },
    "PyTreeOptions.Loading": _working("partial_load"),
    "ArrayOptions": _working("saving", "loading"),
    "ArrayOptions.Saving": {
        **_TREE_FILES,
        **_REPLICAS,
        **_working("storage_options", "scoped_storage_options_creator"),
        "ocdbt_target_data_file_size": _FILES,
        "enable_pinned_host_transfer": _MEMORY,
        "enable_post_merge_validation": _FILES,
    },
    "ArrayOptions.Saving.StorageOptions": {
        "dtype": WORKS,
        "chunk_byte_size": _FILES,
        "shard_axes": _FILES,
    },
    "ArrayOptions.Loading": {
        **_working(
            "enable_padding_and_truncation", "load_and_broadcast_options"
        ),
        "raise_array_data_missing_error": "it is always an error",
        "use_load_and_broadcast": _BOXES,
    },
    "ArrayOptions.Loading.LoadAndBroadcastOptions": _BROADCAST,
    "CheckpointablesOptions": _working("registry"),
    "DeletionOptions": _working("gcs_deletion_options"),
    "DeletionOptions.GcsDeletionOptions": {"todelete_full_path": REFUSED},
    "PathwaysOptions": {"checkpointing_impl": _ALONE},
    "MemoryOptions": {
        "write_concurrent_bytes": _MEMORY,
        "read_concurrent_bytes": _MEMORY,
        "transfer_concurrent_bytes": _MEMORY,
        "regulator_options": _MEMORY,
        "expected_surge_bytes": _MEMORY,
        "is_prioritized_key_fn": _SAFE,
        "serialization_status_callback": "AsyncResponse says when it is done",
        "deepcopy_host_arrays": _SAFE,
    },
    "MemoryOptions.RegulatorOptions": {
        "max_memory_limit_gib": _MEMORY,
        "profiler": _MEMORY,
        "target_ratio": _MEMORY,
        "min_memory_limit_gib": _MEMORY,
        "kp": _MEMORY,
        "ki": _MEMORY,
        "kd": _MEMORY,
    },
    "SafetensorsOptions": {
        "max_over_read_ratio": "such files are not read",
        "read_chunk_bytes": "such files are not read",
    },
    "PyTreeHandler": {
        "context": WORKS,
        "array_metadata_validator": "metadata are checked with their record",
        "leaf_handler_registry": REFUSED,
        "partial_save_mode": REFUSED,
    },
    "JsonHandler": _working("filename"),
    "ProtoHandler": {"filename": _NAMES},
    "v1.Checkpointer": _working(
        "directory",
        "context",
        "save_decision_policy",
        "preservation_policy",
        "step_name_format",
        "custom_metadata",
        "cleanup_tmp_directories",
        "lightweight_initialize",
        "logger",
    ),
}

# Of Flax.
_OF_FLAX = {"gda_manager": "arrays on several devices are in the same commit"}
STATES_OF_FLAX: Mapping[str, Mapping[str, str]] = {
    "save_checkpoint_multiprocess": _OF_FLAX,
    "restore_checkpoint": {
        **_OF_FLAX,
        "parallel": "a step is read by as many threads as the store has",
        "allow_partial_mpa_restoration": "an array is there as a whole",
    },
}

_told: set[tuple[str, str]] = set()


def tell(where: str, given: Mapping[str, Any], defaults: Any) -> None:
    """Warns, once for each, of options that do nothing and are not `defaults`
    (a class or function that has them)."""
    usual = _defaults(defaults)
    states = STATES.get(where) or STATES_OF_FLAX.get(where, {})
    for name, why in states.items():
        if why in (WORKS, REFUSED, GROUP) or name not in given:
            continue
        value = given[name]
        if _same(value, usual.get(name)) or (where, name) in _told:
            continue
        _told.add((where, name))
        warnings.warn(
            f"{where}: {name}={value!r:.60} does nothing: {why}", stacklevel=4
        )


def tell_of(options: Any, where: str = "") -> None:
    """The same of a dataclass with options, and of those in it."""
    if options is None:
        return
    fields = {
        field.name: getattr(options, field.name)
        for field in dataclasses.fields(options)
    }
    tell(where or type(options).__qualname__, fields, type(options))


def check_processes(options: Any) -> None:
    """What it asks of processes that are not there: ValueError; what cannot be:
    NotImplementedError."""
    _processes.check(options)


def _same(value: Any, usual: Any) -> bool:
    if value is usual:
        return True
    if isinstance(value, (bool, int, float, str, tuple)):
        return bool(value == usual)
    return dataclasses.is_dataclass(value) and value == usual


def _defaults(of: Callable[..., Any]) -> dict[str, Any]:
    return {
        name: None
        if parameter.default is inspect.Parameter.empty
        else parameter.default
        for name, parameter in inspect.signature(of).parameters.items()
    }
