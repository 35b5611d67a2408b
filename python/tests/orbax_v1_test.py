# SPDX-License-Identifier: Apache-2.0
"""Orbax's second interface: the same calls under Orbax and under ckptree."""

import importlib
import subprocess
import sys
import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from orbax_both import assert_same


@pytest.fixture
def ocp(ocp):
    """The second interface of each."""
    return ocp.v1


def tree():
    return {
        "w": jnp.arange(6, dtype="float32").reshape(2, 3),
        "n": 3,
        "f": 2.5,
        "s": "text",
        "none": None,
    }


def abstract():
    return {
        "w": jax.ShapeDtypeStruct((2, 3), jnp.float32),
        "n": int,
        "f": float,
        "s": str,
        "none": None,
    }


def partial_context(ocp):
    context = ocp.Context()
    context.pytree.loading.partial_load = True
    return context


def fitting_context(ocp):
    context = ocp.Context()
    context.array.loading.enable_padding_and_truncation = True
    return context


# ---- Names ----

NAMES = {
    "": "CheckpointMetadata Context load load_checkpointables metadata "
    "PLACEHOLDER PyTreeMetadata save save_async save_checkpointables",
    "errors": "InvalidLayoutError",
    "handlers": "JsonHandler local_registry register_handler",
    "multihost": "is_pathways_backend is_primary_host",
    "options": "ArrayOptions AtomicityMode AtomicityOptions CheckpointLayout "
    "FileOptions",
    "path": "Path PathAwaitingCreation PathLike",
    "tree": "JsonType Leaf PyTree",
}


@pytest.mark.parametrize("module", NAMES)
def test_every_name_is_there(ocp, module):
    place = importlib.import_module(
        ocp.__name__ + ("." + module if module else "")
    )
    assert [n for n in NAMES[module].split() if not hasattr(place, n)] == []


def test_numpy_shape_dtype_describes_an_array_of_numpy(tmp_path):
    import ckptree.orbax.experimental.v1 as ocp

    ocp.save(tmp_path / "a", {"w": np.ones((2, 3))})
    expected = {"w": ocp.arrays.NumpyShapeDtype((2, 3), np.float64)}
    assert_same(ocp.load(tmp_path / "a", expected), {"w": np.ones((2, 3))})
    with pytest.raises(ValueError, match="w: shape"):
        ocp.load(tmp_path / "a", {"w": ocp.arrays.NumpyShapeDtype((3,), "f8")})


@pytest.mark.parametrize("package", ["orbax.checkpoint", "ckptree.orbax"])
def test_v1_is_an_attribute_of_the_package(package):
    place = importlib.import_module(package)
    assert place.v1 is importlib.import_module(f"{package}.experimental.v1")


# ---- V1-01: functions ----


def test_save_and_load(ocp, tmp_path):
    ocp.save(tmp_path / "a", tree())
    assert_same(ocp.load(tmp_path / "a"), tree())
    ocp.save_checkpointables(
        tmp_path / "b", {"state": tree(), "config": {"lr": 0.1}}
    )
    both = ocp.load_checkpointables(tmp_path / "b")
    assert set(both) == {"state", "config"}
    assert_same(both["state"], tree())
    assert both["config"] == {"lr": 0.1}
    assert ocp.load_checkpointables(tmp_path / "b", {"config": None}) == {
        "config": {"lr": 0.1}
    }
    assert ocp.load(tmp_path / "b", checkpointable_name="config") == {"lr": 0.1}
    ocp.save_checkpointables_async(tmp_path / "c", {"state": tree()}).result()
    assert_same(ocp.load(tmp_path / "c"), tree())


