# SPDX-License-Identifier: Apache-2.0
"""The calls that Flax's guides make to save and restore, each as a program of
its own: under Flax and Orbax, and under ckptree. README.md has the guides one
by one."""

import importlib
from typing import Any

import flax
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import linen as nn
from flax import nnx
from flax.training import train_state

from orbax_both import assert_same


@pytest.fixture
def flax_modules(ours):
    """Flax's checkpoints and orbax_utils, or what stands for them."""
    package = "ckptree.flax" if ours else "flax.training"
    return (
        importlib.import_module(f"{package}.checkpoints"),
        importlib.import_module(f"{package}.orbax_utils"),
    )


class WithStats(train_state.TrainState):
    batch_stats: Any = None


def bundle(kind=train_state.TrainState, **more):
    model = nn.Dense(3)
    x = jnp.ones((5,))
    variables = model.init(jax.random.key(0), x)
    made = kind.create(
        apply_fn=model.apply,
        params=variables["params"],
        tx=optax.sgd(0.1),
        **more,
    )
    return {"model": made, "config": {"sizes": np.array([5, 3])}, "data": [x]}


def same_params(left, right):
    assert_same(
        jax.tree.map(np.asarray, left["model"].params),
        jax.tree.map(np.asarray, right["model"].params),
    )


def test_a_target_says_what_comes_back(flax_modules, tmp_path):
    checkpoints, _ = flax_modules
    saved = {"w": jnp.ones(3), "n": 1, "s": jnp.int32(4), "np": np.ones(2)}
    checkpoints.save_checkpoint(str(tmp_path), saved, step=1)
    target = {"w": jnp.zeros(3), "n": 0, "s": 0, "np": np.zeros(2)}
    found = checkpoints.restore_checkpoint(str(tmp_path), target)
    assert isinstance(found["w"], jax.Array)
    assert type(found["n"]) is int and type(found["s"]) is int
    assert type(found["np"]) is np.ndarray
    assert found["w"].at[0].set(5.0).tolist() == [5, 1, 1]
    assert (found["n"], found["s"]) == (1, 4)


# ---- "Save and load checkpoints" ----


def test_by_orbax_alone(ocp, flax_modules, tmp_path):
    _, orbax_utils = flax_modules
    saved = bundle()
    checkpointer = ocp.PyTreeCheckpointer()
    save_args = orbax_utils.save_args_from_target(saved)
    checkpointer.save(tmp_path / "one", saved, save_args=save_args)
    raw = checkpointer.restore(tmp_path / "one")
    assert_same(
        jax.tree.map(np.asarray, raw["model"]["params"]),
        jax.tree.map(np.asarray, saved["model"].params),
    )
    options = ocp.CheckpointManagerOptions(max_to_keep=2, create=True)
    with ocp.CheckpointManager(
        tmp_path / "run", checkpointer, options
    ) as manager:
        for step in range(5):
            manager.save(
                step, saved, save_kwargs={"save_args": save_args}
            )
        manager.wait_until_finished()
        assert list(manager.all_steps()) == [3, 4]
        target = bundle()
        found = manager.restore(4, items=target)
        assert type(found["model"]) is train_state.TrainState
        same_params(found, saved)


@pytest.mark.filterwarnings("ignore:.*template's values stay")
def test_a_field_that_was_added(ocp, flax_modules, tmp_path):
    checkpoints, orbax_utils = flax_modules
    old = bundle()
    wider = bundle(WithStats, batch_stats=np.arange(10))
    wider["config"] = None
    args = orbax_utils.restore_args_from_target(wider)
    checkpointer = ocp.PyTreeCheckpointer()
    checkpointer.save(tmp_path / "one", old)
    found = checkpointer.restore(
        tmp_path / "one", item=wider, transforms={}, restore_args=args
    )
    assert type(found["model"]) is WithStats
    assert np.array_equal(found["model"].batch_stats, np.arange(10))
    same_params(found, old)
    checkpoints.save_checkpoint(str(tmp_path / "flax"), old, step=4)
    found = checkpoints.restore_checkpoint(
        str(tmp_path / "flax"), target=wider, step=4, orbax_transforms={}
    )
    assert type(found["model"]) is WithStats
    assert np.array_equal(found["model"].batch_stats, np.arange(10))
    same_params(found, old)


def test_a_key_of_jax_beside_a_field_that_was_added(tmp_path):
    from ckptree.flax import checkpoints

    old = {"key": jax.random.key(1), "w": jnp.ones(2)}
    checkpoints.save_checkpoint(str(tmp_path), old, step=4)
    wider = {"key": jax.random.key(2), "w": jnp.zeros(2), "new": np.arange(3)}
    with pytest.warns(UserWarning, match="template's values stay"):
        found = checkpoints.restore_checkpoint(
            str(tmp_path), target=wider, orbax_transforms={}
        )
    assert found["key"].dtype == old["key"].dtype
    for tree in (found, old):
        tree["key"] = jax.random.key_data(tree["key"])
    assert_same(found, {**old, "new": np.arange(3)})


