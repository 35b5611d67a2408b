# SPDX-License-Identifier: Apache-2.0
"""What the command answers where one array has two names, two arrays have one,
or a name is written in another form. Judged by the arrays themselves."""

import json
import os
import subprocess
import sysconfig
from pathlib import Path

import ckptree
import numpy as np
import pytest

# Another build of the command than the one that is installed.
COMMAND = os.environ.get("CKPTREE_COMMAND") or (
    Path(sysconfig.get_path("scripts")) / "ckptree"
)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*words):
    done = subprocess.run([COMMAND, *words], capture_output=True, text=True)
    return done.returncode, done.stdout, done.stderr


def rows(*words):
    code, out, said = run(*words, "--json")
    assert code in (0, 1), said
    found = json.loads(out)
    return next(value for value in found.values() if isinstance(value, list))


def found(store, condition, *words):
    """(first, last, steps) by key."""
    return {
        row["key"]: (row["first"], row["last"], row["steps"])
        for row in rows("-C", store, "find", condition, *words)
    }


@pytest.mark.parametrize("seed", range(4))
def test_a_tie_is_found_as_what_it_is_tied_to(folder, seed):
    """Which of two names is the tie may be another in each step."""
    random = np.random.default_rng(seed)
    names = ["a", "b", "c", *(f"x{i}" for i in range(30))]
    model = {}
    with ckptree.Store("run") as store:
        for step in range(1, 9):
            values = random.integers(0, 3, 3).astype("f4")
            arrays = [np.array([value, 1], "f4") for value in values]
            chosen = {n: arrays[random.integers(3)] for n in "abc"}
            # Most are equal in all steps, in some seeds.
            for name in names[3:]:
                chosen[name] = np.array([len(name), seed % 2 * step], "f4")
            order = list(random.permutation(names))
            store.save(step, {str(n): chosen[n] for n in order}).result()
            model[step] = {name: float(chosen[name][0]) for name in names}

    def expected(condition, first=1):
        hits = {}
        for step in range(first, 9):
            for name in names:
                before = model[step - 1][name] if step > 1 else None
                if condition(model[step][name], before):
                    hits.setdefault(name, []).append(step)
        return {n: (h[0], h[-1], len(h)) for n, h in hits.items()}

    def least(now, before):
        return min(now, 1) < 1

    def grows(now, before):
        return before is not None and max(now, 1) > max(before, 1)

    def abc(of):
        return {name: hits for name, hits in of.items() if name in "abc"}

    keys = ["-k", "a", "-k", "b", "-k", "c"]
    assert found("run", "min<1", *keys) == abc(expected(least))
    assert found("run", "zeros>0 and count==2", *keys) == abc(expected(least))
    assert abc(found("run", "min<1")) == abc(expected(least))
    # In another order of reading, by pieces and by differences.
    assert found("run", "max>prev.max", *keys) == abc(expected(grows))
    last = expected(grows, first=4)
    assert found("run", "max>prev.max", "4..", *keys) == abc(last)
    for step in model:
        for name in "abc":
            at = str(step)
            hit = model[step][name] < 1
            said = found("run", "min<1", f"{at}..{at}", "-k", name)
            assert said == ({name: (step, step, 1)} if hit else {})
            (row,) = rows("-C", "run", "stat", "--rev", at, name)
            assert (row["key"], row["shape"]) == (name, [2])
            assert row["min"] == min(model[step][name], 1)


def test_a_key_in_each_of_its_forms_is_the_same(folder):
    state = {"params": {"w": np.array([np.nan, 1.0])}, "o": np.ones(2)}
    with ckptree.Store("run") as store:
        store.save(1, state).result()
    for key in ("params/w", "['params']['w']", '"params"/w', "params/"):
        assert found("run", "nan>0", "-k", key) == {"params/w": (1, 1, 1)}
        out = f"out{len(key)}.npz"
        assert run("-C", "run", "export", "latest", out, "-k", key)[0] == 0
        assert np.load(out).files == ["params.w"]


def test_two_arrays_of_one_name_in_a_file_are_both_compared(folder):
    state = {"a": {"b": np.zeros(3)}, "a.b": np.ones(3)}
    with ckptree.Store("run") as store:
        store.save(1, state).result()
    np.savez("one.npz", **{"a.b": np.ones(3)})
    np.savez("both.npz", **{"a.b": np.ones(3), "a/b": np.zeros(3)})
    np.savez("none.npz", c=np.ones(3))
    (row,) = rows("-C", "run", "diff", "latest", "one.npz")
    assert (row["change"], row["key"]) == ("removed", "a/b")
    (row,) = rows("-C", "run", "diff", "one.npz", "latest:a/b")
    assert (row["change"], row["key"]) == ("added", "a/b")
    code, out, _ = run("-C", "run", "diff", "latest", "both.npz")
    assert (code, "2 arrays are the same" in out) == (0, True)
    code, _, said = run("-C", "run", "diff", "latest", "none.npz")
    assert code == 2
    assert "`a.b` and `a/b` would both be" in said or "`a/b` and `a.b`" in said


