# SPDX-License-Identifier: Apache-2.0
"""ckptree.torch.save() and load(): an app comes back in place, whole, or not at
all."""

import collections
import random

import ckptree
import numpy as np
import pytest

torch = pytest.importorskip(
    "torch", reason="PyTorch could not be installed: see requirements_torch.txt"
)

import ckptree.torch
from program import run
from small_training import Loader, Net, bits, made, saved, shown, state_of
from small_training import trained


def test_a_model_and_its_optimizer_are_read_in_place(store):
    model, optimizer = made(0, steps=3)
    saved(store, {"model": model, "optimizer": optimizer})
    other, its = made(7, steps=2)
    weight, moment = other.hidden.weight, its.state[other.norm.weight]
    places = [t.data_ptr() for t in other.state_dict().values()]
    moments = moment["exp_avg"].data_ptr()
    app = {"model": other, "optimizer": its}
    assert ckptree.torch.load(store, app) is app
    assert state_of(other, its) == state_of(model, optimizer)
    assert [t.data_ptr() for t in other.state_dict().values()] == places
    assert its.state[other.norm.weight]["exp_avg"].data_ptr() == moments
    assert other.hidden.weight is weight and weight.requires_grad
    assert other.head.weight is other.embedding.weight
    trained(model, optimizer, 3)
    trained(other, its, 3)
    assert state_of(other, its) == state_of(model, optimizer)


def test_nothing_is_held_twice_while_a_model_is_read(store, monkeypatch):
    from ckptree.adapters import torch_memory

    model = torch.nn.Sequential(*(torch.nn.Linear(64, 64) for _ in range(4)))
    saved(store, {"model": model})
    empty, made_tensors = torch.empty, []

    def counting(*arguments, **options):
        made_tensors.append(arguments)
        return empty(*arguments, **options)

    other = torch.nn.Sequential(*(torch.nn.Linear(64, 64) for _ in range(4)))
    staged = []
    monkeypatch.setattr(torch_memory, "_read_staged", staged.append)
    monkeypatch.setattr(torch, "empty", counting)
    ckptree.torch.load(store, {"model": other})
    assert made_tensors == [] and staged == []
    assert state_of(other) == state_of(model)


def test_memory_grows_by_no_copy_of_a_model(tmp_path):
    code = """
import resource, sys
import ckptree.torch, torch

def most():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10

model = torch.nn.Linear(8192, 8192)
if sys.argv[2] == "save":
    with torch.no_grad():
        model.weight.fill_(2.0)
    with ckptree.Store(sys.argv[1]) as store:
        ckptree.torch.save(store, 1, {"model": model})
else:
    before = most()
    with ckptree.open(sys.argv[1]) as store:
        ckptree.torch.load(store, {"model": model})
    print(most() - before, (model.weight == 2.0).all().item())
"""
    run(code, tmp_path / "s", "save")
    done = run(code, tmp_path / "s", "load")
    grown, right = done.stdout.split()
    assert right == "True" and int(grown) < 128, done.stdout


@pytest.mark.parametrize("change", ["shape", "dtype", "missing", "unexpected"])
def test_what_does_not_fit_is_told_with_all_paths_before_anything(
    store, change
):
    model, optimizer = made(0, steps=2)
    saved(store, {"model": model, "optimizer": optimizer, "epoch": 1})
    other, its = made(7, steps=1, width=5 if change == "shape" else 4)
    if change == "dtype":
        other.norm.to(torch.float64)
        other.hidden.to(torch.float16)
    if change == "missing":
        other.extra = torch.nn.Linear(2, 2)
    if change == "unexpected":
        del other.hidden
    before = state_of(other, its)
    app = {"epoch": 0, "model": other, "optimizer": its}
    with pytest.raises(ckptree.MismatchError) as error:
        ckptree.torch.load(store, app)
    assert state_of(other, its) == before and app["epoch"] == 0
    found = {d.path: d.problem for d in error.value.differences}
    expected = {
        "shape": {"model/hidden.weight": "shape", "model/norm.bias": "shape",
                  "model/embedding.weight": "shape",
                  "optimizer/state/{0}/exp_avg": "shape"},
        "dtype": {"model/norm.running_mean": "dtype",
                  "model/hidden.bias": "dtype"},
        "missing": {"model/extra.weight": "missing",
                    "model/extra.bias": "missing"},
        "unexpected": {"model/hidden.weight": "unexpected",
                       "model/hidden.bias": "unexpected"},
    }[change]
    assert expected.items() <= found.items()
    assert set(found.values()) == {change}


