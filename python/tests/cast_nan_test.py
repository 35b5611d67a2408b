# SPDX-License-Identifier: Apache-2.0
"""NaN, and an imaginary part, are lost by no cast."""

import math

import ckptree
import numpy as np
import pytest

NAN = float("nan")
LOST = {
    "int": 0,
    "numpy int": np.int32(0),
    "array of int": np.zeros((), "i8"),
    "numpy bool": np.bool_(False),
}
KEPT = {
    "float": 0.0,
    "numpy float": np.float32(0),
    "array of float": np.zeros((), "f8"),
}


@pytest.mark.parametrize("name", LOST)
def test_it_is_no_int_and_no_bool(store, name):
    store.save(1, {"a": NAN}).result(timeout=60)
    with pytest.raises(ckptree.MismatchError, match="a"):
        store.restore(1, {"a": LOST[name]}, cast=True)


@pytest.mark.parametrize("name", KEPT)
def test_it_is_every_float(store, name):
    store.save(1, {"a": NAN}).result(timeout=60)
    assert math.isnan(store.restore(1, {"a": KEPT[name]}, cast=True)["a"])


def test_of_pytorch(store):
    torch = pytest.importorskip("torch")
    store.save(1, {"a": NAN}).result(timeout=60)
    with pytest.raises(ckptree.MismatchError, match="a"):
        store.restore(
            1, {"a": torch.zeros((), dtype=torch.int32)}, cast=True
        )
    like = {"a": torch.zeros((), dtype=torch.float32)}
    assert torch.isnan(store.restore(1, like, cast=True)["a"])


def test_an_imaginary_part(store):
    store.save(1, {"a": complex(NAN, 5), "b": complex(2, 0)}).result(timeout=60)
    for template in (0.0, np.zeros((), "f8")):
        with pytest.raises(ckptree.MismatchError, match="a"):
            store.restore(1, {"a": template}, partial="a", cast=True)
        found = store.restore(1, {"b": template}, partial="b", cast=True)
        assert found["b"] == 2


def test_none_beside_it_is_no_change(store):
    kept = np.array([NAN, 2 + 0j, -math.inf], "c16")
    lost = np.array([complex(NAN, 1)], "c16")
    store.save(1, {"a": kept, "b": lost}).result(timeout=60)
    found = store.restore(1, {"a": np.zeros(3)}, partial="a", cast=True)["a"]
    assert math.isnan(found[0]) and found[1:].tolist() == [2, -math.inf]
    with pytest.raises(ckptree.MismatchError, match="b"):
        store.restore(1, {"b": np.zeros(1)}, partial="b", cast=True)
    with pytest.raises(ckptree.MismatchError, match="a"):
        store.restore(1, {"a": np.zeros(3, "i8")}, partial="a", cast=True)


SMALL = ["float4_e2m1fn", "float6_e2m3fn", "float6_e3m2fn", "float8_e4m3fn"]


@pytest.mark.parametrize("value", [NAN, math.inf, -math.inf, 1e30, -1e30])
@pytest.mark.parametrize("name", SMALL)
def test_a_type_without_it_gets_no_other_number(store, name, value):
    dtype = getattr(pytest.importorskip("ml_dtypes"), name)
    whole = np.full(3, 0.5, "f4")
    whole[1] = value
    store.save(1, {"a": whole}).result(timeout=60)
    like = {"a": np.zeros(3, dtype)}
    if math.isnan(value) and name.startswith("float8"):
        found = store.restore(1, like, cast=True)["a"].astype("f4")
        assert list(np.isnan(found)) == [False, True, False]
        return
    with pytest.raises(ckptree.MismatchError, match="a"):
        store.restore(1, like, cast=True)


@pytest.mark.parametrize("name", SMALL)
def test_what_rounds_to_its_largest_number_does(store, name):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    dtype = getattr(ml_dtypes, name)
    largest = float(ml_dtypes.finfo(dtype).max)
    values = np.asarray([largest, -largest * 1.01, 0.5], "f4")
    store.save(1, {"a": values}).result(timeout=60)
    found = store.restore(1, {"a": np.zeros(3, dtype)}, cast=True)["a"]
    assert list(found.astype("f4")) == [largest, -largest, 0.5]
