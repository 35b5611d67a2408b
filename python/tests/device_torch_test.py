# SPDX-License-Identifier: Apache-2.0
"""Tensors on a device: a save asks for a piece at a time. Here is no device:
the host plays one, whose memory only its copies read."""

import threading

import ckptree
import pytest

torch = pytest.importorskip(
    "torch", reason="PyTorch could not be installed: see requirements_torch.txt"
)

import ckptree.torch
from ckptree import _engine
from ckptree.adapters import torch_device
from torch_memory_test import random_state, raw

CHUNK = 64 << 10
POOL = 16 * CHUNK


class Played(torch_device.Device):
    def __init__(self, device):
        super().__init__(device)
        Played.one = self
        self.lock = threading.Lock()
        self.bytes, self.most, self.settled = 0, 0, 0
        self.targets = []
        self.before = lambda: None

    def settle(self):
        self.settled += 1

    def copy(self, source, target):
        self.before()
        assert self.settled > 0 and source.shape == target.shape
        super().copy(source, target)
        with self.lock:
            self.bytes += target.nbytes
            self.most = max(self.most, target.nbytes)
            self.targets.append((target.data_ptr(), target.nbytes))


@pytest.fixture
def store(tmp_path, monkeypatch):
    monkeypatch.setitem(torch_device.DEVICES, "cpu", Played)
    monkeypatch.setattr(torch_device, "_found", {})
    with ckptree.Store(
        tmp_path / "store", chunk_bytes=CHUNK, staging_bytes=POOL
    ) as opened:
        yield opened


def large_state():
    state = random_state()
    state["large conj"] = torch.randn(100, 1000, dtype=torch.complex64).conj()
    state["large odd"] = torch.randn(3, 1000, 100).transpose(0, 2)
    return state


def test_each_byte_goes_through_the_pool_once(store):
    state = large_state()
    store.save(1, state).result(timeout=60)
    saved = sum(leaf.nbytes for leaf in store[1].leaves())
    assert Played.one.bytes == saved > 2 * POOL
    assert 0 < Played.one.most <= CHUNK
    assert Played.one.settled == len(state)
    restored = store.restore(1, like=state)
    for name, tensor in state.items():
        assert raw(restored[name]) == raw(tensor.resolve_conj()), name


def test_tensors_may_change_after_the_call(store):
    state = large_state()
    wanted = {
        name: raw(tensor.resolve_conj()) for name, tensor in state.items()
    }
    handle = store.save(1, state)
    for tensor in state.values():
        tensor.zero_()
    handle.result(timeout=60)
    restored = store.restore(1, like=state)
    assert {name: raw(tensor) for name, tensor in restored.items()} == wanted


def test_a_lent_state_is_copied_beside_the_program(store):
    go = threading.Event()
    state = {"w": torch.randn(600, 500)}
    store.save(1, {"v": torch.ones(300)}).result(timeout=60)
    Played.one.before = go.wait
    handle = store.save(2, state, borrow=True)
    assert not handle.staged()
    go.set()
    handle.wait_staged()
    wanted = raw(state["w"])
    state["w"].zero_()
    handle.result(timeout=60)
    assert raw(store.restore(2, like=state)["w"]) == wanted


def test_a_copy_that_fails_leaves_the_store_as_it_was(store):
    store.save(1, {"v": torch.ones(300)}).result(timeout=60)
    fails = []

    def fail():
        fails.append(1)
        if len(fails) > 20:
            raise RuntimeError("the device is gone")

    Played.one.before = fail
    with pytest.raises(ckptree.Error, match="w: .*the device is gone"):
        store.save(2, {"w": torch.randn(1000, 1000)}).result(timeout=60)
    assert len(fails) > 20 and list(store) == [1]


def test_a_tied_tensor_is_copied_once(store):
    w = torch.randn(300, 300)
    store.save(1, {"a": w, "b": w.detach()}).result(timeout=60)
    assert Played.one.bytes == w.nbytes


def test_the_training_of_a_module_goes_on(store):
    model = torch.nn.Linear(300, 200)
    app = {"model": model, "optimizer": torch.optim.Adam(model.parameters())}
    model(torch.ones(300)).sum().backward()
    app["optimizer"].step()
    ckptree.torch.save(store, 1, app).result(timeout=60)
    wanted = raw(model.weight)
    torch.nn.init.zeros_(model.weight)
    assert ckptree.torch.resume(store, app) == 2
    assert raw(model.weight) == wanted


# What CUDA does with cudaHostRegister(): a device copies to such memory at its
# full speed.
def test_the_pool_is_locked_and_unlocked(tmp_path, store):
    locked, there = {}, []

    def lock(address, nbytes):
        locked[address] = nbytes
        return True

    def unlock(address):
        there.append((address, locked.pop(address)))

    _engine.lock_staging(lock, unlock)
    try:
        with ckptree.Store(
            tmp_path / "other", chunk_bytes=CHUNK, staging_bytes=POOL
        ) as other:
            other.save(1, {"w": torch.randn(200, 1000)}).result(timeout=60)
            assert 0 < sum(locked.values()) <= POOL
        assert not locked and there
        for address, nbytes in Played.one.targets:
            assert any(a <= address and address + nbytes <= a + n
                       for a, n in there)
    finally:
        _engine.lock_staging(lambda *ignored: False, lambda address: None)
