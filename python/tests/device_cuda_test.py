# SPDX-License-Identifier: Apache-2.0
"""What lies on a device of CUDA is copied by its driver. A library plays that
(played_cuda.cc), as there is no device; on a real one: accelerator_test.py."""

import ctypes
import os
import shutil
import subprocess
import threading
import time

import ckptree
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from ckptree.adapters import cuda, jax_device

CHUNK = 64 << 10
POOL = 16 * CHUNK
HERE = os.path.dirname(os.path.abspath(__file__))


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    compiler = shutil.which("c++")
    if compiler is None:
        pytest.skip("there is no c++ to build played_cuda.cc with")
    built = str(tmp_path_factory.mktemp("cuda") / "libplayed.so")
    subprocess.run(
        [
            compiler, "-std=c++20", "-O1", "-shared", "-fPIC", "-o", built,
            os.path.join(HERE, "played_cuda.cc"),
        ],
        check=True,
    )
    played = ctypes.CDLL(built)
    played.path = built
    played.played_copied.restype = ctypes.c_uint64
    played.played_not_locked.restype = ctypes.c_uint64
    played.played_locked.restype = ctypes.c_size_t
    played.played_fail_after.argtypes = [ctypes.c_long]
    return played


@pytest.fixture
def driver(library, monkeypatch):
    library.played_reset()
    monkeypatch.setattr(cuda, "LIBRARY", library.path)
    monkeypatch.setattr(jax_device, "is_on_host", lambda data: False)
    yield library
    library.played_reset()


@pytest.fixture
def store(tmp_path, driver):
    with ckptree.Store(
        tmp_path / "store", chunk_bytes=CHUNK, staging_bytes=POOL
    ) as opened:
        yield opened


def state_of(seed=1):
    rng = np.random.default_rng(seed)
    return {
        "wide": jnp.asarray(rng.random((300, 1001), "f4")),
        "half": jnp.asarray(rng.random((70, 333), "f4")).astype("bfloat16"),
        "one": jnp.float32(3.5),
        "none": jnp.zeros((0, 3)),
        "small": [jnp.arange(i + 1) for i in range(40)],
        "key": jax.random.key(1),
    }


def bytes_of(tree):
    return [
        np.asarray(
            jax.random.key_data(leaf)
            if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
            else leaf
        ).tobytes()
        for leaf in jax.tree.leaves(tree)
    ]


def test_the_driver_copies_each_byte_into_locked_memory(
    store, driver, tmp_path
):
    state = state_of()
    store.save(1, state).result(timeout=60)
    saved = sum(leaf.nbytes for leaf in store[1].leaves())
    assert driver.played_copied() == saved > POOL
    assert 0 < driver.played_locked() <= POOL
    assert bytes_of(store.restore(1, like=state)) == bytes_of(state)
    # What fits into the pool; small ones lie together elsewhere.
    with ckptree.Store(
        tmp_path / "large", chunk_bytes=CHUNK, staging_bytes=4 * saved
    ) as other:
        before = driver.played_not_locked()
        other.save(1, state).result(timeout=60)
        small = saved - state["wide"].nbytes
        assert driver.played_not_locked() - before <= small


def test_the_memory_is_unlocked_when_it_goes(store, driver):
    store.save(1, state_of()).result(timeout=60)
    assert driver.played_locked() > 0
    store.close()
    assert driver.played_locked() == 0


def test_idle_memory_is_unlocked_when_it_was_told_to_be(tmp_path, driver):
    with ckptree.Store(
        tmp_path / "s", chunk_bytes=CHUNK, staging_bytes=POOL, staging_idle=0
    ) as store:
        for step in range(3):
            store.save(step, state_of(step)).result(timeout=60)
            # By itself it would stay for ten seconds.
            unlocked_by = time.monotonic() + 8
            while driver.played_locked() > 0:
                assert time.monotonic() < unlocked_by
                os.sched_yield()
    assert driver.played_copied() > POOL


def test_memory_that_is_to_stay_is_unlocked_at_the_close(tmp_path, driver):
    store = ckptree.Store(
        tmp_path / "s", chunk_bytes=CHUNK, staging_bytes=POOL,
        staging_idle=float("inf"),
    )
    store.save(1, state_of()).result(timeout=60)
    assert driver.played_locked() > 0
    store.close()
    assert driver.played_locked() == 0


def test_streams_are_used_again(store, driver):
    for step in range(20):
        store.save(step, state_of(step)).result(timeout=60)
    assert 0 < driver.played_streams() <= 64
    before = driver.played_streams()
    store.save(20, state_of(20)).result(timeout=60)
    assert driver.played_streams() <= before + 1


