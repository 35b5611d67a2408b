# SPDX-License-Identifier: Apache-2.0
"""Tensors that are kept as their parts: what the parts are, and that they are
made whole again without anything that a store names being run."""

import dataclasses
import enum
import subprocess
import sys
import warnings

import ckptree
import numpy as np
import pytest

torch = pytest.importorskip(
    "torch", reason="PyTorch could not be installed: see requirements_torch.txt"
)

import ckptree.torch

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


class Scheme(enum.Enum):
    FINE = 1
    COARSE = 2


@dataclasses.dataclass(frozen=True)
class Layout:
    block: tuple
    scheme: Scheme


class Scaled(torch.Tensor):
    """Eight bits and a scale, and something of all that a context may have."""

    @staticmethod
    def __new__(cls, data, scale, context):
        return torch.Tensor._make_wrapper_subclass(
            cls, data.shape, dtype=scale.dtype, device=data.device
        )

    def __init__(self, data, scale, context):
        self.data_, self.scale, self.said = data, scale, context

    def __tensor_flatten__(self):
        return ["data_", "scale"], self.said

    @classmethod
    def __tensor_unflatten__(cls, inner, context, size, stride):
        return cls(inner["data_"], inner["scale"], context)

    @classmethod
    def __torch_dispatch__(cls, function, types, given=(), options=None):
        name = function.__name__
        if name in ("detach.default", "alias.default"):
            (one,) = given
            return cls(one.data_.detach(), one.scale, one.said)
        if name == "copy_.default":
            to, of = given[:2]
            to.data_.copy_(of.data_)
            to.scale.copy_(of.scale)
            return to
        raise NotImplementedError(name)


def context_of(number, scheme=Scheme.FINE):
    return {
        "dtype": torch.bfloat16, "number": number, "size": torch.Size([2, 3]),
        "layout": Layout((1, 128), scheme), "none": None, "list": [1.5, "x"],
        "device": torch.device("cpu"), "scheme": scheme,
    }


def scaled(seed, context=None):
    generator = torch.Generator().manual_seed(seed)
    data = torch.randint(-128, 127, (2, 3), dtype=torch.int8,
                         generator=generator)
    return Scaled(data, torch.rand(2, generator=generator), context)


def dense():
    w = torch.zeros(6, 8)
    w[0, 1], w[3, 2], w[5, 7] = 1.0, 2.0, float("nan")
    return w


def sparse_tensors():
    w = dense()
    twice = torch.sparse_coo_tensor([[1, 1]], [1.0, 2.0], (3,))
    rows = torch.tensor([[0, 2], [0, 2]])
    columns = torch.tensor([[0, 1], [1, 2]])
    return {
        "torch.sparse_coo 6,8": w.to_sparse(),
        "torch.sparse_coo 3": twice,
        "torch.sparse_coo 3,2": torch.sparse_coo_tensor(
            [[0, 2]], torch.arange(4).view(2, 2).to(torch.bfloat16), (3, 2)),
        "torch.sparse_coo 4,5": torch.sparse_coo_tensor(size=(4, 5)),
        "torch.sparse_csr 6,8": w.to_sparse_csr(),
        "torch.sparse_csc 6,8": w.to_sparse_csc(),
        "torch.sparse_bsr 6,8": w.to_sparse_bsr((2, 4)),
        "torch.sparse_bsc 6,8": w.to_sparse_bsc((3, 2)),
        "torch.sparse_csr 2,1,3": torch.sparse_csr_tensor(
            rows, columns, torch.ones(2, 2), (2, 1, 3)),
    }


def quantized_tensors():
    w = torch.linspace(-2, 2, 12).view(3, 4)
    scales, zeros = torch.tensor([0.1, 0.2, 0.05]), torch.tensor([0, 3, -2])
    return {
        "torch.quantized qint8 per_tensor_affine":
            torch.quantize_per_tensor(w, 0.03, 2, torch.qint8),
        "torch.quantized quint8 per_tensor_affine":
            torch.quantize_per_tensor(w, 0.02, 100, torch.quint8),
        "torch.quantized qint32 per_tensor_affine":
            torch.quantize_per_tensor(w, 1e-6, 0, torch.qint32),
        "torch.quantized qint8 per_channel_affine 0":
            torch.quantize_per_channel(w, scales, zeros, 0, torch.qint8),
        "torch.quantized quint8 per_channel_affine_float_qparams 0":
            torch.quantize_per_channel(
                w, scales, torch.tensor([0.5, 1.5, 2.0]), 0, torch.quint8),
    }


