# SPDX-License-Identifier: Apache-2.0
"""Templates that are like what was saved: they take a quick way, and come out
of it as of the other one."""

import collections
from typing import Any

import flax
import numpy as np
import pytest

import ckptree.orbax as ocp
from ckptree.orbax import _tree_restore
from orbax_both import assert_same

Point = collections.namedtuple("Point", "x y")


@flax.struct.dataclass
class State:
    step: int
    params: Any
    opt_state: Any = ()


def arrays():
    return {"w": np.arange(6.0).reshape(2, 3), "b": np.ones(3, "f4")}


TREES = {
    "dicts": lambda: {"a": arrays(), "ab": {"c": arrays()}},
    "sequences": lambda: [arrays(), (np.ones(2), [1, 2.5]), Point(1, "x")],
    "object": lambda: State(3, arrays(), (np.zeros(0), None, ())),
    "values": lambda: {"i": 7, "f": 0.5, "b": True, "c": 1j, "n": None},
    "large number": lambda: {"i": 1 << 80},
    "odd names": lambda: {"a/b": np.ones(1), "": np.ones(2), "[0]": 1},
}


@pytest.fixture
def saved(tmp_path):
    """A step of two items, of which the name of one begins as the other."""

    def save(tree):
        path = tmp_path / "run"
        with ocp.CheckpointManager(path) as manager:
            manager.save(
                1,
                args=ocp.args.Composite(
                    state=ocp.args.PyTreeSave(tree),
                    state2=ocp.args.PyTreeSave({"other": np.ones(4)}),
                ),
            )
        return path

    return save


def restored(path, template):
    with ocp.CheckpointManager(path) as manager:
        args = ocp.args.Composite(state=ocp.args.PyTreeRestore(template))
        return manager.restore(1, args=args).state


def other_way(monkeypatch):
    monkeypatch.setattr(_tree_restore, "_alike", lambda *_: NotImplemented)


@pytest.mark.parametrize("tree", TREES)
def test_both_ways_give_the_same(saved, monkeypatch, tree):
    make = TREES[tree]
    path = saved(make())
    quick = restored(path, make())
    other_way(monkeypatch)
    assert_same(quick, restored(path, make()))
    assert_same(quick, make())


@pytest.mark.parametrize(
    "tree", [name for name in TREES if name != "large number"]
)
def test_it_is_the_quick_way(saved, monkeypatch, tree):
    path = saved(TREES[tree]())

    def refuse(*args):
        raise AssertionError("the other way was taken")

    monkeypatch.setattr(_tree_restore, "_Templated", refuse)
    assert_same(restored(path, TREES[tree]()), TREES[tree]())


def test_what_is_not_alike_takes_the_other_way(saved):
    path = saved({"a": arrays(), "l": [1, 2]})
    tuples = restored(path, {"a": arrays(), "l": (1, 2)})
    assert tuples["l"] == (1, 2)
    other = {"w": np.zeros((2, 3), "f4"), "b": np.zeros(3, "f4")}
    converted = restored(path, {"a": other, "l": [1, 2]})
    assert converted["a"]["w"].dtype == np.float32
    with pytest.raises(ValueError, match="a/v"):
        restored(path, {"a": {**arrays(), "v": np.ones(1)}, "l": [1, 2]})
    with pytest.raises(ValueError, match="l"):
        restored(path, {"a": arrays()})
    # Below another item: that is not asked for.
    with pytest.raises(ValueError, match="other"):
        restored(path, {"other": np.ones(4)})
