# SPDX-License-Identifier: Apache-2.0
"""Every name of Orbax's and Flax's that user code touches is there."""

import importlib
import subprocess
import sys

import pytest

SURFACE = {
    "ckptree.orbax": """
        apply_transformations ArrayCheckpointHandler ArrayRestoreArgs
        AsyncCheckpointer AsyncCheckpointHandler AsyncOptions
        BasePyTreeCheckpointHandler Checkpointer CheckpointHandler
        CheckpointManager CheckpointManagerOptions
        CompositeCheckpointHandler CompositeOptions
        DefaultCheckpointHandlerRegistry JaxRandomKeyCheckpointHandler
        JsonCheckpointHandler merge_trees NumpyRandomKeyCheckpointHandler
        PLACEHOLDER ProtoCheckpointHandler PyTreeCheckpointer
        PyTreeCheckpointHandler RestoreArgs SaveArgs StandardCheckpointer
        StandardCheckpointHandler Transform
        AbstractCheckpointManager AbstractCheckpointer CheckpointHandlerRegistry
        Future RestoreTransform aggregate_handlers args arrays
        checkpoint_managers checkpoint_utils checkpointers handlers logging
        metadata msgpack_utils multihost options path pathways serialization
        step test_utils transform_utils tree type_handlers utils
    """,
    "ckptree.orbax.args": """
        ArrayRestore ArraySave CheckpointArgs Composite JaxRandomKeyRestore
        JaxRandomKeySave JsonRestore JsonSave NumpyRandomKeyRestore
        NumpyRandomKeySave ProtoRestore ProtoSave PyTreeRestore PyTreeSave
        register_with_handler StandardRestore StandardSave
    """,
    "ckptree.orbax.arrays": """
        Shape
    """,
    "ckptree.orbax.checkpoint_args": """
        CheckpointArgs get_registered_args_cls get_registered_handler_cls
        register_with_handler
    """,
    "ckptree.orbax.checkpoint_manager": """
        AsyncOptions CheckpointInfo CheckpointManager
        CheckpointManagerOptions DEFAULT_ITEM_NAME FileOptions
    """,
    "ckptree.orbax.checkpoint_managers": """
        AnyPreservationPolicy AnySavePolicy BestN
        ContinuousCheckpointingPolicy CustomSteps DecisionContext
        EveryNSeconds EveryNSteps EveryNStepsClosest FixedIntervalPolicy
        InitialSavePolicy LatestDuration LatestN
        PreemptionCheckpointingPolicy PreservationContext PreservationPolicy
        PreserveAll SpecificStepsPolicy
    """,
    "ckptree.orbax.checkpoint_utils": """
        checkpoints_iterator construct_restore_args Format
    """,
    "ckptree.orbax.checkpointers": """
        AsyncCheckpointer Checkpointer PyTreeCheckpointer
    """,
    "ckptree.orbax.handlers": """
        ArrayCheckpointHandler CompositeArgs
        DefaultCheckpointHandlerRegistry JsonCheckpointHandler
        JsonRestoreArgs JsonSaveArgs PyTreeCheckpointHandler
        PyTreeRestoreArgs PyTreeSaveArgs StandardCheckpointHandler
        StandardRestoreArgs StandardSaveArgs
    """,
    "ckptree.orbax.logging": """
        AbstractLogger CompositeLogger StandardLogger
    """,
    "ckptree.orbax.metadata": """
        ArrayMetadata NamedShardingMetadata RootMetadata ScalarMetadata
        StringMetadata
    """,
    "ckptree.orbax.metadata.value": """
        ArrayMetadata ScalarMetadata StorageMetadata StringMetadata
    """,
    "ckptree.orbax.msgpack_utils": """
        msgpack_restore msgpack_serialize
    """,
    "ckptree.orbax.multihost": """
        initialize_runtime_to_distributed_ids is_primary_host
        is_runtime_to_distributed_ids_initialized process_index
    """,
    "ckptree.orbax.options": """
        AtomicityMode AtomicityOptions FileOptions MultiprocessingOptions
    """,
    "ckptree.orbax.path.step": """
        all_temporary_paths checkpoint_steps_paths composite_name_format
        get_save_directory is_path_finalized is_path_temporary
        is_standard_name_format Metadata NameFormat
        single_host_load_and_broadcast_name_format standard_name_format
    """,
    "ckptree.orbax.step": """
        standard_name_format
    """,
    "ckptree.orbax.test_utils": """
        erase_and_create_empty
    """,
    "ckptree.orbax.transform_utils": """
        apply_transformations intersect_trees merge_trees Transform
    """,
    "ckptree.orbax.tree": """
        from_flat_dict serialize_tree to_flat_dict
    """,
    "ckptree.orbax.type_handlers": """
        ArrayHandler create_type_handler_registry is_ocdbt_checkpoint
        RestoreArgs SaveArgs
    """,
    "ckptree.orbax.utils": """
        any_checkpoint_step deserialize_tree from_flat_dict get_save_directory
        is_checkpoint_finalized is_pathways_backend is_primary_host
        is_tmp_checkpoint reached_preemption step_from_checkpoint_name
        TMP_DIR_SUFFIX tmp_checkpoints to_flat_dict to_shape_dtype_struct
    """,
    "ckptree.flax": """
        AsyncManager available_steps convert_pre_linen latest_checkpoint
        natural_sort restore_args_from_target restore_checkpoint
        safe_normpath save_args_from_target save_checkpoint
        save_checkpoint_multiprocess
    """,
}


