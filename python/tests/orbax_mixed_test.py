# SPDX-License-Identifier: Apache-2.0
"""Objects of Orbax's own classes, as a program has them that changed only some
of its imports: taken by their attributes, or refused by name."""

import datetime

import ckptree.orbax as ours
import flax.training.orbax_utils
import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as theirs
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

TREE = {
    "w": np.arange(8, dtype=np.float32),
    "n": 3,
    "deep": [{"b": np.ones(2)}],
}


@pytest.fixture
def saved(tmp_path):
    ours.PyTreeCheckpointer().save(tmp_path / "one", TREE)
    return tmp_path / "one"


@pytest.mark.parametrize("missing", ["tip", "LOCK", "the new index is alone"])
def test_a_store_is_known_by_its_journal(saved, missing):
    if missing == "tip":
        (saved / "journal" / "tip").unlink()
    elif missing == "LOCK":
        (saved / "LOCK").unlink()
    else:  # A crash while it takes the place of the old one.
        (saved / "db").rename(saved / "db.new")
    assert ours.PyTreeCheckpointer().restore(saved)["n"] == 3
    with pytest.raises(ValueError, match="already exists: pass force"):
        ours.PyTreeCheckpointer().save(saved, TREE)


def test_a_folder_named_journal_is_no_store(tmp_path):
    (tmp_path / "journal").mkdir()
    (tmp_path / "journal" / "monday").touch()
    with pytest.raises(FileNotFoundError, match="holds no checkpoint"):
        ours.PyTreeCheckpointer().restore(tmp_path)


def restored(path, item, args):
    return ours.PyTreeCheckpointer().restore(path, item=item, restore_args=args)


@pytest.mark.parametrize("templated", [False, True])
def test_restore_args(saved, templated):  # RS-02
    args = {
        "w": theirs.RestoreArgs(restore_type=np.ndarray, dtype=np.float16),
        "n": theirs.RestoreArgs(restore_type=float),
        "deep": [{"b": theirs.RestoreArgs()}],
    }
    made = restored(saved, TREE if templated else None, args)
    assert made["w"].dtype == np.float16 and made["w"].tolist() == list(
        range(8)
    )
    assert type(made["n"]) is float and made["n"] == 3
    assert made["deep"][0]["b"].tolist() == [1, 1]


def test_array_restore_args(saved):  # RS-02
    mesh = Mesh(np.array(jax.devices()).reshape(8), ("x",))
    placed = NamedSharding(mesh, PartitionSpec("x"))
    args = {
        "w": theirs.ArrayRestoreArgs(
            sharding=placed,
            global_shape=(16,),
            strict=False,
            dtype=jnp.bfloat16,
        ),
        "n": theirs.RestoreArgs(),
        "deep": [
            {
                "b": theirs.ArrayRestoreArgs(
                    mesh=mesh, mesh_axes=PartitionSpec(), dtype=np.float32
                )
            }
        ],
    }
    made = restored(saved, None, args)
    assert made["w"].shape == (16,) and made["w"].dtype == jnp.bfloat16
    assert made["w"].sharding == placed
    assert made["w"].tolist() == [*range(8), *[0] * 8]
    assert isinstance(made["deep"][0]["b"], jax.Array)
    assert made["deep"][0]["b"].sharding.device_set == set(jax.devices())


def test_restore_args_of_a_target(saved):
    target = {
        "w": jnp.zeros(8, jnp.bfloat16),
        "n": jnp.int32(0),
        "deep": [{"b": jnp.zeros(2, jnp.float16)}],
    }
    args = flax.training.orbax_utils.restore_args_from_target(target)
    assert type(args["w"]) is theirs.ArrayRestoreArgs
    made = restored(saved, target, args)
    assert made["w"].dtype == jnp.bfloat16
    assert made["deep"][0]["b"].dtype == jnp.float16
    theirs.PyTreeCheckpointer().save(saved.parent / "theirs", TREE)
    other = theirs.PyTreeCheckpointer().restore(
        saved.parent / "theirs", item=target, restore_args=args
    )
    for key in ("w", "n"):
        assert np.asarray(made[key]).dtype == np.asarray(other[key]).dtype, key


