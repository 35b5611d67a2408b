# SPDX-License-Identifier: Apache-2.0
"""Curves over steps, drawn by matplotlib where that is installed."""

from __future__ import annotations

import warnings
from itertools import islice
from typing import Any, Mapping, Sequence

from ckptree.errors import level_of_caller

# Beyond, a legend hides what it names.
_MAX_NAMED = 12
# Beyond, nobody can tell the lines apart, and drawing them takes minutes.
MAX_LINES = 100


def lines(
    curves: Mapping[str, tuple[Sequence[float], Sequence[float]]],
    what: str,
    ax: Any,
    options: Mapping[str, Any],
) -> Any:
    """Draws each curve, steps and values, and returns the Axes; `ax` None: new
    ones. Of many the first, and a warning says so. ImportError where Axes
    cannot be made."""
    ax = _new_axes() if ax is None else ax
    for name, (steps, values) in islice(curves.items(), MAX_LINES):
        ax.plot(steps, values, **{"label": name, **options})
    if len(curves) > MAX_LINES:
        warnings.warn(
            f"the first {MAX_LINES} of {len(curves)} curves are drawn: choose "
            "by a narrower glob",
            stacklevel=level_of_caller(),
        )
    ax.set_xlabel("step")
    ax.set_ylabel(what)
    if 1 < len(curves) <= _MAX_NAMED:
        ax.legend()
    return ax


def over_steps(rows: Sequence[Any], column: str | None) -> tuple[str, Any]:
    """What lines() draws of named tuples that have a step each, and what it
    is. TypeError: they have none; ValueError: `column` is not theirs."""
    if not rows:
        return column or "", {}
    fields = rows[0]._fields
    if "step" not in fields:
        raise TypeError(
            f"rows of {type(rows[0]).__name__} are not over steps: there is "
            "nothing to plot"
        )
    names = _metrics(rows)
    if column is None and "metrics" in fields:
        return "", {name: _metric(rows, name) for name in names}
    if column is None and "last_step" in fields:
        known = any(isinstance(row.value, (int, float)) for row in rows)
        column = "value" if known else "mean"
    if column is not None and column in fields:
        return column, {column: _column(rows, column)}
    if column is not None and column in names:
        return column, {column: _metric(rows, column)}
    raise ValueError(
        f"column={column!r}: one of {', '.join([*names, *_numeric(rows[0])])}"
    )


def _metrics(rows: Sequence[Any]) -> list[str]:
    each = (name for row in rows for name in getattr(row, "metrics", ()))
    return list(dict.fromkeys(each))


def _metric(rows: Sequence[Any], name: str) -> tuple[list[int], list[float]]:
    having = [row for row in rows if name in row.metrics]
    return [r.step for r in having], [r.metrics[name] for r in having]


def _column(rows: Sequence[Any], name: str) -> tuple[list[int], list[Any]]:
    """Of a value that stays over several steps, the first and the last."""
    steps: list[int] = []
    values: list[Any] = []
    for row in rows:
        value = getattr(row, name)
        if value is None:
            continue
        if not isinstance(value, (int, float)):
            raise ValueError(
                f"column={name!r} is no number: one of "
                f"{', '.join([*_metrics(rows), *_numeric(row)])}"
            )
        last = getattr(row, "last_step", row.step)
        steps += [row.step] if last == row.step else [row.step, last]
        values += [value] * (len(steps) - len(values))
    return steps, values


def _numeric(row: Any) -> list[str]:
    return [
        field
        for field in row._fields
        if type(getattr(row, field)) in (int, float)
        and field not in ("step", "last_step", "version", "base")
        and not field.endswith("_ns")
    ]


def _new_axes() -> Any:
    try:
        import matplotlib.pyplot
    except ImportError:
        raise ImportError(
            "plot() draws by matplotlib: pip install matplotlib; or pass axes "
            "of your own as ax="
        ) from None
    _, ax = matplotlib.pyplot.subplots()
    return ax
