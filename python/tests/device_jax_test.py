# SPDX-License-Identifier: Apache-2.0
"""Arrays of JAX on a device whose memory cannot be viewed: a save asks for a
piece at a time. Here is no such device: the CPU plays it, and no piece may be
larger than a chunk."""

import threading

import ckptree
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from ckptree.adapters import jax as adapter
from ckptree.adapters import jax_buffers, jax_device
from jax.sharding import Mesh, NamedSharding, PartitionSpec

CHUNK = 64 << 10
POOL = 16 * CHUNK


class Played:
    """What the copies of this device did."""

    def __init__(self):
        self.lock = threading.Lock()
        self.store = None
        self.bytes, self.most, self.in_pool, self.threads = 0, 0, 0, set()
        self.before = lambda: None

    def to_host(self, data, into):
        self.before()
        assert isinstance(data, jax.Array)
        REAL(data, into)
        used = 0
        if threading.current_thread() is not threading.main_thread():
            used = self.store.counters().staging_bytes_in_use
        with self.lock:
            self.bytes += len(into)
            self.most = max(self.most, len(into))
            self.in_pool = max(self.in_pool, used)
            self.threads.add(threading.get_ident())


REAL = jax_device.to_host


@pytest.fixture
def device(monkeypatch):
    played = Played()
    monkeypatch.setattr(jax_device, "is_on_host", lambda data: False)
    monkeypatch.setattr(jax_device, "to_host", played.to_host)
    return played


@pytest.fixture
def store(tmp_path, device):
    with ckptree.Store(
        tmp_path / "store", chunk_bytes=CHUNK, staging_bytes=POOL
    ) as opened:
        device.store = opened
        yield opened


def random_state(seed=1):
    rng = np.random.default_rng(seed)

    def bits(dtype, *shape):
        array = rng.integers(0, 255, (*shape, np.dtype(dtype).itemsize), "u1")
        return jnp.asarray(array.view(dtype).reshape(shape))

    mesh = Mesh(np.array(jax.devices()).reshape(4, 2), ("a", "b"))

    def spread(array, *spec):
        return jax.device_put(array, NamedSharding(mesh, PartitionSpec(*spec)))

    return {
        "long": bits("i4", 300_000),
        "wide": bits("f4", 3, 70, 1001),
        "rows": bits(jnp.bfloat16, 5, 100_003),
        "odd": bits("i1", 7, 11, 13, 17),
        "one": jnp.float32(3.5),
        "none": jnp.zeros((0, 3)),
        "int4": jnp.arange(1000).astype("int4"),
        "small": [bits("i4", 5, i) for i in range(40)],
        "key": jax.random.key(1),
        "split": spread(bits("f4", 512, 192), "a", "b"),
        "columns": spread(bits("f4", 512, 192), None, "b"),
        "copies": spread(bits("f4", 256, 192)),
    }


def assert_same(found, wanted):
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(wanted)):
        if jnp.issubdtype(b.dtype, jax.dtypes.prng_key):
            a, b = jax.random.key_data(a), jax.random.key_data(b)
        assert a.dtype == b.dtype and a.shape == b.shape
        assert np.asarray(a).tobytes() == np.asarray(b).tobytes()


def test_each_byte_goes_through_the_pool_once(store, device):
    state = random_state()
    store.save(1, state).result(timeout=60)
    saved = sum(leaf.nbytes for leaf in store[1].leaves())
    assert device.bytes == saved > 3 * POOL
    assert 0 < device.most <= CHUNK
    assert 0 < device.in_pool <= POOL
    assert threading.get_ident() in device.threads  # The smallest ones.
    assert len(device.threads) > 1
    assert_same(store.restore(1, like=state), state)
    assert_same(store.restore(1, like=state, partial="split"), state)


def test_what_did_not_change_is_not_written(store, device):
    state = random_state()
    store.save(1, state).result(timeout=60)
    store.save(2, state).result(timeout=60)
    assert store.step_info(2).new_bytes == 0


# A training donates its state to the next step of it.
def test_the_arrays_may_be_given_away_after_the_call(store, device):
    state = random_state()
    wanted = jax.tree.map(lambda x: x.copy(), state)
    handle = store.save(1, state)
    for leaf in jax.tree.leaves(state):
        leaf.delete()
    handle.result(timeout=60)
    assert_same(store.restore(1, like=wanted), wanted)


