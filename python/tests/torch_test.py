# SPDX-License-Identifier: Apache-2.0
"""States of PyTorch: every kind of tensor, bit by bit, into state_dict()s."""

import subprocess
import sys
import warnings

import ckptree
import numpy as np
import pytest

torch = pytest.importorskip(
    "torch", reason="PyTorch could not be installed: see requirements_torch.txt"
)

DTYPES = """bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16
    bfloat16 float32 float64 complex32 complex64 complex128 float8_e4m3fn
    float8_e5m2 float8_e4m3fnuz float8_e5m2fnuz float8_e8m0fnu""".split()


def random_tensor(name, *shape):
    """Any bits at all: NaN, Inf and denormal numbers, too."""
    dtype = getattr(torch, name)
    count = int(np.prod(shape)) * dtype.itemsize
    bits = torch.from_numpy(
        np.random.default_rng(5).integers(0, 256, count, dtype=np.uint8)
    )
    if name == "bool":
        return (bits > 127).reshape(shape)
    return bits.view(dtype).reshape(shape)


def bits(tensor):
    flat = tensor.detach().contiguous().reshape(-1)
    return flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b""


def assert_same(a, b):
    assert isinstance(a, torch.Tensor)
    assert a.dtype == b.dtype and a.shape == b.shape and bits(a) == bits(b)


@pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental")
@pytest.mark.parametrize("name", DTYPES)
def test_every_element_type_comes_back(round_trip, store, name):
    state = {
        "a": random_tensor(name, 40, 6),
        "transposed": random_tensor(name, 6, 40).T,
        "strided": random_tensor(name, 20, 20)[::3, 2::2],
        "zero": torch.zeros((0, 3), dtype=getattr(torch, name)),
        "one": random_tensor(name, 3)[1],
    }
    for like in (state, {k: v.to("meta") for k, v in state.items()}):
        restored = round_trip(state, like=like)
        for key in state:
            assert_same(restored[key], state[key])
            assert restored[key].device.type == "cpu"
            assert_same(store["latest"][key].torch(), state[key])
    plain = store.restore()["strided"]
    assert type(plain) is np.ndarray and plain.dtype.name == name
    assert plain.tobytes() == bits(state["strided"])


def test_a_large_tensor_in_many_chunks(round_trip, store):
    whole = random_tensor("bfloat16", 3000, 1500)
    state = {"w": whole, "view": whole.T[100:2000, 7:]}
    restored = round_trip(state, like=state)
    for key in state:
        assert_same(restored[key], state[key])
    assert store["latest"]["w"].detail.chunk_count > 1


def test_the_bytes_are_those_at_the_call(store):
    tensor = torch.zeros(1 << 20)
    handles = []
    for step in range(5):
        handles.append(store.save(step, {"w": tensor, "t": tensor[::2]}))
        tensor += 1
    for step, handle in enumerate(handles):
        handle.result(timeout=60)
        restored = store.restore(step)
        assert (restored["w"] == step).all() and (restored["t"] == step).all()


def test_what_a_gradient_hangs_on(round_trip):
    weight = torch.nn.Parameter(torch.ones(3))
    state = {
        "weight": weight,
        "frozen": torch.nn.Parameter(torch.ones(2), requires_grad=False),
        "leaf": torch.ones(2, requires_grad=True),
        "result": weight * 2,
        "plain": torch.ones(1),
    }
    restored = round_trip(state, like=state)
    for key, value in state.items():
        assert_same(restored[key], value)
        assert restored[key].requires_grad == value.requires_grad
        assert type(restored[key]) is type(value)
        assert restored[key].is_leaf
    assert weight.grad is None and weight.requires_grad


def test_views_that_are_computed_when_read(round_trip):
    z = torch.tensor([1 + 2j, 3 - 4j])
    state = {
        "z": z,
        "conjugate": z.conj(),
        "negative": z.conj().imag,
        "wide": torch.arange(3.0).expand(4, 3),
    }
    assert state["conjugate"].is_conj() and state["negative"].is_neg()
    restored = round_trip(state, like=state)
    for key, value in state.items():
        torch.testing.assert_close(restored[key], value, rtol=0, atol=0)


