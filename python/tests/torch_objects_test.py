# SPDX-License-Identifier: Apache-2.0
"""ckptree.torch.load(): whatever has a state_dict() gets back what it said."""

import collections
import pathlib
import re

import ckptree
import numpy as np
import pytest

torch = pytest.importorskip(
    "torch", reason="PyTorch could not be installed: see requirements_torch.txt"
)

import ckptree.torch
from small_training import Loader, made, saved, state_of, trained


def test_an_optimizer_that_made_no_step_is_resumed(store):
    model, optimizer = made(0, steps=3)
    saved(store, {"model": model, "optimizer": optimizer})
    other, its = made(7)
    assert its.state_dict()["state"] == {}
    ckptree.torch.load(store, {"model": other, "optimizer": its})
    assert state_of(other, its) == state_of(model, optimizer)


def test_an_optimizer_goes_back_to_before_its_first_step(store):
    model, optimizer = made(0)
    saved(store, {"optimizer": optimizer})
    trained(model, optimizer, 2)
    ckptree.torch.load(store, {"optimizer": optimizer})
    assert optimizer.state_dict()["state"] == {}


def test_groups_of_an_optimizer_that_differ(store):
    model = torch.nn.Linear(3, 2)
    groups = [{"params": [p]} for p in model.parameters()]
    saved(store, {"optimizer": torch.optim.SGD(groups, lr=1.0)})
    one = {"optimizer": torch.optim.SGD(model.parameters(), lr=2.0)}
    with pytest.raises(ckptree.MismatchError) as error:
        ckptree.torch.load(store, one)
    assert "1 group of 2 parameters" in str(error.value)
    assert "2 groups of 1 and 1 parameters" in str(error.value)
    assert one["optimizer"].param_groups[0]["lr"] == 2.0


def test_ties_in_the_state_of_an_optimizer(store):
    rate = torch.tensor(1e-2)
    groups = [{"params": [torch.ones(2, requires_grad=True)], "lr": rate}
              for _ in range(2)]
    optimizer = torch.optim.Adam(groups, foreach=False, capturable=False)
    saved(store, {"optimizer": optimizer})
    rate.zero_()
    ckptree.torch.load(store, {"optimizer": optimizer})
    a, b = (group["lr"] for group in optimizer.param_groups)
    assert a == b == torch.tensor(1e-2)
    assert store[1].info.leaf_count < len(list(store[1]))


@pytest.mark.parametrize(
    "make",
    [
        lambda o: torch.optim.lr_scheduler.MultiStepLR(o, [2, 3, 3], 0.5),
        lambda o: torch.optim.lr_scheduler.OneCycleLR(o, 0.1, total_steps=9),
        lambda o: torch.optim.lr_scheduler.CosineAnnealingLR(o, 9),
        lambda o: torch.optim.lr_scheduler.LambdaLR(o, lambda n: 0.9**n),
        lambda o: torch.optim.lr_scheduler.SequentialLR(
            o,
            [torch.optim.lr_scheduler.ConstantLR(o, 0.1, 2),
             torch.optim.lr_scheduler.ExponentialLR(o, 0.9)],
            [2],
        ),
    ],
    ids=["steps", "cycle", "cosine", "lambda", "sequence"],
)
def test_schedulers(store, make):
    def rates(optimizer, schedule, count):
        found = []
        for _ in range(count):
            optimizer.step()
            schedule.step()
            found.append(optimizer.param_groups[0]["lr"])
        return found

    def start():
        w = torch.nn.Parameter(torch.ones(2))
        optimizer = torch.optim.SGD([w], lr=0.4)
        return optimizer, make(optimizer)

    optimizer, schedule = start()
    rates(optimizer, schedule, 2)
    saved(store, {"schedule": schedule, "optimizer": optimizer})
    rest = rates(optimizer, schedule, 4)
    fresh, its = start()
    kinds = {k: type(v) for k, v in its.state_dict().items()}
    ckptree.torch.load(store, {"schedule": its, "optimizer": fresh})
    assert {k: type(v) for k, v in its.state_dict().items()} == kinds
    assert rates(fresh, its, 4) == rest


