# SPDX-License-Identifier: Apache-2.0
"""The calls that the guides of Orbax's second interface make, each as a program
of its own: under Orbax and under ckptree. README.md has the guides one by
one."""

import asyncio
import dataclasses
import importlib
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from orbax_both import assert_same


@pytest.fixture
def ocp(ocp):
    """The second interface."""
    return importlib.import_module(f"{ocp.__name__}.experimental.v1")


@pytest.fixture
def state():
    mesh = jax.sharding.Mesh(np.array(jax.devices()), ("x",))
    over = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("x"))
    return {
        "params": {"w": jax.device_put(jnp.arange(16.0), over)},
        "numpy": np.ones(4),
        "step": 7,
    }


# ---- "Orbax Checkpoint 101", "Checkpointing PyTrees" ----


def test_save_load_and_metadata(ocp, tmp_path, state):
    ocp.save(tmp_path / "one", state)
    assert_same(ocp.load(tmp_path / "one"), state)
    found = ocp.metadata(tmp_path / "one").metadata
    assert found["params"]["w"].shape == (16,)
    like = {
        "params": {
            "w": ocp.arrays.to_shape_dtype_struct(state["params"]["w"])
        },
        "numpy": np.zeros(4),
        "step": 0,
    }
    assert_same(ocp.load(tmp_path / "one", like), state)
    assert_same(ocp.load(tmp_path / "one", found), state)
    ocp.save(tmp_path / "one", {"other": 1}, overwrite=True)
    assert ocp.load(tmp_path / "one") == {"other": 1}


def test_kinds_of_leaves(ocp, tmp_path):
    tree = {"i": 3, "f": 2.5, "s": "text", "none": None}
    ocp.save(tmp_path / "one", tree)
    found = ocp.load(tmp_path / "one", {**tree, "i": 0, "f": 0.0, "s": ""})
    assert (found["i"], found["f"], found["s"]) == (3, 2.5, "text")
    found = ocp.load(tmp_path / "one", {**tree, "i": float, "f": float})
    assert type(found["i"]) is float and found["i"] == 3


def test_other_types_shapes_and_places(ocp, tmp_path, state):
    ocp.save(tmp_path / "one", state)
    one = jax.sharding.SingleDeviceSharding(jax.devices()[2])
    like = {
        **state,
        "params": {
            "w": jax.ShapeDtypeStruct((16,), jnp.bfloat16, sharding=one)
        },
    }
    found = ocp.load(tmp_path / "one", like)["params"]["w"]
    assert (found.dtype, found.sharding) == (jnp.bfloat16, one)
    loading = ocp.options.ArrayOptions.Loading(
        enable_padding_and_truncation=True
    )
    like["params"]["w"] = jax.ShapeDtypeStruct(
        (20,), jnp.float32, sharding=one
    )
    with ocp.Context(
        array_options=ocp.options.ArrayOptions(loading=loading)
    ):
        found = ocp.load(tmp_path / "one", like)["params"]["w"]
    assert found[14:].tolist() == [14, 15, 0, 0, 0, 0]


def test_arrays_of_which_nothing_is_known(ocp, tmp_path, state):
    """An empty array says that it is of NumPy."""
    ocp.save(tmp_path / "one", state)
    like = {
        "params": {"w": np.array([])},
        "numpy": ocp.PLACEHOLDER,
        "step": np.array([]),
    }
    found = ocp.load(tmp_path / "one", like)
    assert type(found["params"]["w"]) is np.ndarray
    assert found["params"]["w"].tolist() == list(range(16))
    assert found["numpy"] is ... and found["step"] == 7


def test_a_part_of_a_tree(ocp, tmp_path, state):
    ocp.save(tmp_path / "one", state)
    context = ocp.Context()
    context.pytree.loading.partial_load = True
    with context:
        found = ocp.load(tmp_path / "one", {"step": 0})
    assert found == {"step": 7}


# ---- "Checkpointables", "Customization" ----


