# SPDX-License-Identifier: Apache-2.0
"""Containers and scalars: what is saved comes back."""

import collections
import dataclasses
import functools
import math
from collections import OrderedDict, defaultdict, namedtuple

import numpy as np
import pytest

Point = namedtuple("Point", "x y")
Empty = namedtuple("Empty", "")


@dataclasses.dataclass(frozen=True)
class Settings:
    rate: float
    sizes: list
    seen: int = dataclasses.field(default=0, init=False)


SCALARS = [
    True,
    False,
    0,
    -1,
    2**63 - 1,
    -(2**63),
    2**63,
    -(2**63) - 1,
    3**500,
    0.0,
    -0.0,
    1e-320,
    math.inf,
    1 + 2j,
    "",
    "naïve ☃ \x00",
    b"",
    b"\x00\xff",
    None,
]


@pytest.mark.parametrize("value", SCALARS, ids=repr)
def test_scalars_come_back_by_value_and_type(round_trip, value):
    restored = round_trip({"value": value})["value"]
    assert type(restored) is type(value)
    assert restored == value
    if isinstance(value, float):
        assert math.copysign(1, restored) == math.copysign(1, value)


def test_nan_comes_back(round_trip):
    assert math.isnan(round_trip({"value": math.nan})["value"])


CONTAINERS = [
    {},
    {"a": {}},
    {"a": []},
    {"a": ()},
    {"a": [[], [()], {}]},
    {"a": (1, (2, [3]))},
    {"a": [1, "2", None, {"b": 4.0}]},
    {"a": Point(1, [2])},
    {"a": Empty()},
    {"a": {1: "int", "1": "str", 1.5: "float", None: "none", b"1": "bytes"}},
    {"a": {True: "bool", (1, ("x", None)): "tuple"}},
    {"with/slash": 1, "with.dot": 2, "[0]": 3, "": 4, "ünï": 5},
    {"state": [1, 2]},
]


@pytest.mark.parametrize("state", CONTAINERS, ids=repr)
def test_containers_come_back(round_trip, state):
    assert same(round_trip(state), state)
    assert same(round_trip(state, like=state), state)


ROOTS = [[1, 2], (1, {"a": 2}), Point([1], 2), {1: "a", 2: "b"}, (), []]


@pytest.mark.parametrize("state", ROOTS, ids=repr)
def test_roots_that_name_no_items_come_back(round_trip, state):
    assert same(round_trip(state), state)
    assert same(round_trip(state, like=state), state)


def test_a_dict_of_one_item_that_is_called_state_stays_a_dict(round_trip):
    assert round_trip({"state": (1, 2)}) == {"state": (1, 2)}


def test_a_named_tuple_has_its_names_without_its_class(round_trip):
    restored = round_trip({"p": Point(1, 2)})["p"]
    assert isinstance(restored, tuple) and not isinstance(restored, Point)
    assert (restored.x, restored.y, restored._fields) == (1, 2, ("x", "y"))
    assert repr(restored) == "Point(x=1, y=2)"


def test_a_template_gives_back_classes(round_trip):
    state = {
        "p": Point(1, np.ones(2)),
        "d": Settings(0.5, [1, 2]),
        "o": OrderedDict(b=1, a=2),
        "f": defaultdict(list, a=1),
    }
    restored = round_trip(state, like=state)
    assert type(restored["p"]) is Point
    assert restored["d"] == state["d"]
    assert list(restored["o"].items()) == [("b", 1), ("a", 2)]
    assert type(restored["o"]) is OrderedDict
    assert restored["f"].default_factory is list


def test_without_a_template_objects_are_dicts(round_trip):
    restored = round_trip({"d": Settings(0.5, [1, 2])})
    assert restored == {"d": {"rate": 0.5, "sizes": [1, 2], "seen": 0}}