def test_only_the_model_of_a_step_that_has_more(store):
    model, optimizer = made(0, steps=2)
    saved(store, {"model": model, "optimizer": optimizer})
    other = Net()
    for call in (ckptree.torch.load, ckptree.torch.resume):
        with pytest.raises(ckptree.MismatchError) as error:
            call(store, {"model": other})
        assert str(error.value).splitlines()[1] == (
            "  all that it asks for is there, and more: "
            "ckptree.torch.load(..., partial=True) loads only what the app has"
        )
    ckptree.torch.load(store, {"model": other}, partial=True)
    assert state_of(other) == state_of(model)


def test_tied_tensors_of_which_a_step_has_two_values(store):
    model = Net()
    model.head.weight = torch.nn.Parameter(torch.ones(11, 4))
    saved(store, {"model": model})
    tied = Net()
    before = state_of(tied)
    with pytest.raises(
        ckptree.MismatchError,
        match="head.weight: it is the same memory as model/embedding.weight",
    ):
        ckptree.torch.load(store, {"model": tied})
    assert state_of(tied) == before
    # Two leaves of one value fit.
    with torch.no_grad():
        model.head.weight.copy_(model.embedding.weight)
    saved(store, {"model": model}, 2)
    assert store[2].info.leaf_count == store[1].info.leaf_count
    ckptree.torch.load(store, {"model": tied}, step=2)
    assert state_of(tied) == state_of(model)


def test_what_a_step_has_tied_fits_two_tensors(store):
    model = Net()
    saved(store, {"model": model})
    apart = Net()
    apart.head.weight = torch.nn.Parameter(torch.zeros(11, 4))
    ckptree.torch.load(store, {"model": apart})
    assert state_of(apart) == state_of(model)
    with torch.no_grad():
        apart.head.weight.zero_()
    assert apart.embedding.weight.any()


def test_plain_values_become_what_was_saved(store):
    app = {
        "epoch": 3, "best": 0.5, "name": "run", "losses": [0.5, 0.25],
        "none": None, "scalar": np.float32(2), "array": np.arange(3),
        "more": {"a": 1, "b": [{"c": (1, 2)}]}, "w": torch.ones(2),
        "list": [torch.zeros(2), 1],
    }
    saved(store, app)
    nested, losses, w = {"z": 0}, [], torch.zeros(2)
    fresh = {
        "epoch": 0, "best": None, "name": "", "losses": losses,
        "none": 1, "scalar": np.float32(0), "array": np.zeros(9),
        "more": nested, "w": w, "list": [torch.ones(2), 0],
    }
    ckptree.torch.load(store, fresh)
    assert shown(fresh) == shown(app)
    assert fresh["more"] is nested and fresh["losses"] is losses
    assert fresh["w"] is w
    # What holds other things is no number.
    with pytest.raises(ckptree.MismatchError, match="epoch: kind differs"):
        ckptree.torch.load(store, {**fresh, "epoch": {"a": 1}})
    with pytest.raises(ckptree.MismatchError, match="gone: missing"):
        ckptree.torch.load(store, {**fresh, "gone": 1})


def test_where_an_app_has_no_tensor_yet_it_gets_one(store):
    best = torch.nn.Linear(2, 2).state_dict()
    more = {
        "best": best, "ema": {"w": torch.ones(2, dtype=torch.bfloat16)},
        "losses": [torch.tensor(1.5)], "low": torch.tensor(0.5),
        "arrays": [np.zeros(2), np.ones(2)], "scalar": np.float32(2),
        "sparse": torch.eye(2).to_sparse(), "n": [1, 2.5, "x"],
    }
    saved(store, {"more": more})
    fresh = {
        "best": None, "ema": {}, "losses": [], "low": float("inf"),
        "arrays": [np.ones(2)], "scalar": None, "sparse": None, "n": [],
    }
    found = ckptree.torch.load(store, {"more": {**fresh}})["more"]
    sparse = found.pop("sparse")
    assert torch.equal(sparse.to_dense(), torch.eye(2))
    del more["sparse"]
    assert shown(found) == shown(more)
    saved(store, {"best": best}, 2)
    found = ckptree.torch.load(store, {"best": None}, device="meta")
    assert found["best"]["weight"].device.type == "meta"


