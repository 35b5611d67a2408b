# SPDX-License-Identifier: Apache-2.0
"""Arrays of NumPy: any type, shape and place in memory."""

import ckptree
import ml_dtypes
import numpy as np
import pytest

NUMPY = "bool i1 i2 i4 i8 u1 u2 u4 u8 f2 f4 f8 c8 c16".split()
ML_DTYPES = """int2 int4 uint2 uint4 bfloat16 float8_e3m4 float8_e4m3
    float8_e4m3b11fnuz float8_e4m3fn float8_e4m3fnuz float8_e5m2
    float8_e5m2fnuz float8_e8m0fnu float6_e2m3fn float6_e3m2fn
    float4_e2m1fn""".split()
DTYPES = [np.dtype(name) for name in NUMPY] + [
    np.dtype(getattr(ml_dtypes, name)) for name in ML_DTYPES
]


def some(dtype, shape, seed=0):
    """Elements of all kinds that the type has."""
    rng = np.random.default_rng(seed)
    bits = rng.integers(0, 4, size=shape)
    if dtype.itemsize >= 4 and dtype.kind in "fc":
        return rng.standard_normal(shape).astype(dtype)
    return bits.astype(np.float32).astype(dtype)


def assert_same(a, b):
    assert a.dtype == b.dtype and a.shape == b.shape
    assert a.tobytes() == b.tobytes()  # In C order, whatever the order is.


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_element_type_comes_back(round_trip, store, dtype):
    state = {
        "large": some(dtype, (300, 401)),
        "small": some(dtype, (3,)),
        "none": some(dtype, (0, 4)),
        "one": some(dtype, ()),
    }
    restored = round_trip(state)
    for name, array in state.items():
        assert_same(restored[name], array)
    assert_same(store[0]["large"][5:290:3, ::-1], state["large"][5:290:3, ::-1])
    assert store[0]["large"].dtype == dtype
    again = round_trip(state, like=state)
    for name, array in state.items():
        assert_same(again[name], array)


base = np.arange(120.0).reshape(4, 5, 6)
LAYOUTS = {
    "fortran": np.asfortranarray(base),
    "transposed": base.transpose(1, 2, 0),
    "strided": base[::2, 1:, ::3],
    "reversed": base[::-1, :, ::-2],
    "broadcast": np.broadcast_to(np.arange(6.0), (4, 5, 6)),
    "swapped": base.astype(">f8"),
    "swapped, strided": base.astype(">f8")[:, ::2],
    "unaligned": np.frombuffer(b"x" + base.tobytes(), "f8", offset=1),
    "0-d": np.array(1.5),
    "zero-size": np.zeros((3, 0, 2)),
    "field of records": np.zeros(5, [("a", "i1"), ("b", "f8")])["b"],
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_every_layout_comes_back(round_trip, name):
    array = LAYOUTS[name]
    restored = round_trip({"a": array})["a"]
    assert restored.dtype == array.dtype.newbyteorder("=")
    np.testing.assert_array_equal(restored, array)
    assert restored.flags.c_contiguous and restored.flags.writeable


def test_read_only_arrays_are_saved_as_they_are_now(round_trip):
    array = np.arange(10.0)
    view = array[:]
    view.flags.writeable = False
    np.testing.assert_array_equal(round_trip({"a": view})["a"], array)


def test_a_memmap_is_saved(round_trip, tmp_path):
    mapped = np.memmap(tmp_path / "file", "f4", "w+", shape=(7, 3))
    mapped[:] = 3
    restored = round_trip({"a": mapped})["a"]
    assert type(restored) is np.ndarray
    np.testing.assert_array_equal(restored, mapped)


def test_scalars_of_numpy_come_back_as_such(round_trip):
    state = {
        "f": np.float32(1.5),
        "b": np.bool_(True),
        "h": ml_dtypes.bfloat16(3),
    }
    restored = round_trip(state)
    for name, value in state.items():
        assert type(restored[name]) is type(value)
        assert restored[name] == value


INDICES = [
    (1, ..., 0),
    (..., 1, 0),
    (1, 0, ...),
    (1, 0),
    ...,
    (..., 0),
    (0, ..., None),
    (slice(2), ..., 1),
]


@pytest.mark.parametrize("index", INDICES, ids=str)
def test_an_index_gives_what_numpy_gives(store, index):
    array = np.arange(6.0).reshape(3, 2)
    store.save(1, {"a": array, "one": np.array(2.5)}).result(timeout=60)
    found, wanted = store[1]["a"][index], array[index]
    assert type(found) is type(wanted)
    np.testing.assert_array_equal(found, wanted)
    for at in (..., ()):
        assert type(store[1]["one"][at]) is type(np.array(2.5)[at])


@pytest.mark.parametrize("staging_bytes", [2 << 20, 1 << 30])
def test_the_bytes_are_those_at_the_call(tmp_path, staging_bytes):
    # More than the smaller pool takes: the rest is read as there is room.
    array = np.arange(1 << 20, dtype=np.int64)
    with ckptree.Store(tmp_path / "s", staging_bytes=staging_bytes) as store:
        handles = []
        for step in range(8):
            array[:] = np.arange(1 << 20) + step
            handles.append(store.save(step, {"a": array, "b": array[::3]}))
            array[:] = -1
        for step, handle in enumerate(handles):
            handle.result(timeout=120)
            expected = np.arange(1 << 20) + step
            restored = store.restore(step)
            np.testing.assert_array_equal(restored["a"], expected)
            np.testing.assert_array_equal(restored["b"], expected[::3])


def test_borrowed_arrays_are_read_until_staged(store):
    array = np.arange(1 << 18, dtype=np.int64)
    handle = store.save(1, {"a": array}, borrow=True)
    handle.wait_staged(timeout=60)
    assert handle.staged()
    array[:] = -1
    handle.result(timeout=60)
    np.testing.assert_array_equal(store.restore(1)["a"], np.arange(1 << 18))


def test_arrays_live_until_their_save_is_done(store):
    # Nobody but the save has them.
    handles = [
        store.save(step, {"a": np.full(1 << 18, step)}, borrow=True)
        for step in range(10)
    ]
    for step, handle in enumerate(handles):
        handle.result(timeout=60)
        assert (store.restore(step)["a"] == step).all()
