# SPDX-License-Identifier: Apache-2.0
"""What RestoreArgs ask of a leaf that was saved as another kind, and meshes
with axes of their own kind: under Orbax and under ckptree."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding, PartitionSpec

TREE = {
    "step": 3,
    "large": 2**40,
    "huge": 1e300,
    "w": np.ones(2, "f4"),
    "text": "lm",
}


@pytest.fixture
def restored(ocp, tmp_path):
    """Of one leaf of TREE, by its name."""
    checkpointer = ocp.PyTreeCheckpointer()
    checkpointer.save(tmp_path / "x", TREE)

    def restore(name, args):
        wanted = ocp.args.PyTreeRestore(
            item={name: 0}, restore_args={name: args}, partial_restore=True
        )
        return checkpointer.restore(tmp_path / "x", args=wanted)[name]

    return restore


def whole():
    """All of an array on each of two devices."""
    mesh = jax.make_mesh((2,), ("x",), devices=jax.devices()[:2])
    return NamedSharding(mesh, PartitionSpec())


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize("dtype", [None, np.float32])
def test_a_number_has_no_axis_to_fill(ocp, restored, strict, dtype):
    args = ocp.ArrayRestoreArgs(
        sharding=whole(), global_shape=(6,), strict=strict, dtype=dtype
    )
    with pytest.raises(ValueError):
        restored("step", args)


def test_arrays_of_the_type_that_is_asked_for(ocp, restored):
    found = restored("w", ocp.ArrayRestoreArgs(restore_type=np.ndarray))
    assert type(found) is np.ndarray and found.tolist() == [1, 1]
    found = restored(
        "step", ocp.ArrayRestoreArgs(restore_type=np.ndarray, dtype=np.int8)
    )
    assert type(found) is np.ndarray and found.dtype == np.int8 and found == 3
    found = restored("step", ocp.ArrayRestoreArgs(restore_type=float))
    assert type(found) is float and found == 3
    with pytest.raises(ValueError):
        restored("w", ocp.ArrayRestoreArgs(restore_type=int))


@pytest.mark.parametrize("name", ["large", "huge"])
def test_a_number_that_jax_does_not_hold(ocp, restored, name):
    with pytest.raises(ValueError):
        restored(name, ocp.ArrayRestoreArgs())
    assert restored(name, ocp.RestoreArgs()) == TREE[name]


def test_a_number_that_jax_does_not_hold_is_named(ours, ocp, restored):
    if not ours:
        pytest.skip("Orbax makes another number of it")
    with pytest.raises(ValueError, match="1099511627776 would be .* as int32"):
        restored("large", ocp.ArrayRestoreArgs(sharding=whole()))
    found = restored("step", ocp.ArrayRestoreArgs(sharding=whole()))
    assert found.sharding == whole() and found == 3
    with pytest.raises(ValueError, match="1e.300 would be inf as float32"):
        restored("huge", ocp.RestoreArgs(restore_type=jax.Array))


def test_a_type_for_a_whole_tree_leaves_texts(ocp, tmp_path):
    checkpointer = ocp.PyTreeCheckpointer()
    checkpointer.save(tmp_path / "x", {"w": TREE["w"], "text": "lm"})
    args = {
        name: ocp.RestoreArgs(dtype=jnp.bfloat16) for name in ("w", "text")
    }
    found = checkpointer.restore(tmp_path / "x", restore_args=args)
    assert found["text"] == "lm"
    assert found["w"].dtype == jnp.bfloat16 and found["w"].tolist() == [1, 1]


@pytest.mark.parametrize("kind", ["Auto", "Explicit"])
def test_the_kind_of_the_axes_of_a_mesh_comes_back(ocp, tmp_path, kind):
    mesh = jax.make_mesh(
        (2,),
        ("x",),
        devices=jax.devices()[:2],
        axis_types=(getattr(jax.sharding.AxisType, kind),),
    )
    placed = NamedSharding(mesh, PartitionSpec("x"))
    saved = jax.device_put(jnp.arange(4.0), placed)
    checkpointer = ocp.Checkpointer(ocp.StandardCheckpointHandler())
    checkpointer.save(tmp_path / "x", args=ocp.args.StandardSave({"x": saved}))
    abstract = {"x": jax.ShapeDtypeStruct((4,), jnp.float32)}
    for args in (
        ocp.args.StandardRestore(),
        ocp.args.StandardRestore(abstract),
    ):
        found = checkpointer.restore(tmp_path / "x", args=args)["x"]
        assert found.sharding == placed
        assert jax.typeof(found) == jax.typeof(saved)
        with jax.set_mesh(mesh):
            assert (saved + found).tolist() == [0, 2, 4, 6]
    about = ocp.PyTreeCheckpointer().metadata(tmp_path / "x")
    tree = getattr(about, "item_metadata", about)
    assert tree["x"].sharding.to_jax_sharding() == placed
