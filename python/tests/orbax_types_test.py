# SPDX-License-Identifier: Apache-2.0
"""Element types that a template or an option asks for: under Orbax and under
ckptree."""

import importlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from orbax_both import assert_same


@pytest.fixture
def v1(ocp):
    return importlib.import_module(f"{ocp.__name__}.experimental.v1")


@pytest.fixture
def saved(ocp, tmp_path):
    tree = {
        "jax": jnp.arange(4, dtype=jnp.float32) / 3,
        "numpy": np.arange(4) / 3,
        "whole": np.arange(4),
    }
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(tmp_path / "tree", tree)
        checkpointer.wait_until_finished()
        yield checkpointer, tmp_path / "tree", tree


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16, jnp.float32])
@pytest.mark.parametrize("described", [True, False])
def test_a_template_says_the_type(saved, dtype, described):
    checkpointer, path, tree = saved
    like = {
        key: jax.ShapeDtypeStruct((4,), dtype)
        if described
        else jnp.zeros(4, dtype)
        if key == "jax"
        else np.zeros(4, dtype)
        for key in tree
    }
    found = checkpointer.restore(path, like)
    assert_same(found, {key: leaf.astype(dtype) for key, leaf in tree.items()})


def test_whole_numbers(saved):
    checkpointer, path, tree = saved
    like = {**tree, "whole": np.zeros(4, np.int8)}
    found = checkpointer.restore(path, like)
    assert_same(found["whole"], np.arange(4, dtype=np.int8))
    like = {**tree, "whole": np.zeros(4, np.float32)}
    assert_same(
        checkpointer.restore(path, like)["whole"],
        np.arange(4, dtype=np.float32),
    )


def test_numbers_that_would_change(ocp, ours, tmp_path):
    tree = {"w": jnp.array([1.5, 2.0]), "large": np.array([1e30, 300])}
    asked = (
        {"w": jnp.zeros(2, jnp.int32), "large": tree["large"]},
        {"w": tree["w"], "large": np.zeros(2, np.float16)},
        {"w": tree["w"], "large": np.zeros(2, np.int8)},
    )
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(tmp_path / "tree", tree)
        checkpointer.wait_until_finished()
        for like in asked:
            if not ours:  # Without a word.
                checkpointer.restore(tmp_path / "tree", like)
                continue
            with pytest.raises(ValueError, match="would change"):
                checkpointer.restore(tmp_path / "tree", like)
            checkpointer.restore(tmp_path / "tree", like, strict=False)


def test_shapes_are_never_cut_by_that(ocp, saved):
    checkpointer, path, tree = saved
    like = {**tree, "jax": jax.ShapeDtypeStruct((2,), jnp.bfloat16)}
    with pytest.raises(ValueError):
        checkpointer.restore(path, like)


def test_on_many_devices(ocp, tmp_path):
    mesh = jax.sharding.Mesh(np.array(jax.devices()), "x")
    placed = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("x"))
    array = jax.device_put(jnp.arange(16.0) / 3, placed)
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(tmp_path / "tree", {"w": array})
        checkpointer.wait_until_finished()
        for dtype in (jnp.bfloat16, jnp.float16):
            like = {"w": jax.ShapeDtypeStruct((16,), dtype, sharding=placed)}
            found = checkpointer.restore(tmp_path / "tree", like)["w"]
            assert found.sharding == placed
            assert_same(found, array.astype(dtype))


def test_types_of_single_arrays(v1, tmp_path):
    options = v1.options.ArrayOptions.Saving
    asked = []

    def of(path, leaf):
        asked.append(jax.tree_util.keystr(path))
        if "small" in asked[-1]:
            return options.StorageOptions(dtype=np.float16)
        if "as it is" in asked[-1]:
            return options.StorageOptions()
        return None

    tree = {"small": np.ones(2), "as it is": np.ones(2), "other": jnp.ones(2)}
    saving = options(scoped_storage_options_creator=of)
    with v1.Context(array_options=v1.options.ArrayOptions(saving=saving)):
        v1.save(tmp_path / "one", tree)
    found = v1.load(tmp_path / "one")
    assert {key: leaf.dtype.name for key, leaf in found.items()} == {
        "small": "float16",
        "as it is": "float64",
        "other": "float32",
    }
    assert {"['small']", "['as it is']", "['other']"} <= set(asked)
    saving = options(
        scoped_storage_options_creator=of,
        storage_options=options.StorageOptions(dtype=np.float32),
    )
    with v1.Context(array_options=v1.options.ArrayOptions(saving=saving)):
        v1.save(tmp_path / "two", tree)
    found = v1.load(tmp_path / "two")
    assert {key: leaf.dtype.name for key, leaf in found.items()} == {
        "small": "float16",
        "as it is": "float32",
        "other": "float32",
    }


