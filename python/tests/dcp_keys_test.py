# SPDX-License-Identifier: Apache-2.0
"""Keys that are ints, of which PyTorch's Distributed Checkpoint makes str: a
training goes on from what it saved, as one that was never interrupted."""

import collections

import ckptree
import ckptree.torch
import pytest

torch = pytest.importorskip(
    "torch",
    reason="PyTorch could not be installed: see requirements_torch.txt",
)

import torch.distributed.checkpoint as dcp
from ckptree.torch import _lending
from ckptree.torch.dcp import StoreReader, StoreWriter
from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict
from torch.optim import lr_scheduler

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")

STEP = 4
OPTIMIZERS = {
    "adam": lambda groups: torch.optim.Adam(groups, amsgrad=True),
    "sgd": lambda groups: torch.optim.SGD(groups, momentum=0.9),
    "adagrad": lambda groups: torch.optim.Adagrad(groups),
    "rmsprop": lambda groups: torch.optim.RMSprop(groups, momentum=0.5),
}
SCHEDULERS = {
    "multi": lambda o: lr_scheduler.MultiStepLR(o, [2, 6, 10]),
    "cosine": lambda o: lr_scheduler.CosineAnnealingLR(o, 12),
    "several": lambda o: lr_scheduler.SequentialLR(
        o,
        [
            lr_scheduler.LinearLR(o, 0.1, total_iters=3),
            lr_scheduler.MultiStepLR(o, [2, 4]),
        ],
        milestones=[3],
    ),
}


def start(optimizer="adam", scheduler="multi"):
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        *[torch.nn.Linear(4, 4) for _ in range(6)], torch.nn.Linear(4, 1)
    )
    groups = [
        {"params": list(model[:2].parameters()), "lr": 0.02},
        {"params": list(model[2:].parameters()), "lr": 0.01},
    ]
    made = OPTIMIZERS[optimizer](groups)
    return {"model": model, "optim": made, "lr": SCHEDULERS[scheduler](made)}


def train(app, first, last):
    losses = []
    for step in range(first, last):
        generator = torch.Generator().manual_seed(step)
        x = torch.randn(16, 4, generator=generator)
        loss = (app["model"](x) - x.sum(1, keepdim=True)).square().mean()
        app["optim"].zero_grad()
        loss.backward()
        app["optim"].step()
        app["lr"].step()
        losses.append(loss.item())
    return losses


def states(app):
    return {name: part.state_dict() for name, part in app.items()}


def by_writer(path, state):
    with StoreWriter(path / "run") as writer:
        dcp.save(state, checkpoint_id=STEP, storage_writer=writer)


def by_import(path, state):
    dcp.save(state, checkpoint_id=path / "dcp")
    with ckptree.Store(path / "run") as store:
        ckptree.torch.import_checkpoint(store, path / "dcp", step=STEP)


@pytest.mark.parametrize("saved", [by_writer, by_import])
@pytest.mark.parametrize(
    "optimizer, scheduler",
    [("adam", kind) for kind in SCHEDULERS]
    + [(kind, "multi") for kind in OPTIMIZERS if kind != "adam"],
)
def test_a_training_goes_on_as_if_never_interrupted(
    tmp_path, saved, optimizer, scheduler
):
    app = start(optimizer, scheduler)
    train(app, 0, STEP)
    saved(tmp_path, states(app))
    expected = train(app, STEP, 14)

    # One that has made no step, and one that has: it is read in place there.
    for trained in (0, 2):
        again = start(optimizer, scheduler)
        train(again, 0, trained)
        with ckptree.open(tmp_path / "run") as store:
            assert ckptree.torch.resume(store, again) == STEP + 1
        assert train(again, STEP, 14) == expected

    # As load_state_dict() takes it, without an app.
    again = start(optimizer, scheduler)
    with ckptree.open(tmp_path / "run") as store:
        for found in (ckptree.torch.load(store), store["latest"].torch()):
            assert sorted(found["optim"]["state"]) == list(range(14))
        again["model"].load_state_dict(found["model"])
        again["optim"].load_state_dict(found["optim"])
    assert train(again, STEP, 5) == expected[:1]