@pytest.mark.parametrize("by_orbax", [True, False])
def test_a_raw_state_that_is_changed(flax_modules, tmp_path, by_orbax):
    checkpoints, _ = flax_modules
    before = flax.config.flax_use_orbax_checkpointing
    flax.config.update("flax_use_orbax_checkpointing", by_orbax)
    try:
        old = bundle()
        checkpoints.save_checkpoint(
            ckpt_dir=str(tmp_path), target=old, step=5, overwrite=True, keep=2
        )
        raw = checkpoints.restore_checkpoint(str(tmp_path), None, step=5)
    finally:
        flax.config.update("flax_use_orbax_checkpointing", before)
    empty = None if by_orbax else {}
    assert raw["model"]["opt_state"] == {"0": empty, "1": empty}
    raw["model"]["batch_stats"] = np.arange(10)[::-1]
    raw["model"]["opt_state"] = {"0": {}, "1": {}}
    wider = bundle(WithStats, batch_stats=np.arange(10))
    found = flax.serialization.from_state_dict(wider, raw)
    assert found["model"].batch_stats[0] == 9
    same_params(found, old)


@pytest.mark.parametrize("by_orbax", [True, False])
def test_numbers_in_a_target_of_placeholders(flax_modules, tmp_path, by_orbax):
    checkpoints, _ = flax_modules
    saved = {
        "lr": 2.5,
        "large": 2**40,
        "flag": True,
        "list": np.arange(2),
        "double": np.float64(2.5),
        "w": jnp.ones(2),
    }
    target = {
        "lr": 0,
        "large": jnp.zeros((), int),
        "flag": 0,
        "list": 0,
        "double": np.float64(0),
        "w": jnp.zeros(2),
    }
    # By Orbax a number is what the target has, and these are not to be had.
    others = ("large", "flag", "list") if by_orbax else ()
    for name in others:
        del saved[name], target[name]
    before = flax.config.flax_use_orbax_checkpointing
    flax.config.update("flax_use_orbax_checkpointing", by_orbax)
    try:
        checkpoints.save_checkpoint(str(tmp_path), saved, step=1)
        found = checkpoints.restore_checkpoint(str(tmp_path), target)
    finally:
        flax.config.update("flax_use_orbax_checkpointing", before)
    assert type(found["lr"]) is (int if by_orbax else float)
    assert found["lr"] == (2 if by_orbax else 2.5)
    assert type(found["double"]) is np.float64 and found["double"] == 2.5
    for name in set(found) - {"lr", "double", "list", "w"}:
        assert type(found[name]) is type(saved[name])
        assert found[name] == saved[name]
    if not by_orbax:
        assert found["list"].tolist() == [0, 1]


def test_in_the_background(ocp, flax_modules, tmp_path):
    checkpoints, orbax_utils = flax_modules
    saved = bundle()
    checkpointer = ocp.AsyncCheckpointer(
        ocp.PyTreeCheckpointHandler(), timeout_secs=50
    )
    options = ocp.CheckpointManagerOptions(max_to_keep=2, create=True)
    with ocp.CheckpointManager(
        tmp_path / "run", checkpointer, options
    ) as manager:
        save_args = orbax_utils.save_args_from_target(saved)
        manager.save(0, saved, save_kwargs={"save_args": save_args})
        manager.wait_until_finished()
        args = orbax_utils.restore_args_from_target(saved)
        found = manager.restore(
            0, items=saved, restore_kwargs={"restore_args": args}
        )
        same_params(found, saved)
    other = ocp.AsyncCheckpointer(ocp.PyTreeCheckpointHandler())
    checkpoints.save_checkpoint(
        str(tmp_path / "flax"),
        saved,
        step=2,
        overwrite=True,
        keep=3,
        orbax_checkpointer=other,
    )
    other.wait_until_finished()
    found = checkpoints.restore_checkpoint(str(tmp_path / "flax"), saved)
    same_params(found, saved)
    other.close()