with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    IN_PARTS = {**sparse_tensors(), **quantized_tensors()}


def parts_of(value):
    """By other ways than the package: bits of all that it is made of."""
    value = value.detach()
    if value.is_quantized:
        more = (
            [value.q_scale(), value.q_zero_point()]
            if "tensor" in str(value.qscheme())
            else [value.q_per_channel_scales().tolist(),
                  value.q_per_channel_zero_points().tolist(),
                  value.q_per_channel_axis()]
        )
        return [value.dtype, value.qscheme(), value.int_repr().tolist(), *more]
    if value.layout is torch.sparse_coo:
        found = [value._indices(), value._values()]
        more = [value.is_coalesced()]
    else:
        row = value.layout in (torch.sparse_csr, torch.sparse_bsr)
        found = [value.values()]
        found += [value.crow_indices(), value.col_indices()] if row else [
            value.ccol_indices(), value.row_indices()]
        more = []
    return [value.layout, value.shape, value.dtype, *more,
            *(repr(part.tolist()) for part in found)]


@pytest.mark.parametrize("tag", IN_PARTS)
def test_it_comes_back_as_it_was(store, tag):
    value = IN_PARTS[tag]
    store.save(1, {"m": {"w": value}}).result(timeout=60)
    node = store[1]._engine.find("m/w")
    assert (node.kind, node.tag) == ("object", f"parts:{tag}")
    for made in (
        store[1].torch()["m"]["w"],
        store.restore(1, like={"m": {"w": value}})["m"]["w"],
        ckptree.torch.load(store, {"m": {"w": value}})["m"]["w"],
    ):
        assert type(made) is torch.Tensor
        assert parts_of(made) == parts_of(value)
    plain = store.restore(1)["m"]["w"]
    assert type(plain) is dict and "m/w/.values" in store[1] or (
        "m/w/.int_repr" in store[1])
    assert all(not isinstance(part, torch.Tensor) for part in plain.values())


def test_histories_and_differences_have_the_parts(store):
    for step, scale in ((1, 0.1), (2, 0.2)):
        w = torch.quantize_per_tensor(torch.ones(3), scale, 0, torch.qint8)
        store.save(step, {"w": w}).result(timeout=60)
    assert store.diff(1, 2).changed == ["w/.int_repr", "w/.scale"]
    assert [row.value for row in store.history("w/.scale")] == [0.1, 0.2]
    store.save(3, {"w": dense().to_sparse()}).result(timeout=60)
    assert store[3]["w/.values"].stats.nan == 1


def test_a_sparse_template_has_any_number_of_elements(store):
    value = dense().to_sparse()
    store.save(1, {"w": value}).result(timeout=60)
    other = torch.zeros(6, 8, dtype=torch.float32).to_sparse()
    assert other._nnz() == 0
    parameter = torch.nn.Parameter(other)
    made = store.restore(1, {"w": parameter})["w"]
    assert type(made) is torch.nn.Parameter and made.requires_grad
    assert parts_of(made) == parts_of(value)
    app = {"w": other}
    ckptree.torch.load(store, app)
    assert parts_of(app["w"]) == parts_of(value)


@pytest.mark.parametrize(
    "template",
    [dense(), dense().to_sparse_csr(), torch.zeros(6, 9).to_sparse(),
     torch.zeros(6, 8, dtype=torch.float64).to_sparse(), scaled(0),
     torch.quantize_per_tensor(dense(), 0.1, 0, torch.qint8), {}],
    ids=["dense", "csr", "shape", "dtype", "subclass", "quantized", "dict"],
)
def test_a_template_of_something_else_is_refused_by_path(store, template):
    store.save(1, {"w": dense().to_sparse()}).result(timeout=60)
    with pytest.raises(ckptree.MismatchError) as error:
        store.restore(1, {"w": template})
    assert {d.path.partition("/")[0] for d in error.value.differences} == {"w"}
    store.save(2, {"w": dense()}).result(timeout=60)
    with pytest.raises(ckptree.MismatchError, match="torch.sparse_coo 6,8"):
        store.restore(2, {"w": dense().to_sparse()})