def test_keys_that_are_new_in_a_dict_of_plain_values(store):
    saved(store, {"cfg": {"seen": 3, "more": {"a": 1}}, "l": [{"a": 1}]})

    def fresh():
        return {"cfg": {"new": 7, "seen": 0, "more": {"z": 2}},
                "l": [{"z": 2}, {"y": 3}]}

    # As the step has it: a dict may have grown since.
    app = ckptree.torch.load(store, fresh())
    assert app == {"cfg": {"seen": 3, "more": {"a": 1}}, "l": [{"a": 1}]}
    app = ckptree.torch.load(store, fresh(), partial=True)
    assert app["cfg"] == {"new": 7, "seen": 3, "more": {"z": 2, "a": 1}}
    assert app["l"] == [{"z": 2, "a": 1}]
    # Beside a tensor they have to fit.
    saved(store, {"cfg": {"seen": 3, "w": torch.ones(1)}}, 2)
    app = {"cfg": {"seen": 0, "new": 7, "w": torch.zeros(1)}}
    with pytest.raises(ckptree.MismatchError, match="cfg/new: missing"):
        ckptree.torch.load(store, app)


@pytest.mark.parametrize(
    "kind",
    [
        collections.Counter,
        collections.OrderedDict,
        lambda value: collections.defaultdict(int, value),
    ],
    ids=["Counter", "OrderedDict", "defaultdict"],
)
def test_a_dict_of_another_type_has_the_keys_of_the_step(store, kind):
    saved(store, {"own": kind({"a": 2, "b": 1}), "d": {"x": kind({"c": 3})}})
    own, inner = kind({"q": 5, "b": 7}), kind({})
    app = {"own": own, "d": {"x": inner}}
    ckptree.torch.load(store, app)
    assert app["own"] is own and app["d"]["x"] is inner
    assert type(own) is type(kind({})) and dict(own) == {"a": 2, "b": 1}
    assert dict(inner) == {"c": 3}
    if isinstance(own, (collections.Counter, collections.defaultdict)):
        assert own["z"] == 0
    more = {"own": kind({"q": 5}), "d": {"x": kind({})}}
    ckptree.torch.load(store, more, partial=True)
    assert dict(more["own"]) == {"a": 2, "b": 1, "q": 5}


def test_a_part_of_a_step_and_of_an_app(store):
    model, optimizer = made(0, steps=2)
    saved(store, {"model": model, "optimizer": optimizer})
    other, loader = Net(), Loader()
    with pytest.raises(ckptree.MismatchError) as error:
        ckptree.torch.load(store, {"model": other, "loader": loader})
    found = {d.path: d.problem for d in error.value.differences}
    assert found["loader"] == "missing"
    assert found["optimizer/state/{0}/exp_avg"] == "unexpected"
    app = {"model": other, "loader": loader, "epoch": 3}
    ckptree.torch.load(store, app, partial=True)
    assert state_of(other) == state_of(model)
    assert app["epoch"] == 3 and loader.position == 0
    with pytest.raises(KeyError, match="nothing of the template"):
        ckptree.torch.load(store, {"other": Net()}, partial=True)


def test_other_element_types_and_names(store):
    model = torch.nn.Linear(3, 2)
    saved(store, {"net": model})
    half = torch.nn.Linear(3, 2, dtype=torch.bfloat16)
    place = half.weight.data_ptr()
    ckptree.torch.load(
        store, {"model": half}, cast=True, rename={"model": "net"}
    )
    assert half.weight.data_ptr() == place
    assert torch.equal(half.weight, model.weight.to(torch.bfloat16))
    # What cast would change is told before anything is.
    with torch.no_grad():
        model.bias.fill_(1e30)
        half.bias.zero_()
        half.weight.zero_()
    saved(store, {"net": model}, 2)
    small = torch.nn.Linear(3, 2, dtype=torch.float16)
    before = state_of(small)
    with pytest.raises(ckptree.MismatchError, match="model/bias: as float16"):
        ckptree.torch.load(
            store, {"model": small}, step=2, cast=True,
            rename={"model": "net"},
        )
    assert state_of(small) == before
    loader = Loader()
    saved(store, {"old": Loader()}, 3)
    ckptree.torch.load(
        store, {"loader": loader}, step=3, rename={"loader": "old"}
    )


def test_memory_that_is_not_dense(store):
    state = {
        "turned": torch.randn(3, 4).T, "strided": torch.randn(8)[::2],
        "channels": torch.randn(2, 3, 4, 5).to(
            memory_format=torch.channels_last),
        "conjugate": torch.randn(3, dtype=torch.complex64).conj(),
    }
    saved(store, state)
    wanted = shown(state)
    places = [t.data_ptr() for t in state.values()]
    for tensor in state.values():
        tensor.zero_()
    ckptree.torch.load(store, state)
    assert shown(state) == wanted
    assert [t.data_ptr() for t in state.values()] == places
    wide = {**state, "turned": torch.zeros(1, 3).expand(4, 3)}
    with pytest.raises(ckptree.MismatchError, match="turned: .*expand"):
        ckptree.torch.load(store, wide)