def test_moments_are_compared_and_read_in_place(tmp_path):
    app = start()
    train(app, 0, STEP)
    by_writer(tmp_path, states(app))
    again = start()
    train(again, 0, 2)
    parameter = again["model"][0].weight
    memory = again["optim"].state[parameter]["exp_avg"].data_ptr()
    with ckptree.open(tmp_path / "run") as store:
        ckptree.torch.load(store, again)
        moments = again["optim"].state[parameter]
        assert moments["exp_avg"].data_ptr() == memory
        moments["exp_avg"] = torch.zeros(3)
        with pytest.raises(
            ckptree.MismatchError, match="optim/state/0/exp_avg: shape"
        ):
            ckptree.torch.load(store, again)


def test_parameters_with_names_keep_them(tmp_path):
    model = torch.nn.ParameterList([torch.ones(2), torch.ones(3)])
    optimizer = torch.optim.Adam(list(model)[::-1])
    sum(p.sum() * (i + 1) for i, p in enumerate(model)).backward()
    optimizer.step()
    state = get_optimizer_state_dict(model, optimizer)
    assert set(state["state"]) == {"0", "1"}  # Names, in another order.
    by_writer(tmp_path, {"optim": state})
    again = torch.optim.Adam(list(model)[::-1])
    sum(p.sum() for p in model).backward()
    again.step()
    with ckptree.open(tmp_path / "run") as store:
        assert set(store[STEP].torch()["optim"]["state"]) == {"0", "1"}
        ckptree.torch.load(store, {"optim": again})
    for parameter in model:
        before, after = optimizer.state[parameter], again.state[parameter]
        assert torch.equal(before["exp_avg"], after["exp_avg"])


class Holder:
    def __init__(self, state):
        self.state = state

    def state_dict(self):
        return self.state

    def load_state_dict(self, state):
        self.state = state


def test_what_the_app_has_says_which_keys_are_ints(tmp_path):
    saved = {
        "text": {"0": 1, "10": 2},
        "of": {"0": 1, "x": 2},
        "count": {"0": 5, "seen": {"3": 1}},
        "numbers": {0: 1, 10: 2},
        "mixed": {0: 1, "10": 2, "x": 3},
        "other": {0.5: 1, None: 2, True: 3, "False": 4},
    }
    counter = collections.Counter({7: 2})
    by_writer(tmp_path, {"plain": saved, "object": {**saved, "c": counter}})

    def fresh():
        return {
            "text": {"0": 0},
            "of": {"0": 0},
            "count": {"0": 0, "seen": {}},
            "numbers": {3: 0},
            "mixed": {0: 0, "10": 0, "x": 0},
            "other": {0.5: 0, None: 0, True: 0, "False": 0},
        }

    held = Holder({**fresh(), "c": collections.Counter({1: 1})})
    with ckptree.open(tmp_path / "run") as store:
        app = ckptree.torch.load(store, {"plain": fresh(), "object": held})
        assert app["plain"] == saved
        assert held.state == {**saved, "c": counter}
        assert type(held.state["c"]) is collections.Counter
    # A step of the store itself has its keys as they were.
    with ckptree.Store(tmp_path / "run") as store:
        ckptree.torch.save(store, 5, {"x": {"0": 1}, "y": {0: 1}})
        app = {"x": {"0": 7}, "y": {}}
        assert ckptree.torch.load(store, app) == {"x": {"0": 1}, "y": {0: 1}}


def test_a_folder_is_listed_by_the_names_of_its_import(tmp_path):
    app = start()
    train(app, 0, 1)
    by_import(tmp_path, states(app))
    lent, _ = _lending.find(tmp_path / "dcp")
    with ckptree.open(tmp_path / "run") as store:
        assert "optim/state/{10}/exp_avg" in store[STEP]
        arrays = [leaf.name for leaf in store[STEP].values() if leaf.shape]
    assert set(arrays) <= {found.name for found in lent}


def test_it_is_loaded_by_dcp_as_ever(tmp_path):
    app = start("adam", "cosine")
    train(app, 0, STEP)
    for saved in (by_writer, by_import):
        saved(tmp_path / saved.__name__, states(app))
        again = start("adam", "cosine")
        train(again, 0, 1)
        state = states(again)
        with StoreReader(tmp_path / saved.__name__ / "run") as reader:
            dcp.load(state, checkpoint_id=STEP, storage_reader=reader)
        for name, part in again.items():
            part.load_state_dict(state[name])
        assert again["lr"].state_dict() == app["lr"].state_dict()
        expected = app["optim"].state_dict()["state"]
        for number, moments in again["optim"].state_dict()["state"].items():
            for name, value in moments.items():
                assert torch.equal(value, expected[number][name])
