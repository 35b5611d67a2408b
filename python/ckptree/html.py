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

# A table has so many rows, and says how many more there are.
MAX_ROWS = 200
_MAX_POINTS = 60
_HEAD = "name type size since min max mean l2".split() + ["NaN, Inf"]


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
        for s in steps[: -MAX_ROWS - 1 : -1]
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
    lines = [
        [name, sparkline([s.metrics[name] for s in steps if name in s.metrics])]
        for name in names
    ]
    drawn = "".join(
        f"<p>{html.escape(name)} {line}</p>" for name, line in lines if line
    )
    caption = f"{path}: {len(steps)} steps"
    return drawn + _table(caption, head, rows, len(steps))


def step(info: StepInfo, leaves: Iterable[ShownLeaf]) -> str:
    """All leaves of a step, with their statistics."""
    return _table(_of_step(info), _HEAD, _rows(leaves))


def _of_step(info: StepInfo) -> str:
    return (
        f"step {info.step}: {info.leaf_count} leaves, "
        f"{size(info.logical_bytes)}, saved {time(info.committed_ns)}"
    )


def _rows(leaves: Iterable[ShownLeaf]) -> list[list[Any]]:
    rows: list[list[Any]] = []
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
    return rows


def folded(
    info: StepInfo, subtrees: Sequence[tuple[str, int, Sequence[ShownLeaf]]]
) -> str:
    """A step of many leaves: its subtrees, to be unfolded, with how many leaves
    they have and the first of these."""
    parts = [text(_of_step(info))]
    for name, count, leaves in subtrees:
        head = f"{name}: {count} lea{'f' if count == 1 else 'ves'}"
        parts.append(
            f"<details><summary>{html.escape(head)}</summary>"
            f"{_table('', _HEAD, _rows(leaves), count)}</details>"
        )
    return "".join(parts)


def sparkline(values: Sequence[float]) -> str:
    """The finite ones as a small line, of at most sixty points.

    >>> sparkline([1.0])
    ''
    """
    finite = [value for value in values if math.isfinite(value)]
    if len(finite) < 2:
        return ""
    points = finite[:: -(-len(finite) // _MAX_POINTS)]
    low, high = min(points), max(points)
    span = (high - low) or 1.0
    drawn = " ".join(
        f"{i * 100 / max(1, len(points) - 1):.1f},"
        f"{18 - 16 * ((value - low) / span):.1f}"
        for i, value in enumerate(points)
    )
    return (
        '<svg width="100" height="20" viewBox="0 0 100 20"><polyline '
        f'fill="none" stroke="currentColor" points="{drawn}"/></svg>'
    )


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
    rows = [
        [_cell(*pair) for pair in zip(fields, row)] for row in shown[:MAX_ROWS]
    ]
    head = [field.removesuffix("_ns") for field in fields]
    drawn = ""
    for field in ("value", "mean"):
        if not drawn and field in fields and "last_step" in fields:
            values = [getattr(row, field) for row in shown]
            drawn = sparkline([v for v in values if v is not None])
    return drawn + _table(caption, head, rows, len(shown))


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


def _table(
    caption: str, head: list[str], rows: list[list[Any]], count: int = 0
) -> str:
    """`count`: of all rows, where not all are given."""
    count = max(count, len(rows))
    def line(cells: Iterable[Any], tag: str) -> str:
        inner = "".join(
            f"<{tag}>{html.escape(str(cell))}</{tag}>" for cell in cells
        )
        return f"<tr>{inner}</tr>"

    body = "".join(line(row, "td") for row in rows[:MAX_ROWS])
    shown = min(len(rows), MAX_ROWS)
    if count > shown:
        body += line([f"... and {count - shown} more"], "td")
    top = f"<thead>{line(head, 'th')}</thead>" if head else ""
    title = f"<caption>{html.escape(caption)}</caption>" if caption else ""
    return f"<table>{title}{top}<tbody>{body}</tbody></table>"
