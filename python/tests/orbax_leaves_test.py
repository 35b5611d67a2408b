# SPDX-License-Identifier: Apache-2.0
"""Leaves under Orbax and under ckptree: kinds, places, conversions."""


import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from orbax_both import assert_same


def test_kinds_of_leaves(ocp, tmp_path):  # PT-03, TH-01 to TH-04
    tree = {
        "int": -3,
        "float": 0.25,
        "bool": True,
        "np": np.float32(2.5),
        "text": "text",
        "key": jax.random.key(1),
        "none": None,
        "empty": {"a": {}},
    }
    checkpointer = ocp.PyTreeCheckpointer()
    checkpointer.save(tmp_path / "x", tree)
    restored = checkpointer.restore(tmp_path / "x")
    for name in ("int", "float", "text", "none", "empty"):
        assert restored[name] == tree[name], name
    assert restored["np"] == 2.5
    assert jax.random.bits(restored["key"]) == jax.random.bits(tree["key"])


@pytest.mark.parametrize("beside", [np.ones(2), jnp.ones(2)])
def test_a_number_that_is_none_comes_back(ocp, tmp_path, beside):
    state = {"best": float("nan"), "at": np.array(np.nan), "w": beside}
    checkpointer = ocp.StandardCheckpointer()
    checkpointer.save(tmp_path / "x", state)
    checkpointer.wait_until_finished()
    for template in (state, {"best": 0.0, "at": 0.0, "w": beside * 0}):
        found = checkpointer.restore(tmp_path / "x", template)
        assert np.isnan(found["best"]) and type(found["best"]) is float
        assert np.isnan(found["at"])
        assert (np.asarray(found["w"]) == 1).all()


@pytest.mark.parametrize("placeholder", [0, 0.0, True, ""])
def test_a_template_of_placeholders(ocp, tmp_path, placeholder):  # RS-07
    tree = {
        "np": np.arange(3.0), "jax": jnp.ones(2), "int": 3, "float": 2.5,
        "zero": np.array(1.5), "text": "text", "bool": True,
    }
    checkpointer = ocp.PyTreeCheckpointer()
    checkpointer.save(tmp_path / "x", tree)
    template = {name: placeholder for name in tree}
    assert_same(checkpointer.restore(tmp_path / "x", item=template), tree)


def test_arrays_without_elements(ocp, ours, tmp_path):  # PT-04
    tree = {"w": np.zeros((0, 3))}
    if ours:
        ocp.PyTreeCheckpointer().save(tmp_path / "x", tree)
        assert_same(ocp.PyTreeCheckpointer().restore(tmp_path / "x"), tree)
    else:
        with pytest.raises(ValueError, match="zero size"):
            ocp.PyTreeCheckpointer().save(tmp_path / "x", tree)


def test_ints_as_keys(ocp, ours, tmp_path):  # RS-03
    ocp.PyTreeCheckpointer().save(tmp_path / "x", {1: 2, 3: 4})
    restored = ocp.PyTreeCheckpointer().restore(tmp_path / "x")
    assert restored == ({1: 2, 3: 4} if ours else {"1": 2, "3": 4})


def test_an_empty_container_inside(ocp, tmp_path):  # PT-02
    for i, tree in enumerate([{"a": {}}, {"a": []}, 0]):
        ocp.PyTreeCheckpointer().save(tmp_path / str(i), tree)
        assert ocp.PyTreeCheckpointer().restore(tmp_path / str(i)) == tree


def test_a_template_of_another_type(ocp, ours, tmp_path):  # RS-07, TH-03
    checkpointer = ocp.PyTreeCheckpointer()
    checkpointer.save(
        tmp_path / "x", {"w": np.array([16777217], "i4"), "f": 2.5}
    )
    template = {"w": np.zeros(1, "f4"), "f": 0}
    if ours:
        with pytest.raises(ValueError, match="dtype"):
            checkpointer.restore(tmp_path / "x", item=template)
        template["w"] = np.zeros(1, "i4")
        assert checkpointer.restore(tmp_path / "x", item=template)["f"] == 2.5
        of_standard = ocp.StandardCheckpointer()
        of_standard.save(tmp_path / "y", {"f": 2.5})
        of_standard.wait_until_finished()
        with pytest.raises(ValueError, match="without loss"):
            of_standard.restore(tmp_path / "y", {"f": 0})
    # Where it is asked for both convert.
    restored = checkpointer.restore(
        tmp_path / "x",
        item=template,
        restore_args={
            "w": ocp.RestoreArgs(restore_type=np.ndarray, dtype=np.dtype("f4")),
            "f": ocp.RestoreArgs(restore_type=int),
        },
    )
    assert restored["w"].tolist() == [16777216.0] and restored["f"] == 2