def test_a_scaler(store):
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    saved(store, {"scaler": scaler, "off": torch.amp.GradScaler(enabled=False)})
    other = torch.amp.GradScaler("cpu")
    app = {"scaler": other, "off": torch.amp.GradScaler(enabled=False)}
    ckptree.torch.load(store, app)
    assert other.get_scale() == 8.0


def test_objects_with_a_state_of_any_form(store):
    loader = Loader()
    loader.position, loader.rest = 5, [torch.arange(3), {"seed": 2**70}]
    saved(store, {"data": {"loader": loader}})
    other = Loader()
    ckptree.torch.load(store, {"data": {"loader": other}})
    assert other.position == 5 and other.rest[1] == {"seed": 2**70}
    assert torch.equal(other.rest[0], torch.arange(3))


def test_arrays_are_those_of_numpy_where_an_object_has_one_now(store):
    def loader(rest):
        made = Loader()
        made.rest = rest
        return made

    seen = [np.arange(2), {"x": np.arange(3)}, np.arange(4)]
    saved(store, {"loader": loader(seen)})
    other = loader([np.zeros(1)])
    ckptree.torch.load(store, {"loader": other})
    first, inner, last = other.rest
    assert isinstance(first, np.ndarray) and isinstance(last, np.ndarray)
    assert torch.equal(inner["x"], torch.arange(3))
    empty = loader(None)
    ckptree.torch.load(store, {"loader": empty})
    assert torch.equal(empty.rest[2], torch.arange(4))


def test_keys_that_are_there_keep_their_order(store):
    names = [f"k{i}" for i in range(12)]

    def app(keys):
        loader = Loader()
        loader.rest = collections.OrderedDict.fromkeys(keys, 1)
        return {
            "loader": loader, "n": dict.fromkeys(keys, 1),
            "tensors": {key: torch.ones(1) for key in names},
        }

    saved(store, app(names))
    for keys, expected in (
        (names, names), ([], sorted(names)),
        (["k7", "k2"], ["k7", "k2", *sorted({*names} - {"k7", "k2"})]),
    ):
        into = ckptree.torch.load(store, app(keys))
        assert list(into["n"]) == list(into["loader"].rest) == expected
        assert list(into["tensors"]) == names


def test_a_loader_of_torchdata_goes_on_in_its_epoch(store):
    torchdata = pytest.importorskip(
        "torchdata.stateful_dataloader", reason="torchdata is not installed")

    def start():
        torch.manual_seed(3)
        loader = torchdata.StatefulDataLoader(
            list(range(40)), batch_size=4, shuffle=True)
        return loader, {"loader": loader, "rng": ckptree.torch.Rng()}

    loader, app = start()
    batches = iter(loader)
    first = [next(batches).tolist() for _ in range(4)]
    saved(store, app)
    rest = [batch.tolist() for batch in batches]
    after = [batch.tolist() for batch in loader]
    assert len(first) + len(rest) == 10
    other, its = start()
    torch.manual_seed(99)
    ckptree.torch.load(store, its)
    assert [batch.tolist() for batch in other] == rest
    assert [batch.tolist() for batch in other] == after


@pytest.mark.parametrize("saved_at", [5, 9, 13])
def test_what_is_drawn_beside_a_loader_goes_on_as_the_readme_says(
    store, saved_at
):
    """Ten batches are an epoch."""
    torchdata = pytest.importorskip(
        "torchdata.stateful_dataloader", reason="torchdata is not installed")
    readme = (pathlib.Path(__file__).parent.parent / "README.md").read_text()
    (program,) = re.findall(
        r"<!-- program: loader -->\n```python\n(.*?)```", readme, re.S)

    def train(seed):
        torch.manual_seed(seed)
        names = {
            "ckptree": ckptree, "model": torch.nn.Linear(1, 1), "store": store,
            "loader": torchdata.StatefulDataLoader(
                list(range(40)), batch_size=4, shuffle=True)}
        exec(program, names)
        step, drawn = names["step"], []
        while step < 25:
            for batch in names["loader"]:
                drawn.append((batch.tolist(), torch.rand(()).item()))
                if step == saved_at and not list(store):
                    ckptree.torch.save(store, step, names["app"]).result()
                step += 1
                if step == 25:
                    break
        return drawn

    whole = train(3)
    assert len(whole) == 25
    assert train(99) == whole[saved_at + 1 :]


