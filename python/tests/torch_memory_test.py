# SPDX-License-Identifier: Apache-2.0
"""Tensors of a device get their bytes through a pool of a few buffers. Here is
no device: one is played, which copies when it pleases."""

import ckptree
import pytest

torch = pytest.importorskip(
    "torch", reason="PyTorch could not be installed: see requirements_torch.txt"
)

import ckptree.torch
from ckptree.adapters import boxes, torch_memory


class Played(torch_memory.Staging):
    """A device whose copies end as late as they may: when they are waited for.
    So a buffer that is used again too early has wrong bytes."""

    def __init__(self, device):
        super().__init__(device)
        Played.all.append(self)
        self.buffers, self.begun, self.waits, self.copies = [], [], 0, 0

    def buffer(self, nbytes):
        self.buffers.append(super().buffer(nbytes))
        return self.buffers[-1]

    def copy(self, source, target):
        self.begun.append((source, target))
        self.copies += 1

    def mark(self):
        mine, self.begun = self.begun, []

        def wait():
            self.waits += 1
            for source, target in mine:
                target.copy_(source)
            mine.clear()

        return wait


@pytest.fixture
def device(monkeypatch):
    """Every tensor of the host is one of the device, in buffers of 64 KiB."""
    Played.all = []
    monkeypatch.setattr(torch_memory, "is_straight", lambda tensor: False)
    monkeypatch.setitem(torch_memory.STAGING, "cpu", Played)
    monkeypatch.setattr(torch_memory, "BUFFER_BYTES", 64 << 10)
    return Played


def random_state():
    def bits(dtype, *shape):
        count = torch.Size(shape).numel() * dtype.itemsize
        return torch.randint(0, 256, (count,), dtype=torch.uint8).view(
            dtype).view(shape)

    return {
        "large": bits(torch.float32, 300, 401),
        "long": bits(torch.int8, 1 << 20),
        "wide rows": bits(torch.bfloat16, 3, 50, 1001),
        "odd": bits(torch.float64, 7, 11, 13, 17),
        "turned": bits(torch.int16, 200, 700).T,
        "fp8": bits(torch.float8_e4m3fn, 333),
        "flag": torch.rand(999) > 0.5,
        "one": torch.tensor(3.5),
        "none": torch.zeros(0, 3),
        **{f"small {i}": bits(torch.int64, 5, i) for i in range(40)},
    }


def raw(tensor):
    flat = tensor.detach().contiguous().reshape(-1)
    return flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b""


@pytest.mark.parametrize("chunk_bytes", [64 << 10, 4 << 20])
def test_all_bytes_arrive_through_two_buffers(tmp_path, device, chunk_bytes):
    state = random_state()
    wanted = {name: raw(tensor) for name, tensor in state.items()}
    with ckptree.Store(tmp_path / "s", chunk_bytes=chunk_bytes) as store:
        store.save(1, state).result(timeout=60)
        for tensor in state.values():
            tensor.zero_()
        ckptree.torch.load(store, state)
    assert {name: raw(tensor) for name, tensor in state.items()} == wanted
    (played,) = device.all
    assert [b.nbytes for b in played.buffers] == [64 << 10] * 2
    assert played.copies > len(state)
    # Every batch was waited for, and twice where its buffer came again.
    total = sum(map(len, wanted.values()))
    assert played.waits >= total // (64 << 10)


def test_small_states_take_small_buffers(store, device):
    store.save(1, {"w": torch.ones(5)}).result(timeout=60)
    app = {"w": torch.zeros(5)}
    ckptree.torch.load(store, app)
    assert app["w"].sum() == 5
    (played,) = device.all
    assert [buffer.nbytes for buffer in played.buffers] == [64]


def test_new_tensors_go_through_the_pool_too(store, device):
    state = random_state()
    store.save(1, state).result(timeout=60)
    made = store[1].torch(device="cpu")
    assert {n: raw(t) for n, t in made.items()} == {
        n: raw(t) for n, t in state.items()}
    like = store.restore(1, like=state)
    assert {n: raw(t) for n, t in like.items()} == {
        n: raw(t) for n, t in state.items()}
    assert len(device.all) == 2


def test_a_read_that_fails_waits_for_the_copies(store, device):
    state = {f"w{i}": torch.full((9000,), float(i)) for i in range(8)}
    store.save(1, state).result(timeout=60)
    step = store[1]._engine

    class Failing:
        count = 0

        def read(self, requests):
            Failing.count += 1
            if Failing.count == 4:
                raise OSError("no more")
            step.read(requests)

        def __getattr__(self, name):
            return getattr(step, name)

    into = {name: torch.zeros(9000) for name in state}
    wanted = [(step.find(name), into[name]) for name in state]
    with pytest.raises(OSError, match="no more"):
        torch_memory.read(Failing(), wanted)
    (played,) = device.all
    assert played.waits >= 2
    assert torch.equal(into["w0"], state["w0"])


def test_chunks_are_not_cut_where_that_can_be(tmp_path, device):
    """What is read of a chunk is checked whole: cut ones are read twice."""
    with ckptree.Store(tmp_path / "s", chunk_bytes=64 << 10) as store:
        large = torch.randn(1000, 100)
        store.save(1, {"w": large}).result(timeout=60)
        rows = store[1]["w"].detail.chunk_shape[0]
        info = store[1]._engine.find("w")
        pieces = list(torch_memory._pieces(store[1]._engine, [(info, large)]))
    assert all(piece.start[0] % rows == 0 for piece in pieces)
    assert sum(piece.shape[0] for piece in pieces) == 1000
    assert all(piece.nbytes <= 64 << 10 for piece in pieces)


def test_a_dimension_of_which_no_index_fits(device):
    parts = list(boxes.cut((2, 3, 40000), 4, (), 64 << 10))
    assert len(parts) == 2 * 3 * 3
    assert ((1, 2, 32768), (1, 1, 40000 - 32768)) in parts
    assert list(boxes.cut((), 8, (), 64 << 10)) == [((), ())]


@pytest.mark.skipif(
    not torch.cuda.is_available(), reason="there is no CUDA device here"
)
def test_a_device_of_cuda(store):
    state = random_state()
    store.save(1, state).result(timeout=60)
    app = {name: torch.zeros_like(t, device="cuda") for name, t in
           state.items()}
    places = [tensor.data_ptr() for tensor in app.values()]
    ckptree.torch.load(store, app)
    assert [tensor.data_ptr() for tensor in app.values()] == places
    assert {n: raw(t.cpu()) for n, t in app.items()} == {
        n: raw(t) for n, t in state.items()}
