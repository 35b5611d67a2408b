# SPDX-License-Identifier: Apache-2.0
"""Renames and globs by the thousand, as a map of the keys of a whole model is,
and what they mean."""

import itertools
import random

import pytest
from ckptree.restoring.suggest import Renames


def slowly(names, name):
    """What Renames.apply() says: the longest one wins."""
    for new in sorted(names, key=len, reverse=True):
        old = names[new]
        if not new:
            return f"{old}/{name}" if name and old else old or name
        if name == new:
            return old
        if name.startswith(new + "/"):
            rest = name[len(new) + 1 :]
            return f"{old}/{rest}" if old else rest
    return name


@pytest.mark.parametrize("seed", range(20))
def test_the_longest_name_wins(seed):
    draw = random.Random(seed)
    parts = ["a", "b", "c", '"x/y"', "[0]"]
    every = [
        "/".join(name)
        for length in range(1, 4)
        for name in itertools.product(parts, repeat=length)
    ]
    names = {draw.choice([*every, ""]): draw.choice([*every, ""])
             for _ in range(draw.randrange(1, 12))}
    renames = Renames(names)
    for name in every:
        assert renames.apply(name) == slowly(names, name), (names, name)
    for new in names:
        renames.check([f"{new}/more" if new else "more"] + every)
    with pytest.raises(ValueError, match="has no 'nothing'"):
        Renames({**names, "nothing": "x"}).check(every)


def test_many_renames_and_globs(store):
    state = {f"old{i}": {"w": i, "b": -i} for i in range(2000)}
    store.save(1, state).result()
    renamed = {f"new{i}": f"old{i}" for i in range(2000)}
    like = {f"new{i}": {"w": 0, "b": 0} for i in range(2000)}
    found = store.restore(1, like=like, rename=renamed)
    assert found == {f"new{i}": {"w": i, "b": -i} for i in range(2000)}
    some = [f"old{i}" for i in range(0, 2000, 3)] + ["old1/w"]
    found = store.restore(1, partial=some)
    expected = {f"old{i}": state[f"old{i}"] for i in range(0, 2000, 3)}
    assert found == {**expected, "old1": {"w": 1}}
    assert found == store.restore(1, partial=[*some, "old[0-9]x*"][:-1])
    with pytest.raises(KeyError, match="old77x"):
        store.restore(1, partial=[*some, "old77x"])


def test_what_is_not_there_is_looked_for_by_name_alone(store):
    store.save(1, {"a": 1}).result()
    step = store[1]
    assert step.get("a").value() == 1
    assert step.get("b") is None and step.get("b", 7) == 7