def test_construct_restore_args(ocp):  # RS-12
    sharding = jax.sharding.SingleDeviceSharding(jax.devices()[2])
    abstract = jax.ShapeDtypeStruct((2, 3), jnp.float32, sharding=sharding)
    made = ocp.checkpoint_utils.construct_restore_args(
        {
            "on": abstract,
            "off": jax.ShapeDtypeStruct((2,), jnp.float32),
            "np": np.zeros(2, "i2"),
            "int": 3,
            "text": "x",
        }
    )
    assert isinstance(made["on"], ocp.ArrayRestoreArgs)
    assert made["on"].sharding == sharding and made["on"].global_shape == (2, 3)
    assert made["on"].dtype == np.float32
    assert made["off"].restore_type is np.ndarray
    assert made["off"].dtype == np.float32
    assert (
        made["np"].restore_type is np.ndarray and made["np"].dtype == np.int16
    )
    assert made["int"].restore_type is int and made["text"].restore_type is str
    with pytest.raises(ValueError, match="Unsupported type"):
        ocp.checkpoint_utils.construct_restore_args({"a": object()})


def test_shapes_that_contradict(ocp):  # RS-08
    with pytest.raises(ValueError):
        ocp.ArrayRestoreArgs(shape=(2,), global_shape=(3,))


def test_a_template_without_shardings(ocp, tmp_path):  # RS-01
    placed = jax.sharding.SingleDeviceSharding(jax.devices()[3])
    tree = {"w": jax.device_put(jnp.ones(2), placed), "n": np.ones(2, "f4")}
    template = jax.tree.map(
        lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), tree
    )
    for handler, save, restore in (
        (
            ocp.StandardCheckpointHandler,
            ocp.args.StandardSave,
            ocp.args.StandardRestore,
        ),
        (
            ocp.PyTreeCheckpointHandler,
            ocp.args.PyTreeSave,
            ocp.args.PyTreeRestore,
        ),
    ):
        checkpointer = ocp.Checkpointer(handler())
        path = tmp_path / handler.__name__
        checkpointer.save(path, args=save(tree))
        restored = checkpointer.restore(path, args=restore(template))
        assert_same(restored, tree)
        assert restored["w"].sharding == placed


FEWER_DEVICES = """
import importlib, sys
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
ocp = importlib.import_module(sys.argv[1])
assert len(jax.devices()) == 2
mesh = Mesh(np.array(jax.devices()), "x")
placed = NamedSharding(mesh, PartitionSpec("x"))
abstract = {"w": jax.ShapeDtypeStruct((8,), jnp.float32, sharding=placed)}
checkpointer = ocp.Checkpointer(ocp.StandardCheckpointHandler())
def restore(*args, **options):
    wanted = ocp.args.StandardRestore(*args, **options)
    return checkpointer.restore(sys.argv[2], args=wanted)["w"]
assert restore(abstract).sharding == placed
assert type(restore({"w": np.zeros(8, "f4")})) is np.ndarray
assert restore(fallback_sharding=placed).sharding == placed
try:
    restore()
except ValueError:
    print("restored", restore(abstract).sum())
"""


def test_on_fewer_devices(ocp, tmp_path):  # RS-01, RS-08, RS-10
    mesh = jax.sharding.Mesh(np.array(jax.devices()), "x")
    placed = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("x"))
    tree = {"w": jax.device_put(jnp.arange(8.0), placed)}
    checkpointer = ocp.Checkpointer(ocp.StandardCheckpointHandler())
    checkpointer.save(tmp_path / "x", args=ocp.args.StandardSave(tree))
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            FEWER_DEVICES,
            ocp.__name__,
            str(tmp_path / "x"),
        ],
        env=os.environ
        | {"XLA_FLAGS": "--xla_force_host_platform_device_count=2"},
        capture_output=True,
        text=True,
    )
    assert done.stdout == "restored 28.0\n", done.stderr


def test_what_a_template_adds_is_kept(ocp, tmp_path):  # RS-05
    checkpointer = ocp.PyTreeCheckpointer()
    checkpointer.save(tmp_path / "x", {"a": 1, "b": 2})
    restored = checkpointer.restore(
        tmp_path / "x",
        args=ocp.args.PyTreeRestore({"a": 0, "c": 7}, partial_restore=True),
    )
    assert restored == {"a": 1, "c": 7}


def test_transforms_that_contradict(ocp):  # RS-13
    with pytest.raises((ValueError, AssertionError)):
        ocp.apply_transformations(
            {"a": 1},
            {"a": ocp.Transform(value_fn=abs, multi_value_fn=lambda tree: 1)},
            {"a": 0},
        )