def test_a_range_of_a_branch_is_of_that_branch(folder):
    with ckptree.Store("run") as store:
        store.save(1, {"w": np.ones(2)}).result()
        store.fork(1, "f")
        for step in (10, 20):
            store.save(step, {"w": np.full(2, 7.0)}, branch="f").result()
        for step in (20, 30):
            store.save(step, {"w": np.full(2, float(step))}).result()
        store.tag("t", 30)

    def ends(word):
        code, out, said = run("-C", "run", "diff", word, "--json")
        answer = json.loads(out)
        return code, answer["before"], answer["after"]

    assert ends("f/10..20") == (0, "f/10", "f/20")
    assert ends("f/-2..-1") == (0, "f/10", "f/20")
    assert ends("f/10..") == (0, "f/10", "f/20")
    assert ends("20..f/20") == (1, "20", "f/20")  # As git has it.
    assert ends("f/20..@t") == (1, "f/20", "30")
    assert ends("-2..-1") == (1, "20", "30")
    assert ends("1..") == (1, "1", "30")


def test_what_is_the_same_is_of_the_key(folder):
    with ckptree.Store("run") as store:
        for step in (1, 2):
            both = np.full(2, float(step))
            state = {"s": {"a": both, "b": np.ones(2), "c": np.ones(2)}}
            store.save(step, {**state, "d": np.ones(1), "tie": both}).result()
        wanted = {glob: store.diff(1, 2, glob).same for glob in ("s/b", "s/**")}
    for glob, same in wanted.items():
        _, out, _ = run("-C", "run", "diff", f"1:{glob}", "2", "--json")
        assert json.loads(out)["same"] == same
    assert wanted == {"s/b": 1, "s/**": 2}


def test_the_first_step_of_a_fork_comes_from_its_origin(folder):
    with ckptree.Store("run") as store:
        store.save(1, {"w": np.full(2, 1.0)}).result()
        store.fork(1, "f")
        for step in (10, 20, 30):
            store.save(step, {"w": np.full(2, step)}, branch="f").result()
        again = {"w": np.full(2, 11.0)}
        store.save(10, again, branch="f", overwrite=True).result()
    assert found("run", "min<prev.min", "-b", "f") == {}
    assert found("run", "prev.min==1", "-b", "f") == {"w": (10, 10, 1)}


def test_an_array_of_a_file_is_taken_whole(folder):
    np.savez("f.npz", w=np.arange(12.0).reshape(3, 4))
    for words in (["export"], ["stat"], ["show"], ["ls"]):
        out = ["o.npz"] if words == ["export"] else []
        code, _, said = run(*words, "f.npz:w[0]", *out)
        assert code == 2
        assert f"`ckptree {words[0]}` takes no slice" in said
    assert not Path("o.npz").exists()
    assert run("get", "f.npz:w[0]")[1] == "[0.0 1.0 2.0 3.0]\n"


def test_one_file_of_several_is_no_step(folder):
    from safetensors.numpy import save_file

    name = "model-00002-of-00002.safetensors"
    save_file({"b": np.ones(3)}, name)
    code, _, said = run("-C", "run", "import", name)
    assert code == 2
    assert "one file of several" in said and "index" in said
    assert run("-C", "run", "import", name, "--step", "5")[0] == 0
    with ckptree.open("run") as store:
        assert [info.step for info in store.steps()] == [5]


def test_of_two_checkpoints_with_one_number_none_is_meant(folder):
    for name, value in (("a-5", 1.0), ("b-5", 2.0), ("a-6", 6.0)):
        (folder / "d" / name).mkdir(parents=True)
        np.savez(folder / "d" / name / "m.npz", w=np.full(1, value))
    for word in ("5:w", "latest~1:w", "latest~2:w"):
        code, _, said = run("-C", "d", "get", word)
        assert code == 2
        assert "a-5" in said and "b-5" in said and "both step 5" in said
    assert run("-C", "d", "get", "latest:w")[1] == "[6.0]\n"
    assert run("get", "d/a-5:w")[1] == "[1.0]\n"


def test_a_step_that_is_named_twice_is_removed_once(folder):
    with ckptree.Store("run") as store:
        for step in (1, 2, 3):
            store.save(step, {"w": np.full(2, step)}).result()
    for words in (["1", "1"], ["1..2", "1..2", "2"]):
        _, out, _ = run("-C", "run", "du", "--free", *words, "--json")
        names = sorted(words[0].split(".."))
        assert sorted(json.loads(out)["steps"]) == names
