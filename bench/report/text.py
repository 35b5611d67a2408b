# SPDX-License-Identifier: Apache-2.0
"""Rows and verdicts as lines of text."""

from __future__ import annotations

from typing import Iterable

from figure import Row


def line(row: Row, verdict: bool = True) -> str:
    """Without the verdict while it is not known whether the machine is
    quiet."""
    text = f"{row.case:<14} {row.what:<42} {row.ours.text()} {row.unit}"
    if row.ratio is not None and row.theirs is not None:
        text += f"; {row.beside} {row.theirs.text()}: x {row.ratio.text()}"
    bounds = (("floor", row.floor, row.met), ("goal", row.goal, row.goal_met))
    for name, bound, met in bounds:
        if bound is None:
            continue
        text += f"; {name} {sign(row)} {bound:g}"
        if verdict:
            text += f": {word(row, name, bool(met))}"
    return text


def sign(row: Row) -> str:
    return ">=" if row.at_least else "<="


def word(row: Row, bound: str, met: bool) -> str:
    if met:
        return "met"
    if bound == "goal":
        return "not yet"
    return "missed, within the slack" if row.within_slack else "MISSED"


def verdicts(rows: Iterable[Row]) -> list[str]:
    """The floors that were missed, and how many were not."""
    judged = [row for row in rows if row.met is not None]
    missed = [row for row in judged if not row.met]
    goals = [row for row in rows if row.goal_met is not None]
    reached = sum(bool(row.goal_met) for row in goals)
    return [
        *(f"missed: {line(row)}" for row in missed),
        f"floors met: {len(judged) - len(missed)} of {len(judged)}; goals: "
        f"{reached} of {len(goals)}",
    ]