def test_several_objects(ocp, tmp_path, state):
    ocp.save_checkpointables(
        tmp_path / "one", {"state": state, "other": {"a": 1}}
    )
    found = ocp.load_checkpointables(tmp_path / "one")
    assert_same(found["state"], state)
    assert found["other"] == {"a": 1}
    found = ocp.load_checkpointables(tmp_path / "one", {"other": None})
    assert found == {"other": {"a": 1}}
    assert_same(ocp.load(tmp_path / "one"), state)
    found = ocp.load(tmp_path / "one", checkpointable_name="other")
    assert found == {"a": 1}
    described = ocp.checkpointables_metadata(tmp_path / "one").metadata
    assert set(described) == {"state", "other"}


def test_json_by_a_registry(ocp, tmp_path, state):
    registry = ocp.handlers.local_registry()
    registry.add(ocp.handlers.JsonHandler, checkpointable_name="about")
    options = ocp.options.CheckpointablesOptions(registry=registry)
    with ocp.Context(checkpointables_options=options):
        ocp.save_checkpointables(
            tmp_path / "one", {"state": state, "about": {"lang": "en"}}
        )
        found = ocp.load_checkpointables(tmp_path / "one")
    assert found["about"] == {"lang": "en"}


class Stateful:
    """Saves and loads itself."""

    def __init__(self, x):
        self.x = x

    async def save(self, directory):
        return self._write(directory, self.x)

    async def load(self, directory):
        return self._read(directory)

    async def _write(self, directory, x):
        directory = await directory.await_creation()
        (directory / "x.txt").write_text(json.dumps(x))

    async def _read(self, directory):
        await asyncio.sleep(0)
        self.x = json.loads((directory / "x.txt").read_text())


def test_an_object_that_saves_itself(ocp, tmp_path, state):
    assert isinstance(Stateful(1), ocp.StatefulCheckpointable)
    ocp.save_checkpointables(
        tmp_path / "one", {"state": state, "point": Stateful(5)}
    )
    found = Stateful(0)
    ocp.load_checkpointables(tmp_path / "one", {"point": found})
    assert found.x == 5


@dataclasses.dataclass
class Point:
    x: float


@dataclasses.dataclass
class AbstractPoint:
    x: type


def test_a_handler_of_ones_own(ocp, tmp_path, state):
    class PointHandler(ocp.CheckpointableHandler):
        def is_handleable(self, checkpointable):
            return isinstance(checkpointable, Point)

        def is_abstract_handleable(self, abstract_checkpointable):
            return isinstance(abstract_checkpointable, AbstractPoint)

        async def save(self, directory, checkpointable):
            return self._write(directory, checkpointable.x)

        async def _write(self, directory, x):
            directory = await directory.await_creation()
            (directory / "point.txt").write_text(repr(x))

        async def load(self, directory, abstract_checkpointable=None):
            return self._read(directory, abstract_checkpointable)

        async def _read(self, directory, abstract):
            x = float((directory / "point.txt").read_text())
            return Point(x if abstract is None else abstract.x(x))

        async def metadata(self, directory):
            return AbstractPoint(float)

    registry = ocp.handlers.local_registry()
    registry.add(PointHandler)
    options = ocp.options.CheckpointablesOptions(registry=registry)
    with ocp.Context(checkpointables_options=options):
        ocp.save_checkpointables(
            tmp_path / "one", {"state": state, "point": Point(2.4)}
        )
        found = ocp.load_checkpointables(tmp_path / "one")
        assert found["point"] == Point(2.4)
        found = ocp.load_checkpointables(
            tmp_path / "one", {"point": AbstractPoint(int)}
        )
        assert found == {"point": Point(2)}
        described = ocp.checkpointables_metadata(tmp_path / "one").metadata
        assert described["point"] == AbstractPoint(float)


# ---- "Async", "Context", "Maximizing performance" ----


def test_in_the_background(ocp, tmp_path, state):
    response = ocp.save_async(tmp_path / "one", state)
    assert response.result() is None
    assert_same(ocp.load(tmp_path / "one"), state)