def test_on_several_devices(ocp, flax_modules, tmp_path):
    checkpoints, orbax_utils = flax_modules
    mesh = jax.sharding.Mesh(np.array(jax.devices()).reshape(4, 2), ("x", "y"))
    over = jax.sharding.NamedSharding(
        mesh, jax.sharding.PartitionSpec("x", "y")
    )
    saved = {"w": jax.device_put(jnp.arange(16).reshape(8, 2), over)}
    checkpoints.save_checkpoint_multiprocess(
        str(tmp_path / "flax"), saved, step=3, overwrite=True, keep=4
    )
    target = {"w": jax.device_put(jnp.zeros((8, 2), jnp.int32), over)}
    found = checkpoints.restore_checkpoint(
        str(tmp_path / "flax"), target, step=3
    )
    assert_same(found, saved)
    assert found["w"].sharding == over
    checkpointer = ocp.PyTreeCheckpointer()
    checkpointer.save(tmp_path / "one", saved)
    args = orbax_utils.restore_args_from_target(target, mesh)
    found = checkpointer.restore(
        tmp_path / "one", item=target, restore_args=args
    )
    assert_same(found, saved)


# ---- "Upgrading from Flax to Orbax" ----


def test_before_and_after_the_upgrade(ocp, flax_modules, tmp_path):
    checkpoints, orbax_utils = flax_modules
    saved = bundle()
    manager = checkpoints.AsyncManager()
    for step in range(4):
        checkpoints.save_checkpoint(
            str(tmp_path / "flax"),
            saved,
            step=step,
            keep=2,
            async_manager=manager,
        )
    manager.wait_previous_save()
    assert checkpoints.available_steps(str(tmp_path / "flax")) == [2, 3]
    assert checkpoints.latest_checkpoint(str(tmp_path / "flax")).endswith(
        "checkpoint_3"
    )
    with ocp.AsyncCheckpointer(
        ocp.StandardCheckpointHandler()
    ) as checkpointer:
        checkpointer.save(
            tmp_path / "one", args=ocp.args.StandardSave(saved)
        )
        checkpointer.wait_until_finished()
        found = checkpointer.restore(
            tmp_path / "one", args=ocp.args.StandardRestore(saved)
        )
    same_params(found, saved)


def test_one_array(ocp, tmp_path):
    checkpointer = ocp.Checkpointer(ocp.ArrayCheckpointHandler())
    checkpointer.save(tmp_path / "one", jnp.arange(10))
    assert_same(
        np.asarray(checkpointer.restore(tmp_path / "one")),
        np.arange(10, dtype=np.int32),
    )


# ---- NNX: "Save and load checkpoints", "Scale up", "Model surgery" ----


class Two(nnx.Module):
    def __init__(self, rngs):
        self.first = nnx.Linear(4, 4, rngs=rngs)
        self.second = nnx.Linear(4, 4, rngs=rngs)


def test_a_module_and_its_abstract_state(ocp, tmp_path):
    model = Two(nnx.Rngs(0))
    graph, state = nnx.split(model)
    path = ocp.test_utils.erase_and_create_empty(tmp_path / "nnx")
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(path / "state", state)
        checkpointer.wait_until_finished()
        _, like = nnx.split(nnx.eval_shape(lambda: Two(nnx.Rngs(1))))
        found = checkpointer.restore(path / "state", like)
    again = nnx.merge(graph, found)
    x = jnp.ones((2, 4))
    assert np.array_equal(
        again.second(again.first(x)), model.second(model.first(x))
    )


def test_pure_dicts(ocp, tmp_path):
    model = Two(nnx.Rngs(0))
    _, state = nnx.split(model)
    pure = nnx.to_pure_dict(state)
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(tmp_path / "pure", pure)
        checkpointer.wait_until_finished()
        found = checkpointer.restore(tmp_path / "pure")
    other = Two(nnx.Rngs(1))
    graph, new = nnx.split(other)
    nnx.replace_by_pure_dict(new, found)
    again = nnx.merge(graph, new)
    assert np.array_equal(again.first.kernel[...], model.first.kernel[...])


def test_onto_a_mesh(ocp, tmp_path):
    model = Two(nnx.Rngs(0))
    _, state = nnx.split(model)
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:4]), ("model",))
    over = jax.sharding.NamedSharding(
        mesh, jax.sharding.PartitionSpec("model")
    )
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(tmp_path / "state", state)
        checkpointer.wait_until_finished()
        like = jax.tree.map(
            lambda leaf: jax.ShapeDtypeStruct(
                leaf.shape, leaf.dtype, sharding=over
            ),
            state,
        )
        found = checkpointer.restore(tmp_path / "state", like)
    assert all(leaf.sharding == over for leaf in jax.tree.leaves(found))
    assert_same(
        jax.tree.map(np.asarray, found), jax.tree.map(np.asarray, state)
    )


def test_surgery(ocp, tmp_path):
    """Leaves of one model become those of another."""
    _, state = nnx.split(Two(nnx.Rngs(0)))
    with ocp.PyTreeCheckpointer() as checkpointer:
        checkpointer.save(tmp_path / "old", nnx.to_pure_dict(state))
        old = checkpointer.restore(tmp_path / "old")
    old["third"] = old.pop("second")
    assert set(old) == {"first", "third"}
    assert old["third"]["kernel"].shape == (4, 4)
