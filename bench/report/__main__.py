# SPDX-License-Identifier: Apache-2.0
"""bench/run: runs cases, judges their figures, keeps them."""

from __future__ import annotations

import argparse
import os
import sys
import time
from typing import Any, Iterator, TextIO

import document
import history
import machine
import tables
import text
from document import Document
from figure import Row
from programs import ROOT, NotRun, Programs, Result
from quiet import MOST_BUSY, MOST_SPREAD, Quiet, usual

# Exit codes.
GOOD, MISSED, NOT_RUN, NOT_QUIET, NO_DEVICE = 0, 1, 2, 3, 4

_FIGURES = os.path.join(ROOT, "bench/figures.json")
_HISTORY = os.path.join(ROOT, "bench/history.jsonl")
_PAGES = ("README.md", "bench/README.md", "python/README.md")

# What no README shows: they run as long as they are told to, or only somewhere.
_ALONE = ("soak", "device")

# How long cases run until the machine is looked at: what an hour measures is
# not lost for one minute that was not quiet.
_PART_SECONDS = 300

_HELP = """\
cases: those that bench/run --list names, or
  engine   all of C++ (the default)      python   the package beside its peers
  orbax    ckptree.orbax beside Orbax    ranks    many processes, one step
  remote   stores in an object store, beside raw requests and its peers
  soak     saves for --minutes           device   memory of an accelerator
  all      engine, python, orbax, ranks, remote

exit codes: 0 done; 1 a floor was missed or not measured (--guard), a figure got
worse (--compare), a page is not what the figures say (--check); 2 wrong usage,
or a case did not run; 3 the machine is not quiet: nothing is judged, and of
the cases those are kept that ran while it was; 4 there is no accelerator
"""


def main(arguments: list[str]) -> int:
    options = _parser().parse_args(arguments)
    try:
        if options.compare is not None:
            return _compare(options)
        if options.tables or options.check:
            return _tables(options)
        return _measure(options)
    except (NotRun, LookupError, ValueError) as error:
        print(f"bench/run: {error}", file=sys.stderr)
        return NOT_RUN


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "bench/run",
        description="Measures ckptree beside the ceiling of this machine and "
        "its peers.",
        epilog=_HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("cases", nargs="*", metavar="CASE")
    add("--list", action="store_true", help="names the cases")
    add("--quick", action="store_true", help="small data")
    add(
        "--guard",
        action="store_true",
        help="fails below a floor and its slack, and where the machine is not "
        "quiet",
    )
    add("--json", action="store_true", help="one document, on standard output")
    add(
        "--readme",
        action="store_true",
        help="keeps the figures in bench/figures.json and writes the tables of "
        "the pages; all cases where none is named",
    )
    add(
        "--history",
        action="store_true",
        help="appends the medians to bench/history.jsonl",
    )
    add(
        "--compare",
        nargs="?",
        const="",
        metavar="COMMIT",
        help="measures nothing: the newest of the history beside that of "
        "COMMIT, or beside the best of each figure",
    )
    add(
        "--tables",
        action="store_true",
        help="measures nothing: writes the tables from bench/figures.json",
    )
    add(
        "--check",
        action="store_true",
        help="measures nothing: whether the tables are what --tables writes",
    )
    add("--dir", default="build/bench-data", help="where the data go")
    add(
        "--mib",
        type=int,
        help="size of the state of ranks_large, remote_* and device",
    )
    add("--minutes", type=float, default=30, help="of soak (30)")
    add("--most-spread", type=float, default=MOST_SPREAD, metavar="X")
    add("--most-busy", type=float, default=MOST_BUSY, metavar="SHARE")
    # For tests of this program: what is there, and where it writes.
    add(
        "--part-seconds",
        type=float,
        default=_PART_SECONDS,
        help=argparse.SUPPRESS,
    )
    for name in ("--engine-program", "--python-program", "--tree"):
        add(name, help=argparse.SUPPRESS)
    return parser


def _measure(options: argparse.Namespace) -> int:
    programs = Programs(
        options.dir,
        _passed_on(options),
        options.engine_program,
        options.python_program,
    )
    names = programs.names()
    if options.list:
        for kind, found in names.items():
            print(f"{kind}: {' '.join(found)}")
        return GOOD
    chosen = _chosen(options, names)
    # Text goes beside the document.
    out = sys.stderr if options.json else sys.stdout
    keeps = options.readme or options.history
    if keeps and options.quick:
        raise ValueError("figures of --quick are not kept")
    quiet = Quiet(
        programs.machine,
        options.most_spread,
        options.most_busy,
        usual=_usual(options) if options.guard or keeps else {},
    )
    is_quiet = quiet.look()
    if not is_quiet:
        _say_not_quiet(quiet)
        if options.guard or keeps:
            return NOT_QUIET
    results: list[Result] = []
    kept: list[Result] = []
    for part in _parts(programs, chosen, out, options.part_seconds):
        results += part
        # Of the machine at the begin of this part, and at its end.
        was, is_quiet = is_quiet, quiet.look()
        if was and is_quiet:
            kept += [result for result in part if not result.failed]
        else:
            quiet.disturbed += [result.case for result in part]
            if len(results) < len(chosen):
                is_quiet = is_quiet or quiet.look()
    run = _run(options, programs, quiet)
    if options.json:
        sys.stdout.write(document.text(_made(run, results)))
    return _conclude(options, _made(run, kept), results, quiet)


