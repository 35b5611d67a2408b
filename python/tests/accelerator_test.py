# SPDX-License-Identifier: Apache-2.0
"""States on a real accelerator, where there is one: the tests beside these play
it on the host. With CKPTREE_TEST_ACCELERATOR=1 JAX sees it (conftest.py)."""

import os
import threading

import ckptree
import numpy as np
import pytest

MIB = 1 << 20
LARGE = 2048 * MIB
POOL = 128 * MIB
# What a call may need of the host beside its pool: a chunk for each thread,
# buffers of the driver, tables.
MORE = 160 * MIB


@pytest.fixture
def cuda():
    torch = pytest.importorskip(
        "torch", reason="PyTorch could not be installed"
    )
    if not torch.cuda.is_available():
        pytest.skip(f"PyTorch {torch.__version__} sees no device of CUDA")
    return torch


@pytest.fixture
def jax_device():
    jax = pytest.importorskip("jax", reason="JAX could not be installed")
    found = [d for d in jax.devices() if d.platform != "cpu"]
    if not found:
        pytest.skip(
            f"JAX {jax.__version__} sees no accelerator (and is not to, "
            "without CKPTREE_TEST_ACCELERATOR=1)"
        )
    return found[0]


class Resident:
    """By how much the memory of the process grew at most, in between."""

    def __enter__(self):
        self._before = self._now()
        self._most = self._before
        self._end = threading.Event()
        self._watch = threading.Thread(target=self._look)
        self._watch.start()
        return self

    def _look(self):
        while not self._end.wait(0.002):
            self._most = max(self._most, self._now())

    @staticmethod
    def _now():
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def __exit__(self, *ignored):
        self._end.set()
        self._watch.join()

    @property
    def grown(self):
        return max(self._most, self._now()) - self._before


def copied_directly(monkeypatch):
    """What the driver of CUDA was asked for, once a save has met it."""
    from ckptree.adapters import cuda

    found = []
    real = cuda.direct

    def direct(address, check=None):
        found.append(real(address, check))
        return found[-1]

    monkeypatch.setattr(cuda, "direct", direct)
    return found


# ---- PyTorch ----


def tensors_of(torch, seed=1):
    generator = torch.Generator(device="cuda").manual_seed(seed)

    def bits(dtype, *shape):
        count = torch.Size(shape).numel() * dtype.itemsize
        flat = torch.randint(
            0, 256, (count,), dtype=torch.uint8, device="cuda",
            generator=generator,
        )
        return flat.view(dtype).view(shape)

    return {
        "large": bits(torch.float32, 3000, 4001),
        "half": bits(torch.bfloat16, 5, 1000, 1001),
        "fp8": bits(torch.float8_e4m3fn, 3, 333_333),
        "turned": bits(torch.int16, 2000, 700).T,
        "every other": bits(torch.int32, 1000, 900)[:, ::2],
        "conjugate": torch.randn(
            700, 900, dtype=torch.complex64, device="cuda"
        ).conj(),
        "flag": torch.rand(99_999, device="cuda") > 0.5,
        "one": torch.tensor(3.5, device="cuda"),
        "none": torch.zeros(0, 3, device="cuda"),
        "host": torch.arange(1000),
        **{f"small {i}": bits(torch.int64, 5, i) for i in range(40)},
    }


def raw(tensor):
    import torch

    flat = tensor.detach().resolve_conj().contiguous().cpu().reshape(-1)
    return flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b""


def test_tensors_come_back_on_their_device(store, cuda, monkeypatch):
    direct = copied_directly(monkeypatch)
    state = tensors_of(cuda)
    store.save(1, state).result(timeout=60)
    if cuda.version.hip is None:
        assert len(direct) > 40 and None not in direct
    found = store.restore(1, like=state)
    for name, tensor in state.items():
        assert found[name].device == tensor.device, name
        assert found[name].dtype == tensor.dtype, name
        assert raw(found[name]) == raw(tensor), name
    # By a reader who knows of no device.
    assert (
        np.asarray(store.restore(1)["large"]).tobytes() == raw(state["large"])
    )


