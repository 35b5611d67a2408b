# SPDX-License-Identifier: Apache-2.0
"""Strict restores list every path that differs; less is asked for."""

import collections
from typing import NamedTuple

import ckptree
import numpy as np
import pytest

STATE = {
    "params": {"w": np.ones((2, 3), "f4"), "b": np.zeros(3, "f4")},
    "opt": {"mu": {"w": np.full((2, 3), 2.0, "f4")}, "count": 7},
    "shape": (1, [2.5, None]),
    "empty": {},
}


@pytest.fixture
def saved(store):
    store.save(5, STATE).result(timeout=60)
    return store


def problems(store, like, **options):
    """{path: problem} of the one exception there is."""
    with pytest.raises(ckptree.MismatchError) as error:
        store.restore(5, like, **options)
    for difference in error.value.differences:
        assert str(difference) in str(error.value)
    return {d.path: d.problem for d in error.value.differences}


def test_every_differing_path_is_in_one_exception(saved):
    like = {
        "params": {"w": np.ones((2, 4), "f4"), "b": np.zeros(3, "f8")},
        "opt": {"mu": {"kernel": np.ones((2, 3), "f4")}, "count": "seven"},
        "shape": [1, (2.5, 1)],
        "more": [],
        "extra": 1,
    }
    assert problems(saved, like) == {
        "params/w": "shape",
        "params/b": "dtype",
        "opt/mu/kernel": "missing",
        "opt/mu/w": "unexpected",
        "opt/count": "kind",
        "shape": "kind",
        "shape/[1]": "kind",
        "shape/[1]/[1]": "kind",
        "more": "missing",
        "extra": "missing",
        "empty": "unexpected",
    }


def test_a_rename_is_suggested(saved):
    like = dict(STATE, params={"kernel": np.ones((2, 3), "f4")})
    with pytest.raises(ckptree.MismatchError) as error:
        saved.restore(5, like)
    assert "rename={'params/kernel': 'params/w'}" in str(error.value)
    assert "step 5 does not fit the template at 3 paths" in str(error.value)


def test_a_mismatch_is_a_value_error(saved):
    with pytest.raises(ValueError):
        saved.restore(5, {"params": {}})


@pytest.mark.parametrize(
    "like, path",
    [
        (dict(STATE, empty=None), "empty"),
        (dict(STATE, empty=[]), "empty"),
        (dict(STATE, empty=np.zeros(0)), "empty"),
        (dict(STATE, params=None), "params"),
        (dict(STATE, shape=None), "shape"),
        (dict(STATE, params=3), "params"),
    ],
    ids=str,
)
def test_kinds_of_containers_are_compared(saved, like, path):
    assert problems(saved, like)[path] == "kind"


def test_partial_keeps_what_the_step_lacks(saved):
    mine = np.full(4, 9.0)
    like = {"params": {"w": np.zeros((2, 3), "f4"), "new": mine}, "lr": 0.5}
    restored = saved.restore(5, like, partial=True)
    np.testing.assert_array_equal(restored["params"]["w"], STATE["params"]["w"])
    assert restored["params"]["new"] is mine and restored["lr"] == 0.5
    assert set(restored) == {"params", "lr"}


def test_partial_by_globs_restores_only_these(saved):
    like = {
        "params": {"w": np.zeros((2, 3), "f4"), "b": np.full(3, 4.0)},
        "opt": {"mu": {"w": np.zeros((2, 3), "f4")}, "count": 1},
    }
    restored = saved.restore(5, like, partial=["params/w", "opt/**"])
    assert restored["opt"]["count"] == 7
    assert restored["params"]["w"].max() == 1
    assert restored["params"]["b"] is like["params"]["b"]
    assert problems(saved, dict(like, params={"w": np.zeros(2)}),
                    partial="params/w") == {"params/w": "shape"}
    with pytest.raises(KeyError, match="nothing"):
        saved.restore(5, like, partial="parms/**")


def test_cast_converts_numbers_and_elements(saved):
    like = {
        "params": {"w": np.zeros((2, 3), "f8"), "b": np.zeros(3, "i2")},
        "opt": {"mu": {"w": np.zeros((2, 3), "f2")}, "count": 0.0},
        "shape": (np.int32(0), [np.zeros((), "f4"), None]),
        "empty": {},
    }
    assert len(problems(saved, like)) == 6
    restored = saved.restore(5, like, cast=True)
    assert restored["params"]["w"].dtype == np.float64
    assert restored["params"]["b"].dtype == np.int16
    assert type(restored["opt"]["count"]) is float
    assert restored["shape"][1][0].dtype == np.float32
    wrong = dict(like, opt={"mu": {"w": np.zeros((2, 3))}, "count": "7"})
    assert problems(saved, wrong, cast=True) == {"opt/count": "kind"}


