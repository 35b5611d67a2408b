# SPDX-License-Identifier: Apache-2.0
"""Casts between types of few bits, of which NumPy knows only some."""

import ckptree
import numpy as np
import pytest

ml_dtypes = pytest.importorskip("ml_dtypes")

# Found, wanted, numbers that both have, and one that only the first has.
PAIRS = [
    ("int4", "uint4", [0, 1, 7], -1),
    ("uint4", "int4", [0, 1, 7], 15),
    ("int4", "int2", [-2, 0, 1], 5),
    ("int4", "float8_e8m0fnu", [1, 2, 4], -1),
    ("float8_e4m3fn", "float8_e8m0fnu", [0.5, 1, 256], -1),
    ("float8_e8m0fnu", "float8_e4m3fn", [0.5, 1, 256], 2.0**100),
    ("float8_e8m0fnu", "uint4", [1, 2, 8], 0.5),
    ("float6_e2m3fn", "int4", [-1, 0, 7], 0.125),
]


@pytest.mark.parametrize("found, wanted, both, one", PAIRS)
def test_what_both_have_is_cast_and_else_the_path_is_named(
    store, found, wanted, both, one
):
    if not all(hasattr(ml_dtypes, name) for name in (found, wanted)):
        pytest.skip("an older ml_dtypes")
    source, target = (getattr(ml_dtypes, name) for name in (found, wanted))
    store.save(1, {"a": {"w": np.asarray(both, "f4").astype(source)}}).result()
    store.save(2, {"a": {"w": np.full(2, one, "f4").astype(source)}}).result()
    like = {"a": {"w": np.zeros(len(both), "f4").astype(target)}}
    for cast in (True, "lossy"):
        made = store.restore(1, like, cast=cast)["a"]["w"]
        assert made.dtype == target
        assert made.astype("f4").tolist() == both
    like["a"]["w"] = like["a"]["w"][:2]
    with pytest.raises(ckptree.MismatchError) as caught:
        store.restore(2, like, cast=True)
    (difference,) = caught.value.differences
    assert difference.path == "a/w" and difference.problem == "value"
    assert store.restore(2, like, cast="lossy")["a"]["w"].dtype == target