def test_what_is_queued_before_the_save_is_in_it(store, cuda):
    w = cuda.ones(2048, 2048, device="cuda")
    turn = cuda.eye(2048, device="cuda") * 0.5
    cuda.cuda.synchronize()
    for _ in range(400):  # Some 10 ms of the device, and more.
        w = w @ turn + 1
    handle = store.save(1, {"w": w})
    w.zero_()  # Behind the copies, or the step has zeros.
    handle.result(timeout=60)
    found = store.restore(1)["w"]
    assert np.all(np.asarray(found) == 2.0)


def test_a_stream_of_the_caller_is_waited_for(store, cuda):
    w = cuda.zeros(64 * MIB, device="cuda")
    stream = cuda.cuda.Stream()
    cuda.cuda.synchronize()
    with cuda.cuda.stream(stream):
        for _ in range(100):
            w += 1
        store.save(1, {"w": w}).result(timeout=60)
    assert np.all(np.asarray(store.restore(1)["w"]) == 100)


def test_a_lent_state_may_change_behind_wait_staged(store, cuda):
    state = tensors_of(cuda)
    wanted = {name: raw(tensor) for name, tensor in state.items()}
    handle = store.save(1, state, borrow=True)
    handle.wait_staged()
    for tensor in state.values():
        tensor.zero_()
    handle.result(timeout=60)
    found = store.restore(1, like=state)
    assert {name: raw(tensor) for name, tensor in found.items()} == wanted


def test_the_pool_is_page_locked_and_given_back(tmp_path, cuda, monkeypatch):
    from ckptree.adapters import torch_device

    locked, failed = {}, []
    lock, unlock = torch_device._lock, torch_device._unlock

    def locks(address, nbytes):
        if not lock(address, nbytes):
            failed.append(address)
            return False
        locked[address] = nbytes
        return True

    def unlocks(address):
        del locked[address]
        unlock(address)

    monkeypatch.setattr(torch_device, "_lock", locks)
    monkeypatch.setattr(torch_device, "_unlock", unlocks)
    monkeypatch.setattr(torch_device, "_found", {})
    state = {"w": cuda.randn(64 * MIB, device="cuda")}
    with ckptree.Store(tmp_path / "s", staging_bytes=POOL) as store:
        store.save(1, state).result(timeout=60)
        assert 0 < sum(locked.values()) <= POOL
    assert not locked and not failed


def test_a_save_needs_the_pool_and_nothing_of_the_device(tmp_path, cuda):
    state = {
        f"w{i}": cuda.randn(LARGE // 8 // 4, device="cuda") for i in range(8)
    }
    with ckptree.Store(tmp_path / "s", staging_bytes=POOL) as store:
        store.save(0, {"w": cuda.ones(1, device="cuda")}).result(timeout=60)
        cuda.cuda.reset_peak_memory_stats()
        device = cuda.cuda.memory_allocated()
        with Resident() as host:
            store.save(1, state).result(timeout=300)
        assert host.grown <= POOL + MORE
        assert cuda.cuda.max_memory_allocated() == device
        with Resident() as host:
            found = store.restore(1, like=state)
        assert host.grown <= POOL + MORE
        for name, tensor in state.items():
            assert cuda.equal(found[name], tensor)


def test_a_training_resumes_bit_exact(store, cuda):
    import ckptree.torch

    def made():
        cuda.manual_seed(3)
        model = cuda.nn.Sequential(
            cuda.nn.Linear(300, 500), cuda.nn.Dropout(0.5),
            cuda.nn.Linear(500, 7),
        ).cuda().to(cuda.bfloat16)
        return {
            "model": model,
            "optimizer": cuda.optim.AdamW(model.parameters()),
            "rng": ckptree.torch.Rng(),
        }

    def train(app, steps):
        for _ in range(steps):
            x = cuda.randn(16, 300, device="cuda", dtype=cuda.bfloat16)
            app["optimizer"].zero_grad()
            app["model"](x).square().mean().backward()
            app["optimizer"].step()

    app = made()
    train(app, 3)
    ckptree.torch.save(store, 3, app).result(timeout=60)
    train(app, 3)
    wanted = [raw(p) for p in app["model"].parameters()]
    again = made()
    train(again, 1)
    assert ckptree.torch.resume(store, again) == 4
    train(again, 3)
    assert [raw(p) for p in again["model"].parameters()] == wanted


# ---- JAX ----


def arrays_of(device, seed=1):
    import jax
    import jax.numpy as jnp

    rng = np.random.default_rng(seed)

    def bits(dtype, *shape):
        itemsize = np.dtype(dtype).itemsize
        array = rng.integers(0, 255, (*shape, itemsize), "u1")
        return jax.device_put(array.view(dtype).reshape(shape), device)

    return {
        "large": bits("f4", 3000, 4001),
        "half": bits(jnp.bfloat16, 5, 1000, 1001),
        "fp8": bits(jnp.float8_e4m3fn, 3, 333_333),
        "flag": jax.device_put(rng.random(99_999) > 0.5, device),
        "one": jnp.float32(3.5),
        "none": jnp.zeros((0, 3)),
        "key": jax.random.key(1),
        "host": np.arange(1000),
        "small": [bits("i4", 5, i) for i in range(40)],
    }


def bytes_of(tree):
    import jax
    import jax.numpy as jnp

    def one(leaf):
        if jnp.issubdtype(getattr(leaf, "dtype", int), jax.dtypes.prng_key):
            leaf = jax.random.key_data(leaf)
        return np.asarray(leaf).tobytes()

    return [one(leaf) for leaf in jax.tree.leaves(tree)]


def test_arrays_come_back_on_their_device(store, jax_device, monkeypatch):
    import jax

    direct = copied_directly(monkeypatch)
    state = arrays_of(jax_device)
    store.save(1, state).result(timeout=60)
    if "cuda" in jax_device.client.platform_version.lower():
        assert len(direct) > 40 and None not in direct
    found = store.restore(1, like=state)
    assert bytes_of(found) == bytes_of(state)
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(state)):
        assert a.dtype == b.dtype and a.shape == b.shape
        if isinstance(b, jax.Array):
            assert a.devices() == b.devices()
    assert np.asarray(store.restore(1)["large"]).tobytes() == np.asarray(
        state["large"]).tobytes()