def test_partial_that_matches_nothing_is_an_error(saved):
    like = {"model": {"kernel": np.full((2, 3), 9.0), "bias": np.zeros(3)}}
    for partial in (True, "params/**", ["opt/**", "params/*"]):
        with pytest.raises(KeyError) as error:
            saved.restore(5, like, partial=partial)
        said = str(error.value)
        assert "partial=" in said and "step 5" in said and "rename=" in said
        assert "'model/kernel', 'model/bias'" in said
        there = (
            "'opt/count', 'opt/mu/w'"
            if partial != "params/**"
            else "'params/b'"
        )
        assert there in said
    # Of a long list the first names are enough.
    with pytest.raises(
        KeyError, match="'x0', 'x1', 'x2' and 997 more"
    ) as error:
        saved.restore(5, {f"x{i}": 0 for i in range(1000)}, partial=True)
    assert len(str(error.value)) < 500
    # One match is a match, and a template without leaves has none to lose.
    assert saved.restore(5, {"opt": {"count": 0}, "x": 1}, partial=True) == {
        "opt": {"count": 7}, "x": 1,
    }
    assert saved.restore(5, {"empty": {}}, partial=True) == {"empty": {}}


# What is saved, what the template has, and what comes back with cast=True;
# None: that is refused. By hand, not from what the package computes.
F16_MAX = 65504
CASTS = {
    "a rate as an int": (3e-4, 0, None),
    "a whole float as an int": (3.0, 0, 3),
    "nan as an int": (float("nan"), 0, None),
    "inf as an int": (float("inf"), 0, None),
    "an int as a bool": (2, False, None),
    "one as a bool": (1, False, True),
    "an int as a float": (2**53, 0.0, 2.0**53),
    "an int that no float has": (2**53 + 1, 0.0, None),
    "an int beyond all floats": (10**400, 0.0, None),
    "a complex number as a float": (1 + 2j, 0.0, None),
    "a real complex number": (1 + 0j, 0.0, 1.0),
    "nan as a complex number": (float("inf"), 0j, complex("inf")),
    "a float of Python as float32": (3e-4, np.float32(0), None),
    "a half as float32": (0.5, np.float32(0), np.float32(0.5)),
    "an int as int8": (300, np.int8(0), None),
    "a small int as int8": (-128, np.int8(0), np.int8(-128)),
    "an int of 100 bits as int64": (2**100, np.int64(0), None),
    "float32 as a float": (np.float32(0.1), 0.0, float(np.float32(0.1))),
    "an element as an int": (np.array(2.5), 0, None),
    "floats are rounded": ([1 / 3, -1e-9], "f4", [1 / 3, -1e-9]),
    "inf stays inf": (
        [np.inf, -np.inf, np.nan],
        "f2",
        [np.inf, -np.inf, np.nan],
    ),
    "the largest": ([F16_MAX], "f2", [F16_MAX]),
    "too large": ([1.0, 1e5], "f2", None),
    "floats as ints": ([1.0, 2.5], "i4", None),
    "whole floats as ints": ([1.0, -2.0], "i4", [1, -2]),
    "floats beyond the ints": ([2.0**31], "i4", None),
    "the lowest int": ([-(2.0**31)], "i4", [-(2**31)]),
    "a float just beyond": ([2.0**63], "i8", None),
    "below zero": ([-1.0], "u4", None),
    "nan among ints": ([np.nan], "i8", None),
    "ints that fit": (np.array([-128, 127]), "i1", [-128, 127]),
    "ints that do not": (np.array([-128, 128]), "i1", None),
    "a sign lost": (np.array([-1]), "u8", None),
    "a sign made": (np.array([2**63], "u8"), "i8", None),
    "ints as floats": (np.array([2**24]), "f4", [2**24]),
    "ints that no float32 has": (np.array([2**24 + 1]), "f4", None),
    "the largest int as a float": (np.array([2**63 - 1]), "f8", None),
    "ints as bools": (np.array([0, 1, 2]), "?", None),
    "bools as ints": (np.array([True, False]), "i2", [1, 0]),
    "half a bool": ([0.5], "?", None),
    "complex numbers as floats": (np.array([1 + 1j]), "f8", None),
    "real ones": (np.array([1.5 + 0j]), "f4", [1.5]),
    "floats as complex numbers": ([1.5], "c8", [1.5 + 0j]),
    "complex numbers rounded": (np.array([1 / 3 + 1j]), "c8", [1 / 3 + 1j]),
    "complex numbers too large": (np.array([1e300 + 1j]), "c8", None),
    "ints as complex numbers": (np.array([2**24 + 1]), "c8", None),
}
TENSORS = {name for name, case in CASTS.items() if isinstance(case[1], str)}


