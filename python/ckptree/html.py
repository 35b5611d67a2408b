# SPDX-License-Identifier: Apache-2.0
"""Stores, steps and leaves as a notebook shows them: tables of HTML. Nothing
is read but records, and values that are as small."""

from __future__ import annotations

import html
import math
from datetime import datetime, timezone
from itertools import takewhile
from typing import (
    TYPE_CHECKING,
    Any,
    Callable,
    Iterable,
    Mapping,
    Protocol,
    Sequence,
    TypeVar,
)

if TYPE_CHECKING:
    # Named tuples of ckptree.records and ckptree.changes, which show themselves
    # by this module and so stand above it.
    StepInfo = Any
    UsageReport = Any
    PolicyReport = Any
    VerifyReport = Any
    LeafChange = Any
    LeafStats = Any
    Series = tuple[list[int], list[float]]

    Item = TypeVar("Item")

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
_MAX_SUBTREES = 50
_MAX_CHARACTERS = 80
_HEAD = "name type value size since min max mean l2".split() + ["NaN, Inf"]

# Values of this many bytes at most are shown.
MAX_VALUE_BYTES = 256


class _Drawn(str):
    """A cell that is HTML already."""


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
    drawn = "".join(
        _line(name, [s.metrics[name] for s in steps if name in s.metrics])
        for name in names
    )
    caption = f"{path}: {len(steps)} steps"
    return drawn + _table(caption, head, rows, len(steps))


def manager(
    path: str, steps: Sequence[StepInfo], policy: str, best: int | None
) -> str:
    """The steps of a manager, and which of them stay."""
    said = [f"keeps {policy or 'all steps'}"]
    if best is not None:
        said.append(f"the best is step {best}")
    return text("; ".join(said)) + store(path, steps)


def policy(shown: PolicyReport) -> str:
    """What a policy says of each step, newest first."""
    kept = sum(verdict.kept for verdict in shown.steps)
    caption = (
        f"{shown.policy}: keeps {kept} of {len(shown.steps)} steps; without "
        f"the others {size(shown.freed.nbytes)} are free"
    )
    rows = [
        [
            verdict.step,
            time(verdict.begun_ns),
            "kept" if verdict.kept else "goes",
            cut(", ".join(verdict.why)),
        ]
        for verdict in shown.steps[: -MAX_ROWS - 1 : -1]
    ]
    head = ["step", "saved", "", "why"]
    return _table(caption, head, rows, len(shown.steps))


def verification(shown: VerifyReport) -> str:
    """What was looked at, and what is wrong with it."""
    caption = (
        f"{'as it was saved' if shown.ok else 'damaged'}: {shown.steps} steps, "
        f"{shown.leaves} leaves, {shown.chunks} chunks, {size(shown.nbytes)}; "
        f"{len(shown.findings)} findings"
    )
    rows = [
        [found.severity, found.what, cut(" ".join(found.steps)), found.leaf]
        for found in shown.findings[:MAX_ROWS]
    ]
    head = ["severity", "what", "steps", "leaf"] if rows else []
    return _table(caption, head, rows, len(shown.findings))


def step(
    info: StepInfo, leaves: Iterable[ShownLeaf], values: Mapping[str, Any]
) -> str:
    """All leaves of a step, with their statistics; `values`: of those that are
    small, by name."""
    return _table(_of_step(info), _HEAD, _rows(leaves, values))


def _of_step(info: StepInfo) -> str:
    return (
        f"step {info.step}: {info.leaf_count} leaves, "
        f"{size(info.logical_bytes)}, saved {time(info.committed_ns)}"
    )


