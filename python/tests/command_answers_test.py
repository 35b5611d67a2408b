# SPDX-License-Identifier: Apache-2.0
"""Answers of the command about states as Python has them: containers, complex
arrays, what has no value."""

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
def ask(tmp_path):
    """Asks the command about a store of three steps: exit code and output."""
    z = np.array([1, 2, 3], "complex64")
    with ckptree.Store(tmp_path / "run") as store:
        first = {"l": [], "a": [np.ones(2)], "e": {}, "n": None, "z": z}
        second = {"l": {}, "a": (np.ones(2),), "e": {}, "n": None, "z": z}
        for step, state in (1, first), (2, second), (3, second):
            store.save(step, state).result()

    def run(*words):
        done = subprocess.run(
            [COMMAND, "-C", tmp_path / "run", *words],
            capture_output=True,
            text=True,
        )
        return done.returncode, done.stdout + done.stderr

    return run


def test_containers_of_another_kind_are_a_difference(ask):
    code, said = ask("diff", "1", "2")
    assert code == 1
    assert "no difference" not in said
    assert "2 containers are of another kind: a, ..." in said
    code, said = ask("diff", "1", "2", "--json")
    assert code == 1
    assert json.loads(said)["containers"] == ["a", "l"]
    code, said = ask("diff", "2", "3")
    assert (code, "no difference" in said) == (0, True)
    assert "containers" not in ask("diff", "2", "3", "--json")[1]


def test_what_has_no_value_is_called_what_it_is(ask):
    assert "`e` of step 1 is an empty dict" in ask("get", "1:e")[1]
    assert "`l` of step 1 is an empty list" in ask("get", "1:l")[1]
    assert "`n` of step 1 is None" in ask("get", "1:n")[1]
    assert "e is no leaf: it is of kind dict" in ask("history", "e")[1]


def test_parts_of_complex_numbers_are_counted_alike(ask):
    code, said = ask("stat", "--where", "zeros==count", "--json")
    assert [row["key"] for row in json.loads(said)["arrays"]] == []
    assert ask("find", "zeros==count")[0] == 1
    query = "select count, zeros from stats where step=1 and key='z'"
    found = json.loads(ask("sql", query, "--json")[1])
    assert found["rows"] == [{"count": 6, "zeros": 3}]


def test_statistics_of_what_is_folded(ask):
    code, said = ask("ls", "--depth", "1", "--stats")
    assert code == 2
    assert "--stats is of leaves" in said


def test_an_int_of_more_than_64_bits(tmp_path):
    with ckptree.Store(tmp_path / "s") as store:
        store.save(1, {"seed": 2**100}).result()
        store.save(2, {"seed": -(2**99)}).result()

    def run(*words, code=0):
        done = subprocess.run(
            [COMMAND, "-C", tmp_path / "s", *words],
            capture_output=True,
            text=True,
        )
        assert done.returncode == code, done.stderr
        return done.stdout

    assert run("get", "1:seed") == f"{2**100}\n"
    (found,) = json.loads(run("get", "1:seed", "--json"))["leaves"]
    assert found["data"] == 2**100 and found["kind"] == "int"
    assert found["dtype"] is None
    # As the number that it is: its bytes, and what they amount to, say nothing.
    newest, oldest = json.loads(run("history", "seed", "--json"))["values"]
    assert oldest["value"] == str(2**100) and newest["value"] == str(-(2**99))
    assert newest["type"] == "int" and newest["l2"] is None
    (change,) = json.loads(run("diff", "1", "2", "--json", code=1))["changes"]
    assert change["before_value"] == str(2**100)
    assert change["after_value"] == str(-(2**99))
    assert change["l2_before"] is None and change["l2_after"] is None
    assert f" {2**100}  {-(2**99)} " in run("diff", "1", "2", code=1)
    assert run("ls", "1", "--stats").split()[-4:] == ["seed", "int", "13", "B"]
    run("stat", "seed", code=3)  # It is no array.
