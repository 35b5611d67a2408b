# SPDX-License-Identifier: Apache-2.0
"""Arguments and members that user code relies on, by class: "arguments;
members"."""

import dataclasses
import importlib
import inspect

import pytest

MODULES = (
    "ckptree.orbax",
    "ckptree.orbax.args",
    "ckptree.orbax.checkpoint_managers",
    "ckptree.orbax.metadata",
    "ckptree.orbax.options",
)
CLASSES = {
    "AnyPreservationPolicy": """
        policies; policies should_preserve
    """,
    "AnySavePolicy": """
        policies; policies should_save
    """,
    "ArrayCheckpointHandler": """
        ; close metadata restore save
    """,
    "ArrayMetadata": """
        ; directory dtype shape sharding
    """,
    "ArrayRestore": """
        restore_args; item
    """,
    "ArrayRestoreArgs": """
        global_shape mesh mesh_axes sharding strict; dtype global_shape mesh
        restore_type shape sharding strict
    """,
    "ArraySave": """
        ; item save_args
    """,
    "AsyncCheckpointHandler": """
        ; close metadata restore save
    """,
    "AsyncCheckpointer": """
        timeout_secs; check_for_errors close metadata restore save structure
        wait_until_finished
    """,
    "AsyncOptions": """
        post_finalization_callback timeout_secs;
    """,
    "BestN": """
        get_metric_fn keep_checkpoints_without_metrics n reverse;
        keep_checkpoints_without_metrics should_preserve
    """,
    "CheckpointHandler": """
        ; close metadata restore save
    """,
    "CheckpointManager": """
        handler_registry item_handlers item_names logger metadata options;
        all_steps best_step check_for_errors close delete directory
        is_saving_in_progress item_metadata latest_step metadata metrics
        reached_preemption reload restore save should_save wait_until_finished
    """,
    "CheckpointManagerOptions": """
        async_options atomicity_options best_fn best_mode
        cleanup_tmp_directories create enable_async_checkpointing
        enable_background_delete enable_per_process_directory_creation
        enable_should_save_is_saving_in_progress_check file_options
        keep_checkpoints_without_metrics keep_period keep_time_interval
        lightweight_initialize max_to_keep multiprocessing_options
        num_deletion_threads preservation_policy prevent_write_metrics read_only
        save_decision_policy save_interval_steps save_on_steps
        save_root_metadata should_save_fn single_host_load_and_broadcast
        step_format_fixed_length step_name_format step_prefix todelete_full_path
        todelete_subdir; async_options best_fn best_mode cleanup_tmp_directories
        create enable_async_checkpointing enable_background_delete
        keep_checkpoints_without_metrics keep_period keep_time_interval
        lightweight_initialize max_to_keep multiprocessing_options
        preservation_policy prevent_write_metrics read_only save_decision_policy
        save_interval_steps save_on_steps save_root_metadata should_save_fn
        single_host_load_and_broadcast step_format_fixed_length step_name_format
        step_prefix todelete_full_path todelete_subdir
    """,
    "Checkpointer": """
        ; close metadata restore save structure
    """,
    "Composite": """
        ; get items keys
    """,
    "CompositeCheckpointHandler": """
        ; close metadata restore save
    """,
    "ContinuousCheckpointingPolicy": """
        minimum_interval_secs; should_save
    """,
    "CustomSteps": """
        steps; should_preserve
    """,
    "DecisionContext": """
        ; is_saving_in_progress multiprocessing_options reached_preemption
    """,
    "DefaultCheckpointHandlerRegistry": """
        ; add get
    """,
    "EveryNSeconds": """
        interval_secs; should_preserve
    """,
    "EveryNSteps": """
        interval_steps; max_to_keep should_preserve
    """,
    "EveryNStepsClosest": """
        interval_steps; max_to_keep should_preserve
    """,
    "FileOptions": """
        path_permission_mode;
    """,
    "FixedIntervalPolicy": """
        interval; should_save
    """,
    "InitialSavePolicy": """
        ; should_save
    """,
    "JaxRandomKeySave": """
        ; item save_args
    """,
    "JsonCheckpointHandler": """
        ; close metadata restore save
    """,
    "JsonRestore": """
        ; item
    """,
    "JsonSave": """
        ; item
    """,
    "LatestN": """
        n; should_preserve
    """,
    "MultiprocessingOptions": """
        active_processes barrier_sync_key_prefix primary_host; active_processes
        primary_host
    """,
    "NumpyRandomKeySave": """
        ; item
    """,
    "PreemptionCheckpointingPolicy": """
        ; should_save
    """,
    "ProtoCheckpointHandler": """
        filename; close metadata restore save
    """,
    "ProtoRestore": """
        ; item
    """,
    "ProtoSave": """
        ; item
    """,
    "PyTreeCheckpointHandler": """
        ; close metadata restore save
    """,
    "PyTreeCheckpointer": """
        ; close metadata restore save structure
    """,
    "PyTreeRestore": """
        partial_restore restore_args transforms; item
    """,
    "PyTreeSave": """
        custom_metadata save_args; custom_metadata item save_args
    """,
    "RestoreArgs": """
        dtype restore_type; dtype restore_type
    """,
    "RootMetadata": """
        ; custom_metadata
    """,
    "SaveArgs": """
        aggregate dtype; dtype
    """,
    "ScalarMetadata": """
        ; directory dtype shape sharding
    """,
    "SpecificStepsPolicy": """
        steps; should_save
    """,
    "StandardCheckpointHandler": """
        ; close metadata restore save
    """,
    "StandardCheckpointer": """
        ; check_for_errors close metadata restore save structure
        wait_until_finished
    """,
    "StandardRestore": """
        ; item strict
    """,
    "StandardSave": """
        ; custom_metadata item save_args
    """,
    "StepMetadata": """
        ; commit_timestamp_nsecs custom_metadata init_timestamp_nsecs
        item_metadata metrics
    """,
    "StringMetadata": """
        ; directory
    """,
    "Transform": """
        original_key use_fallback value_fn;
    """,
}


def find(name):
    for module in map(importlib.import_module, MODULES):
        if hasattr(module, name):
            return getattr(module, name)
    raise AssertionError(f"there is no {name}")


@pytest.mark.parametrize("name", CLASSES)
def test_arguments_and_members(name):
    cls = find(name)
    arguments, members = (part.split() for part in CLASSES[name].split(";"))
    taken = inspect.signature(cls).parameters
    assert [a for a in arguments if a not in taken] == []
    there = set(dir(cls))
    if dataclasses.is_dataclass(cls):
        there |= {field.name for field in dataclasses.fields(cls)}
    assert [m for m in members if m not in there] == []