@pytest.mark.filterwarnings("ignore:Sharding info")
def test_earlier_names_warn(ocp, tmp_path):
    with pytest.warns(DeprecationWarning, match="Use `save` instead"):
        ocp.save_pytree(tmp_path / "a", tree())
    with pytest.warns(DeprecationWarning, match="Use `load` instead"):
        assert_same(ocp.load_pytree(tmp_path / "a"), tree())
    with pytest.warns(DeprecationWarning):
        ocp.save_pytree_async(tmp_path / "b", tree()).result()
    with pytest.warns(DeprecationWarning):
        assert ocp.pytree_metadata(tmp_path / "b").metadata["n"] == 0


def test_is_orbax_checkpoint(ocp, tmp_path):
    ocp.save(tmp_path / "a", tree())
    assert ocp.is_orbax_checkpoint(tmp_path / "a")
    assert not ocp.is_orbax_checkpoint(tmp_path / "a" / "state")
    assert not ocp.is_orbax_checkpoint(tmp_path)
    assert not ocp.is_orbax_checkpoint(tmp_path / "none")


def test_metadata_says_what_there_is(ocp, tmp_path):
    ocp.save(tmp_path / "a", tree(), custom_metadata={"by": "me"})
    found = ocp.metadata(tmp_path / "a")
    assert isinstance(found, ocp.CheckpointMetadata)
    assert found.custom_metadata == {"by": "me"}
    assert found.init_timestamp <= found.commit_timestamp
    assert found.metadata["w"].shape == (2, 3)
    assert found.metadata["w"].dtype == np.float32
    assert {k: found.metadata[k] for k in "nfs"} == {
        "n": 0,
        "f": 0.0,
        "s": "string",
    }
    assert_same(ocp.load(tmp_path / "a", found), tree())
    assert_same(ocp.load(tmp_path / "a", found.metadata), tree())
    every = ocp.checkpointables_metadata(tmp_path / "a")
    assert set(every.metadata) == {"state"}
    assert_same(
        ocp.load_checkpointables(tmp_path / "a", every)["state"], tree()
    )


def test_loading_in_the_background_is_refused(ocp, tmp_path):
    ocp.save(tmp_path / "a", tree())
    with pytest.raises(NotImplementedError):
        ocp.load_async(tmp_path / "a").result()
    with pytest.raises(NotImplementedError):
        ocp.load_checkpointables_async(tmp_path / "a").result()


# ---- V1-02: saving ----


def test_what_is_there_is_replaced_only_when_asked(ocp, tmp_path):
    ocp.save(tmp_path / "a", {"a": 1})
    for again in (ocp.save, ocp.save_async):
        with pytest.raises(ValueError, match="already exists"):
            again(tmp_path / "a", {"a": 2})
    assert ocp.load(tmp_path / "a") == {"a": 1}
    ocp.save(tmp_path / "a", {"b": [2]}, overwrite=True)
    assert ocp.load(tmp_path / "a") == {"b": [2]}
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="already exists"):
        ocp.save(tmp_path / "empty", {"a": 1})


def test_a_failed_overwrite_keeps_what_was_there(ocp, ours, tmp_path):
    ocp.save(tmp_path / "a", {"a": 1})
    with pytest.raises(ValueError):
        ocp.save(tmp_path / "a", {"a": np.array(["x"])}, overwrite=True)
    if ours:
        assert ocp.load(tmp_path / "a") == {"a": 1}


@pytest.mark.parametrize(
    "bad", [object(), {"a": object()}, {"a": {1, 2}}, {}, None]
)
def test_what_is_no_tree_is_refused(ocp, tmp_path, bad):
    with pytest.raises(ValueError):
        ocp.save(tmp_path / "a", bad)
    assert not ocp.is_orbax_checkpoint(tmp_path / "a")


def test_the_message_names_the_leaf(tmp_path):
    import ckptree.orbax.experimental.v1 as ocp

    with pytest.raises(
        ValueError, match=r"for saving: a/b: .*object is no leaf"
    ):
        ocp.save(tmp_path / "a", {"a": {"b": object()}})