def test_an_array_at_two_paths_is_one_array(round_trip, store):
    shared = np.arange(1000.0)
    state = {"encoder": {"w": shared}, "decoder": [shared]}
    restored = round_trip(state)
    assert restored["encoder"]["w"] is restored["decoder"][0]
    np.testing.assert_array_equal(restored["decoder"][0], shared)
    assert store.step_info().leaf_count == 1
    np.testing.assert_array_equal(store[0]["encoder/w"].numpy(), shared)
    np.testing.assert_array_equal(store[0]["decoder/[0]"].numpy(), shared)
    assert set(store[0]) == {"encoder/w", "decoder/[0]"}


def test_of_very_many_arrays_those_that_are_met_again_are_the_same(store):
    arrays = [np.full(2, i, "f4") for i in range(5000)]
    # The first tie is met when most were seen, others before and after more.
    state = {f"w{i}": array for i, array in enumerate(arrays[:4000])}
    state["again"] = [arrays[3999], arrays[0], arrays[1234]]
    state["more"] = {f"w{i}": a for i, a in enumerate(arrays[4000:])}
    state["last"] = (arrays[4999], arrays[0])
    store.save(0, state).result()
    restored = store.restore(0)
    for name, at in (("w3999", 0), ("w0", 1), ("w1234", 2)):
        assert restored["again"][at] is restored[name]
    assert restored["last"][0] is restored["more"]["w999"]
    assert restored["last"][1] is restored["w0"]
    for i, array in enumerate(arrays[:4000]):
        np.testing.assert_array_equal(restored[f"w{i}"], array)
    assert store[0].info.leaf_count == 5000


def test_arrays_however_they_lie_in_memory_come_back(store):
    base = np.arange(240, dtype="i4").reshape(4, 5, 12)
    state = {
        "dense": base,
        "cut": base[1:3, ::2, 3:],
        "turned": base.T,
        "backwards": base[::-1],
        "wide": np.broadcast_to(base[0, 0], (3, 12)),
        "none": base[:0],
        "scalar": np.array(7),
        "swapped": base.astype(">i4"),
        "bytes": base.view("u1")[..., 1:],
        "flags": base > 100,
    }
    store.save(0, state).result()
    restored = store.restore(0, like=state)
    for name, array in state.items():
        assert restored[name].shape == array.shape, name
        np.testing.assert_array_equal(restored[name], array, name)


@dataclasses.dataclass
class Grows:
    rate: float
    into = None  # No field.

    def __getattribute__(self, name):
        # The walk asks for the fields, which may run any code.
        if name == "rate" and Grows.into is not None:
            Grows.into["one more"] = 1
        return object.__getattribute__(self, name)


def test_a_dict_that_grows_while_it_is_saved_is_refused(store, monkeypatch):
    state = {"inner": {"first": 1.5, "grows": Grows(0.5)}}
    monkeypatch.setattr(Grows, "into", state["inner"])
    with pytest.raises(ValueError, match="inner: the dict changed its size"):
        store.save(0, state)
    assert store.steps() == []


def test_the_state_of_a_random_generator_goes_on(round_trip):
    generator = np.random.default_rng(7)
    state = round_trip({"rng": generator.bit_generator.state})
    expected = generator.random(5)
    other = np.random.default_rng(8)
    other.bit_generator.state = state["rng"]
    np.testing.assert_array_equal(other.random(5), expected)


def same(a, b):
    """Equal, with equal types of containers and of keys."""
    if isinstance(b, dict):
        keys = {(type(k), k) for k in a} == {(type(k), k) for k in b}
        return type(a) is dict and keys and all(same(a[k], b[k]) for k in b)
    if isinstance(b, tuple):
        named = getattr(a, "_fields", None) == getattr(b, "_fields", None)
        return named and len(a) == len(b) and all(map(same, a, b))
    if isinstance(b, list):
        return type(a) is list and len(a) == len(b) and all(map(same, a, b))
    return type(a) is type(b) and a == b


@dataclasses.dataclass
class WithItems(dict):
    rate: float


@dataclasses.dataclass
class Ordered(collections.deque):
    rate: float