def frameworks():
    """What makes a template of an array of NumPy, and an array of its leaf."""
    yield "numpy", lambda array: array, np.asarray
    try:
        import jax

        yield "jax", jax.numpy.asarray, np.asarray
    except ImportError:
        pass
    try:
        import torch

        yield "torch", torch.from_numpy, lambda tensor: tensor.numpy()
    except ImportError:
        pass


@pytest.mark.parametrize("kind", ["numpy", "jax", "torch"])
@pytest.mark.parametrize("name", CASTS)
def test_a_cast_changes_no_value(store, name, kind):
    found, wanted, expected = CASTS[name]
    if name not in TENSORS:
        if kind != "numpy":
            pytest.skip("no array")
        like = wanted
    else:
        found = np.array(found) if isinstance(found, list) else found
        like = np.zeros(found.shape, wanted)
    makes = {made: (make, read) for made, make, read in frameworks()}
    if kind not in makes:
        pytest.skip(f"{kind} is not installed")
    make, read = makes[kind]
    template = make(like) if name in TENSORS else like
    if kind == "jax" and template.dtype != like.dtype:
        pytest.skip("JAX has no such elements here")
    # In the last of more elements than are looked at in one go.
    if name in TENSORS and kind == "numpy":
        found = np.concatenate([np.zeros(1 << 20, found.dtype), found])
        template = np.concatenate([np.zeros(1 << 20, like.dtype), like])
        if expected is not None:
            expected = np.concatenate([np.zeros(1 << 20), expected])
    store.save(5, {"x": found, "n": 1}).result(timeout=60)
    state = {"x": template, "n": 0}
    assert list(problems(store, state)) == ["x"]
    if expected is None:
        assert problems(store, state, cast=True) == {"x": "value"}
        with pytest.raises(ValueError, match="\n  x: .*cast='lossy'"):
            store.restore(5, state, cast=True)
        return
    restored = store.restore(5, state, cast=True)["x"]
    if name not in TENSORS:
        assert restored == expected
        assert getattr(restored, "dtype", type(restored)) == getattr(
            wanted, "dtype", type(wanted)
        )
        return
    assert type(restored) is type(template)
    assert restored.dtype == template.dtype
    expected = np.array(expected).astype(like.dtype)
    np.testing.assert_array_equal(read(restored), expected)


def test_every_value_that_a_cast_would_change_is_named(saved):
    state = dict(STATE, lr=3e-4, ids=np.array([1, 300]), w=np.array([1.5, 2]))
    saved.save(6, state).result(timeout=60)
    like = dict(state, lr=0, ids=np.zeros(2, "i1"), w=np.zeros(2, "f4"))
    with pytest.raises(ckptree.MismatchError) as error:
        saved.restore(6, like, cast=True)
    assert {d.path: d.problem for d in error.value.differences} == {
        "lr": "value", "ids": "value",
    }
    said = str(error.value)
    assert "lr: as int its value would change from 0.0003 to 0" in said
    assert "ids: as int8[2] its value would change from 300 to 44" in said
    # The explicit word for it.
    lossy = saved.restore(6, like, cast="lossy")
    assert lossy["lr"] == 0 and lossy["ids"].tolist() == [1, 44]
    assert lossy["w"].dtype == np.float32 and lossy["w"].tolist() == [1.5, 2]
    for word in ("same", "yes", 2):
        kind = TypeError if word == 2 else ValueError
        with pytest.raises(kind, match="False, True or 'lossy'"):
            saved.restore(6, like, cast=word)


def test_no_cast_is_suggested_that_would_be_refused(saved):
    saved.save(6, {"lr": 3e-4, "n": 1, "w": np.ones(2)}).result(timeout=60)
    like = {"lr": 0, "n": 0.0, "w": np.zeros(2, "i4")}
    with pytest.raises(ckptree.MismatchError) as error:
        saved.restore(6, like)
    hints = {d.path: d.suggestion for d in error.value.differences}
    assert hints == {"lr": "", "n": "or pass cast=True", "w": ""}