def test_many_restored_arrays_have_their_own_bytes(store, jax_device):
    import jax

    rng = np.random.default_rng(3)
    host = {  # Pieces of a large one, large ones together, and small ones.
        "huge": rng.integers(0, 1 << 30, (100 * MIB,), "i4"),
        **{f"w{i}": rng.random(5 * MIB + i, "f4") for i in range(16)},
        **{f"small {i}": rng.random(i, "f4") for i in range(300)},
    }
    state = {name: jax.device_put(a, jax_device) for name, a in host.items()}
    store.save(1, state).result(timeout=60)
    for _ in range(2):
        found = store.restore(1, like=state)
        for name, array in found.items():
            assert array.devices() == {jax_device}
            assert np.asarray(array).tobytes() == host[name].tobytes(), name


def test_arrays_may_be_donated_behind_the_save(store, jax_device):
    import jax

    state = arrays_of(jax_device)["small"] + [
        jax.device_put(np.arange(30 * MIB, dtype="f4"), jax_device)
    ]
    wanted = bytes_of(jax.tree.map(lambda a: a.copy(), state))
    handle = store.save(1, state)
    add = jax.jit(lambda t: [a + 1 for a in t], donate_argnums=0)
    for _ in range(3):
        state = add(state)
    jax.block_until_ready(state)
    handle.result(timeout=60)
    assert bytes_of(store.restore(1, like=state)) == wanted


def test_a_save_of_arrays_needs_the_pool_and_a_few_chunks(tmp_path, jax_device):
    import jax
    import jax.numpy as jnp

    key = jax.random.key(7)
    state = {
        f"w{i}": jax.device_put(
            jax.random.normal(jax.random.fold_in(key, i), (LARGE // 8 // 4,)),
            jax_device,
        )
        for i in range(8)
    }
    jax.block_until_ready(state)
    with ckptree.Store(tmp_path / "s", staging_bytes=POOL) as store:
        # What cuts pieces off is compiled.
        store.save(0, state).result(timeout=300)
        state = jax.block_until_ready(jax.tree.map(lambda a: a + 1, state))
        stats = jax_device.memory_stats()
        with Resident() as host:
            store.save(1, state).result(timeout=300)
        assert host.grown <= POOL + MORE
        if stats is not None:
            most = jax_device.memory_stats()["peak_bytes_in_use"]
            assert most - stats["peak_bytes_in_use"] <= POOL
        with Resident() as host:
            found = store.restore(1, like=state)
        # JAX sends through memory of its own, which it keeps.
        assert host.grown <= LARGE // 4
        for name, array in state.items():
            assert bool(jnp.array_equal(found[name], array))
