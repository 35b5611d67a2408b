# SPDX-License-Identifier: Apache-2.0
"""bench/history.jsonl: one line for each run that was told to be kept, with
what is judged of each figure: so that what gets slower little by little is
seen."""

from __future__ import annotations

import json
import os
from typing import Any

import document
import machine
from document import Document
from figure import Row

Entry = dict[str, Any]

# A median may differ by as much between two runs of one commit.
_SAME = 1.1


def entry(found: Document) -> Entry:
    """`more` has the figures of which more is better, `less` the others."""
    run = found["runs"][0]
    made: Entry = {
        "commit": run["commit"] + ("+" if run["changed"] else ""),
        "date": run["date"],
        "machine": machine.text(found["runs"][0]["machine"]),
        "more": {},
        "less": {},
    }
    for row in document.rows(found):
        kind = "more" if row.more_is_better else "less"
        made[kind][_name(row)] = row.judged
    return made


def _name(row: Row) -> str:
    beside = f" / {row.beside}" if row.ratio is not None else f", {row.unit}"
    return f"{row.case}: {row.what}{beside}"


def load(path: str) -> list[Entry]:
    """The oldest first."""
    if not os.path.exists(path):
        return []
    with open(path) as file:
        return [json.loads(line) for line in file if line.strip()]


def append(path: str, made: Entry) -> None:
    with open(path, "a") as file:
        file.write(json.dumps(made, separators=(",", ":")) + "\n")


def compare(entries: list[Entry], commit: str | None) -> tuple[list[str], bool]:
    """Lines that say how the newest figures differ from those of `commit`, or
    from the best that they ever were; and whether one is worse by more than a
    tenth. LookupError where there is nothing to compare with."""
    if not entries:
        raise LookupError("no run is kept yet: bench/run --history")
    newest = entries[-1]
    others = [e for e in entries[:-1] if e["machine"] == newest["machine"]]
    if commit is not None:
        others = [e for e in others if e["commit"].startswith(commit)]
    if not others:
        what = f"of {commit}" if commit else "but the newest"
        raise LookupError(f"no run {what} is kept of {newest['machine']}")
    lines, crept = [], False
    changes = []
    for kind in ("more", "less"):
        for name, now in newest[kind].items():
            known = [e for e in others if name in e[kind]]
            if not known:
                continue
            best = max if kind == "more" else min
            # The newest of several of one commit.
            then = (
                known[-1]
                if commit
                else best(known, key=lambda e: e[kind][name])
            )
            was = then[kind][name]
            worse = _worse(was, now, kind)
            changes.append((worse, name, was, now, then))
    changes.sort(key=lambda change: -change[0])
    head = f"beside {commit}" if commit else "beside the best of each"
    lines.append(
        f"{newest['commit']} ({newest['date'][:10]}) {head}, "
        f"{newest['machine']}"
    )
    for worse, name, was, now, then in changes:
        if 1 / _SAME <= worse <= _SAME:
            continue
        crept = crept or worse > _SAME
        said = "WORSE" if worse > 1 else "better"
        factor = worse if worse > 1 else 1 / worse
        lines.append(
            f"{said:<6} {factor:5.2f} x  {name}: {was:g} at {then['commit']} "
            f"({then['date'][:10]}), {now:g} now"
        )
    same = sum(1 / _SAME <= change[0] <= _SAME for change in changes)
    lines.append(f"within a tenth: {same} of {len(changes)}")
    return lines, crept


def _worse(was: float, now: float, kind: str) -> float:
    """How many times as bad it is now; below 1 where it is better."""
    if was == now:
        return 1.0
    if was <= 0 or now <= 0:
        return float("inf") if (now < was) == (kind == "more") else 0.1
    return was / now if kind == "more" else now / was