@pytest.mark.parametrize("name", ["metrics", "AUTO"])
def test_reserved_names_are_refused(ocp, tmp_path, name):
    with pytest.raises(ValueError, match="reserved"):
        ocp.save(tmp_path / "a", {"a": 1}, checkpointable_name=name)
    with pytest.raises(ValueError, match="reserved"):
        ocp.save_checkpointables(tmp_path / "a", {name: {"a": 1}})


def test_names_and_objects_that_cannot_be(ocp, tmp_path):
    with pytest.raises(ValueError):
        ocp.save_checkpointables(tmp_path / "a", {})
    with pytest.raises(ValueError):
        ocp.save_checkpointables(tmp_path / "a", {"": {"a": 1}})
    with pytest.raises(ValueError):
        ocp.save_checkpointables(tmp_path / "a", {"a": None})
    with pytest.raises(KeyError, match="a"):
        ocp.save_checkpointables(tmp_path / "a", {"a": object()})


def test_the_tree_is_called_state(ocp, tmp_path):
    ocp.save(tmp_path / "a", {"a": 1})
    assert ocp.load_checkpointables(tmp_path / "a") == {"state": {"a": 1}}
    ocp.save(tmp_path / "b", {"a": 1}, checkpointable_name="model")
    assert ocp.load_checkpointables(tmp_path / "b") == {"model": {"a": 1}}
    assert ocp.load(tmp_path / "b") == {"a": 1}


# ---- V1-03: loading ----


def test_an_abstract_state_says_how_to_load(ocp, tmp_path):
    ocp.save(tmp_path / "a", tree())
    assert_same(ocp.load(tmp_path / "a", abstract()), tree())
    assert_same(ocp.load(tmp_path / "a", tree()), tree())
    as_numpy = {**abstract(), "w": np.zeros((2, 3), np.float32)}
    assert isinstance(ocp.load(tmp_path / "a", as_numpy)["w"], np.ndarray)
    left_out = ocp.load(tmp_path / "a", {**abstract(), "w": ocp.PLACEHOLDER})
    assert left_out["w"] is ... and left_out["n"] == 3


def test_an_abstract_state_places_arrays(ocp, tmp_path):
    ocp.save(tmp_path / "a", tree())
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:2]), ("x",))
    placed = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("x"))
    wanted = jax.ShapeDtypeStruct((2, 3), jnp.float32, sharding=placed)
    loaded = ocp.load(tmp_path / "a", {**abstract(), "w": wanted})
    assert loaded["w"].sharding == placed
    assert_same(loaded, tree())


def test_an_abstract_state_that_does_not_fit(ocp, tmp_path):
    ocp.save(tmp_path / "a", tree())
    for leaf in (object(), complex(1)):
        with pytest.raises((TypeError, ValueError)):
            ocp.load(tmp_path / "a", {**abstract(), "s": leaf})
    with pytest.raises(TypeError, match="Unsupported abstract leaf"):
        ocp.load(tmp_path / "a", {**abstract(), "n": object()})
    lacks = {k: v for k, v in abstract().items() if k != "n"}
    with pytest.raises(ValueError, match="n:"):
        ocp.load(tmp_path / "a", lacks)
    with pytest.raises(ValueError, match="z:"):
        ocp.load(tmp_path / "a", {**abstract(), "z": int})
    other = {**abstract(), "w": jax.ShapeDtypeStruct((3, 3), jnp.float32)}
    with pytest.raises(ValueError, match=r"3, 3"):
        ocp.load(tmp_path / "a", other)
    with pytest.raises(ValueError):
        ocp.load(tmp_path / "a", {**abstract(), "w": int})
    with pytest.raises(ValueError):
        ocp.load(tmp_path / "a", {**abstract(), "s": int})


