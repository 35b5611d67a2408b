# SPDX-License-Identifier: Apache-2.0
"""Stores, steps and leaves as a notebook shows them: tables of HTML. Nothing
but records is read."""

from __future__ import annotations

import html
import math
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, Iterable, Protocol, Sequence

if TYPE_CHECKING:
    from ckptree.records import LeafStats, StepInfo

    class ShownLeaf(Protocol):
        """What is shown of a leaf."""

        @property
        def name(self) -> str: ...
        @property
        def kind(self) -> str: ...
        @property
        def dtype_name(self) -> str: ...
        @property
        def shape(self) -> tuple[int, ...]: ...
        @property
        def nbytes(self) -> int: ...
        @property
        def since_step(self) -> int: ...
        @property
        def digest(self) -> str: ...
        @property
        def stats(self) -> LeafStats | None: ...

_MAX_ROWS = 200


def text(shown: str) -> str:
    """One line.

    >>> text("<Store>")
    '<p>&lt;Store&gt;</p>'
    """
    return f"<p>{html.escape(shown)}</p>"


def store(path: str, steps: Sequence[StepInfo]) -> str:
    """The steps of a store, newest first."""
    names = list(dict.fromkeys(m for s in steps for m in s.metrics))
    rows = [
        [
            s.step,
            time(s.committed_ns),
            *(number(s.metrics.get(name)) for name in names),
            s.leaf_count,
            size(s.logical_bytes),
            size(s.new_bytes),
            f"{s.nonfinite_leaves} leaves" if s.nonfinite_leaves else "",
            " ".join(s.tags) + (" pinned" if s.pinned else ""),
        ]
        for s in reversed(steps)
    ]
    head = [
        "step",
        "saved",
        *names,
        "leaves",
        "size",
        "new",
        "NaN, Inf",
        "tags",
    ]
    return _table(f"{path}: {len(steps)} steps", head, rows)


def step(info: StepInfo, leaves: Iterable[ShownLeaf]) -> str:
    """All leaves of a step, with their statistics."""
    caption = (
        f"step {info.step}: {info.leaf_count} leaves, "
        f"{size(info.logical_bytes)}, saved {time(info.committed_ns)}"
    )
    rows = []
    for leaf in leaves:
        stats = leaf.stats
        rows.append(
            [
                leaf.name,
                _type(leaf),
                size(leaf.nbytes),
                leaf.since_step,
                *(
                    map(number, (stats.min, stats.max, stats.mean, stats.l2))
                    if stats is not None
                    else [""] * 4
                ),
                (stats.nan + stats.inf or "") if stats is not None else "",
            ]
        )
    head = "name type size since min max mean l2".split() + ["NaN, Inf"]
    return _table(caption, head, rows)


def leaf(shown: ShownLeaf) -> str:
    """What its record says."""
    rows: list[list[Any]] = [
        ["type", _type(shown)],
        ["size", size(shown.nbytes)],
        ["since step", shown.since_step],
        ["digest", shown.digest],
    ]
    if shown.stats is not None:
        rows += [[k, number(v)] for k, v in shown.stats._asdict().items()]
    return _table(shown.name, [], rows)


def table(shown: Sequence[Any], caption: str = "") -> str:
    """Named tuples of one kind."""
    if not shown:
        return _table(caption or "nothing", [], [])
    fields = shown[0]._fields
    rows = [[_cell(*pair) for pair in zip(fields, row)] for row in shown]
    return _table(
        caption, [field.removesuffix("_ns") for field in fields], rows
    )


def size(nbytes: float) -> str:
    """
    >>> size(1536)
    '1.5 KiB'
    """
    for unit in ("B", "KiB", "MiB", "GiB"):
        if nbytes < 1024:
            return f"{nbytes:.4g} {unit}"
        nbytes /= 1024
    return f"{nbytes:.4g} TiB"


def number(value: float | None) -> str:
    """
    >>> number(0.1234567), number(None)
    ('0.12346', '')
    """
    if value is None:
        return ""
    return f"{value:.5g}" if math.isfinite(value) else str(value)


def time(ns: int) -> str:
    """
    >>> time(0)
    '1970-01-01 00:00:00'
    """
    return datetime.fromtimestamp(ns / 1e9, timezone.utc).strftime(
        "%Y-%m-%d %H:%M:%S"
    )


def _cell(field: str, value: Any) -> str:
    if value is None:
        return ""
    if field.endswith("_ns"):
        return time(value)
    if field.startswith("nbytes"):
        return size(value)
    return number(value) if isinstance(value, float) else str(value)


def _type(shown: ShownLeaf) -> str:
    if shown.kind != "array":
        return shown.kind
    return f"{shown.dtype_name}[{', '.join(map(str, shown.shape))}]"


def _table(caption: str, head: list[str], rows: list[list[Any]]) -> str:
    def line(cells: Iterable[Any], tag: str) -> str:
        inner = "".join(
            f"<{tag}>{html.escape(str(cell))}</{tag}>" for cell in cells
        )
        return f"<tr>{inner}</tr>"

    body = "".join(line(row, "td") for row in rows[:_MAX_ROWS])
    if len(rows) > _MAX_ROWS:
        body += line([f"... and {len(rows) - _MAX_ROWS} more"], "td")
    top = f"<thead>{line(head, 'th')}</thead>" if head else ""
    title = f"<caption>{html.escape(caption)}</caption>" if caption else ""
    return f"<table>{title}{top}<tbody>{body}</tbody></table>"
