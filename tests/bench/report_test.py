#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""bench/run without anything to measure: a made-up program has the cases, and
says how fast the machine is. No figure here is of a clock."""

import json
import os
import stat
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

ROOT = os.path.dirname(
    os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
)
REPORT = os.path.join(ROOT, "bench/report")
sys.path.insert(0, REPORT)

import document  # noqa: E402
import history  # noqa: E402
import tables  # noqa: E402
from figure import Figure, Row  # noqa: E402
from quiet import Quiet, usual  # noqa: E402

PAGES = ("README.md", "bench/README.md", "python/README.md")

# argv: as ckptree_bench. Its directory has `rates`, one line of raw GB/s for
# each time that it is asked for the machine, and `ratio`.
PROGRAM = """\
#!%(python)s
import json, os, sys
here = os.path.dirname(os.path.abspath(__file__))
def figure(case, what, values, **more):
    print(json.dumps({"case": case, "what": what, "unit": "GB/s",
                      "values": values, "beside": "", "beside_values": [],
                      "floor": None, "goal": None, "at_least": True} | more))
if "--list" in sys.argv:
    print("full_save", "other", "broken", "nowhere")
elif "--machine" in sys.argv:
    path = os.path.join(here, "rates")
    with open(path) as file:
        rates = file.read().split()
    with open(path, "w") as file:
        file.write(" ".join(rates[1:] or rates))
    figure("machine", "raw O_DIRECT write", [float(rates[0])])
elif "broken" in sys.argv:
    sys.exit(2)
elif "nowhere" in sys.argv:
    print("there is no accelerator", file=sys.stderr)
    sys.exit(5)
else:
    with open(os.path.join(here, "ratio")) as file:
        ratio = float(file.read())
    print("what is no object")
    case = "other" if "other" in sys.argv else "full_save"
    figure(case, "all changed, durable, memory lent",
           [2 * ratio, 4 * ratio], beside="raw O_DIRECT write",
           beside_values=[2, 4], floor=0.65, goal=0.95)
