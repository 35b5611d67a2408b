# SPDX-License-Identifier: Apache-2.0
"""The calls that Orbax's guides make of its first interface, each as a program
of its own: under Orbax and under ckptree. README.md has the guides one by
one."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from orbax_both import assert_same


@pytest.fixture
def mesh():
    return jax.sharding.Mesh(np.array(jax.devices()), ("x",))


@pytest.fixture
def over(mesh):
    return jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("x"))


@pytest.fixture
def state(over):
    return {
        "weights": jax.device_put(jnp.arange(16.0), over),
        "bias": np.ones(4),
        "step": 7,
    }


@pytest.fixture
def path(ocp, tmp_path):
    return ocp.test_utils.erase_and_create_empty(tmp_path / "guide")


def abstract(ocp, tree):
    return jax.tree.map(ocp.utils.to_shape_dtype_struct, tree)


# ---- "Orbax Checkpoint 101", "API overview" ----


def test_one_checkpoint(ocp, path, state):
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(path / "one", state)
        checkpointer.wait_until_finished()
        assert_same(checkpointer.restore(path / "one"), state)
        like = abstract(ocp, state)
        assert_same(checkpointer.restore(path / "one", like), state)
        other = jax.sharding.SingleDeviceSharding(jax.devices()[1])
        like["weights"] = jax.ShapeDtypeStruct(
            (16,), jnp.bfloat16, sharding=other
        )
        found = checkpointer.restore(path / "one", like)["weights"]
        assert found.sharding == other and found.dtype == jnp.bfloat16


def test_several_objects_without_a_manager(ocp, path, state):
    with ocp.Checkpointer(ocp.CompositeCheckpointHandler()) as checkpointer:
        checkpointer.save(
            path / "both",
            ocp.args.Composite(
                state=ocp.args.StandardSave(state),
                about=ocp.args.JsonSave({"lang": "en"}),
            ),
        )
        found = checkpointer.restore(
            path / "both",
            ocp.args.Composite(state=ocp.args.StandardRestore(state)),
        )
    assert_same(found.state, state)
    assert list(found) == ["state"]


def test_a_loop_by_policies(ocp, path, state):
    saves = ocp.checkpoint_managers.save_decision_policy
    keeps = ocp.checkpoint_managers.preservation_policy
    options = ocp.CheckpointManagerOptions(
        save_decision_policy=saves.FixedIntervalPolicy(2),
        preservation_policy=keeps.LatestN(2),
    )
    with ocp.CheckpointManager(path, options=options) as manager:
        for step in range(8):
            assert manager.should_save(step) == (step % 2 == 0)
            manager.save(step, args=ocp.args.StandardSave(state))
        manager.wait_until_finished()
        assert list(manager.all_steps()) == [4, 6]
        like = jax.tree.map(ocp.tree.to_shape_dtype_struct, state)
        found = manager.restore(
            manager.latest_step(), args=ocp.args.StandardRestore(like)
        )
        assert_same(found, state)


def test_intervals_and_times(ocp, path, state):
    options = ocp.CheckpointManagerOptions(
        max_to_keep=3, save_interval_steps=2, enable_async_checkpointing=True
    )
    with ocp.CheckpointManager(
        path, options=options, item_names=("state", "about")
    ) as manager:
        for step in range(11):
            manager.save(
                step,
                args=ocp.args.Composite(
                    state=ocp.args.StandardSave(state),
                    about=ocp.args.JsonSave({"step": step}),
                ),
            )
        manager.wait_until_finished()
        assert list(manager.all_steps()) == [6, 8, 10]
        found = manager.restore(manager.latest_step())
        assert found.about == {"step": 10}
        assert_same(found.state, state)
        # As the manager has saved it, it knows how to read it.
        again = manager.restore(8, args=ocp.args.Composite(about=None))
        assert again.about == {"step": 8}


def test_a_registry_of_handlers(ocp, path, state):
    registry = ocp.handlers.DefaultCheckpointHandlerRegistry()
    standard = ocp.StandardCheckpointHandler()
    json = ocp.JsonCheckpointHandler()
    registry.add("state", ocp.args.StandardSave, standard)
    registry.add("state", ocp.args.StandardRestore, standard)
    registry.add("about", ocp.args.JsonSave, json)
    registry.add("about", ocp.args.JsonRestore, json)
    with ocp.CheckpointManager(path, handler_registry=registry) as manager:
        manager.save(
            0,
            args=ocp.args.Composite(
                state=ocp.args.StandardSave(state),
                about=ocp.args.JsonSave({"a": 1}),
            ),
        )
        manager.save(
            1,
            args=ocp.args.Composite(
                state=ocp.args.StandardSave(state), about=None
            ),
        )
        manager.wait_until_finished()
        assert manager.restore(0).about == {"a": 1}
        assert manager.restore(1).about is None
        assert set(manager.item_metadata(0)) >= {"state", "about"}
    with ocp.CheckpointManager(path) as fresh:
        found = fresh.restore(
            0,
            args=ocp.args.Composite(
                state=ocp.args.StandardRestore(state),
                about=ocp.args.JsonRestore(),
            ),
        )
        assert_same(found.state, state)


# ---- "New API" (api_refactor) ----


def test_the_way_before_arguments(ocp, path, state):
    checkpointer = ocp.Checkpointer(ocp.PyTreeCheckpointHandler())
    checkpointer.save(path / "one", state)
    assert_same(checkpointer.restore(path / "one"), state)
    asked = ocp.checkpoint_utils.construct_restore_args(state)
    found = checkpointer.restore(path / "one", item=state, restore_args=asked)
    assert_same(found, state)


def test_managers_before_arguments(ocp, path, state):
    options = ocp.CheckpointManagerOptions(max_to_keep=2)
    with ocp.CheckpointManager(
        path / "one", ocp.PyTreeCheckpointer(), options
    ) as manager:
        for step in range(3):
            manager.save(step, state)
        manager.wait_until_finished()
        assert list(manager.all_steps()) == [1, 2]
        asked = ocp.checkpoint_utils.construct_restore_args(state)
        found = manager.restore(
            2, items=state, restore_kwargs={"restore_args": asked}
        )
        assert_same(found, state)
    by_item = {
        "state": ocp.Checkpointer(ocp.PyTreeCheckpointHandler()),
        "about": ocp.Checkpointer(ocp.JsonCheckpointHandler()),
    }
    with ocp.CheckpointManager(path / "both", by_item) as manager:
        manager.save(0, {"state": state, "about": {"a": 1}})
        manager.wait_until_finished()
        found = manager.restore(0, items={"state": state, "about": None})
        assert found["about"] == {"a": 1}
        assert_same(found["state"], state)


def test_one_item_by_its_handler(ocp, path, state):
    with ocp.CheckpointManager(
        path, item_handlers=ocp.StandardCheckpointHandler()
    ) as manager:
        manager.save(0, args=ocp.args.StandardSave(state))
        manager.wait_until_finished()
        assert_same(manager.restore(0), state)
        found = manager.restore(0, args=ocp.args.StandardRestore(state))
        assert_same(found, state)


# ---- "Asynchronous checkpointing", "Preemption" ----


def test_in_the_background(ocp, path, state):
    checkpointer = ocp.AsyncCheckpointer(ocp.StandardCheckpointHandler())
    checkpointer.save(path / "one", args=ocp.args.StandardSave(state))
    checkpointer.wait_until_finished()
    checkpointer.close()
    blocking = ocp.Checkpointer(ocp.StandardCheckpointHandler())
    blocking.save(path / "two", args=ocp.args.StandardSave(state))
    assert_same(blocking.restore(path / "two"), state)
    assert_same(blocking.restore(path / "one"), state)


def test_a_loop_that_may_be_preempted(ocp, path, state):
    with ocp.CheckpointManager(
        path,
        ocp.PyTreeCheckpointer(),
        ocp.CheckpointManagerOptions(save_interval_steps=3),
    ) as manager:
        saved = []
        for step in range(7):
            if manager.save(step, state):
                saved.append(step)
            if manager.reached_preemption(step):
                manager.wait_until_finished()
                break
    assert saved == [0, 3, 6]


# ---- "Checkpointing PyTrees" ----


def test_single_leaves_as_they_are_asked_for(ocp, path, state, over):
    with ocp.PyTreeCheckpointer() as checkpointer:
        asked = jax.tree.map(lambda leaf: ocp.SaveArgs(), state)
        asked["bias"] = ocp.SaveArgs(dtype=np.dtype(np.float16))
        checkpointer.save(
            path / "one", args=ocp.args.PyTreeSave(state, save_args=asked)
        )
        found = checkpointer.restore(path / "one")
        assert found["bias"].dtype == np.float16
        args = {
            "weights": ocp.ArrayRestoreArgs(
                restore_type=jax.Array,
                dtype=np.dtype(np.float16),
                sharding=over,
                global_shape=(32,),
                strict=False,
            ),
            "bias": ocp.RestoreArgs(restore_type=np.ndarray),
            "step": ocp.RestoreArgs(restore_type=float),
        }
        found = checkpointer.restore(
            path / "one",
            args=ocp.args.PyTreeRestore(state, restore_args=args),
        )
    assert found["weights"].shape == (32,)
    assert found["weights"].dtype == np.float16
    assert found["weights"][16:].tolist() == [0] * 16
    assert (type(found["step"]), found["step"]) == (float, 7.0)


def test_some_leaves_only(ocp, path, state):
    with ocp.AsyncCheckpointer(ocp.PyTreeCheckpointHandler()) as checkpointer:
        checkpointer.save(path / "one", args=ocp.args.PyTreeSave(state))
        checkpointer.wait_until_finished()
        like = {**state, "bias": ocp.PLACEHOLDER, "step": ocp.PLACEHOLDER}
        found = checkpointer.restore(
            path / "one",
            args=ocp.args.PyTreeRestore(
                like,
                restore_args=ocp.checkpoint_utils.construct_restore_args(like),
            ),
        )
        assert found["bias"] is ... and found["step"] is ...
        assert_same(found["weights"], state["weights"])
        some = {"bias": state["bias"]}
        found = checkpointer.restore(
            path / "one",
            args=ocp.args.PyTreeRestore(
                some,
                restore_args=ocp.checkpoint_utils.construct_restore_args(some),
                partial_restore=True,
            ),
        )
        assert_same(found, some)


def test_leaves_that_are_renamed(ocp, ours, path, state):
    with ocp.PyTreeCheckpointer() as checkpointer:
        checkpointer.save(path / "one", args=ocp.args.PyTreeSave(state))
        like = {"w": state["weights"], "twice": np.zeros(4), "new": 5}
        asked = ocp.checkpoint_utils.construct_restore_args(like)
        rules = {
            "w": ocp.Transform(original_key="weights"),
            "twice": ocp.Transform(
                original_key="bias", value_fn=lambda value: value * 2
            ),
        }

        def restore():
            return checkpointer.restore(
                path / "one",
                args=ocp.args.PyTreeRestore(
                    like, restore_args=asked, transforms=rules
                ),
            )

        if not ours:
            found = restore()
        else:
            with pytest.warns(UserWarning, match="stay: new"):
                found = restore()
        assert_same(found["w"], state["weights"])
        assert found["twice"].tolist() == [2, 2, 2, 2]
        assert found["new"] == 5  # Neither saved nor renamed.
        like["new"] = jax.ShapeDtypeStruct((2,), jnp.float32)
        if ours:
            with pytest.raises(ValueError, match="no value to keep: new"):
                restore()


# ---- "Checkpoint format", "Debug guide", "Optimized checkpointing" ----


def test_what_a_checkpoint_says(ocp, path, state):
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(path / "one", {"a": state})
        checkpointer.wait_until_finished()
        found = checkpointer.metadata(path / "one").item_metadata
    flat = {
        ".".join(keys): leaf
        for keys, leaf in ocp.tree.to_flat_dict(found).items()
    }
    assert set(flat) == {"a.weights", "a.bias", "a.step"}
    assert flat["a.weights"].shape == (16,)
    assert flat["a.bias"].dtype == np.float64
    flat = ocp.tree.to_flat_dict({"a": state}, sep=".")
    assert set(flat) == {"a.weights", "a.bias", "a.step"}


@pytest.mark.filterwarnings("ignore:.*does nothing")
def test_options_of_speed_change_no_bytes(ocp, path, state):
    handler = ocp.PyTreeCheckpointHandler(
        use_ocdbt=True, use_zarr3=True, save_concurrent_gb=1
    )
    asked = jax.tree.map(
        lambda leaf: ocp.SaveArgs(chunk_byte_size=1 << 10), state
    )
    with ocp.Checkpointer(handler) as checkpointer:
        checkpointer.save(
            path / "one", args=ocp.args.PyTreeSave(state, save_args=asked)
        )
        assert_same(checkpointer.restore(path / "one"), state)
    with ocp.CheckpointManager(
        path / "run", item_handlers=ocp.PyTreeCheckpointHandler(use_zarr3=True)
    ) as manager:
        manager.save(
            0,
            args=ocp.args.PyTreeSave(
                state, ocdbt_target_data_file_size=1 << 20
            ),
        )
        manager.wait_until_finished()
        assert_same(manager.restore(0), state)


def test_files_of_leaves_are_named():
    import ckptree.orbax as ours

    for name in ("ParamInfo", "TypeHandler", "get_json_tspec_read"):
        where = "ckptree.open.*What differs"
        with pytest.raises(AttributeError, match=where):
            getattr(ours.type_handlers, name)
    with pytest.raises(AttributeError):
        ours.type_handlers.no_such_name
