# SPDX-License-Identifier: Apache-2.0
"""Apps whose parts have the same memory, of which a step has two values."""

from __future__ import annotations

import collections
import copy
from pathlib import Path
from typing import Any

import numpy as np
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


def saved(store: Any, app: dict[str, Any]) -> None:
    """As the only step."""
    ckptree.torch.save(store, 1, app, overwrite=1 in store).result()


class Flat(Holder):
    """The parameters of a model as one row each, at first as its own memory."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__([p.detach().flatten() for p in model.parameters()])

    def take(self, model: torch.nn.Module) -> None:
        self.held = [p.detach().flatten().clone() for p in model.parameters()]


@pytest.mark.parametrize("first", ["best", "model"])
def test_a_model_gets_its_own_values_beside_rows_of_it(store, first):
    def made(number: float) -> dict[str, Any]:
        model = torch.nn.Linear(3, 2)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.fill_(number)
        app = {"model": model, "best": Flat(model)}
        return {first: app.pop(first), **app}

    app = made(1)
    app["best"].take(app["model"])
    with torch.no_grad():
        for parameter in app["model"].parameters():
            parameter.fill_(2)
    saved(store, app)
    fresh = made(7)
    ckptree.torch.load(store, fresh)
    assert [p.unique().tolist() for p in fresh["model"].parameters()] == [
        [2], [2]]
    assert [row.tolist() for row in fresh["best"].held] == [[1] * 6, [1] * 2]


def test_rows_that_lie_in_each_other_get_memory_of_their_own(store):
    saved(store, {
        "x": Holder(torch.full((4,), 1.0)), "y": Holder(torch.full((4,), 2.0)),
        "z": Holder(torch.full((2,), 3.0))})
    base = torch.zeros(8)
    held = {
        "x": Holder(base[:4]), "y": Holder(base[2:6]), "z": Holder(base[6:])}
    ckptree.torch.load(store, held)
    assert [held[name].held.unique().tolist() for name in "xyz"] == [
        [1], [2], [3]]
    # What nothing else is in stays where it is, as the first one does.
    assert base.tolist() == [1, 1, 1, 1, 0, 0, 3, 3]


def across(w: torch.Tensor) -> torch.Tensor:
    return w.t()


def row(w: torch.Tensor) -> torch.Tensor:
    return w.view(-1)


def end(w: torch.Tensor) -> torch.Tensor:
    return w.view(-1)[2:]


def bits(w: torch.Tensor) -> torch.Tensor:
    return w.view(torch.int32)


@pytest.mark.parametrize(
    ("view", "dtype"),
    [
        *((view, torch.float32) for view in (across, row, end, bits)),
        *((view, torch.float64) for view in (across, row, end)),
    ],
)
def test_views_of_which_a_step_has_other_values_are_an_error(
    store, view, dtype
):
    """The step has float32; of another type it is a cast."""
    w = torch.arange(6.0).view(2, 3)
    other = view(w).clone() + 1
    saved(store, {"w": w, "v": other})
    into = torch.full((2, 3), 7.0, dtype=dtype)
    held = {"w": into, "v": view(into)}
    with pytest.raises(ckptree.MismatchError) as caught:
        ckptree.torch.load(store, held, cast=True)
    (found,) = caught.value.differences
    assert found.path == "v" and "memory of w" in str(caught.value)
    assert into.unique().tolist() == [7]
    saved(store, {"w": w, "v": view(w).clone()})
    ckptree.torch.load(store, held, cast=True)
    assert into.tolist() == w.tolist()
    # Only one of them is asked for.
    saved(store, {"v": other})
    ckptree.torch.load(store, held, cast=True, partial=True)
    assert held["v"].tolist() == other.tolist()


def test_views_that_have_no_element_in_common_are_read_in_place(store):
    columns = {"a": torch.ones(3, 2), "b": torch.zeros(3, 2)}
    saved(store, {**columns, "c": Holder(torch.full((3, 1), 5.0))})
    x = torch.full((3, 5), 7.0)
    held = Holder(x[:, 4:])
    app = {"a": x[:, :4:2], "b": x[:, 1:4:2], "c": held}
    ckptree.torch.load(store, app)
    assert x.tolist() == [[1, 0, 1, 0, 5]] * 3
    assert held.held.data_ptr() == x[:, 4:].data_ptr()


@pytest.mark.parametrize("is_conj", [False, True])
def test_numbers_and_their_parts_in_one_memory(store, is_conj):
    z = torch.tensor([1 + 2j, 3 - 4j])
    state = {"z": z.conj() if is_conj else z, "parts": torch.view_as_real(z)}
    saved(store, {name: value.clone() for name, value in state.items()})
    memory = torch.zeros(2, dtype=torch.complex64)
    fresh = {
        "z": memory.conj() if is_conj else memory,
        "parts": torch.view_as_real(memory)}
    ckptree.torch.load(store, fresh)
    assert memory.tolist() == z.tolist()


def test_arrays_of_numpy_under_two_tensors(store):
    """They are two storages of one memory."""
    saved(store, {"a": torch.ones(4), "b": torch.zeros(4)})
    base = np.full(6, 7, np.float32)
    app = {"a": torch.from_numpy(base[:4]), "b": torch.from_numpy(base[2:])}
    with pytest.raises(ckptree.MismatchError, match="memory of a"):
        ckptree.torch.load(store, app)
    assert base.tolist() == [7] * 6


@pytest.mark.parametrize("of", [lambda w: w, row], ids=["same", "row"])
def test_what_a_step_lacks_is_not_overwritten_by_what_is_kept_of_it(store, of):
    saved(store, {"best": Holder(of(torch.ones(2, 3)).clone()), "lr": 1})
    w = torch.full((2, 3), 7.0)
    best = Holder(of(w))
    ckptree.torch.load(store, {"w": w, "best": best}, partial=True)
    assert w.unique().tolist() == [7]
    assert best.held.unique().tolist() == [1]