"""


class Tree:
    """A folder with pages that have markers, and the program."""

    def __init__(self, test):
        self.path = tempfile.mkdtemp()
        test.addCleanup(
            lambda: subprocess.run(["rm", "-rf", self.path], check=True)
        )
        for page in PAGES:
            os.makedirs(
                os.path.dirname(os.path.join(self.path, page)), exist_ok=True
            )
            name = {"README.md": "engine", "bench/README.md": "ranks"}.get(
                page, "python"
            )
            self.write(
                page,
                f"# A\n\n<!-- figures: {name} -->\n"
                "<!-- figures: end -->\n\nB\n",
            )
        self.write("program", PROGRAM % {"python": sys.executable})
        os.chmod(os.path.join(self.path, "program"), stat.S_IRWXU)
        self.write("rates", "2.0")
        self.write("ratio", "0.8")

    def write(self, name, text):
        with open(os.path.join(self.path, name), "w") as file:
            file.write(text)

    def read(self, name):
        with open(os.path.join(self.path, name)) as file:
            return file.read()

    def run(self, *arguments):
        return subprocess.run(
            [sys.executable, REPORT, "--tree", self.path, "--most-busy", "1"]
            + ["--engine-program", os.path.join(self.path, "program")]
            + ["--dir", os.path.join(self.path, "data"), *arguments],
            capture_output=True,
            text=True,
            cwd=ROOT,
        )


class RunTest(unittest.TestCase):
    def setUp(self):
        self.tree = Tree(self)

    def test_shows_a_figure_and_judges_it_at_the_end(self):
        done = self.tree.run("full_save")
        self.assertEqual(done.returncode, 0, done.stderr)
        lines = done.stdout.splitlines()
        self.assertIn("raw O_DIRECT write 3 (2-4): x 0.8", lines[0])
        self.assertNotIn("met", lines[0])
        self.assertEqual(lines[-1], "floors met: 1 of 1; goals: 0 of 1")
        self.assertIn("what is no object", done.stderr)

    def test_a_guard_fails_below_the_slack(self):
        self.tree.write("ratio", "0.5")  # Above 0.65 / 1.5.
        done = self.tree.run("--guard", "full_save")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("missed, within the slack", done.stdout)
        self.tree.write("ratio", "0.4")
        self.assertEqual(self.tree.run("full_save").returncode, 0)
        done = self.tree.run("--guard", "full_save")
        self.assertEqual(done.returncode, 1)
        self.assertIn("a floor was missed", done.stderr)

    def test_a_machine_that_is_not_quiet_is_not_judged(self):
        self.tree.write("ratio", "0.4")
        self.tree.write("rates", "2 3 2 3 2 3")
        done = self.tree.run("--guard", "full_save")
        self.assertEqual(done.returncode, 3)
        self.assertIn("not quiet", done.stderr)
        self.assertIn("differ by 1.50 x, at most 1.35 x", done.stderr)
        self.assertNotIn("floor", done.stdout + done.stderr)
        # Without a guard it measures, and says no verdict.
        self.tree.write("rates", "2 3 2 3 2 3 2 3 2 3 2")
        done = self.tree.run("full_save")
        self.assertEqual(done.returncode, 3)
        self.assertIn("x 0.4", done.stdout)
        self.assertNotIn("issed", done.stdout)

    def test_one_that_became_slow_in_the_meantime_is_neither(self):
        self.tree.write("rates", "2 2 1")
        done = self.tree.run("--guard", "full_save")
        self.assertEqual(done.returncode, 3)
        self.assertIn("x 0.8", done.stdout)
        for option in ("--readme", "--history"):
            self.tree.write("rates", "2 2 1")
            done = self.tree.run(option, "full_save")
            self.assertEqual(done.returncode, 3)
        self.assertFalse(
            {"figures.json", "history.jsonl"}
            & set(os.listdir(os.path.join(self.tree.path, "bench")))
        )

    def test_what_ran_while_it_was_quiet_is_kept(self):
        figures = "bench/figures.json"

        def kept():
            return list(json.loads(self.tree.read(figures))["cases"])

        parts = ("--readme", "--history", "--part-seconds", "0")
        self.tree.write("rates", "2 2 2 2 1")
        done = self.tree.run(*parts, "full_save", "other")
        self.assertEqual(done.returncode, 3)
        self.assertIn("not kept: other", done.stderr)
        self.assertNotIn("floors met", done.stdout)
        self.assertEqual(kept(), ["full_save"])
        self.assertNotIn("other", self.tree.read("bench/history.jsonl"))
        # What ran before keeps none that came after from being kept.
        self.tree.write("rates", "2 2 1 1 1 1 1 2 2 2 2")
        done = self.tree.run(*parts, "full_save", "other")
        self.assertEqual(done.returncode, 3)
        self.assertIn("not kept: full_save", done.stderr)
        self.assertEqual(kept(), ["full_save", "other"])
        # Nor does one that does not run.
        self.tree.write("ratio", "0.7")
        self.tree.write("rates", "2")
        done = self.tree.run("--readme", "broken", "other")
        self.assertEqual(done.returncode, 2)
        self.assertIn("2.1 (1.4-2.8) GB/s", self.tree.read("README.md"))

    def test_one_that_is_slower_than_when_it_was_kept_is_neither(self):
        self.tree.write("rates", "2")
        self.assertEqual(self.tree.run("--readme", "full_save").returncode, 0)
        kept = self.tree.read("bench/figures.json")
        self.tree.write("rates", "1.4")
        for option in ("--guard", "--readme", "--history"):
            done = self.tree.run(option, "full_save")
            self.assertEqual(done.returncode, 3, option)
            self.assertIn("measured at 2: at least 1.48", done.stderr)
        self.assertEqual(self.tree.read("bench/figures.json"), kept)
        self.assertEqual(self.tree.run("full_save").returncode, 0)
        done = self.tree.run("--guard", "--most-spread", "1.5", "full_save")
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_the_limit_can_be_set(self):
        self.tree.write("rates", "2 3 2 3")
        done = self.tree.run("--most-spread", "1.6", "full_save")
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_a_case_that_does_not_run_is_no_floor(self):
        done = self.tree.run("full_save", "broken")
        self.assertEqual(done.returncode, 2)
        self.assertIn("broken DID NOT RUN: exit code 2", done.stderr)
        self.assertEqual(self.tree.run("gone").returncode, 2)

    def test_no_accelerator_has_an_exit_code_of_its_own(self):
        done = self.tree.run("--guard", "nowhere")
        self.assertEqual(done.returncode, 4)
        self.assertIn("there is no accelerator", done.stderr)
        done = self.tree.run("--json", "nowhere", "full_save")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(list(json.loads(done.stdout)["cases"]), ["full_save"])

    def test_json_is_one_document(self):
        done = self.tree.run("--json", "full_save")
        self.assertEqual(done.returncode, 0, done.stderr)
        found = json.loads(done.stdout)
        run = found["runs"][0]
        self.assertEqual(run["machine"]["cores"], os.cpu_count())
        for name in ("date", "commit", "kernel", "versions", "quiet"):
            self.assertTrue(run[name], name)
        (row,) = found["cases"]["full_save"]["figures"]
        self.assertEqual(row["ratio"], [0.8, 0.8, 0.8])
        self.assertEqual(row["theirs"], [3, 2, 4])
        self.assertEqual((row["met"], row["goal_met"]), (True, False))
        self.assertEqual(document.rows(found)[0].repeats, 2)

    def test_readme_writes_what_check_accepts_and_no_hand_changes(self):
        self.tree.write("ratio", "0.6")
        done = self.tree.run("--readme", "full_save")
        self.assertEqual(done.returncode, 0, done.stderr)
        page = self.tree.read("README.md")
        self.assertIn("≥ 0.65: **missed**", page)
        self.assertIn("Floors met: 0 of 1; goals: 0 of 1.", page)
        self.assertTrue(page.endswith("<!-- figures: end -->\n\nB\n"))
        self.assertEqual(self.tree.run("--check").returncode, 0)
        self.tree.write("README.md", page.replace("| 0.6 |", "| 0.7 |"))
        done = self.tree.run("--check")
        self.assertEqual(done.returncode, 1)
        self.assertIn("README.md", done.stdout)
        self.assertEqual(self.tree.run("--tables").returncode, 0)
        self.assertEqual(self.tree.read("README.md"), page)

    def test_a_verdict_in_the_file_is_what_its_figures_say(self):
        self.tree.write("ratio", "0.6")
        self.tree.run("--readme", "full_save")
        kept = self.tree.read("bench/figures.json")
        self.tree.write(
            "bench/figures.json", kept.replace('"met": false', '"met": true')
        )
        done = self.tree.run("--check")
        self.assertEqual(done.returncode, 2)
        self.assertIn("its figures say", done.stderr)

    def test_figures_of_quick_runs_are_not_kept(self):
        done = self.tree.run("--quick", "--readme", "full_save")
        self.assertEqual(done.returncode, 2)

    def test_what_crept_is_shown(self):
        for ratio in ("0.9", "0.88", "0.7"):
            self.tree.write("ratio", ratio)
            done = self.tree.run("--history", "full_save")
            self.assertEqual(done.returncode, 0, done.stderr)
        done = self.tree.run("--compare")
        self.assertEqual(done.returncode, 1)
        self.assertIn("WORSE   1.29 x  full_save: all changed", done.stdout)
        self.assertIn(": 0.9 at ", done.stdout)
        self.tree.write("ratio", "0.89")
        self.tree.run("--history", "full_save")
        done = self.tree.run("--compare")
        self.assertEqual(done.returncode, 0)
        self.assertIn("within a tenth: 1 of 1", done.stdout)
        self.assertEqual(self.tree.run("--compare", "gone").returncode, 2)


def row(**more):
    given = {"case": "c", "what": "w", "unit": "ms", "values": [4.0, 2, 3]}
    return Row.of(Figure(**(given | more)))


class FigureTest(unittest.TestCase):
    def test_judges_as_the_cases_of_cpp_do(self):
        found = row(beside="p", beside_values=[2.0, 2, 2], floor=1.5)
        self.assertEqual((found.judged, found.met), (1.5, True))
        found = row(beside="p", beside_values=[2.0], floor=1.6, goal=1.5)
        self.assertEqual((found.judged, found.met), (1.5, False))
        self.assertTrue(found.within_slack and found.goal_met)
        found = row(floor=1.0, at_least=False)
        self.assertEqual((found.judged, found.met), (3, False))
        self.assertTrue(found.within_slack)
        self.assertFalse(row(floor=0.9, at_least=False).within_slack)
        self.assertIsNone(row().met)

    def test_comes_back_from_json(self):
        for found in (row(), row(beside="p", beside_values=[1.0, 2, 4])):
            text = json.dumps(found.to_json())
            self.assertEqual(Row.from_json(json.loads(text)), found)


class QuietTest(unittest.TestCase):
    def look(self, *rates, looks=2):
        left = list(rates)
        quiet = Quiet(lambda: {"write": left.pop(0)}, most_busy=1)
        return [quiet.look() for _ in range(looks)]

    def test_two_alike_are_enough(self):
        self.assertEqual(self.look(2, 2.1, 2, 1.9), [True, True])
        self.assertEqual(self.look(1, 2, 2.1, 1, 2, 2.2), [True, True])

    def test_a_slow_end_is_not_quiet_though_it_is_even(self):
        self.assertEqual(self.look(2, 2, 1, 1, 1, 1, 1), [True, False])

    def test_a_look_that_was_not_quiet_is_not_forgotten(self):
        left = [1, 2, 1, 2, 1, 3, 3, 3, 1, 1, 1, 1]
        quiet = Quiet(lambda: {"write": left.pop(0)}, most_busy=1)
        # What is not quiet is no measure of what comes.
        self.assertEqual(
            [quiet.look() for _ in range(3)], [False, True, False]
        )
        self.assertEqual(quiet.readings, [{"write": 3}, {"write": 3}])
        self.assertEqual(len(quiet.complaints), 2)

    def test_a_machine_that_is_slower_than_it_was_is_not_quiet(self):
        here, other = {"processor": "P"}, {"processor": "Q"}
        runs = [
            {"machine": of, "quiet": {"readings_gb_per_s": readings}}
            for of, readings in (
                (here, [{"sort": 0.1}, {"sort": 0.2, "write": 2.0}]),
                (here, [{"sort": 0.14}]),
                (other, [{"sort": 9.0}]),
            )
        ]
        known = usual(runs, here)
        self.assertEqual(known, {"sort": 0.14, "write": 2.0})
        self.assertEqual(usual(runs, {"processor": "R"}), {})
        for rate, quiet_then in ((0.14, True), (0.105, True), (0.1, False)):
            quiet = Quiet(
                lambda rate=rate: {"sort": rate, "read": 1.0},
                most_busy=1,
                usual=known,
            )
            self.assertIs(quiet.look(), quiet_then, rate)
        self.assertEqual(
            quiet.complaints,
            ["sort: 0.1 GB/s, where what is kept of this machine was measured "
             "at 0.14: at least 0.104"],
        )

    def test_processors_that_others_use_are_not_quiet(self):
        quiet = Quiet(lambda: {"write": 2.0}, most_busy=0.1)
        with mock.patch("quiet.least_busy", return_value=0.3) as busy:
            self.assertFalse(quiet.look())
            busy.return_value = 0.0
            self.assertTrue(quiet.look())
        self.assertEqual(
            quiet.complaints,
            ["others keep the processors busy for 30% of their time, at most "
             "10%"],
        )


class TablesTest(unittest.TestCase):
    def made(self, case, cores=2, date="2026-01-01T00:00:00Z"):
        run = {"date": date, "commit": "abc", "changed": False}
        run |= {"system": "S", "kernel": "6", "versions": {"RocksDB": "7.8.3"}}
        machine = {"processor": "P", "cores": cores, "memory_gib": 4}
        machine |= {"file_system": "ext4 on /dev/vda", "device": ""}
        run["machine"] = machine
        result = type("Result", (), {})()
        result.case, result.seconds, result.failed = case, 1, ""
        result.rows = [row(case=case, floor=1.0, at_least=False)]
        result.not_measured = [{"what": "beside X", "why": "there is no X"}]
        return document.of_run(run, [result])

    def test_one_case_can_be_measured_anew(self):
        old = document.merged(self.made("a"), self.made("b"))
        new = document.merged(
            old, self.made("a", date="2026-02-02T00:00:00Z")
        )
        self.assertEqual(len(new["runs"]), 2)
        self.assertEqual(new["cases"]["a"]["run"], 1)
        page = tables.written(
            "<!-- figures: engine -->\n<!-- figures: end -->\n", new
        )
        self.assertIn("2026-01-01 to 2026-02-02", page)
        self.assertIn("a: beside X (there is no X)", page)
        again = document.merged(new, self.made("b"))
        self.assertEqual(len(again["runs"]), 2)

    def test_cases_of_another_machine_are_marked(self):
        found = document.merged(self.made("a"), self.made("b"))
        found = document.merged(found, self.made("c", cores=4))
        page = tables.written(
            "<!-- figures: engine -->\n<!-- figures: end -->\n", found
        )
        self.assertIn("On P, 2 cores", page)
        self.assertIn("marked <sup>1</sup> are of P, 4 cores", page)
        self.assertIn("| `b` ", page)
        self.assertIn("| `c`<sup>1</sup> ", page)
        # Measured there anew it is of the one machine.
        found = document.merged(found, self.made("c"))
        self.assertNotIn(
            "marked",
            tables.written(
                "<!-- figures: engine -->\n<!-- figures: end -->\n", found
            ),
        )

    def test_many_of_one_kind_are_their_worst(self):
        found = self.made("command")
        found["cases"]["command"]["figures"] = [
            row(
                case="command",
                what=what,
                values=[took],
                floor=floor,
                at_least=False,
            ).to_json()
            for what, took, floor in (
                ("log, ten steps", 3.0, 4.0),
                ("show, ten steps", 6.0, 4.0),
                ("ls, ten steps", 5.0, 4.0),
                ("ls, of much", 5.0, 9.0),
                ("size", 2.0, 9.0),
            )
        ]
        page = tables.written(
            "<!-- figures: engine -->\n<!-- figures: end -->\n"
            "<!-- figures: command -->\n<!-- figures: end -->\n",
            found,
        )
        short, _, whole = page.partition("figures: end")
        self.assertIn("ten steps: the slowest of 3, show | 6 ms |", short)
        self.assertIn("≤ 4: **missed**, by 2 |", short)
        self.assertIn("ls, of much | 5 ms |", short)
        self.assertNotIn("log, ", short)
        for name in ("log", "show", "ls"):
            self.assertIn(f"{name}, ten steps |", whole)
        # What is counted is the same.
        for part in (short, whole):
            self.assertIn("Floors met: 3 of 5", part)

    def test_a_marker_of_no_table_is_an_error(self):
        with self.assertRaisesRegex(ValueError, "named gone"):
            tables.written(
                "<!-- figures: gone -->\n<!-- figures: end -->\n",
                self.made("a"),
            )

    def test_the_pages_of_this_tree_are_what_its_figures_say(self):
        found = document.load(os.path.join(ROOT, "bench/figures.json"))
        self.assertIsNotNone(found)
        there = []
        for name in PAGES:
            with open(os.path.join(ROOT, name)) as file:
                page = file.read()
            there += tables.names(page)
            self.assertEqual(
                tables.written(page, found),
                page,
                f"{name}: bench/run --tables writes it anew",
            )
        self.assertEqual(
            sorted(there),
            ["command", "engine", "head", "python", "ranks", "remote"],
        )

    def test_the_history_of_this_tree_can_be_read(self):
        for entry in history.load(os.path.join(ROOT, "bench/history.jsonl")):
            self.assertTrue(entry["more"] or entry["less"], entry)
            self.assertTrue(entry["machine"] and entry["date"], entry)


if __name__ == "__main__":
    unittest.main()