def test_rename_moves_leaves_and_subtrees(saved):
    like = {
        "model": {"kernel": np.zeros((2, 3), "f4"), "b": np.zeros(3, "f4")},
        "opt": STATE["opt"],
        "shape": STATE["shape"],
        "empty": {},
    }
    names = {"model": "params", "model/kernel": "params/w"}
    restored = saved.restore(5, like, rename=names)
    np.testing.assert_array_equal(
        restored["model"]["kernel"], STATE["params"]["w"]
    )
    with pytest.raises(ValueError, match="has no 'modle'"):
        saved.restore(5, like, rename={"modle": "params"})


@pytest.mark.parametrize("partial", [False, True])
def test_a_rename_to_what_is_not_there_is_named(saved, partial):
    like = dict(STATE, params={"w": np.ones((2, 3), "f4"), "c": np.zeros(3)})
    rename = {"params/c": "params/bb"}
    with pytest.raises(ValueError) as error:
        saved.restore(5, like, rename=rename, partial=partial)
    said = str(error.value)
    assert said.startswith("rename={'params/c': 'params/bb'}: step 5 has no ")
    assert said.endswith("the closest name there is 'params/b'")
    with pytest.raises(ValueError, match="step 5 has no 'xyz'$"):
        saved.restore(5, like, rename={"params": "xyz"}, partial=partial)


@pytest.mark.parametrize("kept", [3, np.float32(3), np.array(3, "i8")])
def test_a_scalar_of_numpy_is_one_where_the_template_has_one(store, kept):
    store.save(1, {"i": kept}).result(timeout=60)
    for like in (np.float32(0), np.zeros((), "f4"), np.int64(0)):
        found = store.restore(1, {"i": like}, cast=True)["i"]
        assert type(found) is type(like) and found.dtype == like.dtype
        assert found == 3
    if not isinstance(kept, int):
        same = np.asarray(kept)
        for like in (same, same[()]):
            found = store.restore(1, {"i": like})["i"]
            assert type(found) is type(like) and found == 3


def test_options_need_a_template(saved):
    for options in ({"partial": True}, {"cast": True}, {"rename": {"a": "b"}}):
        with pytest.raises(ValueError, match="like="):
            saved.restore(5, **options)


def test_templates_are_not_changed(saved):
    like = {key: value for key, value in STATE.items()}
    before = like["params"]["w"].copy()
    restored = saved.restore(5, like)
    restored["params"]["w"][:] = 8
    np.testing.assert_array_equal(like["params"]["w"], before)


def test_a_leaf_of_a_template_that_is_none_is_named(saved):
    with pytest.raises(TypeError, match="^params/w: "):
        saved.restore(5, dict(STATE, params={"w": lambda: 0}))
    with pytest.raises(TypeError, match="^params/w: .*objects?"):
        saved.restore(5, dict(STATE, params={"w": np.array([object()])}))


def many(prefix=""):
    return {
        f"{prefix}layer{i}": {f"w{j}": float(100 * i + j) for j in range(50)}
        for i in range(40)
    }


@pytest.mark.parametrize(
    "saved, like, pair",
    [
        (lambda s: {"params": s}, lambda s: s, ("", "params")),
        (lambda s: s, lambda s: {"model": s}, ("model", "")),
        (lambda s: {"a": s}, lambda s: {"b": {"c": s}}, ("b/c", "a")),
    ],
)
def test_one_hint_at_what_lies_elsewhere(store, monkeypatch, saved, like, pair):
    store.save(1, saved(many())).result()
    template = like(many())
    compared = []
    monkeypatch.setattr(
        "difflib.get_close_matches",
        lambda *given, **options: compared.append(given) or [],
    )
    with pytest.raises(ckptree.MismatchError) as error:
        store.restore(1, template)
    first, *lines = str(error.value).splitlines()
    assert first == "step 1 does not fit the template at 4000 paths:"
    assert lines[20:] == [
        "  and 3980 more",
        f"  rename={{{pair[0]!r}: {pair[1]!r}}} would find 2000 of those that "
        "are missing",
    ]
    assert all(": missing, expected float" in line for line in lines[:20])
    assert len(error.value.differences) == 4000
    assert not compared
    # And it does.
    assert store.restore(1, template, rename=dict([pair])) == like(many())


