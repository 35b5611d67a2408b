# SPDX-License-Identifier: Apache-2.0
"""The document of figures that --json prints and bench/figures.json keeps:

    {"schema": 2,
     "runs": [{"machine": {...}, "date", "commit", "changed", "system",
               "kernel", "versions", "quick", "quiet": {...}}],
     "cases": {CASE: {"run", "seconds", "figures": [...], "not_measured": [...],
                      "failed"}}}

`run` is the number of the run in which a case was measured last, so that one
case can be measured anew. What stands in turns beside a figure is of the same
run, so that its ratio holds also where other cases are of another machine.
"""

from __future__ import annotations

import json
import os
from typing import Any, Iterable

from figure import Row
from programs import Result

SCHEMA = 2

Document = dict[str, Any]


def of_run(run: dict[str, Any], results: Iterable[Result]) -> Document:
    return {
        "schema": SCHEMA,
        "runs": [run],
        "cases": {
            result.case: {
                "run": 0,
                "seconds": result.seconds,
                "figures": [row.to_json() for row in result.rows],
                "not_measured": result.not_measured,
                "failed": result.failed,
            }
            for result in results
        },
    }


def rows(document: Document) -> list[Row]:
    """ValueError or KeyError where something is no row."""
    return [
        Row.from_json(found)
        for case in document["cases"].values()
        for found in case["figures"]
    ]


def merged(old: Document | None, new: Document) -> Document:
    """`old` with the cases of `new` in place of its own."""
    if old is None:
        return new
    runs = [*old["runs"], *new["runs"]]
    cases = dict(old["cases"])
    for name, case in new["cases"].items():
        cases[name] = case | {"run": case["run"] + len(old["runs"])}
    used = sorted({case["run"] for case in cases.values()})
    return {
        "schema": SCHEMA,
        "runs": [runs[i] for i in used],
        "cases": {
            name: cases[name] | {"run": used.index(cases[name]["run"])}
            for name in sorted(cases)
        },
    }


def load(path: str) -> Document | None:
    """None where there is no such file. ValueError where it is not what this
    program writes."""
    if not os.path.exists(path):
        return None
    with open(path) as file:
        found: Document = json.load(file)
    if found.get("schema") != SCHEMA:
        raise ValueError(f"{path}: schema {found.get('schema')}, not {SCHEMA}")
    rows(found)
    return found


def text(document: Document) -> str:
    """One line for each figure, so that a change of it is seen as one."""
    lines = ["{", f' "schema": {document["schema"]},', ' "runs": [']
    runs = [f"  {json.dumps(run)}" for run in document["runs"]]
    lines.append(",\n".join(runs) + "],")
    lines.append(' "cases": {')
    cases = []
    for name, case in document["cases"].items():
        given = dict(case)
        figures = given.pop("figures")
        head = json.dumps(given)[:-1]
        shown = ",\n".join(f"    {json.dumps(figure)}" for figure in figures)
        cases.append(f'  "{name}": {head}, "figures": [\n{shown}]}}')
    lines.append(",\n".join(cases) + "}}")
    return "\n".join(lines) + "\n"


def save(path: str, document: Document) -> None:
    made = path + ".new"
    with open(made, "w") as file:
        file.write(text(document))
    os.replace(made, path)