@pytest.mark.parametrize("module", SURFACE)
def test_the_names_of_a_module(module):
    found = importlib.import_module(module)
    missing = [
        name for name in SURFACE[module].split() if not hasattr(found, name)
    ]
    assert missing == []


def test_a_name_that_is_not_there_says_where_to_look():
    import ckptree.orbax as ours

    for module, name in (
        (ours, "NoSuchHandler"),
        (ours.utils, "pytree_structure"),
        (ours.type_handlers, "supported_types"),
    ):
        where = f"{module.__name__} has no {name}: .*python/README.md"
        with pytest.raises(AttributeError, match=where):
            getattr(module, name)
        assert not hasattr(module, name) and not hasattr(module, "__wrapped__")


def test_neither_orbax_nor_tensorstore_nor_jax_is_needed(tmp_path):
    program = """
import pathlib
import sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in (
            "orbax", "tensorstore", "jax", "flax", "etils"
        ):
            raise ImportError(name)

sys.meta_path.insert(0, Blocked())
import ckptree.orbax as ocp
import numpy as np
with ocp.CheckpointManager(sys.argv[1]) as manager:
    args = ocp.args.Composite(
        state=ocp.args.StandardSave({"w": np.arange(3), "n": 1}),
        config=ocp.args.JsonSave({"a": 1}),
    )
    assert manager.save(0, args=args)
    restored = manager.restore(0)
    assert restored.state["w"].tolist() == [0, 1, 2]
    assert restored.config == {"a": 1}
of_orbax = pathlib.Path(sys.argv[1] + "1")
of_orbax.mkdir()
(of_orbax / "_METADATA").write_text("{}")
try:
    ocp.import_checkpoint(of_orbax, sys.argv[1] + "2")
except ImportError as error:
    assert "pip install" in str(error)
else:
    raise AssertionError("there is no Orbax to import by")
"""
    subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "run")], check=True
    )


def test_what_jax_saved_is_asked_for_without_jax(tmp_path):
    import ckptree.orbax as ocp
    import jax.numpy as jnp

    path = tmp_path / "run"
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(path, {"w": jnp.arange(3.0)})
    program = """
import sys
import ckptree.orbax as ocp
import numpy as np

with ocp.PyTreeCheckpointer() as checkpointer:
    described = checkpointer.metadata(sys.argv[1]).item_metadata.tree
    args = ocp.checkpoint_utils.construct_restore_args(described)
    assert args["w"].restore_type is np.ndarray, args
    by_args = checkpointer.restore(sys.argv[1], restore_args=args)
with ocp.StandardCheckpointer() as checkpointer:
    by_template = checkpointer.restore(sys.argv[1], described)
for found in (by_args, by_template):
    assert type(found["w"]) is np.ndarray
    assert found["w"].tolist() == [0, 1, 2]
assert "jax" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", program, str(path)], check=True)