def test_a_state_as_pages_on_dcp_have_it(store):
    from torch.distributed.checkpoint import state_dict as dcp

    class AppState:
        def __init__(self, model, optimizer):
            self.model, self.optimizer = model, optimizer

        def state_dict(self):
            model, optimizer = dcp.get_state_dict(self.model, self.optimizer)
            return {"model": model, "optimizer": optimizer}

        def load_state_dict(self, state):
            dcp.set_state_dict(
                self.model, self.optimizer, model_state_dict=state["model"],
                optim_state_dict=state["optimizer"])

    model, optimizer = made(0, steps=2)
    saved(store, {"app": AppState(model, optimizer)})
    assert "app/optimizer/state/norm.weight/exp_avg" in store[1]
    for steps in (0, 1):
        other, its = made(7, steps)
        place = other.norm.weight.data_ptr()
        ckptree.torch.load(store, {"app": AppState(other, its)})
        assert state_of(other, its) == state_of(model, optimizer)
        assert other.norm.weight.data_ptr() == place


def test_what_modules_say_of_themselves(store):
    class Own(torch.nn.Module):
        def __init__(self, said):
            super().__init__()
            self.said = said
            self.weight = torch.nn.Parameter(torch.ones(2))

        def get_extra_state(self):
            return self.said

        def set_extra_state(self, said):
            self.said = said

    def both(a, b):
        return torch.nn.ModuleDict({"a": Own(a), "b": Own(b)})

    saved(store, {"model": both({"n": [1, 2]}, torch.arange(5))})
    other = both({}, torch.zeros(3))
    ckptree.torch.load(store, {"model": other})
    assert other["a"].said == {"n": [1, 2]}
    assert torch.equal(other["b"].said, torch.arange(5))


def test_a_wrapped_module_is_what_it_wraps(store):
    model = torch.nn.Linear(3, 2)
    compiled = torch.compile(model)
    assert "_orig_mod.weight" in compiled.state_dict()
    saved(store, {"model": compiled})
    assert list(store[1]) == ["model/bias", "model/weight"]
    other = torch.nn.Linear(3, 2)
    ckptree.torch.load(store, {"model": torch.nn.DataParallel(other)})
    assert state_of(other) == state_of(model)


def test_an_object_that_does_not_take_its_state_is_named(store):
    class Picky(Loader):
        def load_state_dict(self, state):
            raise RuntimeError("not that")

    saved(store, {"a": {"loader": Loader()}})
    with pytest.raises(ValueError, match="^a/loader: RuntimeError: not that"):
        ckptree.torch.load(store, {"a": {"loader": Picky()}})


def test_an_app_that_is_half_read_is_told_of(store):
    class Stops(Loader):
        def load_state_dict(self, state):
            raise self.error

    model = torch.nn.Linear(3, 2)
    saved(store, {"model": model, "loader": Loader()})
    for kind in (RuntimeError, KeyboardInterrupt):
        stops, other = Stops(), torch.nn.Linear(3, 2)
        stops.error = kind("stop")
        with pytest.raises((ValueError, KeyboardInterrupt)) as raised:
            ckptree.torch.load(store, {"model": other, "loader": stops})
        # It is: the loader has nothing of the step.
        assert state_of(other) == state_of(model)
        if hasattr(raised.value, "add_note"):
            (note,) = raised.value.__notes__
            assert note.startswith("the app is half read: some of it is that")
    # Nothing has changed here, and nothing says that it has.
    other = torch.nn.Linear(4, 2)
    before = state_of(other)
    with pytest.raises(ckptree.MismatchError) as raised:
        ckptree.torch.load(store, {"model": other, "loader": Loader()})
    assert state_of(other) == before
    assert not getattr(raised.value, "__notes__", None)
