# SPDX-License-Identifier: Apache-2.0
"""Apps whose parts have the same memory, of which a step has two values."""

from __future__ import annotations

import collections
import copy
from pathlib import Path
from typing import Any

import pytest
import torch

import ckptree
import ckptree.torch


class Holder:
    """What somebody keeps of a model: tensors, at first those of the model."""

    def __init__(self, held: Any) -> None:
        self.held = held

    def state_dict(self) -> dict[str, Any]:
        return {"held": self.held}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.held = state["held"]


@pytest.fixture
def store(tmp_path: Path):
    with ckptree.Store(tmp_path / "run") as opened:
        yield opened


def test_what_is_kept_of_a_model_is_not_read_into_it(store):
    model = torch.nn.Linear(2, 2, bias=False)
    best = Holder(copy.deepcopy(model.state_dict()))
    with torch.no_grad():
        model.weight += 1
    app = {"model": model, "best": best}
    ckptree.torch.save(store, 1, app).result()
    fresh = torch.nn.Linear(2, 2, bias=False)
    kept = Holder(fresh.state_dict())
    assert kept.held["weight"].data_ptr() == fresh.weight.data_ptr()
    ckptree.torch.load(store, {"model": fresh, "best": kept})
    assert torch.equal(fresh.weight, model.weight)
    assert torch.equal(kept.held["weight"], best.held["weight"])


def test_two_that_keep_one_tensor_get_two(store):
    app = {"x": Holder(torch.ones(2)), "y": Holder(torch.zeros(2))}
    ckptree.torch.save(store, 1, app).result()
    one = torch.full((2,), 5.0)
    x, y = Holder(one), Holder(one)
    ckptree.torch.load(store, {"x": x, "y": y})
    assert x.held.tolist() == [1, 1] and y.held.tolist() == [0, 0]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_tied_tensors_with_two_values_are_an_error(store, dtype):
    app = {"a": torch.ones(3), "b": torch.zeros(3)}
    ckptree.torch.save(store, 1, app).result()
    tied = torch.full((3,), 7.0).to(dtype)
    with pytest.raises(ckptree.MismatchError, match="two values"):
        ckptree.torch.load(store, {"a": tied, "b": tied}, cast=True)
    assert tied.tolist() == [7, 7, 7]
    app["b"] = app["a"].clone()  # The same value, twice.
    ckptree.torch.save(store, 2, app).result()
    ckptree.torch.load(store, {"a": tied, "b": tied}, step=2, cast=True)
    assert tied.tolist() == [1, 1, 1]


def test_a_named_tuple_where_a_tuple_was(store):
    pair = collections.namedtuple("pair", "a b")
    alone = collections.namedtuple("alone", "a")
    app = {"w": torch.ones(3), "p": pair(1, 2), "q": alone(5), "l": pair(3, 4)}
    ckptree.torch.save(store, 1, app).result()
    fresh = {"w": torch.zeros(3), "p": (0, 0), "q": (0,), "l": [0, 0]}
    made = ckptree.torch.load(store, fresh)
    assert tuple(made["p"]) == (1, 2) and tuple(made["q"]) == (5,)
    assert tuple(made["l"]) == (3, 4) and fresh["w"].tolist() == [1, 1, 1]


def test_memory_that_was_freed_is_an_error(store):
    """As FSDP leaves what it has sharded."""
    ckptree.torch.save(store, 1, {"w": torch.ones(3)}).result()
    freed = torch.zeros(3)
    freed.untyped_storage().resize_(0)
    with pytest.raises(ValueError, match="freed"):
        store.save(2, {"w": freed})
    with pytest.raises(ckptree.MismatchError, match="freed"):
        ckptree.torch.load(store, {"w": freed})
    # As a template it has all that is asked.
    made = store.restore(1, like={"w": freed})["w"]
    assert made.tolist() == [1, 1, 1]
    kept = Holder(freed)
    ckptree.torch.save(store, 3, {"k": Holder(torch.ones(3))}).result()
    ckptree.torch.load(store, {"k": kept}, step=3)
    assert kept.held.tolist() == [1, 1, 1]


def test_memory_that_ends_before_the_tensor_is_an_error(store):
    ckptree.torch.save(store, 1, {"w": torch.ones(3)}).result()
    base = torch.zeros(8)
    short = base[1::2][1:]  # Of the elements 3, 5 and 7.
    base.untyped_storage().resize_(4 * 8 - 1)
    with pytest.raises(ValueError, match="^w: .*freed"):
        store.save(2, {"w": short})
    with pytest.raises(ckptree.MismatchError, match="w: .*freed"):
        ckptree.torch.load(store, {"w": short})
    kept = Holder(short)
    ckptree.torch.save(store, 3, {"k": Holder(torch.ones(3))}).result()
    ckptree.torch.load(store, {"k": kept}, step=3)
    assert kept.held is not short and kept.held.tolist() == [1, 1, 1]
    assert base.untyped_storage().tolist() == [0] * 31
    # All of it is there: the last one has no byte to spare.
    whole = torch.zeros(8)[1::2][1:]
    ckptree.torch.load(store, {"w": whole}, step=1)
    assert whole.tolist() == [1, 1, 1]


def test_windows_that_overlap_are_an_error(store):
    windows = torch.arange(9.0).unfold(0, 3, 1)
    app = {"w": windows.clone(), "k": Holder(windows.clone())}
    ckptree.torch.save(store, 1, app).result()
    base = torch.zeros(9)
    with pytest.raises(ckptree.MismatchError, match="w: .*one in memory"):
        ckptree.torch.load(store, {"w": base.unfold(0, 3, 1)}, partial=True)
    kept = Holder(base.unfold(0, 3, 1))
    ckptree.torch.load(store, {"k": kept}, partial=True)
    assert torch.equal(kept.held, windows) and base.tolist() == [0] * 9
    # Some that do not.
    apart = torch.zeros(7, 6)[:, ::2]
    ckptree.torch.load(store, {"w": apart}, partial=True)
    assert torch.equal(apart, windows)


@pytest.mark.parametrize("turned", [False, True])
def test_backward_of_what_was_computed_before_a_load_is_an_error(store, turned):
    def weights():
        return torch.ones(3, 2).T if turned else torch.ones(2, 3)

    ckptree.torch.save(store, 1, {"w": weights() * 2}).result()
    w, x = weights(), torch.ones(2, 3, requires_grad=True)
    loss = (w * x).sum()
    ckptree.torch.load(store, {"w": w})
    assert w.sum() == 12
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()
    with torch.inference_mode():
        without = weights()
        ckptree.torch.load(store, {"w": without})
        assert without.sum() == 12
