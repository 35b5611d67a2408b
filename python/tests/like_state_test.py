# SPDX-License-Identifier: Apache-2.0
"""The quick way of a restore into a plain template gives what the other way
gives, which knows all cases, and takes no template that the other refuses."""

import dataclasses
import random
from collections import OrderedDict, namedtuple

import ckptree
import numpy as np
import pytest
from ckptree import _rules

ml_dtypes = pytest.importorskip("ml_dtypes")

Point = namedtuple("Point", "y x")


@dataclasses.dataclass
class Fields:
    second: object
    first: object


def random_leaf(rng):
    kind = rng.randrange(12)
    if kind < 5:
        shape = tuple(rng.randrange(4) for _ in range(rng.randrange(3)))
        dtype = rng.choice(["f4", "i8", "?", ml_dtypes.bfloat16, "c8"])
        return np.full(shape, rng.randrange(100), dtype)
    if kind == 5 and rng.random() < 0.2:
        return rng.choice([2**70, np.float32(3)])  # These are not plain.
    plain = [7, 2.5, True, "text", b"bytes", 1j, None, -(2**63)]
    return rng.choice(plain)


def random_tree(rng, depth=0):
    if depth == 4 or (depth and rng.random() < 0.3):
        return random_leaf(rng)
    children = [random_tree(rng, depth + 1) for _ in range(rng.randrange(5))]
    names = rng.sample(["a", "w10", "w2", "ä b", "0", "a.b", ""], len(children))
    if depth == 0 and rng.random() < 0.8:
        kind = 0
    else:
        kind = rng.randrange(8)
    if kind < 3:
        return dict(zip(names, children))
    if kind == 3:
        return children
    if kind == 4:
        return tuple(children)
    if kind == 5:
        return OrderedDict(zip(names, children))
    if len(children) < 2:
        return dict(enumerate(children))
    return (Point if kind == 6 else Fields)(*children[:2])


def changed(rng, tree):
    """The tree with one of its places another one."""
    if isinstance(tree, dict) and tree and rng.random() < 0.8:
        made = type(tree)(tree)
        key = rng.choice(list(made))
        match rng.randrange(6):
            case 0:
                del made[key]
            case 1:
                made["one more"] = random_leaf(rng)
            case _:
                made[key] = changed(rng, made[key])
        return made
    if isinstance(tree, list | tuple) and tree and rng.random() < 0.8:
        made = list(tree)
        at = rng.randrange(len(made))
        made[at] = changed(rng, made[at])
        if isinstance(tree, Point):
            return Point(*made)
        return type(tree)(made) if rng.random() < 0.9 else tuple(made)
    if isinstance(tree, np.ndarray) and rng.random() < 0.7:
        swapped = tree.astype(tree.dtype.newbyteorder(">"))
        return rng.choice([swapped, tree.T, tree.reshape(-1)])
    return random_tree(rng, 2)


def same(a, b):
    assert type(a) is type(b)
    if isinstance(a, dict):
        assert list(a) == list(b)
        for key in a:
            same(a[key], b[key])
    elif isinstance(a, list | tuple):
        assert len(a) == len(b)
        for x, y in zip(a, b):
            same(x, y)
    elif isinstance(a, Fields):
        same(vars(a), vars(b))
    elif isinstance(a, np.ndarray):
        assert a.dtype == b.dtype and a.shape == b.shape
        assert a.flags.c_contiguous and a.flags.writeable
        assert a.tobytes() == b.tobytes()
    else:
        assert a == b


def quick(step, like):
    return step._engine.restore_like(like, _rules)


def the_other_way(step, like):
    return step.restore(like, progress=lambda done, total: None)


def test_both_ways_are_one(store):
    rng = random.Random(20261125)
    taken = refused = 0
    for number in range(300):
        state = random_tree(rng)
        try:
            store.save(number, state).result(timeout=60)
        except (TypeError, ValueError):
            continue  # A leaf alone.
        step = store[number]
        for like in (state, *(changed(rng, state) for _ in range(4))):
            made = quick(step, like)
            if made is NotImplemented:
                refused += 1
                continue
            taken += 1
            same(made, the_other_way(step, like))
    assert taken > 150 and refused > 200


PLAIN = {
    "params": [np.arange(6, dtype="f4").reshape(2, 3), (1, "two", [])],
    "point": Point(np.zeros((), "i4"), {"z": None, "b": b""}),
    "fields": Fields(np.ones(3, ml_dtypes.bfloat16), OrderedDict(k=2.5)),
    "large": np.arange(100_000.0),
    "empty": {},
    "none": None,
}


def test_what_is_plain_goes_the_quick_way(store):
    store.save(1, PLAIN).result(timeout=60)
    made = quick(store[1], PLAIN)
    same(made, PLAIN)
    assert made["large"] is not PLAIN["large"]


def test_arrays_without_order_and_with_another_layout(store):
    store.save(1, {"w": np.arange(6.0).reshape(2, 3)}).result(timeout=60)
    like = {"w": np.zeros((3, 2)).T}
    same(quick(store[1], like), {"w": np.arange(6.0).reshape(2, 3)})


@pytest.mark.parametrize(
    "like",
    [
        {"a": np.zeros(2, "f4")},
        {"a": np.zeros(2), "b": 1, "c": 1},
        {"a": np.zeros(3), "b": 1},
        {"a": np.zeros(2, ">f8"), "b": 1},
        {"a": np.zeros(2), "b": True},
        {"a": np.zeros(2), "b": 1.0},
        {"a": np.zeros(2), "b": {}},
        {"a": np.zeros(2), "b": None},
        {"a": [0.0, 0.0], "b": 1},
        {"a": np.ma.zeros(2), "b": 1},
        {1: np.zeros(2), "b": 1},
        [np.zeros(2), 1],
        {"state": {"a": np.zeros(2), "b": 1}},
        {"a": np.zeros(2), "b": object()},
        {},
        None,
    ],
)
def test_what_differs_is_left_to_the_other_way(store, like):
    store.save(1, {"a": np.zeros(2), "b": 1}).result(timeout=60)
    assert quick(store[1], like) is NotImplemented


def test_a_container_that_cannot_be_made_is_told_by_its_path(store):
    class Refusing(tuple):
        _fields = ("x",)

        @classmethod
        def _make(cls, values):
            raise LookupError("not of these")

    state = {"deep": {"point": namedtuple("Refusing", "x")(np.zeros(2))}}
    store.save(1, state).result(timeout=60)
    like = {"deep": {"point": Refusing((np.zeros(2),))}}
    with pytest.raises(ValueError, match="deep/point: LookupError: not of"):
        store.restore(1, like)


def test_damage_is_named_as_ever(tmp_path):
    state = {"w": np.random.default_rng(0).random(1_000_000)}
    with ckptree.Store(tmp_path / "run") as store:
        store.save(1, state).result(timeout=60)
    for table in (tmp_path / "run" / "db").glob("*.sst"):
        bytes_ = bytearray(table.read_bytes())
        if len(bytes_) > 500_000:
            bytes_[len(bytes_) // 2] ^= 1
            table.write_bytes(bytes_)
            break
    else:
        pytest.fail("no table has the array")
    with ckptree.open(tmp_path / "run") as reader:
        with pytest.raises(ckptree.CorruptionError, match="step 1: w"):
            reader.restore(1, state)