class Tied(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = torch.nn.Embedding(11, 4)
        self.norm = torch.nn.BatchNorm1d(4)
        self.hidden = torch.nn.Linear(4, 4, dtype=torch.bfloat16)
        self.head = torch.nn.Linear(4, 11, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, tokens):
        x = self.norm(self.embedding(tokens))
        return self.head(self.hidden(x.to(torch.bfloat16)).float())


def trained(seed, steps, model=None, optimizer=None):
    if model is None:
        torch.manual_seed(seed)
        model = Tied()
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for step in range(steps):
        tokens = torch.arange(step, step + 8) % 11
        loss = torch.nn.functional.cross_entropy(model(tokens), tokens)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model, optimizer


def state_of(model, optimizer):
    return {"model": model.state_dict(), "optimizer": optimizer.state_dict()}


def assert_equal_states(a, b):
    assert list(a) == list(b)
    for key in a:
        if isinstance(b[key], dict):
            assert_equal_states(a[key], b[key])
        elif isinstance(b[key], torch.Tensor):
            assert_same(a[key], b[key])
        else:
            assert a[key] == b[key] and type(a[key]) is type(b[key])


def test_a_training_goes_on_as_if_it_had_not_stopped(store):
    model, optimizer = trained(0, steps=3)
    saved = store.save(3, state_of(model, optimizer))
    trained(0, 4, model, optimizer)
    saved.result(timeout=60)

    other, other_optimizer = trained(7, steps=1)
    state = store.restore(3, like=state_of(other, other_optimizer))
    assert state["model"]._metadata == model.state_dict()._metadata
    assert other.load_state_dict(state["model"]).missing_keys == []
    other_optimizer.load_state_dict(state["optimizer"])
    assert_equal_states(state_of(other, other_optimizer), state)
    trained(7, 4, other, other_optimizer)
    assert_equal_states(
        state_of(other, other_optimizer), state_of(model, optimizer)
    )


def test_without_a_template_arrays_are_tensors_and_numbers_are_not(store):
    w = torch.arange(6.0).reshape(2, 3)
    state = {
        "w": w,
        "again": w,
        "half": w.to(torch.bfloat16),
        "none": None,
        "array": np.arange(3),
        "scalar": np.float64(1e-3),
        "step": torch.tensor(7.0),
        "groups": [{"lr": 1e-3, "betas": (0.9, 0.999), "foreach": None,
                    "amsgrad": False, "params": [0, 1], "name": "all"}],
        "state": {0: {"step": torch.tensor(3)}, 1: {}},
    }
    store.save(1, state).result(timeout=60)
    for restored in (
        store[1].torch(),
        store.restore(1, arrays="torch", device="cpu"),
    ):
        assert_equal_states({k: restored[k] for k in ("w", "half", "step")},
                            {k: state[k] for k in ("w", "half", "step")})
        assert restored["again"] is restored["w"]
        assert_same(restored["array"], torch.arange(3))
        assert type(restored["scalar"]) is np.float64
        assert restored["groups"] == state["groups"]
        assert type(restored["groups"][0]["betas"]) is tuple
        assert restored["groups"][0]["amsgrad"] is False
        assert list(restored["state"]) == [0, 1] and restored["none"] is None
        assert_same(restored["state"][0]["step"], torch.tensor(3))
    meta = store.restore(1, arrays="torch", device="meta")
    assert meta["w"].device.type == "meta" and meta["again"].shape == (2, 3)
    for wrong in ("gpu:9", 1.5):
        with pytest.raises(ValueError, match=f"device={wrong!r}: "):
            store.restore(1, arrays="torch", device=wrong)
    import jax

    store.save(2, {"w": w, "lr": 0.5}).result(timeout=60)
    restored = store.restore(2, arrays="jax")
    assert isinstance(restored["w"], jax.Array) and restored["lr"] == 0.5
    np.testing.assert_array_equal(restored["w"], w)


def test_what_goes_with_arrays(store):
    import jax

    store.save(1, {"w": torch.ones(2)}).result(timeout=60)
    one = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    for options, words in (
        ({"arrays": "tensorflow"}, "'numpy', 'jax' or 'torch'"),
        ({"device": "cpu"}, "arrays='torch'"),
        ({"arrays": "jax", "device": "cpu"}, "arrays='torch'"),
        ({"arrays": "torch", "sharding": one}, "sharding"),
        (
            {"arrays": "torch", "like": {"w": torch.ones(2)}},
            "without a template",
        ),
    ):
        with pytest.raises(ValueError, match=words):
            store.restore(1, **options)


def test_a_manager_restores_tensors_without_a_template(tmp_path):
    with ckptree.CheckpointManager(tmp_path / "run") as manager:
        manager.save(1, {"model": {"w": torch.ones(2)}, "step": 1})
        restored = manager.restore(arrays="torch", items=["model"])
        assert list(restored) == ["model"]
        assert_same(restored["model"]["w"], torch.ones(2))
        assert_same(manager["latest"].torch()["model"]["w"], torch.ones(2))


def test_a_fresh_optimizer_as_a_template_loses_no_moment_silently(store):
    model, optimizer = trained(0, steps=2)
    store.save(2, state_of(model, optimizer)).result(timeout=60)
    fresh = Tied()
    like = state_of(fresh, torch.optim.AdamW(fresh.parameters(), lr=1e-2))
    assert like["optimizer"]["state"] == {}
    with pytest.raises(ckptree.MismatchError) as error:
        store.restore(2, like)
    assert {d.suggestion for d in error.value.differences} == {
        "or restore without a template: arrays='torch'"
    }
    with pytest.warns(
        UserWarning, match="optimizer/state: .* left out.*'torch'"
    ):
        store.restore(2, like, partial=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # Who asks for the model alone, gets it.
        store.restore(2, like, partial="model/**")
        store.restore(2, {"model": like["model"]}, partial=True)


def test_tied_parameters_are_saved_once(store):
    model = Tied()
    state = model.state_dict()
    assert state["head.weight"] is not state["embedding.weight"]
    store.save(1, {"model": state}).result(timeout=60)
    nbytes = sum(v.nbytes for k, v in state.items() if k != "head.weight")
    assert store.step_info(1).logical_bytes == nbytes
    plain = store.restore(1)["model"]
    assert plain["head.weight"] is plain["embedding.weight"]
    assert list(plain) == sorted(state)
    blamed = {row.name: row.dtype for row in store.blame(1, "model")}
    assert blamed["model/head.weight"] == "float32"


def test_only_the_same_elements_are_tied(round_trip, store):
    w = torch.arange(16.0)
    state = {
        "w": w,
        "again": w.view(16),
        "row": w.view(4, 4),
        "turned": w.view(4, 4).T,
        "part": w[:8],
        "bits": w.view(torch.int32),
        "empty": w[:0],
        "nothing": w[:0],
    }
    restored = round_trip(state, like=state)
    for key, value in state.items():
        assert_same(restored[key], value)
    assert store["latest"].info.leaf_count == 7


def test_templates_are_strict(store):
    store.save(1, {"a": torch.ones(2, 3), "n": 3}).result(timeout=60)
    like = {"a": torch.ones(3, 2, dtype=torch.bfloat16), "n": torch.tensor(0)}
    with pytest.raises(ckptree.MismatchError) as error:
        store.restore(1, like)
    assert [(d.path, d.problem) for d in error.value.differences] == [
        ("a", "shape"), ("n", "kind"),
    ]
    like["a"] = torch.ones(2, 3, dtype=torch.bfloat16)
    cast = store.restore(1, like, cast=True)
    assert_same(cast["a"], torch.ones(2, 3, dtype=torch.bfloat16))
    assert_same(cast["n"], torch.tensor(3))
    mine = torch.ones(1)
    kept = store.restore(1, {"a": torch.zeros(2, 3), "b": mine}, partial=True)
    assert kept["b"] is mine and kept["a"].sum() == 6
    missing = {"b": torch.ones(1, device="meta")}
    with pytest.raises(ckptree.MismatchError, match="b: .*no value to keep"):
        store.restore(1, missing, partial=True)


def test_states_of_numpy_and_pytorch_fit_each_other(store):
    store.save(1, {"w": np.arange(6.0).reshape(2, 3), "s": np.float32(2)})
    store.save(2, {"w": torch.ones(2, 3), "s": torch.tensor(2.0)}).result()
    double = torch.zeros(2, 3, dtype=torch.float64)
    restored = store.restore(1, {"w": double, "s": torch.tensor(0.0)})
    assert_same(
        restored["w"], torch.arange(6.0, dtype=torch.float64).view(2, 3)
    )
    assert_same(restored["s"], torch.tensor(2.0))
    restored = store.restore(
        2, {"w": np.zeros((2, 3), "f4"), "s": np.float32(0)}
    )
    assert type(restored["w"]) is np.ndarray and restored["w"].sum() == 6


def test_beside_jax(round_trip):
    import jax.numpy as jnp

    state = {"t": torch.ones(3), "j": jnp.ones(3), "n": np.ones(3)}
    restored = round_trip(state, like=state)
    assert {k: type(v) for k, v in restored.items()} == {
        k: type(v) for k, v in state.items()
    }


class Odd(torch.Tensor):
    pass


def unsaved():
    ones = torch.ones(2, 2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        packed = torch.quantize_per_tensor(ones, 0.1, 0, torch.quint4x2)
        nested = torch.nested.nested_tensor([ones, ones[0:1]])
    short = torch.ones(6)[2:].view(2, 2)
    short.untyped_storage().resize_(23)
    return {
        "meta": (ones.to("meta"), ValueError, "no values"),
        "nested": (nested, TypeError, "nested"),
        "freed in part": (short, ValueError, "freed"),
        "packed": (packed, TypeError, "torch.quint4x2"),
        "packed, empty": (
            torch.empty(2, dtype=torch.quint4x2),
            TypeError,
            "tensors of torch.quint4x2",
        ),
        "no scale": (
            torch.empty(2, dtype=torch.qint8), TypeError, "no scale"
        ),
        "int4": (torch.empty(2, dtype=torch.int4), TypeError, "torch.int4"),
        "fp4": (
            torch.empty(2, dtype=torch.float4_e2m1fn_x2),
            TypeError,
            "float4",
        ),
        "subclass": (ones.as_subclass(Odd), TypeError, "Odd is no leaf"),
        "module": (
            torch.nn.Linear(2, 2),
            TypeError,
            r"Linear .*state_dict\(\)",
        ),
        "optimizer": (
            torch.optim.SGD([ones.requires_grad_()]),
            TypeError,
            "state_dict",
        ),
    }


@pytest.mark.parametrize("name", unsaved())
def test_what_has_no_bytes_is_refused_by_path(store, name):
    value, error, words = unsaved()[name]
    with pytest.raises(error, match=f"^model/w: .*{words}"):
        store.save(1, {"model": {"w": value}})
    assert store.steps() == []


def test_a_tensor_of_a_device_is_copied_at_the_call(store, monkeypatch):
    from ckptree.adapters import torch as ours

    copied = []

    def on_host(tensor):
        copied.append(tensor)
        return tensor.clone()

    monkeypatch.setattr(torch.Tensor, "cpu", on_host)
    w = torch.arange(4.0)
    made = ours.pieces(w)
    assert made.frozen and len(copied) == 1
    handle = store.save(1, {"w": w})
    w += 1
    handle.result(timeout=60)
    np.testing.assert_array_equal(store.restore(1)["w"], np.arange(4.0))


def test_what_pytorch_does_not_have(store):
    import ml_dtypes

    state = {
        "w": np.zeros(2, ml_dtypes.int4),
        "n": 3,
        "e": np.zeros(2, ml_dtypes.float8_e3m4),
    }
    store.save(1, state).result(timeout=60)
    for name, words in (
        ("w", "int4"),
        ("e", "float8_e3m4"),
        ("n", "n is of kind int"),
    ):
        with pytest.raises(TypeError, match=words):
            store[1][name].torch()
    assert store[1]["w"].numpy().dtype == ml_dtypes.int4


def test_a_reader_of_a_state_dict_needs_no_pytorch(tmp_path):
    with ckptree.Store(tmp_path / "s") as store:
        store.save(1, {"m": Tied().state_dict()}).result(timeout=60)
    code = """
import sys
sys.modules["torch"] = None
import ckptree
with ckptree.open(sys.argv[1]) as store:
    state = store.restore()["m"]
    print(sorted(state)[0], type(state).__name__, state["hidden.weight"].dtype)
    try: store[1]["m/hidden.weight"].torch()
    except ImportError as error: print(error)
"""
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "s")],
        capture_output=True, text=True, timeout=120,
    )
    assert done.stderr == ""
    assert "embedding.weight dict bfloat16" in done.stdout
    assert "pip install 'ckptree[torch]'" in done.stdout


@pytest.mark.parametrize(
    "name, kept, changed",
    [
        ("float8_e4m3fn", [0, -448, 460, 0.1], [[1000], [-1e30], [480]]),
        ("float8_e8m0fnu", [1, 3, 2.0**100], [[-1], [0], [1e39]]),
        ("float8_e5m2", [0, -57344, 1.2], [[1e30]]),
        ("float8_e4m3fnuz", [0, -240, 1.2], [[300]]),
    ],
)
def test_a_cast_to_eight_bits_rounds_alone(store, name, kept, changed):
    dtype = getattr(torch, name)
    template = torch.zeros(1, dtype=torch.float64).to(dtype)
    for step, values in enumerate([kept, *changed]):
        tensor = torch.tensor(values, dtype=torch.float64)
        store.save(step, {"w": tensor}).result()
        like = {"w": template.expand(len(values)).clone()}
        if step == 0:
            found = store.restore(step, like=like, cast=True)["w"]
            assert torch.equal(found.double(), tensor.to(dtype).double())
            continue
        with pytest.raises(ValueError, match="from "):
            store.restore(step, like=like, cast=True)
        assert store.restore(step, like=like, cast="lossy")["w"].dtype == dtype