def test_save_args(tmp_path):  # PT-06
    args = jax.tree.map(lambda leaf: theirs.SaveArgs(dtype=np.float16), TREE)
    ours.PyTreeCheckpointer().save(tmp_path / "one", TREE, save_args=args)
    made = ours.PyTreeCheckpointer().restore(tmp_path / "one")
    assert made["w"].dtype == made["deep"][0]["b"].dtype == np.float16
    target = flax.training.orbax_utils.save_args_from_target(TREE)
    ours.PyTreeCheckpointer().save(tmp_path / "two", TREE, save_args=target)
    assert (
        ours.PyTreeCheckpointer().restore(tmp_path / "two")["w"].dtype
        == np.float32
    )


def test_transforms(saved):
    made = ours.PyTreeCheckpointer().restore(
        saved,
        item={"v": np.zeros(8, np.float32), "new": 7},
        transforms={
            "v": theirs.Transform(original_key="w", value_fn=lambda v: v + 1),
            "new": theirs.Transform(use_fallback=True),
        },
    )
    assert made["v"].tolist() == list(range(1, 9)) and made["new"] == 7


@pytest.mark.parametrize("wrong", [1, np.float16, theirs.SaveArgs(), "bf16"])
def test_what_is_no_restore_args(saved, wrong):
    args = {
        "w": wrong,
        "n": ours.RestoreArgs(),
        "deep": [{"b": ours.RestoreArgs()}],
    }
    for item in (TREE, None):
        with pytest.raises(
            ValueError, match="restore_args: item/w is no RestoreArgs"
        ):
            restored(saved, item, args)


def test_metadata_of_orbax_is_no_template(saved, tmp_path):
    theirs.PyTreeCheckpointer().save(tmp_path / "theirs", TREE)
    tree = (
        theirs.PyTreeCheckpointer()
        .metadata(tmp_path / "theirs")
        .item_metadata.tree
    )
    with pytest.raises(ValueError, match="Unsupported type: .*orbax"):
        restored(saved, tree, None)


def test_options_and_policies(tmp_path):
    policies = theirs.checkpoint_managers
    options = theirs.CheckpointManagerOptions(
        save_decision_policy=policies.FixedIntervalPolicy(2),
        preservation_policy=policies.LatestN(2),
        async_options=theirs.AsyncOptions(timeout_secs=60),
    )
    with ours.CheckpointManager(tmp_path / "run", options=options) as manager:
        for step in range(9):
            manager.save(step, args=ours.args.StandardSave({"a": step}))
        assert manager.all_steps() == [6, 8]
    options = theirs.CheckpointManagerOptions(
        max_to_keep=1, keep_time_interval=datetime.timedelta(hours=1)
    )
    with ours.CheckpointManager(tmp_path / "run", options=options) as manager:
        manager.save(10, args=ours.args.StandardSave({"a": 1}))
        manager.wait_until_finished()
        assert manager.all_steps() == [6, 10]
    with pytest.raises(NotImplementedError, match="todelete_subdir"):
        ours.CheckpointManager(
            tmp_path / "run",
            options=theirs.CheckpointManagerOptions(todelete_subdir="gone"),
        )
    with pytest.raises(TypeError, match="CheckpointManagerOptions, not a dict"):
        ours.CheckpointManager(tmp_path / "run", options={"max_to_keep": 1})


def test_what_is_refused_by_name(tmp_path):
    of_orbax = "of Orbax's own: take that of ckptree.orbax"
    for options in (
        {"item_handlers": theirs.StandardCheckpointHandler()},
        {"item_handlers": {"a": theirs.StandardCheckpointHandler()}},
        {"checkpointers": theirs.PyTreeCheckpointer()},
        {"checkpointers": {"a": theirs.PyTreeCheckpointer()}},
    ):
        with pytest.raises(ValueError, match=of_orbax):
            ours.CheckpointManager(tmp_path / "run", **options)
    with ours.CheckpointManager(tmp_path / "run") as manager:
        for args in (
            theirs.args.StandardSave({"a": 1}),
            theirs.args.Composite(a=theirs.args.StandardSave({"a": 1})),
            ours.args.Composite(a=theirs.args.StandardSave({"a": 1})),
        ):
            with pytest.raises(ValueError, match=of_orbax):
                manager.save(1, args=args)
        manager.save(
            1, args=ours.args.Composite(a=ours.args.StandardSave({"a": 1}))
        )
        manager.wait_until_finished()
        with pytest.raises(ValueError, match=of_orbax):
            manager.restore(1, args=theirs.args.StandardRestore())
        assert manager.all_steps() == [1]