def test_a_lent_state_is_copied_beside_the_program(store, device):
    go = threading.Event()
    main = threading.get_ident()
    device.before = lambda: threading.get_ident() == main or go.wait()
    state = random_state()
    handle = store.save(1, state, borrow=True)
    assert not handle.staged()
    go.set()
    handle.wait_staged()
    for leaf in jax.tree.leaves(state):
        leaf.delete()
    handle.result(timeout=60)
    wanted = random_state()
    assert_same(store.restore(1, like=wanted), wanted)


def test_a_lent_array_that_was_given_away_fails_the_save(store, device):
    before = {"w": jnp.arange(8.0)}
    store.save(1, before).result(timeout=60)
    go = threading.Event()
    device.before = go.wait
    state = {"first": jnp.ones(CHUNK), "w": jnp.ones((600, 300))}
    handle = store.save(2, state, borrow=True)
    state["w"].delete()
    go.set()
    with pytest.raises(ckptree.Error, match="w: .*donated.*borrow=True"):
        handle.result(timeout=60)
    assert list(store) == [1]
    assert_same(store.restore(1, like=before), before)


@pytest.mark.parametrize("at", [1, 20, 60])
def test_a_copy_that_fails_leaves_the_store_as_it_was(store, device, at):
    before = {"w": jnp.arange(8.0)}
    store.save(1, before).result(timeout=60)
    left = [at]

    def fail():
        with device.lock:
            left[0] -= 1
        if left[0] <= 0:
            raise RuntimeError("the device is gone")

    device.before = fail
    with pytest.raises(ckptree.Error, match="w: .*the device is gone"):
        store.save(2, {"w": jnp.ones((60, CHUNK // 4))}).result(timeout=60)
    assert left[0] <= 0
    assert list(store) == [1]
    device.before = lambda: None
    state = random_state()
    store.save(3, state).result(timeout=60)
    assert_same(store.restore(3, like=state), state)


def test_a_manager_saves_it_the_same_way(tmp_path, device):
    state = random_state()
    with ckptree.CheckpointManager(
        tmp_path / "managed", chunk_bytes=CHUNK, staging_bytes=POOL
    ) as manager:
        device.store = manager.store
        assert manager.save(1, state)
        assert not manager.save(0, state)  # Nothing is copied for that.
        manager.wait_until_finished()
        assert device.bytes == sum(
            leaf.nbytes for leaf in manager.store[1].leaves()
        )
        assert device.most <= CHUNK and device.in_pool <= POOL
        assert_same(manager.restore(1, like=state), state)


# ---- Restoring ----


class PlayedArrival:
    """A device that copies what it is sent, and only when it is waited for:
    until then the memory of the host must stay as it is."""

    def __init__(self, monkeypatch):
        self.waiting = []  # The memory, what it had then, and the array of it.
        self.calls, self.arrived = 0, 0
        self._put, self._wait = jax.device_put, jax.block_until_ready
        monkeypatch.setattr(adapter, "stays_on_host", lambda jobs: False)
        monkeypatch.setattr(jax_buffers, "is_copied", lambda arrays: True)
        monkeypatch.setattr(jax, "device_put", self.put)
        monkeypatch.setattr(jax, "block_until_ready", self.wait)

    def put(self, sent, *places):
        self.calls += 1
        several = isinstance(sent, list)
        copies = [host.copy() for host in (sent if several else [sent])]
        made = self._put(copies if several else copies[0], *places)
        arrays = made if several else [made]
        self.waiting += zip(sent if several else [sent], copies, arrays)
        return made

    def wait(self, arrays):
        left = []
        for memory, then, array in self.waiting:
            if any(array is waited for waited in arrays):
                assert memory.tobytes() == then.tobytes()
                self.arrived += 1
            else:
                left.append((memory, then, array))
        self.waiting = left
        return self._wait(arrays)


def of_many_sizes(seed=1):
    rng = np.random.default_rng(seed)
    return {
        "whole": jnp.asarray(rng.random((300, 1000), "f4")),
        "long": jnp.asarray(rng.random(100_000, "f4")),
        "one": jnp.float32(7),
        "none": jnp.zeros((0, 3)),
        "half": jnp.asarray(rng.random((333, 7)), jnp.bfloat16),
        **{
            f"small {i}": jnp.asarray(rng.random(1000 + i, "f4"))
            for i in range(100)
        },
    }


@pytest.fixture
def allocated(monkeypatch):
    """The sizes of memory of the host that were asked for."""
    seen = []
    real = adapter.memory.empty

    def empty(shape, dtype):
        made = real(shape, dtype)
        seen.append(made.nbytes)
        return made

    monkeypatch.setattr(adapter.memory, "empty", empty)
    return seen


@pytest.mark.parametrize("placed", [True, False])
@pytest.mark.parametrize("cast", [True, False])
def test_a_restore_needs_two_buffers_of_the_host(
    store, device, monkeypatch, allocated, placed, cast
):
    state = of_many_sizes()
    store.save(1, state).result(timeout=60)
    arrival = PlayedArrival(monkeypatch)
    monkeypatch.setattr(adapter, "_BYTES_AT_ONCE", CHUNK)
    like = jax.tree.map(
        lambda x: jax.ShapeDtypeStruct(
            x.shape,
            jnp.float16 if cast and x.size % 2 == 0 else x.dtype,
            sharding=jax.sharding.SingleDeviceSharding(jax.devices()[3])
            if placed
            else None,
        ),
        state,
    )
    found = store.restore(1, like=like, cast="lossy" if cast else False)
    assert len(allocated) == 2 and max(allocated) <= CHUNK * 17 // 16
    assert arrival.calls > 20 and arrival.arrived > 20
    for name, leaf in found.items():
        assert leaf.dtype == like[name].dtype
        assert np.array_equal(leaf, state[name].astype(leaf.dtype))
        assert not placed or leaf.devices() == {jax.devices()[3]}


def test_an_array_in_parts_goes_through_buffers_of_its_size(
    store, device, monkeypatch, allocated
):
    mesh = Mesh(np.array(jax.devices()), "a")
    split = NamedSharding(mesh, PartitionSpec(None, "a"))
    state = {
        f"w{i}": jax.device_put(jnp.full((64, 1024), i, "f4"), split)
        for i in range(6)
    }
    store.save(1, state).result(timeout=60)
    arrival = PlayedArrival(monkeypatch)
    monkeypatch.setattr(adapter, "_BYTES_AT_ONCE", CHUNK)
    found = store.restore(1, like=state)
    assert len(allocated) == 2 and arrival.arrived > 20
    assert_same(found, state)
    for name, leaf in found.items():
        assert leaf.sharding == state[name].sharding


# What a CPU has taken over is the array's.
@pytest.mark.parametrize("known", [True, False])
def test_no_two_arrays_of_a_cpu_share_memory(
    store, device, monkeypatch, known
):
    state = of_many_sizes()
    store.save(1, state).result(timeout=60)
    monkeypatch.setattr(adapter, "_BYTES_AT_ONCE", CHUNK)
    if not known:  # As where a CPU is the default device of a process.
        monkeypatch.setattr(adapter, "stays_on_host", lambda jobs: False)
    found = store.restore(1, like=state)
    for _ in range(3):
        store.restore(1, like=state)
    assert_same(found, state)
    ranges = sorted(
        (leaf.unsafe_buffer_pointer(), leaf.nbytes)
        for leaf in found.values()
        if leaf.size > 0
    )
    for (begin, nbytes), (behind, _) in zip(ranges, ranges[1:]):
        assert begin + nbytes <= behind


def test_memory_is_used_again_only_where_it_was_copied():
    class Device:
        def __init__(self, platform):
            self.platform = platform

    class Array:
        def __init__(self, kind, *platforms):
            self._devices = set(map(Device, platforms))
            self.sharding = type("Sharding", (), {"memory_kind": kind})

        def devices(self):
            return self._devices

    gpu = Array("device", "gpu", "gpu")
    assert jax_buffers.is_copied([gpu, Array(None, "tpu")])
    assert not jax_buffers.is_copied([gpu, Array("device", "cpu")])
    assert not jax_buffers.is_copied([gpu, Array("device", "of tomorrow")])
    assert not jax_buffers.is_copied([gpu, Array("pinned_host", "gpu")])
    assert not jax_buffers.is_copied([jnp.ones(3)])
