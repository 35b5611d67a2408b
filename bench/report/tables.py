# SPDX-License-Identifier: Apache-2.0
"""The tables of the pages, between markers, from a document of figures:

    <!-- figures: NAME -->
    ...
    <!-- figures: end -->
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, replace
from typing import Any, Iterator

import document
import machine
from document import Document
from figure import Row

_MARKED = re.compile(
    r"(?P<begin><!-- figures: (?P<name>\w+) -->\n)(?P<body>.*?)"
    r"(?P<end><!-- figures: end -->\n)",
    re.DOTALL,
)


@dataclass(frozen=True)
class Table:
    """Which cases one is of, and which packages it stands beside."""

    cases: re.Pattern[str]
    versions: tuple[str, ...]
    # The case whose figures are many of one kind: what is alike but for its
    # name is a row, with the worst of it. Another table has all.
    in_short: str = ""


_LIBRARIES = ("RocksDB", "oneTBB", "Abseil", "xxHash", "Highway", "GCC")
TABLES = {
    "engine": Table(
        re.compile(r"(?!py_|orbax_|ranks_|remote_|device)"),
        _LIBRARIES,
        in_short="command",
    ),
    "command": Table(re.compile(r"command$"), _LIBRARIES),
    "python": Table(
        re.compile(r"py_|orbax_|device"),
        ("Python", *machine.PEERS),
    ),
    "ranks": Table(
        re.compile(r"ranks_"),
        ("Python", "numpy", "jax", "orbax-checkpoint", "torch"),
    ),
    "remote": Table(
        re.compile(r"remote_"),
        (
            "RocksDB",
            "numpy",
            "boto3",
            "icechunk",
            "s3fs",
            "safetensors",
            "tensorstore",
            "torch",
            "zarr",
        ),
    ),
}
# What the README begins with: the case, the beginning of the figure, and what
# it is called there.
HEAD = (
    (
        "full_save",
        "all changed, durable, memory lent",
        "2 GiB saved, durable, memory lent",
    ),
    (
        "incremental_1",
        "1 % of the chunks changed: written",
        "bytes written when 1 % of the chunks changed",
    ),
    (
        "restore_cold",
        "out of the disk, into touched memory",
        "2 GiB restored out of the disk, into memory that was there",
    ),
    (
        "query",
        "leaf of an open step, read before",
        "one 4 KiB leaf of 1 000 steps by name, read before",
    ),
    (
        "query",
        "leaf of an open step, for the first time",
        "the same, for the first time",
    ),
)


def written(page: str, found: Document) -> str:
    """`page` with its tables made anew. ValueError where a marker names no
    table."""

    def table(match: re.Match[str]) -> str:
        name = match["name"]
        if name == "head":
            body = _head(found)
        elif name in TABLES:
            body = _table(TABLES[name], found)
        else:
            raise ValueError(f"there is no table of figures named {name}")
        return match["begin"] + body + match["end"]

    return _MARKED.sub(table, page)


def names(page: str) -> list[str]:
    """The tables that a page has."""
    return [match["name"] for match in _MARKED.finditer(page)]


def _head(found: Document) -> str:
    lines = ["| `bench/run`, see [Performance](#performance) | |", "|---|---|"]
    rows = document.rows(found)
    for case, begin, said in HEAD:
        for row in rows:
            if row.case == case and row.what.startswith(begin):
                lines.append(f"| {said} | {_figure(row)} |")
                break
    return "\n".join(lines) + "\n"


def _figure(row: Row) -> str:
    if row.ratio is None:
        return f"{row.ours.text()} {row.unit}"
    return f"{row.ratio.text()} x {row.beside}"


def _table(table: Table, found: Document) -> str:
    cases = {
        name: case
        for name, case in found["cases"].items()
        if table.cases.match(name)
    }
    if not cases:
        return "Not measured yet.\n"
    marks = _marks(found, cases)
    lines = [_caption(table, found, cases, marks), ""]
    lines.append("| case | figure | beside it | ratio | floor | goal |")
    lines.append("|---|---|---|---|---|---|")
    rows = document.rows({"cases": cases})
    shown = [
        row
        for row in rows
        if row.ratio or row.floor is not None or row.goal is not None
    ]
    before = ""
    for row, met in _in_short(table.in_short, shown):
        mark = marks[_machine_of(found, cases[row.case])]
        case = f"`{row.case}`{mark} " if row.case != before else ""
        before = row.case
        beside = "" if row.theirs is None else _beside(row)
        ratio = "" if row.ratio is None else row.ratio.text()
        lines.append(
            f"| {case}{row.what} | {row.ours.text()} {row.unit} | {beside} | "
            f"{ratio} | {met} | {_bound(row, 'goal')} |"
        )
    lines.append("")
    lines.append(_sum(shown, cases))
    return "\n".join(lines) + "\n"


def _in_short(case: str, rows: list[Row]) -> Iterator[tuple[Row, str]]:
    """What the table has rows for, each with what is said of its floor: of
    `case` the worst of those that differ in their name alone, "NAME, OF WHAT".
    """
    alike: dict[Any, list[Row]] = {}
    for i, row in enumerate(rows):
        _, _, of_what = row.what.partition(", ")
        key = (
            (of_what, row.unit, row.floor, row.goal, row.beside)
            if row.case == case and of_what
            else i
        )
        alike.setdefault(key, []).append(row)
    for group in alike.values():
        if len(group) == 1:
            yield group[0], _bound(group[0], "floor")
            continue
        worst = (min if group[0].at_least else max)(
            group, key=lambda row: row.judged
        )
        name, _, of_what = worst.what.partition(", ")
        said = f"{of_what}: the slowest of {len(group)}, {name}"
        missed = sum(row.met is False for row in group)
        bound = _bound(worst, "floor")
        if missed:
            bound += f", by {missed}"
        yield replace(worst, what=said), bound


def _beside(row: Row) -> str:
    assert row.theirs is not None
    return f"{row.beside}: {row.theirs.text()}"


def _bound(row: Row, name: str) -> str:
    bound = row.floor if name == "floor" else row.goal
    met = row.met if name == "floor" else row.goal_met
    if bound is None:
        return ""
    said = "met" if met else "**missed**" if name == "floor" else "not yet"
    return f"{'≥' if row.at_least else '≤'} {bound:g}: {said}"


def _machine_of(found: Document, case: dict[str, Any]) -> str:
    return machine.text(found["runs"][case["run"]]["machine"])


def _marks(found: Document, cases: dict[str, Any]) -> dict[str, str]:
    """By machine, what marks its cases in the table: nothing those of which
    there are most."""
    counts = Counter(_machine_of(found, case) for case in cases.values())
    # Of as many, by name: a table must not depend on an order.
    order = sorted(counts, key=lambda name: (-counts[name], name))
    return {
        name: f"<sup>{i}</sup>" if i else "" for i, name in enumerate(order)
    }


def _caption(
    table: Table,
    found: Document,
    cases: dict[str, Any],
    marks: dict[str, str],
) -> str:
    used = sorted({case["run"] for case in cases.values()})
    runs = [found["runs"][i] for i in used]
    versions: dict[str, str] = {}
    for run in runs:
        versions |= run["versions"]
    named = ", ".join(
        f"{name} {versions[name]}"
        for name in table.versions
        if name in versions
    )
    system = ", Linux ".join(
        " and ".join(sorted({run[name] for run in runs}))
        for name in ("system", "kernel")
    )
    first, *others = marks
    also = "".join(
        f" Cases marked {marks[name]} are of {name}: what stands beside a "
        "figure is of the same machine, in turns with it."
        for name in others
    )
    return (
        f"On {first}; {system}; {named}; {_when(runs)}. Medians, "
        f"and the range in which all turns were.{also}"
    )


def _when(runs: list[dict[str, Any]]) -> str:
    dates = sorted({run["date"][:10] for run in runs})
    return dates[0] if len(dates) == 1 else f"{dates[0]} to {dates[-1]}"


def _sum(rows: list[Row], cases: dict[str, Any]) -> str:
    floors = [row for row in rows if row.met is not None]
    goals = [row for row in rows if row.goal_met is not None]
    said = (
        f"Floors met: {sum(bool(row.met) for row in floors)} of {len(floors)}; "
        f"goals: {sum(bool(row.goal_met) for row in goals)} of {len(goals)}."
    )
    lacking = [
        f"{name}: {missing['what']} ({missing['why']})"
        for name, case in cases.items()
        for missing in case["not_measured"]
    ] + [
        f"{name} ({case['failed']})"
        for name, case in cases.items()
        if case["failed"]
    ]
    return said + (f" Not measured: {'; '.join(lacking)}." if lacking else "")
