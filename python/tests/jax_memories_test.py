# SPDX-License-Identifier: Apache-2.0
"""Arrays of JAX in memory that their devices do not take by themselves: what is
offloaded comes back where it was, or where a template asks for it."""

import ckptree
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from ckptree.adapters import jax as adapter
from ckptree.adapters import jax_boxes
from jax.sharding import (
    Mesh,
    NamedSharding,
    PartitionSpec,
    SingleDeviceSharding,
)

KINDS = [memory.kind for memory in jax.devices()[0].addressable_memories()]


def spread(kind):
    """Over all devices, of which tests may have several."""
    mesh = Mesh(np.array(jax.devices()), ("x",))
    return NamedSharding(mesh, PartitionSpec("x"), memory_kind=kind)


def one(kind):
    return SingleDeviceSharding(jax.devices()[0], memory_kind=kind)


def test_there_is_more_than_one():
    assert len(KINDS) > 1


@pytest.fixture
def values():
    return np.arange(16 * len(jax.devices()), dtype=np.float32)


@pytest.mark.parametrize("of", [spread, one])
@pytest.mark.parametrize("kind", KINDS)
def test_it_comes_back_where_it_was(store, values, kind, of):
    state = {"w": jax.device_put(values, of(kind)), "n": jnp.ones(3)}
    store.save(1, state).result(timeout=60)
    found = store.restore(1, like=state)
    assert found["w"].sharding == state["w"].sharding
    assert found["w"].sharding.memory_kind == kind
    assert found["n"].sharding == state["n"].sharding
    np.testing.assert_array_equal(np.asarray(found["w"]), values)


@pytest.mark.parametrize("of", [spread, one])
@pytest.mark.parametrize("kind", KINDS)
def test_it_comes_where_it_is_wanted(store, values, kind, of):
    store.save(1, {"w": values}).result(timeout=60)
    like = jax.ShapeDtypeStruct(values.shape, "float32", sharding=of(kind))
    half = jax.ShapeDtypeStruct(values.shape, "bfloat16", sharding=of(kind))
    for found in (
        store.restore(1, like={"w": like})["w"],
        store.restore(1, like={"w": half}, cast="lossy")["w"],
        store.restore(1, sharding=of(kind))["w"],
        store.restore(1, sharding={"w": of(kind)})["w"],
        store[1]["w"].jax(of(kind)),
    ):
        assert found.sharding == of(kind)
        assert found.sharding.memory_kind == kind
        np.testing.assert_array_equal(np.asarray(found, "float32"), values)


@pytest.mark.parametrize("kind", KINDS)
def test_keys(store, kind):
    state = {"key": jax.device_put(jax.random.key(3), one(kind))}
    store.save(1, state).result(timeout=60)
    found = store.restore(1, like=state)["key"]
    assert found.sharding.memory_kind == kind
    assert jax.random.key_data(found).tolist() == [0, 3]


@pytest.mark.parametrize("kind", KINDS)
def test_very_many_that_are_alike(store, kind):
    state = {
        f"{i:04}": jax.device_put(np.full(4, i, "f4"), one(kind))
        for i in range(600)
    }
    store.save(1, state).result(timeout=60)
    for i, found in enumerate(store.restore(1, like=state).values()):
        assert found.sharding.memory_kind == kind and found.tolist() == [i] * 4


class Played:
    platform = "gpu"


def test_a_gpu_that_is_offloaded_from_takes_memory_of_the_host():
    jobs = [
        jax_boxes.Job(0, (0,), (4,), [Played()], kind)
        for kind in (None, "device", "pinned_host", "unpinned_host")
    ]
    assert [adapter.stays_on_host([job]) for job in jobs] == [
        False,
        False,
        True,
        True,
    ]
    assert not adapter.stays_on_host(jobs)


@pytest.mark.parametrize("kind", KINDS)
def test_a_large_one_that_is_put_together_on_its_device(
    store, values, kind, monkeypatch
):
    store.save(1, {"w": values}).result(timeout=60)
    monkeypatch.setattr(adapter, "stays_on_host", lambda jobs: False)
    monkeypatch.setattr(adapter, "_BYTES_AT_ONCE", 16)
    called = []
    monkeypatch.setattr(
        adapter,
        "_load_large",
        lambda *args, real=adapter._load_large: (
            called.append(real),
            real(*args),
        ),
    )
    found = store[1]["w"].jax(one(kind))
    assert len(called) == 1
    assert found.sharding == one(kind) and found.sharding.memory_kind == kind
    np.testing.assert_array_equal(np.asarray(found), values)


@pytest.mark.parametrize("kind", KINDS)
def test_a_manager_of_orbaxs_kind(tmp_path, values, kind):
    ocp = pytest.importorskip("ckptree.orbax")
    state = {"w": jax.device_put(values, spread(kind))}
    with ocp.CheckpointManager(tmp_path / "run") as manager:
        manager.save(1, args=ocp.args.StandardSave(state))
        manager.wait_until_finished()
        wanted = ocp.args.StandardRestore(state)
        found = manager.restore(1, args=wanted)["w"]
    assert found.sharding.memory_kind == kind
    np.testing.assert_array_equal(np.asarray(found), values)


def test_a_mesh_without_devices_is_named(store, values):
    store.save(1, {"w": values}).result(timeout=60)
    mesh = jax.sharding.AbstractMesh((1,), ("x",))
    sharding = NamedSharding(mesh, PartitionSpec("x"))
    like = jax.ShapeDtypeStruct(values.shape, "float32", sharding=sharding)
    with pytest.raises(ValueError, match="^w: the mesh of .* is abstract"):
        store.restore(1, like={"w": like})