def _rows(
    leaves: Iterable[ShownLeaf], values: Mapping[str, Any]
) -> list[list[Any]]:
    rows: list[list[Any]] = []
    for leaf in leaves:
        stats = leaf.stats
        rows.append(
            [
                leaf.name,
                _type(leaf),
                value(values[leaf.name]) if leaf.name in values else "",
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
    info: StepInfo,
    subtrees: Sequence[tuple[str, int, Sequence[ShownLeaf]]],
    values: Mapping[str, Any],
) -> str:
    """A step of many leaves: its subtrees, to be unfolded, with how many leaves
    they have and the first of these."""
    return text(_of_step(info)) + "".join(
        _fold(
            f"{name}: {count} lea{'f' if count == 1 else 'ves'}",
            _table("", _HEAD, _rows(leaves, values), count),
        )
        for name, count, leaves in subtrees
    )


def parts(shown: Sequence[Any]) -> str:
    """What each rank saved, to be unfolded; nothing of one process alone.

    >>> parts([])
    ''
    """
    if not shown:
        return ""
    return _fold(f"saved by {len(shown)} ranks", table(shown))


def _fold(summary: str, inner: str) -> str:
    head = f"<summary>{html.escape(summary)}</summary>"
    return f"<details>{head}{inner}</details>"


def by_subtree(
    items: Sequence[Item], name_of: Callable[[Item], str]
) -> list[tuple[str, list[Item]]]:
    """What has names in a tree, by the subtree it is in, as deep as there is
    more than one, and fifty of these at most: the others are one.

    >>> by_subtree(["a/x/1", "a/x/2", "a/y/1"], str)
    [('a/x', ['a/x/1', 'a/x/2']), ('a/y', ['a/y/1'])]
    """
    names = [name_of(item) for item in items]
    common = _parts_in_common(names[0], names[-1])  # They are in order.
    tops: dict[str, None] = {}
    for name in names:
        tops[_top(name, common + 1)] = None
        if common and len(tops) >= _MAX_SUBTREES:
            return [(_top(names[0], common), list(items))]
    found: dict[str, list[Item]] = {}
    for name, item in zip(names, items):
        top = _top(name, common + 1)
        known = top in found or len(found) < _MAX_SUBTREES - 1
        found.setdefault(top if known else "others", []).append(item)
    return list(found.items())


def _top(name: str, depth: int) -> str:
    return "/".join(name.split("/", depth)[:depth])


def _parts_in_common(first: str, last: str) -> int:
    pairs = zip(first.split("/")[:-1], last.split("/")[:-1])
    return len(list(takewhile(lambda pair: pair[0] == pair[1], pairs)))


def _is_finite(value: Any) -> bool:
    """Whether a line can go through it: not a text, nor an int that no double
    holds."""
    try:
        return isinstance(value, (int, float)) and math.isfinite(value)
    except OverflowError:
        return False


def sparkline(values: Sequence[Any]) -> str:
    """The finite numbers as a small line, of at most sixty points.

    >>> sparkline([1.0])
    ''
    """
    finite = list(filter(_is_finite, values))
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


def _line(name: str, values: Sequence[float]) -> str:
    drawn = sparkline(values)
    return f"<p>{html.escape(name)} {drawn}</p>" if drawn else ""


def curves(shown: Mapping[str, Series], statistic: str = "") -> str:
    """A statistic of leaves over the steps: a small line for each leaf."""
    head = ["leaf", statistic, "steps", "first", "last", "min", "max"]
    rows: list[list[Any]] = []
    for name in list(shown)[:MAX_ROWS]:
        steps, values = shown[name]
        finite = list(filter(_is_finite, values))
        rows.append(
            [
                name,
                _Drawn(sparkline(values)),
                f"{steps[0]} to {steps[-1]}" if steps else "",
                *(number(v) for v in values[:1] + values[-1:]),
                *(number(f(finite)) for f in (min, max) if finite),
            ]
        )
    return _table("", head, rows, len(shown))


def usage(shown: UsageReport) -> str:
    """What the steps of a store cost, newest first."""
    caption = (
        f"{len(shown.steps)} steps: {size(shown.logical_bytes)} of values, "
        f"{size(shown.file_bytes)} on the disk, {shown.files} files of arrays"
    )
    if shown.pending_bytes or shown.dead_bytes:
        caption += (
            f"; {size(shown.pending_stored_bytes)} deleted and not freed yet, "
            f"{size(shown.dead_bytes)} freed in files beside others"
        )
    rows = [
        [
            f"{s.branch}/{s.step}".lstrip("/"),
            size(s.logical_bytes),
            size(s.new_bytes),
            size(s.unique_bytes),
        ]
        for s in shown.steps[: -MAX_ROWS - 1 : -1]
    ]
    drawn = _line("new bytes", [s.new_bytes for s in shown.steps])
    head = ["step", "size", "new", "goes with it alone"]
    return drawn + _table(caption, head, rows, len(shown.steps))


def changes(shown: Sequence[LeafChange], caption: str) -> str:
    """In what two steps differ; of many leaves by subtree, to be unfolded."""
    if len(shown) <= MAX_ROWS:
        return table(shown, caption)
    parts = [text(caption)]
    folds = by_subtree(shown, lambda change: change.name)
    most = max(1, MAX_ROWS // len(folds))
    for name, below in folds:
        counts: dict[str, int] = {}
        for change in below:
            counts[change.change] = counts.get(change.change, 0) + 1
        said = ", ".join(f"{n} {change}" for change, n in counts.items())
        inner = table(below[:most], count=len(below))
        parts.append(_fold(f"{name}: {said}", inner))
    return "".join(parts)


def leaf(shown: ShownLeaf, values: Mapping[str, Any]) -> str:
    """What its record says, and its value, where that is small."""
    rows: list[list[Any]] = [
        ["type", _type(shown)],
        *(["value", value(one)] for one in values.values()),
        ["size", size(shown.nbytes)],
        ["since step", shown.since_step],
        ["digest", shown.digest],
    ]
    if shown.stats is not None:
        rows += [[k, number(v)] for k, v in shown.stats._asdict().items()]
    return _table(shown.name, [], rows)


def table(shown: Sequence[Any], caption: str = "", count: int = 0) -> str:
    """Named tuples of one kind; `count`: of all, where not all are given."""
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
            drawn = sparkline(values)
    return drawn + _table(caption, head, rows, max(count, len(shown)))


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


def value(shown: Any) -> str:
    """A number or a text, as Python writes it.

    >>> value(0.0003), value("a" * 100)[-4:]
    ('0.0003', 'a...')
    """
    return cut(str(shown) if hasattr(shown, "dtype") else repr(shown))


def cut(shown: str) -> str:
    """
    >>> len(cut("a" * 1000))
    80
    """
    if len(shown) <= _MAX_CHARACTERS:
        return shown
    return shown[: _MAX_CHARACTERS - 3] + "..."


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
    if field.startswith("nbytes") or field.endswith("_bytes"):
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
        inner = "".join(f"<{tag}>{_escaped(cell)}</{tag}>" for cell in cells)
        return f"<tr>{inner}</tr>"

    body = "".join(line(row, "td") for row in rows[:MAX_ROWS])
    shown = min(len(rows), MAX_ROWS)
    if count > shown:
        body += line([f"... and {count - shown} more"], "td")
    top = f"<thead>{line(head, 'th')}</thead>" if head else ""
    title = f"<caption>{html.escape(caption)}</caption>" if caption else ""
    return f"<table>{title}{top}<tbody>{body}</tbody></table>"


def _escaped(cell: Any) -> str:
    return cell if isinstance(cell, _Drawn) else html.escape(str(cell))
