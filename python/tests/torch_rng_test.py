# SPDX-License-Identifier: Apache-2.0
"""Generators of random numbers go on where they were."""

import random

import ckptree
import numpy as np
import pytest

torch = pytest.importorskip(
    "torch", reason="PyTorch could not be installed: see requirements_torch.txt"
)

import ckptree.torch


def draw():
    return (
        torch.rand(3).tolist(), torch.randn(5).tolist(), random.random(),
        random.gauss(0, 1), np.random.rand(), np.random.randn(),
    )


def saved(store, app, step=1):
    ckptree.torch.save(store, step, app).result(timeout=60)


@pytest.mark.parametrize("drawn", [0, 1])
def test_those_of_the_process(store, drawn):
    """Half a pair of normal numbers may be left in them."""
    app = {"rng": ckptree.torch.Rng()}
    torch.manual_seed(1), random.seed(1), np.random.seed(1)
    for _ in range(drawn):
        random.gauss(0, 1), np.random.randn(), torch.randn(1)
    saved(store, app)
    first = draw()
    assert draw() != first
    ckptree.torch.load(store, app)
    assert draw() == first


@pytest.mark.parametrize(
    "make, use",
    [
        (lambda n: torch.Generator().manual_seed(n),
         lambda g: torch.rand(3, generator=g).tolist()),
        (np.random.default_rng, lambda g: g.standard_normal(3).tolist()),
        (lambda n: np.random.Generator(np.random.Philox(n)),
         lambda g: g.random(3).tolist()),
        (lambda n: np.random.Generator(np.random.SFC64(n)),
         lambda g: g.integers(9, size=3).tolist()),
        (np.random.RandomState, lambda g: g.randn(3).tolist()),
        (random.Random, lambda g: [g.gauss(0, 1) for _ in range(3)]),
    ],
    ids=["torch", "pcg64", "philox", "sfc64", "randomstate", "python"],
)
def test_those_of_an_app(store, make, use):
    generator, other = make(1), make(2)
    use(generator)
    saved(store, {"g": [generator]})
    rest = [use(generator), use(generator)]
    ckptree.torch.load(store, {"g": [other]})
    assert [use(other), use(other)] == rest


def test_a_generator_of_another_kind_is_refused_by_path(store):
    saved(store, {"g": np.random.default_rng(1)})
    other = np.random.Generator(np.random.Philox(1))
    before = str(other.bit_generator.state)
    with pytest.raises(ckptree.MismatchError, match="g/state/inc"):
        ckptree.torch.load(store, {"g": other})
    assert str(other.bit_generator.state) == before


def test_others_may_draw_while_their_states_are_taken_and_set(store):
    class Draws:
        def state_dict(self):
            return {"drawn": torch.rand(1)}

        def load_state_dict(self, state):
            torch.rand(100), random.random()

    app = {"rng": ckptree.torch.Rng(), "draws": Draws()}
    saved(store, app)
    first = draw()
    ckptree.torch.load(store, app)
    assert draw() == first


class Cuda:
    """Two devices that are not there."""

    def __init__(self, count, seed):
        self.states = [torch.full((16,), seed + i, dtype=torch.uint8)
                       for i in range(count)]

    def put_in(self, patch):
        patch.setattr(torch.cuda, "is_available", lambda: bool(self.states))
        patch.setattr(torch.cuda, "get_rng_state_all", lambda: [
            state.clone() for state in self.states])
        patch.setattr(torch.cuda, "set_rng_state_all", self.set)

    def set(self, states):
        assert len(states) == len(self.states)
        self.states = states


def test_those_of_all_devices(store, monkeypatch):
    Cuda(2, 7).put_in(monkeypatch)
    saved(store, {"rng": ckptree.torch.Rng()})
    assert {"rng/cuda/[0]", "rng/cuda/[1]"} <= set(store[1])
    other = Cuda(2, 30)
    other.put_in(monkeypatch)
    ckptree.torch.load(store, {"rng": ckptree.torch.Rng()})
    assert [int(state[0]) for state in other.states] == [7, 8]
    for count in (0, 1, 3):
        Cuda(count, 30).put_in(monkeypatch)
        before = torch.get_rng_state()
        with pytest.raises(ckptree.MismatchError, match="rng/cuda"):
            ckptree.torch.load(store, {"rng": ckptree.torch.Rng()})
        assert torch.equal(torch.get_rng_state(), before)
    ckptree.torch.load(
        store, {"rng": ckptree.torch.Rng(cuda=False)}, partial=True)
    state = ckptree.torch.load(store)["rng"]
    with pytest.raises(ValueError, match="2 of cuda.* and here are"):
        ckptree.torch.Rng(cuda=False).load_state_dict(state)
