# SPDX-License-Identifier: Apache-2.0
"""Where programs look for names: under Orbax and under ckptree."""

import importlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest


@pytest.mark.parametrize(
    "name",
    [
        "__version__",
        "checkpoint_managers.preservation_policy.AnyPreservationPolicy",
        "checkpoint_managers.preservation_policy.BestN",
        "checkpoint_managers.preservation_policy.EveryNSteps",
        "checkpoint_managers.preservation_policy.LatestN",
        "checkpoint_managers.save_decision_policy.AnySavePolicy",
        "checkpoint_managers.save_decision_policy.FixedIntervalPolicy",
        "checkpoint_managers.save_decision_policy.InitialSavePolicy",
        "experimental.v1.delete",
        "experimental.v1.delete_async",
        "handlers.JaxRandomKeySaveArgs",
        "handlers.NumpyRandomKeyRestoreArgs",
        "handlers.create_default_handler_registry",
        "path.atomicity.AtomicRenameTemporaryPath",
        "path.atomicity.CommitFileTemporaryPath",
        "path.atomicity.TMP_DIR_SUFFIX",
        "tree.is_flat_dict",
        "tree.str_keypath",
        "tree.to_shape_dtype_struct",
        "utils.to_shape_dtype_struct",
    ],
)
def test_it_is_there(ocp, name):
    found = ocp
    for part in name.split("."):
        found = getattr(found, part)
    assert found is not None


def test_modules_of_policies(ocp):
    module = importlib.import_module(f"{ocp.__name__}.checkpoint_managers")
    assert module.preservation_policy.LatestN(2).n == 2
    assert module.save_decision_policy.FixedIntervalPolicy(2).interval == 2


@pytest.mark.parametrize(
    "name",
    [
        "path.step.latest_step_metadata",
        "step.find_step_path",
        "path.build_step_path",
        "utils.sync_global_devices",
        "multihost.sync_global_devices",
        "checkpoint_utils.PLACEHOLDER",
        "metadata.tree.nothing",
        "experimental.v1.training.errors.nothing",
        "nothing",
    ],
)
def test_what_is_not_here_says_where_the_differences_are(name):
    import ckptree.orbax as ours

    *parts, last = name.split(".")
    module = importlib.import_module(".".join([ours.__name__, *parts]))
    with pytest.raises(AttributeError) as error:
        getattr(module, last)
    assert f"{module.__name__} has no {last}: " in str(error.value)
    assert "What differs from Orbax" in str(error.value)
    assert ours.step.tmp_checkpoints is ours.path.step.tmp_checkpoints


def test_one_word_is_replaced():
    """`orbax` by `ckptree.orbax` is enough; there are no second classes."""
    import ckptree.orbax as ours
    import ckptree.orbax.checkpoint as below
    from ckptree.orbax import checkpoint
    from ckptree.orbax.checkpoint.checkpoint_managers import (
        preservation_policy,
    )
    from ckptree.orbax.checkpoint.experimental import v1

    assert below is ours and checkpoint is ours and v1 is ours.v1
    assert preservation_policy.LatestN is ours.checkpoint_managers.LatestN


def test_orbax_utils_of_flax():
    from ckptree.flax import orbax_utils as ours
    from flax.training import orbax_utils as theirs

    target = {"w": np.ones(2), "n": 1}
    for made, expected in (
        (ours.save_args_from_target(target), theirs.save_args_from_target),
        (
            ours.restore_args_from_target(target),
            theirs.restore_args_from_target,
        ),
    ):
        wanted = expected(target)
        assert set(made) == set(wanted)
        for key in made:
            assert type(made[key]).__name__ == type(wanted[key]).__name__


def test_metadata_is_a_tree_of_jax(ocp, tmp_path):
    with ocp.StandardCheckpointer() as checkpointer:
        tree = {"a": np.ones(2, "f4"), "b": {"c": 3}}
        checkpointer.save(tmp_path / "tree", tree)
        checkpointer.wait_until_finished()
        found = checkpointer.metadata(tmp_path / "tree").item_metadata
    assert len(jax.tree.leaves(found)) == 2
    shapes = jax.tree.map(lambda leaf: leaf.shape, found)
    assert type(shapes) is type(found)
    assert shapes.tree == {"a": (2,), "b": {"c": ()}}
    flat = ocp.tree.to_flat_dict(found)
    assert {key: leaf.shape for key, leaf in flat.items()} == {
        ("a",): (2,),
        ("b", "c"): (),
    }


def test_names_in_a_tree(ocp):
    tree = {"a": [1, {"b": 2}]}
    paths = [path for path, _ in jax.tree_util.tree_leaves_with_path(tree)]
    assert [ocp.tree.str_keypath(path) for path in paths] == [
        ("a", "0"),
        ("a", "1", "b"),
    ]
    described = ocp.tree.to_shape_dtype_struct(jnp.ones((2, 3)))
    assert (described.shape, described.dtype) == ((2, 3), np.float32)


def test_small_helpers(ocp, tmp_path):
    utils = ocp.utils
    with ocp.CheckpointManager(tmp_path / "run") as manager:
        for step in (5, 6):
            manager.save(step, args=ocp.args.StandardSave({"w": np.ones(2)}))
        manager.wait_until_finished()
    assert utils.any_checkpoint_step(tmp_path / "run") in (5, 6)
    assert utils.is_checkpoint_finalized(tmp_path / "run" / "5")
    assert not utils.is_checkpoint_finalized(tmp_path / "run" / "7")
    assert not utils.is_tmp_checkpoint(tmp_path / "run" / "5")
    assert list(utils.tmp_checkpoints(tmp_path / "run")) == []
    tree = {"a": {"b": 1, "c": {}}, "d": [2, 3]}
    flat = {"a/b": 1, "d/0": 2, "d/1": 3}
    assert utils.to_flat_dict(tree, sep="/") == flat
    assert utils.from_flat_dict({"a/b": 1}, sep="/") == {"a": {"b": 1}}
    assert ("a", "c") in utils.to_flat_dict(tree, keep_empty_nodes=True)
    assert utils.is_primary_host(0) and not utils.is_primary_host(1)
    number = utils.step_from_checkpoint_name
    for name in ("7", "step_7", "a_b_07", "step_7.orbax-checkpoint-tmp-12"):
        assert number(name) == 7
    for name in ("x", "step7", "7_", "_7", "step_7.x"):
        with pytest.raises(ValueError):
            number(name)


def test_a_registry_of_handlers(ocp):
    registry = ocp.handlers.create_default_handler_registry(
        state=ocp.StandardCheckpointHandler(),
        config=ocp.JsonCheckpointHandler(),
    )
    assert registry.has("state", ocp.args.StandardSave)
    assert registry.has("config", ocp.args.JsonRestore)
    assert not registry.has("state", ocp.args.JsonSave)