@pytest.mark.parametrize(
    "change",
    [{"indices": np.array([[0, 6], [0, 0]])},
     {"indices": np.array([[0], [0]])},
     {"values": np.zeros((2, 3), "f4")}, {"coalesced": "x"},
     {"indices": "x"}],
    ids=["outside", "count", "shape", "flag", "kind"],
)
def test_parts_that_make_no_tensor_are_refused(store, change):
    from ckptree.adapters.torch_parts import Wrapped
    from ckptree.adapters.protocol import ATTRIBUTE, OBJECT, Container

    # As somebody else may write a store.
    parts = {"indices": np.array([[0, 5], [0, 7]]),
             "values": np.zeros(2, "f4"), "coalesced": True}
    for step, given in ((1, parts), (2, {**parts, **change})):
        forged = Wrapped(Container(
            OBJECT, "parts:torch.sparse_coo 6,8",
            [(ATTRIBUTE, name, part) for name, part in given.items()], None))
        store.save(step, {"m": {"w": forged}}).result(timeout=60)
    assert store[1].torch()["m"]["w"]._nnz() == 2
    with pytest.raises(ValueError, match="^m/w: its parts make no torch.sp"):
        store[2].torch()
    with pytest.raises(ValueError, match="m/w"):
        store.restore(2, {"m": {"w": dense().to_sparse()}})


def test_a_quantized_module_is_resumed(store):
    def made(seed):
        torch.manual_seed(seed)
        model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.ReLU())
        return torch.ao.quantization.quantize_dynamic(
            model, {torch.nn.Linear}, torch.qint8)

    model, other, x = made(0), made(1), torch.randn(2, 4)
    assert not torch.equal(model(x), other(x))
    ckptree.torch.save(store, 1, {"model": model}).result(timeout=60)
    ckptree.torch.load(store, {"model": other})
    assert torch.equal(model(x), other(x))


def same_scaled(a, b):
    return (
        type(a) is type(b) is Scaled and torch.equal(a.data_, b.data_)
        and torch.equal(a.scale, b.scale) and a.said == b.said
    )


@pytest.mark.parametrize("context", [None, (), context_of(3)],
                         ids=["none", "empty", "full"])
def test_a_subclass_comes_back_where_the_template_has_it(store, context):
    value = scaled(0, context)
    store.save(1, {"w": value}).result(timeout=60)
    assert {"w/.data_", "w/.scale"} <= set(store[1])
    like = scaled(1, context)
    assert same_scaled(store.restore(1, {"w": like})["w"], value)
    app, place = {"w": like}, like.data_.data_ptr()
    ckptree.torch.load(store, app)
    assert app["w"] is like and like.data_.data_ptr() == place
    assert same_scaled(like, value)


def test_what_the_context_says_is_that_of_the_step(store):
    value = scaled(0, context_of(3, Scheme.COARSE))
    store.save(1, {"w": value}).result(timeout=60)
    made = store.restore(1, {"w": scaled(1, context_of(7))})["w"]
    assert same_scaled(made, value)
    assert type(made.said["layout"]) is Layout
    with pytest.raises(ckptree.MismatchError, match="w/.context"):
        store.restore(1, {"w": scaled(1, {"number": 1})})
    with pytest.raises(ckptree.MismatchError, match="w/.context"):
        store.restore(1, {"w": scaled(1)})


def test_a_subclass_in_a_module_is_read_in_place(store):
    def module(seed):
        made = torch.nn.Linear(3, 2, bias=False)
        made.weight = torch.nn.Parameter(scaled(seed), requires_grad=False)
        return made

    model, other = module(0), module(1)
    ckptree.torch.save(store, 1, {"model": model}).result(timeout=60)
    weight, place = other.weight, other.weight.data_.data_ptr()
    ckptree.torch.load(store, {"model": other})
    assert other.weight is weight and weight.data_.data_ptr() == place
    assert same_scaled(weight, model.weight)


def test_without_a_template_only_classes_that_are_allowed_are_made(store):
    value = scaled(0, context_of(3))
    store.save(1, {"w": value}).result(timeout=60)
    parts = store[1].torch()["w"]
    assert type(parts) is dict and torch.equal(parts["data_"], value.data_)
    assert parts["context"]["dtype"] is torch.bfloat16
    made = ckptree.torch.load(store, classes=[Scaled, Layout, Scheme])["w"]
    assert same_scaled(made, value)
    with pytest.raises(ValueError, match="^w: .*Layout: allow that class"):
        ckptree.torch.load(store, classes=[Scaled, Scheme])
    assert type(ckptree.torch.load(store, classes=[Odd])["w"]) is dict


