# SPDX-License-Identifier: Apache-2.0
"""What cannot be saved is refused, by its path, and nothing is saved."""

import enum
import math

import numpy as np
import pytest


class Color(enum.IntEnum):
    RED = 1


class Name(str):
    pass


class Thing:
    pass


itself = []
itself.append({"again": itself})

deep = {}
for _ in range(300):
    deep = {"d": deep}

TYPE_ERRORS = {
    "a function": (lambda: 0, "code"),
    "a module": (math, "code"),
    "a class": (Thing, "code"),
    "an object": (Thing(), "Thing"),
    "a set": ({1, 2}, "sorted"),
    "an enum": (Color.RED, "int()"),
    "a str of a class": (Name("x"), "str()"),
    "objects": (np.array([object()]), "dtype object"),
    "strings": (np.array(["a", "b"]), "dtype <U1"),
    "records": (np.zeros(2, [("a", "i4")]), "dtype"),
    "dates": (np.array(["2020-01-01"], "M8[D]"), "datetime64"),
    "a long double": (np.zeros(2, np.longdouble), "dtype"),
    "a masked array": (np.ma.masked_array([1.0]), "mask"),
    "a matrix": (np.matrix([[1.0]]), "asarray"),
    "a key that is an object": ({Thing: 1}, "keys are"),
    "a key that is a frozenset": ({frozenset(): 1}, "keys are"),
    "a key of NumPy": ({np.int64(3): 1}, "keys are"),
}


@pytest.mark.parametrize("name", TYPE_ERRORS)
def test_what_is_no_leaf_is_a_type_error(store, name):
    value, what = TYPE_ERRORS[name]
    with pytest.raises(TypeError) as error:
        store.save(1, {"params": {"good": 1, "bad": [0, value]}})
    assert str(error.value).startswith("params/bad/[1]")
    assert what in str(error.value)
    assert store.steps() == []


VALUE_ERRORS = {
    "a state that contains itself": (itself, "contains itself"),
    "too many levels": (deep, "levels"),
    "a lone surrogate": ("\ud800", "UTF-8"),
    "a key with a lone surrogate": ({"\ud800": 1}, "UTF-8"),
    "a key of more than 64 bits": ({2**70: 1}, "64 bits"),
}


@pytest.mark.parametrize("name", VALUE_ERRORS)
def test_what_has_no_form_is_a_value_error(store, name):
    value, what = VALUE_ERRORS[name]
    with pytest.raises(ValueError, match=what) as error:
        store.save(1, {"params": {"bad": value}})
    assert str(error.value).startswith("params/bad")
    assert store.steps() == []


@pytest.mark.parametrize("state", [None, 1, "x", np.zeros(3), {1, 2}])
def test_a_state_is_a_container(store, state):
    with pytest.raises(TypeError):
        store.save(1, state)


def test_a_refused_save_does_not_hold_up_the_next(store):
    with pytest.raises(TypeError):
        store.save(1, {"bad": Thing()})
    assert store.save(1, {"good": 1}).result(timeout=60) == 1


@pytest.mark.parametrize("step", [-1, 2**63])
def test_steps_are_numbers_that_fit(store, step):
    with pytest.raises((ValueError, TypeError)):
        store.save(step, {"a": 1})


@pytest.mark.parametrize("step", [True, 1.0, "1", None])
def test_steps_are_ints(store, step):
    with pytest.raises(TypeError, match="step is an int"):
        store.save(step, {"a": 1})


def test_metrics_and_metadata_are_checked(store):
    with pytest.raises(ValueError, match="at most 16"):
        store.save(1, {"a": 1}, metrics={str(i): i for i in range(17)})
    with pytest.raises(TypeError, match="metadata"):
        store.save(1, {"a": 1}, metadata={"x": Thing()})
    with pytest.raises(ValueError, match="metadata"):
        store.save(1, {"a": 1}, metadata={"x": math.nan})
    with pytest.raises(TypeError, match="metrics"):
        store.save(1, {"a": 1}, metrics={"x": "much"})
    assert store.steps() == []


def test_a_name_that_is_too_long_is_told_where_its_array_comes_again(store):
    shared = np.ones(2)
    with pytest.raises(ValueError, match="aaa.*at most 4096"):
        store.save(1, {"a" * 5000: shared, "b": shared}).result(timeout=60)
    assert store.steps() == []


def test_the_name_of_an_item_that_is_too_long(store):
    name = "layers.0.weight" * 10
    with pytest.raises(ValueError, match="longer than 128 .*{'model': state}"):
        store.save(1, {name: np.ones(2)})
    saved = store.save(1, {"model": {name: np.ones(2)}})
    assert saved.result(timeout=60) == 1