def test_tensors_of_inference_are_read_in_place(store):
    values = torch.arange(12.0).view(3, 4)
    store.save(1, {"dense": values, "turned": values, "half": values})
    with torch.inference_mode():
        app = {
            "dense": torch.zeros(3, 4), "turned": torch.zeros(4, 3).T,
            "half": torch.zeros(3, 4, dtype=torch.float16).T.contiguous().T}
    places = {name: tensor.data_ptr() for name, tensor in app.items()}
    ckptree.torch.load(store, app, cast=True)
    for name, tensor in app.items():
        assert tensor.is_inference() and tensor.data_ptr() == places[name]
        assert torch.equal(tensor.float(), values)


def test_a_manager_asks_for_no_state_that_is_not_due(tmp_path):
    loader = Loader()
    with ckptree.CheckpointManager(
        tmp_path / "run", save_interval_steps=5
    ) as manager:
        found = [
            ckptree.torch.save(manager, step, {"loader": loader})
            for step in range(7)
        ]
        assert found == [True, False, False, False, False, True, False]
        assert loader.asked == 2
        assert ckptree.torch.resume(manager, {"loader": loader}) == 6
        bad = {"loader": loader, "f": print}
        with pytest.raises(TypeError, match="^f: "):
            ckptree.torch.save(manager, 10, bad)
        with pytest.raises(TypeError, match="NoneType"):
            broken = Loader()
            broken.state_dict = lambda: len(None)
            ckptree.torch.save(manager, 15, {"loader": broken})
        assert manager.all_steps() == [0, 5]


Pair = collections.namedtuple("Pair", "first second")


def test_what_cannot_be_saved_is_named(store):
    half = collections.namedtuple("Half", "state_dict")(lambda: {})
    app = {"a": 1}
    app["again"] = [app]
    for bad, kind, words in (
        ({"m": torch.nn.Linear(2, 2, device="meta")}, ValueError,
         "^m/weight: a tensor on the meta device"),
        ({"half": [half]}, TypeError, "^half/0: .*no load_state_dict"),
        ({"net": Net}, TypeError, "^net: .*code"),
        (app, ValueError, "^again/0: the app contains itself"),
        ({"o": collections.OrderedDict(net=Net())}, TypeError,
         "^o: a collections.OrderedDict is data .* holds a .*Net"),
        ({"o": Pair(1, [Net()])}, TypeError,
         "^o: a .*Pair is data .* holds a .*Net"),
    ):
        with pytest.raises(kind, match=words):
            ckptree.torch.save(store, 1, bad)
    assert store.steps() == []


def test_options_of_stores_and_of_managers(store, tmp_path):
    with pytest.raises(ValueError, match="force is of a CheckpointManager"):
        ckptree.torch.save(store, 1, {"n": 1}, force=True)
    with ckptree.CheckpointManager(tmp_path / "run") as manager:
        for option in ({"branch": "b"}, {"delete_later": True}, {"time": 3.0}):
            with pytest.raises(ValueError, match=next(iter(option))):
                ckptree.torch.save(manager, 1, {"n": 1}, **option)
        with pytest.raises(ValueError, match="branch is of a Store"):
            ckptree.torch.resume(manager, {}, branch="b")
    saved(store, {"n": 1})
    for option in ({"partial": True}, {"cast": True}, {"rename": {"a": "n"}}):
        with pytest.raises(ValueError, match="need an app"):
            ckptree.torch.load(store, **option)


def test_resume_says_where_to_go_on(store):
    app = {"n": 7}
    assert ckptree.torch.resume(store, app) == 0 and app == {"n": 7}
    saved(store, {"n": 1}, 4)
    store.fork(4, "colder")
    ckptree.torch.save(store, 9, {"n": 2}, branch="colder").result(timeout=60)
    assert ckptree.torch.resume(store, app) == 5 and app == {"n": 1}
    assert ckptree.torch.resume(store, app, branch="colder") == 10
    assert app == {"n": 2}
    with pytest.raises(KeyError, match="no branch 'hotter'"):
        ckptree.torch.resume(store, app, branch="hotter")


