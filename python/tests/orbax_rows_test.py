# SPDX-License-Identifier: Apache-2.0
"""Every behaviour of Orbax and Flax that has a row id is answered in
orbax_rows.md, and the tests named there exist."""

import re
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ENGINE = HERE.parent.parent / "tests"
ROWS = {
    "SE": 18,
    "OPT": 31,
    "CM": 31,
    "SV": 11,
    "SD": 8,
    "PP": 9,
    "ST": 10,
    "AT": 11,
    "DEL": 7,
    "CK": 10,
    "HR": 8,
    "PT": 12,
    "SH": 1,
    "RS": 15,
    "TH": 6,
    "OH": 6,
    "CU": 4,
    "MD": 6,
    "V1": 15,
    "EM": 10,
    "FX": 21,
}
UNUSED = {"CM-09"}
ROW = re.compile(r"^\| ([A-Z0-9]+-\d+) \| (.*?) \| (.*) \|$", re.MULTILINE)
TEST = re.compile(r"\b(\w+_test)\.(test_\w+)|\b([A-Z]\w*Test)\.(\w+)")


@pytest.fixture(scope="module")
def answers():
    return ROW.findall((HERE / "orbax_rows.md").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def tests():
    """All that could be named."""
    found = {
        (file.stem, name)
        for file in HERE.glob("*_test.py")
        for name in re.findall(
            r"^def (test_\w+)", file.read_text(), re.MULTILINE
        )
    }
    for file in ENGINE.rglob("*_test.cc"):
        found |= set(
            re.findall(
                r"^TEST(?:_[FP])?\((\w+),\s+(\w+)\)",
                file.read_text(),
                re.MULTILINE,
            )
        )
    return found


def test_each_row_is_answered_once(answers):
    wanted = {
        f"{k}-{n:02}" for k, last in ROWS.items() for n in range(1, last + 1)
    }
    wanted -= UNUSED
    assert len(wanted) == 231 + 18
    assert sorted(row for row, _, _ in answers) == sorted(wanted)


def test_stances_are_known(answers):
    stances = {"kept", "better", "refused"}
    assert [row for row, stance, _ in answers if stance not in stances] == []


def test_what_is_refused_has_a_reason(answers):
    refused = [
        (row, why) for row, stance, why in answers if stance == "refused"
    ]
    assert [row for row, why in refused if len(why) < 8] == []


def test_what_is_kept_names_a_test(answers):
    lacking = [
        row
        for row, stance, answer in answers
        if stance != "refused" and not TEST.search(answer)
    ]
    assert lacking == []


def test_the_tests_that_are_named_exist(answers, tests):
    named = [
        (row, (a or c, b or d))
        for row, _, answer in answers
        for a, b, c, d in TEST.findall(answer)
    ]
    assert len(named) > 200
    assert [(row, test) for row, test in named if test not in tests] == []