@pytest.mark.parametrize("after", [0, 7])
def test_a_copy_that_fails_leaves_the_store_as_it_was(store, driver, after):
    store.save(1, {"v": jnp.ones(300)}).result(timeout=60)
    driver.played_fail_after(after)
    with pytest.raises(ckptree.Error, match="w: .*CUDA_ERROR_ILLEGAL_ADDRESS"):
        store.save(2, {"w": jnp.ones((1000, 1000))}).result(timeout=60)
    driver.played_reset()
    assert list(store) == [1]
    state = state_of()
    store.save(3, state).result(timeout=60)
    assert bytes_of(store.restore(3, like=state)) == bytes_of(state)


def test_python_goes_on_beside_a_copy(store, driver):
    # Small ones are copied by the caller.
    state = {"w": jnp.arange(300_000.0)}
    store.save(1, {"v": jnp.ones(300)}).result(timeout=60)
    driver.played_hold(True)
    handle = store.save(2, state, borrow=True)
    driver.played_wait_for_copy()
    assert not handle.staged()
    driver.played_hold(False)
    handle.result(timeout=60)
    assert bytes_of(store.restore(2, like=state)) == bytes_of(state)


# Its memory may be another array's by the time it is copied.
def test_an_array_that_is_given_away_beside_its_copy_fails_the_save(
    store, driver
):
    store.save(1, {"v": jnp.ones(300)}).result(timeout=60)
    driver.played_hold(True)
    state = {"w": jnp.ones((1000, 1000))}
    handle = store.save(2, state, borrow=True)
    driver.played_wait_for_copy()
    state["w"].delete()
    driver.played_hold(False)
    with pytest.raises(ckptree.Error, match="w: .*donated"):
        handle.result(timeout=60)
    assert list(store) == [1]


def test_without_a_driver_that_starts_others_copy(
    store, driver, monkeypatch, tmp_path
):
    other = tmp_path / "libother.so"
    shutil.copy(driver.path, other)
    played = ctypes.CDLL(str(other))
    played.played_start_with(100)  # CUDA_ERROR_NO_DEVICE
    for library in (str(other), str(tmp_path / "none.so"), "libm.so.6"):
        monkeypatch.setattr(cuda, "LIBRARY", library)
        state = state_of()
        store.save(len(store), state).result(timeout=60)
        assert bytes_of(store.restore("latest", like=state)) == bytes_of(state)
    assert driver.played_copied() == 0


def test_tensors_go_the_same_way_where_they_are_plain(
    store, driver, monkeypatch
):
    torch = pytest.importorskip(
        "torch",
        reason="PyTorch could not be installed: see requirements_torch.txt",
    )
    from ckptree.adapters import torch_device

    class Played(torch_device.Device):
        others = 0

        def settle(self):
            pass

        def direct(self, address):
            return cuda.direct(address)

        def copy(self, source, target):
            Played.others += target.nbytes
            super().copy(source, target)

    monkeypatch.setitem(torch_device.DEVICES, "cpu", Played)
    monkeypatch.setattr(torch_device, "_found", {})
    state = {
        "large": torch.randn(300, 1001),
        "part": torch.randn(300, 1001)[100:200],
        "turned": torch.randn(300, 200).T,
        "conjugate": torch.randn(200, dtype=torch.complex64).conj(),
        "fp8": torch.randn(333).to(torch.float8_e4m3fn),
        "one": torch.tensor(3.5),
        "none": torch.zeros(0, 3),
        "parameter": torch.nn.Parameter(torch.randn(70)),
    }
    store.save(1, state).result(timeout=60)
    others = state["turned"].nbytes + state["conjugate"].nbytes
    assert Played.others == others
    assert driver.played_copied() == sum(
        tensor.nbytes for tensor in state.values()
    ) - others
    found = store.restore(1, like=state)
    for name, tensor in state.items():
        a, b = (
            t.detach().resolve_conj().contiguous().reshape(-1)
            for t in (found[name], tensor)
        )
        assert torch.equal(a.view(torch.uint8), b.view(torch.uint8)), name


def test_many_saves_at_once_share_a_driver(tmp_path, driver):
    def run(number):
        with ckptree.Store(
            tmp_path / f"s{number}", chunk_bytes=CHUNK, staging_bytes=POOL
        ) as store:
            for step in range(5):
                state = state_of(10 * number + step)
                store.save(step, state).result(timeout=60)
                assert bytes_of(store.restore(step, like=state)) == bytes_of(
                    state
                )
            done.append(number)

    done = []
    threads = [threading.Thread(target=run, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(done) == [0, 1, 2, 3]
    assert driver.played_locked() == 0