def test_another_type_of_elements_is_asked_for(ocp, ours, tmp_path):
    ocp.save(tmp_path / "a", tree())
    half = {**abstract(), "w": jax.ShapeDtypeStruct((2, 3), jnp.float16)}
    assert ocp.load(tmp_path / "a", half)["w"].dtype == jnp.float16
    if ours:
        with pytest.raises(ValueError, match="without loss"):
            ocp.load(tmp_path / "a", {**abstract(), "f": int})
    with fitting_context(ocp):
        assert ocp.load(tmp_path / "a", half)["w"].dtype == jnp.float16
        assert ocp.load(tmp_path / "a", {**abstract(), "f": int})["f"] == 2


def test_partial_load(ocp, tmp_path):
    ocp.save(tmp_path / "a", tree())
    some = {k: v for k, v in abstract().items() if k != "n"}
    with partial_context(ocp):
        loaded = ocp.load(tmp_path / "a", {**some, "z": int})
    assert set(loaded) == {"w", "f", "s", "none", "z"}
    assert loaded["z"] is int


def test_shapes_are_fitted_where_that_is_said(ocp, tmp_path):
    ocp.save(tmp_path / "a", tree())
    wanted = {**abstract(), "w": jax.ShapeDtypeStruct((3, 2), jnp.float32)}
    with fitting_context(ocp):
        loaded = ocp.load(tmp_path / "a", wanted)
    assert np.array_equal(loaded["w"], [[0, 1], [3, 4], [0, 0]])


def test_what_is_not_there(ocp, tmp_path):
    ocp.save(tmp_path / "a", tree())
    with pytest.raises(KeyError, match="other"):
        ocp.load_checkpointables(tmp_path / "a", {"other": None})
    with pytest.raises(ValueError):
        ocp.load(tmp_path / "a", checkpointable_name="other")
    for function in (ocp.load, ocp.metadata, ocp.load_checkpointables):
        with pytest.raises(ocp.errors.InvalidLayoutError):
            function(tmp_path / "none")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ocp.errors.InvalidLayoutError):
        ocp.load(tmp_path / "empty")
    assert issubclass(ocp.errors.InvalidLayoutError, ValueError)


def test_a_checkpoint_of_orbax_itself_is_told(tmp_path):
    import ckptree.orbax.experimental.v1 as ocp
    from orbax.checkpoint import v1

    v1.save(tmp_path / "a", {"a": 1})
    for function in (ocp.load, ocp.metadata, ocp.is_orbax_checkpoint):
        with pytest.raises(ocp.errors.InvalidLayoutError, match="import"):
            function(tmp_path / "a")
    with pytest.raises(ValueError, match="written by Orbax"):
        ocp.save(tmp_path / "a", {"a": 1}, overwrite=True)
    assert v1.load(tmp_path / "a") == {"a": 1}


# ---- V1-10: AsyncResponse ----


def test_a_save_in_the_background(ocp, tmp_path):
    array = np.arange(1000)
    response = ocp.save_async(tmp_path / "a", {"w": array})
    array[:] = -1
    called = threading.Event()
    seen = []
    response.on_complete(lambda result: (seen.append(result), called.set()))
    assert response.result(timeout=60) is None
    assert called.wait(60)
    response.on_complete(seen.append)
    assert seen == [None, None]
    assert np.array_equal(ocp.load(tmp_path / "a")["w"], np.arange(1000))
    ocp.save_async(tmp_path / "a", {"w": array}, overwrite=True).result()
    assert np.array_equal(ocp.load(tmp_path / "a")["w"], array)


def test_a_save_that_nobody_asks_for_ends_before_the_program(tmp_path):
    program = (
        "import sys, numpy, ckptree.orbax.experimental.v1 as ocp\n"
        "ocp.save_async(sys.argv[1], {'w': numpy.arange(1000000)})\n"
    )
    subprocess.run([sys.executable, "-c", program, tmp_path / "a"], check=True)
    import ckptree.orbax.experimental.v1 as ocp

    assert np.array_equal(ocp.load(tmp_path / "a")["w"], np.arange(1000000))