def _parts(
    programs: Programs,
    chosen: list[tuple[str, str]],
    out: TextIO,
    seconds: float,
) -> Iterator[list[Result]]:
    """Runs the cases; gives those that ran whenever `seconds` are over, and at
    the end."""

    def show(row: Row) -> None:
        print(text.line(row, verdict=False), file=out, flush=True)

    part: list[Result] = []
    begun = time.monotonic()
    for program, case in chosen:
        part.append(programs.run(program, case, show))
        _say_result(part[-1])
        if time.monotonic() - begun > seconds:
            yield part
            part, begun = [], time.monotonic()
    if part:
        yield part


def _usual(options: argparse.Namespace) -> dict[str, float]:
    kept = document.load(_in_tree(options, _FIGURES))
    here = machine.machine(options.dir)
    return usual(kept["runs"], here) if kept else {}


def _conclude(
    options: argparse.Namespace,
    made: Document,
    results: list[Result],
    quiet: Quiet,
) -> int:
    """`made` has the cases that ran while the machine was quiet."""
    failed = any(result.failed for result in results)
    if not failed and all(result.no_device for result in results):
        return NO_DEVICE
    whole = not failed and not quiet.complaints
    if made["cases"]:
        _keep(options, made, whole)
    if failed:
        return NOT_RUN
    if quiet.complaints:
        _say_not_quiet(quiet)
        return NOT_QUIET
    rows = [row for result in results for row in result.rows]
    for line in text.verdicts(rows):
        print(line, file=sys.stderr if options.json else sys.stdout)
    lacking = any(result.not_measured for result in results)
    missed = any(not row.within_slack for row in rows)
    if options.guard and (lacking or missed):
        said = "a floor was missed" if missed else "NOT ALL WAS MEASURED"
        print(f"bench/run: {said}", file=sys.stderr)
        return MISSED
    return GOOD


def _keep(options: argparse.Namespace, made: Document, whole: bool) -> None:
    if options.readme:
        path = _in_tree(options, _FIGURES)
        anew = whole and not options.cases
        old = None if anew else document.load(path)
        document.save(path, document.merged(old, made))
        _tables(options)
    if options.history:
        history.append(_in_tree(options, _HISTORY), history.entry(made))


def _run(
    options: argparse.Namespace, programs: Programs, quiet: Quiet
) -> dict[str, Any]:
    run = {"machine": machine.machine(options.dir)}
    run |= machine.run(programs.python)
    return run | {"quick": options.quick, "quiet": quiet.to_json()}


def _made(run: dict[str, Any], results: list[Result]) -> Document:
    there = [result for result in results if not result.no_device]
    return document.of_run(run, there)


def _passed_on(options: argparse.Namespace) -> list[str]:
    passed = ["--quick"] if options.quick else []
    if options.mib is not None:
        passed += ["--mib", str(options.mib)]
    if "soak" in options.cases:
        passed += ["--minutes", str(options.minutes)]
    return passed


def _chosen(
    options: argparse.Namespace, names: dict[str, list[str]]
) -> list[tuple[str, str]]:
    """Program and case, each once, in the order of the programs."""
    every = [(kind, case) for kind, found in names.items() for case in found]
    asked = options.cases or (["all"] if options.readme else ["engine"])
    chosen = set()
    for name in asked:
        found = {
            (kind, case) for kind, case in every if _is_of(kind, case, name)
        }
        if not found:
            raise ValueError(f"there is no case {name}: see bench/run --list")
        chosen |= found
    return [one for one in every if one in chosen]


def _is_of(kind: str, case: str, name: str) -> bool:
    if name == case:
        return True
    if case in _ALONE:
        return False
    if name == "python":
        return case.startswith("py_")
    if name in ("orbax", "ranks", "remote"):
        return case.startswith(name + "_")
    # They start a server.
    if name == "engine" and case.startswith("remote_"):
        return False
    return name in ("all", kind)


def _say_result(result: Result) -> None:
    for missing in result.not_measured:
        print(
            f"{result.case:<14} NOT MEASURED: {missing['what']}: "
            f"{missing['why']}",
            file=sys.stderr,
        )
    if result.failed:
        print(
            f"bench/run: {result.case} DID NOT RUN: {result.failed}",
            file=sys.stderr,
        )


def _say_not_quiet(quiet: Quiet) -> None:
    print("bench/run: not quiet, so nothing is judged:", file=sys.stderr)
    for complaint in quiet.complaints:
        print(f"  {complaint}", file=sys.stderr)
    if quiet.disturbed:
        print(
            f"bench/run: not kept: {' '.join(quiet.disturbed)}", file=sys.stderr
        )


def _in_tree(options: argparse.Namespace, path: str) -> str:
    if options.tree is None:
        return path
    return os.path.join(options.tree, os.path.relpath(path, ROOT))


def _tables(options: argparse.Namespace) -> int:
    found = document.load(_in_tree(options, _FIGURES))
    if found is None:
        raise LookupError("there is no bench/figures.json: bench/run --readme")
    good = True
    for name in _PAGES:
        path = _in_tree(options, os.path.join(ROOT, name))
        with open(path) as file:
            page = file.read()
        new = tables.written(page, found)
        if options.check and new != page:
            print(
                f"{name}: its tables are not what bench/run --tables writes "
                "from bench/figures.json"
            )
            good = False
        elif new != page:
            with open(path, "w") as file:
                file.write(new)
    return GOOD if good else MISSED


def _compare(options: argparse.Namespace) -> int:
    lines, crept = history.compare(
        history.load(_in_tree(options, _HISTORY)), options.compare or None
    )
    print("\n".join(lines))
    return MISSED if crept else GOOD


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