def test_a_step_that_only_has_more(store):
    store.save(1, {"model": {"w": np.ones(2)}, "opt": many()}).result()
    like = {"model": {"w": np.zeros(2)}}
    with pytest.raises(ckptree.MismatchError) as error:
        store.restore(1, like)
    lines = str(error.value).splitlines()
    assert lines[0] == "step 1 does not fit the template at 2000 paths:"
    assert lines[1] == (
        "  all that it asks for is there, and more: partial=True restores only "
        "what the template has"
    )
    assert lines[2].endswith(": unexpected, the step has float")
    found = store.restore(1, like, partial=True)
    assert list(found) == ["model"] and found["model"]["w"].tolist() == [1, 1]
    # Not where something is not there, or does not fit, either.
    for other in ({"w": np.zeros(3)}, {"w": np.zeros(2), "b": 1}, {}):
        with pytest.raises(ckptree.MismatchError) as error:
            store.restore(1, {"model": other, "opt": {}, "x": 1})
        assert "partial" not in str(error.value)


def test_a_wrong_template_compares_few_names(store, monkeypatch):
    store.save(1, many()).result()
    compared = []
    monkeypatch.setattr(
        "difflib.get_close_matches",
        lambda *given, **options: compared.append(given) or [],
    )
    renamed = {
        layer: {f"{name}x": value for name, value in leaves.items()}
        for layer, leaves in many("other").items()
    }
    with pytest.raises(ckptree.MismatchError) as error:
        store.restore(1, renamed)
    assert len(error.value.differences) == 4000
    assert len(compared) == 20
    assert len(str(error.value)) < 3000


def test_of_very_many_differences_few_are_made_text(store, monkeypatch):
    from ckptree.restoring.inventory import Inventory

    store.save(1, {"params": many()}).result()
    shown = []
    real = Inventory.shown
    monkeypatch.setattr(
        Inventory,
        "shown",
        lambda self, info: shown.append(info) or real(self, info),
    )
    with pytest.raises(ckptree.MismatchError) as error:
        store.restore(1, many())
    assert len(str(error.value).splitlines()) == 23
    assert shown == []
    store.close()  # What there is to say was found out before.
    found = error.value.differences
    assert len(found) == 4000 and len(shown) == 2000
    assert str(found[0]).endswith(": missing, expected float")
    assert str(found[-1]).endswith(": unexpected, the step has float")
    assert error.value.differences is found


def test_ties_are_said_of_a_store_that_was_closed(store):
    w = np.ones(3, "f4")
    store.save(1, {"a": w, "b": {"c": w}}).result()
    with pytest.raises(ckptree.MismatchError) as error:
        store.restore(1, {"x": 1})
    store.close()
    assert [str(d) for d in error.value.differences[1:]] == [
        "a: unexpected, the step has float32[3]",
        "b/c: unexpected, the step has float32[3]",
    ]


def test_the_whole_tree_is_a_subtree_too(store):
    store.save(1, {"params": {"w": 1.0, "b": [2.0]}}).result()
    like = {"w": 0.0, "b": [0.0]}
    found = store.restore(1, like, rename={"": "params"})
    assert found == {"w": 1.0, "b": [2.0]}
    with pytest.raises(ValueError, match="step 1 has no 'elsewhere'"):
        store.restore(1, like, rename={"": "elsewhere"})


def test_globs_of_partial_are_names_behind_rename(store):
    store.save(1, {"params": {"a": 1}, "opt": {"a": 2}}).result()
    store.save(2, {"opt": {"a": 2}}).result()
    like, rename = {"params": {"a": 0}}, {"params": "opt"}
    found = store.restore(1, like, rename=rename, partial="opt/**")
    assert found == {"params": {"a": 2}}
    with pytest.raises(KeyError) as caught:
        store.restore(1, like, rename=rename, partial="params/**")
    said = str(caught.value)
    assert "has 'params/a', which rename makes 'opt/a', and it chose" in said
    assert "names of the step, behind rename" in said
    with pytest.raises(KeyError, match="names of the step, behind rename"):
        store.restore(2, like, rename=rename, partial="params/**")


class Pair(NamedTuple):
    a: float
    b: float


@pytest.mark.parametrize("like", [
    [0.0, 0.0], (0.0, 0.0), Pair(0.0, 0.0), collections.OrderedDict(a=0.0),
    {0: 0.0, "b": 0.0}, {"state": 0.0}], ids=repr)
def test_a_template_without_names_of_its_own_is_the_whole_tree(store, like):
    state = [1.0, 2.0][: len(like)]
    if isinstance(like, dict):
        state = type(like)(zip(like, state))
    elif type(like) is not list:
        state = Pair(*state) if type(like) is Pair else tuple(state)
    store.save(1, {"x": state, "y": 3}).result()
    store.save(2, state).result()
    assert store.restore(1, like, rename={"": "x"}, partial=True) == state
    assert store.restore(2, like, rename={"": ""}) == state
    found = store.restore(2, {"z": like}, rename={"z": ""}, partial=True)
    assert found == {"z": state}