def test_delete(v1, tmp_path):
    v1.save(tmp_path / "one", {"w": np.ones(2)})
    assert v1.delete(tmp_path / "one")
    assert not (tmp_path / "one").exists()
    with pytest.raises(FileNotFoundError):
        v1.delete(tmp_path / "one")
    assert not v1.delete(tmp_path / "one", missing_ok=True)
    v1.save(tmp_path / "one", {"w": np.zeros(2)})
    assert v1.delete_async(tmp_path / "one").result()
    assert not (tmp_path / "one").exists()


def test_delete_of_a_step(v1, ours, tmp_path):
    with v1.training.Checkpointer(tmp_path / "run") as run:
        for step in (0, 1):
            run.save(step, {"w": np.ones(2)}, force=True)
    assert v1.delete(tmp_path / "run" / "0")
    with v1.training.Checkpointer(tmp_path / "run") as run:
        assert [found.step for found in run.checkpoints] == [1]
        run.save(2, {"w": np.ones(2)}, force=True)
    if ours:  # Orbax removes all of it.
        with pytest.raises(ValueError, match="2 steps"):
            v1.delete(tmp_path / "run")
        with pytest.raises(NotImplementedError, match="state"):
            v1.delete(tmp_path / "run" / "1", checkpointable_name="state")


@pytest.mark.parametrize(
    "make",
    [
        lambda: np.arange(3),
        lambda: jnp.arange(3),
        lambda: 3,
        lambda: np.float32(2),
        lambda: jax.random.key(0),
    ],
)
def test_what_is_no_tree(ocp, ours, tmp_path, make):
    with ocp.StandardCheckpointer() as checkpointer:
        value = make()
        if not ours and not isinstance(value, np.ndarray):
            with pytest.raises(ValueError, match="single arrays"):
                checkpointer.save(tmp_path / "one", value)
            return
        checkpointer.save(tmp_path / "one", value)
        checkpointer.wait_until_finished()
        found = checkpointer.restore(tmp_path / "one")
        assert type(found) is type(value)
        assert jnp.array_equal(found, value)


NUMBERS = {"int": 301, "float": 2.7, "bool": True, "array": np.array(4.5)}


def typed(tree):
    return {
        key: (type(leaf), getattr(leaf, "dtype", None), repr(leaf))
        for key, leaf in tree.items()
    }


@pytest.mark.parametrize("dtype", ["bfloat16", "float32", "int32", "int8"])
@pytest.mark.parametrize("when", ["save", "restore", "int", "float32"])
def test_numbers_of_python_stay_such(ocp, tmp_path, when, dtype):
    dtype = np.dtype(getattr(jnp, dtype))
    saves, restores = None, None
    more = {
        "restore": {},
        "int": {"restore_type": int},
        "float32": {"restore_type": np.float32},
    }
    if when == "save":
        saves = {key: ocp.SaveArgs(dtype=dtype) for key in NUMBERS}
    else:
        args = ocp.RestoreArgs(dtype=dtype, **more[when])
        restores = dict.fromkeys(NUMBERS, args)
    with ocp.PyTreeCheckpointer() as checkpointer:
        checkpointer.save(tmp_path / "a", NUMBERS, save_args=saves)
        found = checkpointer.restore(tmp_path / "a", restore_args=restores)
    expected = {}
    for key, value in NUMBERS.items():
        cast = np.asarray(value).astype(dtype)
        expected[key] = cast if key == "array" else cast.item()
        if "restore_type" in more.get(when, {}):
            expected[key] = more[when]["restore_type"](cast.item())
    assert typed(found) == typed(expected)


def test_scalars_of_numpy_stay_such(tmp_path):
    import ckptree.orbax as ocp

    scalars = {"a": np.float32(2.5), "b": np.bool_(True), "c": np.int8(3)}
    like = {"a": np.float32(0), "b": np.bool_(False), "c": np.int8(0)}
    half = dict.fromkeys(scalars, ocp.RestoreArgs(dtype=np.dtype("float16")))
    truth = dict.fromkeys(scalars, ocp.RestoreArgs(restore_type=np.bool_))
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(tmp_path / "a", scalars)
        checkpointer.wait_until_finished()
        found = checkpointer.restore(tmp_path / "a", like)
        assert typed(found) == typed(scalars)
    with ocp.PyTreeCheckpointer() as checkpointer:
        found = checkpointer.restore(tmp_path / "a", restore_args=half)
        assert typed(found) == typed(
            {key: np.float16(value) for key, value in scalars.items()}
        )
        found = checkpointer.restore(tmp_path / "a", restore_args=truth)
        assert typed(found) == typed(dict.fromkeys(scalars, np.bool_(True)))