@pytest.mark.filterwarnings("ignore:.*does nothing")
def test_contexts(ocp, tmp_path, state):
    context = ocp.Context()
    context.array.saving.use_ocdbt = False
    context.array.saving.storage_options.dtype = np.float16
    context.file.path_permission_mode = 0o750
    with context:
        ocp.save(tmp_path / "half", state)
    assert ocp.load(tmp_path / "half")["params"]["w"].dtype == np.float16
    assert (tmp_path / "half").stat().st_mode & 0o777 == 0o750
    again = ocp.Context(context)
    assert again.array.saving.storage_options.dtype == np.float16
    saving = ocp.options.ArrayOptions.Saving(
        storage_options=ocp.options.ArrayOptions.Saving.StorageOptions(
            chunk_byte_size=1 << 10
        )
    )
    with ocp.Context(array_options=ocp.options.ArrayOptions(saving=saving)):
        ocp.save(tmp_path / "chunks", state)
    assert_same(ocp.load(tmp_path / "chunks"), state)
    found = ocp.metadata(tmp_path / "chunks").metadata["numpy"]
    assert hasattr(found, "storage_metadata")


# ---- "Training" ----


def test_a_training(ocp, tmp_path, state):
    with ocp.training.Checkpointer(
        tmp_path / "run",
        save_decision_policy=(
            ocp.training.save_decision_policies.FixedIntervalPolicy(2)
        ),
        preservation_policy=ocp.training.preservation_policies.LatestN(2),
        custom_metadata={"of": "run"},
    ) as run:
        for step in range(8):
            assert run.should_save(step) == (step % 2 == 0)
            run.save(step, state, metrics={"loss": 8 - step})
        assert [found.step for found in run.checkpoints] == [4, 6]
        assert run.latest.step == 6
        assert_same(run.load(), state)
        assert_same(run.load(4), state)
        assert_same(run.load(run.checkpoints[0], state), state)
        assert run.metadata(6).metrics == {"loss": 2}
        assert run.root_metadata().custom_metadata == {"of": "run"}
        response = run.save_async(8, state)
        assert response.result()
        assert run.save_checkpointables(
            10, {"state": state, "other": {"a": 1}}
        )
        assert run.load_checkpointables(10)["other"] == {"a": 1}
    # What is there can be read after that, too.
    assert_same(run.load(10), state)
    assert_same(ocp.load(tmp_path / "run" / "10"), state)


def test_a_training_that_goes_on(ocp, tmp_path, state):
    for first in (0, 3):
        with ocp.training.Checkpointer(tmp_path / "run") as run:
            assert (run.latest is None) == (first == 0)
            if run.latest is not None:
                assert run.latest.step == first - 1
                found = run.load(run.latest, state)
                assert_same(found, {**state, "step": first - 1})
            for step in range(first, first + 3):
                run.save(step, {**state, "step": step}, force=True)
    with ocp.training.Checkpointer(tmp_path / "run") as run:
        assert [found.step for found in run.checkpoints] == list(range(6))


# ---- "Migration", "Partial saving" ----


def test_what_the_first_interface_saved(ocp, tmp_path, state):
    v0 = importlib.import_module(
        ocp.__name__.removesuffix(".experimental.v1")
    )
    with v0.CheckpointManager(tmp_path / "run") as manager:
        manager.save(
            0,
            args=v0.args.Composite(
                state=v0.args.StandardSave(state),
                about=v0.args.JsonSave({"a": 1}),
            ),
        )
        manager.wait_until_finished()
    found = ocp.load_checkpointables(tmp_path / "run" / "0")
    assert_same(found["state"], state)
    assert found["about"] == {"a": 1}
    assert_same(ocp.load(tmp_path / "run" / "0"), state)


def test_trees_that_are_joined(ocp):
    assert ocp.tree.merge({"a": {"b": 1}}, {"a": {"c": 2}}) == {
        "a": {"b": 1, "c": 2}
    }


def test_parts_of_a_tree_are_not_saved_one_by_one(tmp_path):
    """Under Orbax they are; a store saves all, and writes what changed."""
    import ckptree.orbax.experimental.v1 as ours

    with pytest.raises(NotImplementedError, match="overwrite=True"):
        ours.partial.save(tmp_path / "one", {"a": 1})
