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
