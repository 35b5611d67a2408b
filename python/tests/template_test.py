"""Strict restores list every path that differs; less is asked for."""

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
