# SPDX-License-Identifier: Apache-2.0
"""The format guide and the video summary that ckptree started from, and what
Orbax's documentation does, re-typed: each under Orbax and under ckptree."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from orbax_both import assert_same


class Model(nnx.Module):
    def __init__(self, rngs):
        self.first = nnx.Linear(4, 8, rngs=rngs)
        self.second = nnx.Linear(8, 2, rngs=rngs)


def mesh(rows, columns):
    devices = np.array(jax.devices()[: rows * columns]).reshape(rows, columns)
    return Mesh(devices, ("x", "y"))


# ---- SE-12 to SE-14: the video ----


def test_items_of_a_model_and_its_optimizer(ocp, tmp_path):  # SE-12
    params = {"w": jnp.arange(6.0).reshape(2, 3), "b": jnp.ones(3)}
    optimizer = {"mu": jnp.zeros(3), "count": 7}
    manager = ocp.CheckpointManager(
        tmp_path / "run", options=ocp.CheckpointManagerOptions(max_to_keep=3)
    )
    for step in range(3):
        assert manager.save(
            step,
            args=ocp.args.Composite(
                params=ocp.args.StandardSave(params),
                optimizer=ocp.args.StandardSave(optimizer),
            ),
        )
    manager.wait_until_finished()
    manager.close()

    manager = ocp.CheckpointManager(tmp_path / "run")
    assert manager.latest_step() == 2
    assert list(manager.all_steps()) == [0, 1, 2]
    abstract = jax.tree.map(ocp.utils.to_shape_dtype_struct, params)
    restored = manager.restore(
        2,
        args=ocp.args.Composite(
            params=ocp.args.StandardRestore(abstract),
            optimizer=ocp.args.StandardRestore(optimizer),
        ),
    )
    assert_same(restored["params"], params)
    assert_same(restored.optimizer, optimizer)
    manager.close()


def test_a_module_from_its_abstract_state(ocp, tmp_path):  # SE-12
    model = Model(nnx.Rngs(0))
    _, state = nnx.split(model)
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(tmp_path / "state", state)
        checkpointer.wait_until_finished()
        abstract = nnx.eval_shape(lambda: Model(nnx.Rngs(0)))
        graph, abstract_state = nnx.split(abstract)
        restored = checkpointer.restore(tmp_path / "state", abstract_state)
    again = nnx.merge(graph, restored)
    assert np.array_equal(again.first.kernel[...], model.first.kernel[...])
    x = jnp.ones((3, 4))
    assert np.array_equal(
        again.second(again.first(x)), model.second(model.first(x))
    )


def test_a_template_places_arrays_on_another_mesh(ocp, tmp_path):  # SE-13
    tree = {
        "w": jax.device_put(
            jnp.arange(64.0).reshape(8, 8),
            NamedSharding(mesh(4, 2), PartitionSpec("x", "y")),
        )
    }
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(tmp_path / "state", tree)
        checkpointer.wait_until_finished()
        placed = NamedSharding(mesh(1, 8), PartitionSpec(None, "y"))
        abstract = {
            "w": jax.ShapeDtypeStruct((8, 8), jnp.float32, sharding=placed)
        }
        restored = checkpointer.restore(tmp_path / "state", abstract)
    assert_same(restored, tree)
    assert restored["w"].sharding == placed


def test_without_a_template_arrays_lie_where_they_lay(ocp, tmp_path):
    placed = NamedSharding(mesh(4, 2), PartitionSpec("x", None))
    tree = {"w": jax.device_put(jnp.arange(16.0).reshape(8, 2), placed), "n": 3}
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(tmp_path / "state", tree)
        checkpointer.wait_until_finished()
        restored = checkpointer.restore(tmp_path / "state")
    assert_same(restored, tree)
    assert restored["w"].sharding == placed


def test_json_beside_arrays(ocp, tmp_path):  # SE-14
    iterator = {"epoch": 3, "position": [1, 2], "name": "train"}
    with ocp.CheckpointManager(tmp_path / "run") as manager:
        manager.save(
            1,
            args=ocp.args.Composite(
                state=ocp.args.StandardSave({"w": jnp.ones(2)}),
                iterator=ocp.args.JsonSave(iterator),
            ),
        )
        manager.wait_until_finished()
        restored = manager.restore(
            1,
            args=ocp.args.Composite(
                state=ocp.args.StandardRestore(),
                iterator=ocp.args.JsonRestore(),
            ),
        )
    assert restored.iterator == iterator


# ---- SE-15 to SE-18: the format guide ----


@pytest.fixture
def guide(ocp, tmp_path):
    sharding = NamedSharding(
        Mesh(np.array(jax.devices()), "x"), PartitionSpec("x")
    )
    tree = {
        "a": jax.device_put(jnp.arange(16), sharding),
        "b": jax.device_put(jnp.ones(16), sharding),
        "c": np.arange(4),
        "d": 5,
        "e": "foo",
    }
    with ocp.CheckpointManager(
        tmp_path / "run",
        item_names=("state", "custom_data"),
        metadata={"global_property": "foo"},
    ) as manager:
        manager.save(
            0,
            args=ocp.args.Composite(
                state=ocp.args.PyTreeSave(tree),
                custom_data=ocp.args.JsonSave({"lang": "en", "version": 1.2}),
            ),
        )
        manager.wait_until_finished()
    return tmp_path / "run", tree


def test_two_items_and_metadata_of_the_run(ocp, guide):  # SE-15
    path, tree = guide
    with ocp.CheckpointManager(
        path, item_names=("state", "custom_data")
    ) as manager:
        assert manager.metadata().custom_metadata == {"global_property": "foo"}
        restored = manager.restore(
            0,
            args=ocp.args.Composite(
                state=ocp.args.PyTreeRestore(),
                custom_data=ocp.args.JsonRestore(),
            ),
        )
        assert_same(
            {k: v for k, v in restored.state.items() if k != "e"},
            {k: v for k, v in tree.items() if k != "e"},
        )
        assert restored.state["e"] == "foo"
        assert type(restored.state["d"]) is int
        assert restored.custom_data == {"lang": "en", "version": 1.2}
        assert set(manager.item_metadata(0).keys()) == {"state", "custom_data"}


def test_metadata_of_a_tree(ocp, tmp_path):  # SE-16
    checkpointer = ocp.PyTreeCheckpointer()
    checkpointer.save(
        tmp_path / "tree", {"a": {"b": [1, 2]}, "w": np.zeros((2, 3))}
    )
    found = checkpointer.metadata(tmp_path / "tree").item_metadata.tree
    assert isinstance(found["a"]["b"], list) and len(found["a"]["b"]) == 2
    assert found["w"].shape == (2, 3)
    assert found["w"].dtype == np.float64
    flat = ocp.tree.to_flat_dict(found, is_leaf=lambda x: hasattr(x, "shape"))
    assert set(flat) == {("a", "b", "0"), ("a", "b", "1"), ("w",)}


def test_one_leaf_without_the_others(ocp, guide):  # SE-17
    path, tree = guide
    with ocp.CheckpointManager(
        path, item_names=("state", "custom_data")
    ) as manager:
        restored = manager.restore(
            0,
            args=ocp.args.Composite(
                state=ocp.args.PyTreeRestore(
                    item={"a": tree["a"]},
                    restore_args=ocp.checkpoint_utils.construct_restore_args(
                        {"a": tree["a"]}
                    ),
                    partial_restore=True,
                )
            ),
        )
    assert list(restored.state) == ["a"]
    assert_same(restored.state["a"], tree["a"])


def test_a_placeholder_is_not_read(ocp, guide):
    path, tree = guide
    template = dict.fromkeys(tree, ocp.PLACEHOLDER) | {"c": np.zeros(4, int)}
    with ocp.CheckpointManager(
        path, item_names=("state", "custom_data")
    ) as manager:
        restored = manager.restore(
            0,
            args=ocp.args.Composite(
                state=ocp.args.PyTreeRestore(item=template)
            ),
        )
    assert restored.state["a"] is ...
    assert np.array_equal(restored.state["c"], tree["c"])
