# SPDX-License-Identifier: Apache-2.0
"""Modules on the meta device: given memory and read, and nobody loses hold of
their parameters."""

import ckptree
import pytest

torch = pytest.importorskip(
    "torch", reason="PyTorch could not be installed: see requirements_torch.txt"
)

import ckptree.torch


class Net(torch.nn.Module):
    def __init__(self, **where):
        super().__init__()
        self.embedding = torch.nn.Embedding(5, 3, **where)
        self.norm = torch.nn.BatchNorm1d(3, **where)
        self.head = torch.nn.Linear(3, 5, bias=False, **where)
        self.head.weight = self.embedding.weight
        self.head.weight.note = "tied"
        self.norm.bias.requires_grad_(False)


@pytest.fixture
def trained(store):
    torch.manual_seed(0)
    model = Net()
    with torch.no_grad():
        for tensor in model.state_dict().values():
            tensor.copy_(torch.randn(tensor.shape) * 9)
    optimizer = torch.optim.AdamW(
        [p for p in model.parameters() if p.requires_grad])
    for p in optimizer.param_groups[0]["params"]:
        p.grad = torch.randn(p.shape)
    optimizer.step()
    app = {"model": model, "optimizer": optimizer}
    ckptree.torch.save(store, 1, app).result(timeout=60)
    return app


def equal(a, b):
    one, two = a.state_dict(), b.state_dict()
    return list(one) == list(two) and all(
        torch.equal(one[key], two[key]) for key in one)


def test_a_module_on_meta_gets_memory_and_values(store, trained):
    with torch.device("meta"):
        model = Net()
    optimizer = torch.optim.AdamW(
        [p for p in model.parameters() if p.requires_grad])
    weight, mean = model.head.weight, model.norm.running_mean
    app = {"model": model, "optimizer": optimizer}
    ckptree.torch.load(store, app)
    assert equal(model, trained["model"])
    assert model.head.weight is weight is model.embedding.weight
    assert model.norm.running_mean is mean and mean.device.type == "cpu"
    assert weight.note == "tied" and weight.requires_grad
    assert not model.norm.bias.requires_grad
    assert len(list(model.parameters())) == 3
    # The optimizer holds them still, and its state goes on.
    for one, other in ((optimizer, model), tuple(trained.values())[::-1]):
        for p in one.param_groups[0]["params"]:
            p.grad = torch.full_like(p, 0.5)
        one.step()
    assert equal(model, trained["model"])
    a, b = (o.state_dict()["state"] for o in (optimizer, trained["optimizer"]))
    assert a.keys() == b.keys() == {0, 1}
    assert torch.equal(a[0]["exp_avg"], b[0]["exp_avg"])


def test_a_part_of_a_module_is_on_meta(store, trained):
    model = Net()
    model.norm = torch.nn.BatchNorm1d(3, device="meta")
    place = model.head.weight.data_ptr()
    ckptree.torch.load(store, {"model": model}, partial=True)
    assert equal(model, trained["model"])
    assert model.head.weight.data_ptr() == place


def test_what_does_not_fit_leaves_it_on_meta(store, trained):
    model = Net(device="meta")
    model.extra = torch.nn.Linear(2, 2)
    with pytest.raises(ckptree.MismatchError, match="model/extra.weight"):
        ckptree.torch.load(store, {"model": model, "optimizer": None})
    assert model.head.weight.device.type == "meta"


def test_a_buffer_that_nobody_saves_has_to_be_made_first(store, trained):
    model = Net(device="meta")
    model.register_buffer(
        "angles", torch.ones(2, device="meta"), persistent=False)
    with pytest.raises(ValueError, match="^model/angles: .*persistent=False"):
        ckptree.torch.load(store, {"model": model}, partial=True)
    assert model.head.weight.device.type == "meta"
    model.angles = torch.ones(2)
    ckptree.torch.load(store, {"model": model}, partial=True)
    assert equal(model, trained["model"]) and model.angles.sum() == 2


def test_what_somebody_else_holds_is_named(store, trained):
    import weakref

    model = Net(device="meta")
    held = weakref.ref(model.norm.weight)
    with pytest.raises(ckptree.StateError, match="model/norm.weight.*to_empty"):
        ckptree.torch.load(store, {"model": model}, partial=True)
    assert held() is not None


def test_tensors_of_an_app_on_meta_are_made(store):
    ckptree.torch.save(store, 1, {"w": torch.ones(3)}).result(timeout=60)
    app = {"w": torch.zeros(3, device="meta")}
    ckptree.torch.load(store, app)
    assert torch.equal(app["w"], torch.ones(3))
    app = {"w": torch.zeros(3, device="meta")}
    ckptree.torch.load(store, app, device="cpu")
    assert app["w"].device.type == "cpu"