def test_a_fork_without_a_step_goes_on_from_its_origin(store, tmp_path):
    for step in (3, 4):
        saved(store, {"n": step}, step)
    store.fork(3, "lr")
    app = {"n": 0}
    assert ckptree.torch.resume(store, app, branch="lr") == 4
    assert app == {"n": 3}
    with ckptree.CheckpointManager(store.path, branch="lr") as manager:
        app = {"n": 0}
        assert ckptree.torch.resume(manager, app) == 4 and app == {"n": 3}
    ckptree.torch.save(store, 7, {"n": 7}, branch="lr").result(timeout=60)
    store.fork("lr/7", "lower")
    assert ckptree.torch.resume(store, app, branch="lower") == 8
    store.drop_branch("lower")
    # One whose step is gone does not begin anew, nor from another that has
    # its number.
    store.fork(4, "late")
    ckptree.torch.save(store, 4, {"n": -4}, overwrite=True).result(timeout=60)
    anew = "no step to go on from: step 4, .*forked from, was saved anew"
    with pytest.raises(KeyError, match=anew):
        ckptree.torch.resume(store, app, branch="late")
    with pytest.raises(KeyError, match=anew):
        store.restore_or({"n": 0}, "late/latest")
    with ckptree.CheckpointManager(store.path, branch="late") as manager:
        with pytest.raises(KeyError, match=anew):
            manager.restore()
        with pytest.raises(KeyError, match=anew):
            ckptree.torch.resume(manager, app)
    store.delete("lr/7", 3)
    gone = "no step to go on from: step 3, .*forked from, was deleted"
    with pytest.raises(KeyError, match=gone):
        ckptree.torch.resume(store, app, branch="lr")
    with ckptree.CheckpointManager(store.path, branch="lr") as manager:
        with pytest.raises(KeyError, match=gone):
            ckptree.torch.resume(manager, app)
    assert app == {"n": 7}


def test_without_an_app_there_are_new_tensors(store):
    model, optimizer = made(0, steps=1)
    saved(store, {"model": model, "optimizer": optimizer, "n": 1})
    state = ckptree.torch.load(store)
    assert shown(state["model"]) == shown(model.state_dict())
    meta = ckptree.torch.load(store[1], device="meta")
    assert meta["model"]["norm.weight"].device.type == "meta"
    told = []
    ckptree.torch.load(store, progress=lambda *now: told.append(now))
    ckptree.torch.load(
        store, {"model": model, "optimizer": optimizer, "n": 0},
        progress=lambda *now: told.append(now),
    )
    assert told[-1][0] == told[-1][1] > 500


def test_damage_is_told_when_it_is_read(tmp_path):
    with ckptree.Store(tmp_path / "s") as store:
        model = torch.nn.Linear(256, 256)
        saved(store, {"model": model})
    # Wherever they stand: small arrays have copies.
    good = bits(model.weight)[1000:1064]
    bad, count = bytes([good[0] ^ 1]) + good[1:], 0
    for path in [p for p in (tmp_path / "s").rglob("*") if p.is_file()]:
        count += path.read_bytes().count(good)
        path.write_bytes(path.read_bytes().replace(good, bad))
    assert count > 0
    with ckptree.open(tmp_path / "s") as store:
        with pytest.raises(ckptree.CorruptionError):
            ckptree.torch.load(store, {"model": torch.nn.Linear(256, 256)})


class Failing:
    """Whose state_dict() raises what is no error of ckptree's."""

    def __init__(self, raised):
        self.raised = raised

    def state_dict(self):
        raise self.raised

    def load_state_dict(self, state):
        raise AssertionError


@pytest.mark.parametrize("made, kind, said", [
    (lambda: Failing(KeyError("inner")), ValueError, "KeyError: 'inner'"),
    (lambda: Failing(TypeError("no")), TypeError, "no"),
    (random.SystemRandom, NotImplementedError, "entropy"),
    (lambda: torch.nn.LazyLinear(3), TypeError, "run that once before"),
], ids=["error", "known", "generator", "lazy"])
def test_an_object_that_has_no_state_is_named(
    store, tmp_path, made, kind, said
):
    ckptree.torch.save(store, 1, {"deep": {"x": torch.ones(1)}}).result()
    app = {"deep": {"x": made()}}
    for act in (
        lambda: ckptree.torch.save(store, 2, app),
        lambda: ckptree.torch.load(store, app, partial=True),
    ):
        with pytest.raises(kind, match=f"^deep/x.*: .*{said}"):
            act()
    with ckptree.CheckpointManager(tmp_path / "managed") as manager:
        with pytest.raises(kind, match=f"^deep/x.*: .*{said}"):
            ckptree.torch.save(manager, 1, app)
    assert list(store) == [1]