@pytest.mark.parametrize("kind", [WithItems, Ordered])
def test_a_dataclass_that_holds_more_than_attributes_is_refused(store, kind):
    value = kind(0.5)
    with pytest.raises(TypeError, match=f"^x: a?.*{kind.__name__} is "):
        store.save(0, {"x": value})
    store.save(0, {"x": {"rate": 0.5}}).result()
    with pytest.raises(TypeError, match=f"^x: .*{kind.__name__}"):
        store.restore(0, like={"x": value})


class Base:
    __slots__ = ("table",)


@dataclasses.dataclass
class Layer(Base):
    w: np.ndarray
    heads: int

    def __post_init__(self):
        self.per_head = len(self.w) // self.heads
        self.cache = {}

    @functools.cached_property
    def norm(self):
        return np.sqrt(np.square(self.w).sum(keepdims=True))


@dataclasses.dataclass(frozen=True, slots=True)
class Frozen:
    rate: float


def test_a_dataclass_keeps_what_the_template_has_beside_its_fields(store):
    layer = Layer(np.ones(4), 2)
    assert layer.norm[0] == 2
    store.save(0, {"layer": layer, "frozen": Frozen(0.5)}).result()
    assert sorted(store[0]) == ["frozen/.rate", "layer/.heads", "layer/.w"]
    template = Layer(np.zeros(4), 1)
    template.cache["a"] = 1
    template.table = "of the base"
    assert template.norm[0] == 0  # Not to be that of the restored one.
    like = {"layer": template, "frozen": Frozen(0.0)}
    restored = store.restore(0, like=like)
    made = restored["layer"]
    assert (made.heads, made.w.tolist()) == (2, [1, 1, 1, 1])
    assert (made.per_head, made.cache) == (4, {"a": 1})
    assert made.table == "of the base"
    assert made.norm[0] == 2
    assert restored["frozen"] == Frozen(0.5)
    assert (template.heads, template.norm[0]) == (1, 0)


class Grown(Layer):
    pass


BESIDE = {
    "an array": lambda layer: setattr(layer, "more", np.ones(3)),
    "in a slot": lambda layer: setattr(layer, "table", np.ones(3)),
    "in containers": lambda layer: setattr(
        layer, "more", [1, {"a": (Frozen(np.ones(3)),)}]
    ),
    "of a cycle": lambda layer: setattr(
        layer, "more", [layer, WithItems(0.5)]
    ),
}


@pytest.mark.parametrize("name", BESIDE)
@pytest.mark.parametrize("kind", [Layer, Grown])
def test_arrays_beside_the_fields_of_a_dataclass_are_refused(store, name, kind):
    layer = kind(np.ones(4), 2)
    BESIDE[name](layer)
    beside = "table" if name == "in a slot" else "more"
    with pytest.raises(
        TypeError, match=f"^a/layer: '{beside}' of a .*{kind.__name__} has arr"
    ):
        store.save(0, {"a": {"layer": layer}})
    assert store.steps() == []


def test_what_has_no_arrays_beside_the_fields_is_no_error(store):
    layer = Layer(np.ones(4), 2)
    layer.cache["self"] = layer.cache
    layer.scale = np.float64(2)
    layer.why = test_arrays_however_they_lie_in_memory_come_back
    store.save(0, {"layer": layer}).result()
    assert len(store[0]) == 2


def test_a_dict_that_grows_while_it_is_walked():
    from ckptree import _engine, _rules

    inner = {f"k{i}": i for i in range(100)}

    def grow(name, leaf):
        if len(inner) < 5000:
            inner.update({f"more{i}": i for i in range(5000)})
        return -leaf

    walked = _engine.map_state(
        {"item": inner}, _rules, lambda name, kind, empty, tag: None, grow
    )
    assert walked == {"item": {f"k{i}": -i for i in range(100)}}


def test_a_named_tuple_that_comes_back_is_one(store):
    point = namedtuple("Point", "x y")
    store.save(1, {"p": point(1, 2)}).result()
    found = store.restore(1)["p"]
    assert found._replace(x=5) == (5, 2) and found._field_defaults == {}
    with pytest.raises(ValueError, match="'z'"):
        found._replace(z=1)