class Odd(torch.Tensor):
    pass


def test_a_context_of_other_members_is_refused(store):
    class Renamed(enum.Enum):
        ROUGH = 1

    Renamed.__module__, Renamed.__qualname__ = __name__, "Scheme"
    store.save(1, {"w": scaled(0, {"scheme": Scheme.FINE})}).result(timeout=60)
    with pytest.raises(ValueError, match="^w/.context/scheme: .*FINE"):
        ckptree.torch.load(store, classes=[Scaled, Renamed])


def test_the_state_of_an_optimizer_has_subclasses(store):
    class Kept(torch.optim.SGD):
        def keep(self, seed):
            for i, p in enumerate(self.param_groups[0]["params"]):
                self.state[p]["moment"] = scaled(seed + i, context_of(i))

        def load_state_dict(self, state):  # That of PyTorch calls to().
            for i, p in enumerate(self.param_groups[0]["params"]):
                self.state[p] = state["state"][i]

    def made(seed):
        model = torch.nn.Linear(3, 2)
        optimizer = Kept(model.parameters(), lr=0.1)
        if seed is not None:
            optimizer.keep(seed)
        return optimizer

    optimizer = made(0)
    ckptree.torch.save(store, 1, {"o": optimizer}).result(timeout=60)
    stepped, fresh = made(5), made(None)
    ckptree.torch.load(store, {"o": stepped})
    ckptree.torch.load(store, {"o": fresh}, classes=[Scaled, Layout, Scheme])
    for other in (stepped, fresh):
        for p, q in zip(other.state.values(), optimizer.state.values()):
            assert same_scaled(p["moment"], q["moment"])


def test_ties_of_parts_stay(store):
    value = scaled(0)
    store.save(1, {"a": value, "b": value}).result(timeout=60)
    assert store[1].info.leaf_count == 2
    restored = ckptree.torch.load(store, classes=[Scaled])
    assert restored["a"].data_ is restored["b"].data_


def test_what_cannot_be_kept_as_parts_is_named(store):
    nested = torch.nested.nested_tensor(
        [torch.ones(2), torch.ones(3)], layout=torch.jagged)
    on_meta = Scaled(torch.ones(2, 2, device="meta"), torch.ones(2), None)
    of_mkldnn = []
    if torch.backends.mkldnn.is_available():  # Else torch makes none.
        of_mkldnn = [(torch.ones(2, 2).to_mkldnn(), TypeError,
                      "^m/w: .*_mkldnn is no leaf: save its to_dense")]
    for value, kind, words in (
        (nested, TypeError, "^m/w: .*nested"),
        *of_mkldnn,
        (scaled(0, {"f": print}), TypeError, "^m/w: the context .* no data"),
        (torch.ones(2).as_subclass(Odd), TypeError, "^m/w: .*Odd is no leaf"),
        (on_meta, ValueError, "^m/w/.data_: .*meta device"),
    ):
        with pytest.raises(kind, match=words):
            store.save(1, {"m": {"w": value}})
    with pytest.raises(TypeError, match="a state is a dict"):
        store.save(1, dense().to_sparse())
    assert store.steps() == []


@pytest.mark.parametrize("within", [torch.func.vmap, torch.func.grad])
def test_tensors_within_functions_of_torch_have_no_memory(store, within):
    def saving(x):
        with pytest.raises(TypeError, match="^w: .*: save outside of these"):
            store.save(1, {"w": x})
        return x.sum()

    within(saving)(torch.ones(2, 3))
    assert store.steps() == []


def test_a_store_that_names_a_class_runs_nothing_of_it(store):
    """The class is imported by nobody, though it could be."""
    value = scaled(0, context_of(3))
    store.save(1, {"w": value}).result(timeout=60)
    code = """
import sys
import ckptree.torch
with ckptree.open(sys.argv[1]) as store:
    before = set(sys.modules)
    parts = store["latest"].torch()["w"]
    print(sorted(parts), type(parts["context"]["layout"]).__mro__[1].__name__)
    print({m for m in set(sys.modules) - before if "test" in m})
"""
    done = subprocess.run(
        [sys.executable, "-c", code, store.path],
        capture_output=True, text=True, timeout=120,
    )
    assert done.stdout == "['context', 'data_', 'scale'] dict\nset()\n", (
        done.stderr)
