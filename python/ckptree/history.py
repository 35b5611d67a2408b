# SPDX-License-Identifier: Apache-2.0
"""History: what became of leaves over the steps."""

from __future__ import annotations

from ckptree import _engine
from ckptree.changes import (
    BlameRow,
    Curves,
    DiffReport,
    HistoryRow,
    LeafChange,
    Series,
)
from ckptree.errors import InvalidArgumentError, NotFoundError
from ckptree.garbage import without_collection
from ckptree.hints import TYPE_CHECKING, Any
from ckptree.records import LeafDetail, LeafStats, LeafType, StepInfo
from ckptree.selector import on_branch, selector_text
from ckptree.table import Table

if TYPE_CHECKING:
    from ckptree._engine import LeafInfo

_NUMBERS = ("bool", "int", "float")
_LONGEST = 256  # Bytes of a str that is shown.
_STATISTICS = (*LeafStats._fields, "value")


def rows(
    store: _engine.Store,
    name: str,
    branch: str,
    first: int | None,
    last: int | None,
) -> Table[HistoryRow]:
    """What Store.history() of one leaf returns."""
    try:
        found = _engine.history(
            store,
            name,
            branch,
            -(2**63) if first is None else first,
            2**63 - 1 if last is None else last,
        )
    except InvalidArgumentError:
        # A part of a name that has a star is quoted: this one is no name.
        if "*" not in name:
            raise
        raise InvalidArgumentError(
            f"history({name!r}): without a statistic the name of one leaf is "
            f"meant; of all that match a glob: history({name!r}, 'l2')"
        ) from None
    except NotFoundError as error:
        steps = _steps(store, branch, first, last)
        if not steps:
            raise
        _check_no_metric(name, steps)
        # The last one knows the closest name.
        try:
            _engine.restore(store, selector_text(steps[-1])).find(name)
        except NotFoundError as missing:
            raise NotFoundError(f"{error}: {missing}") from None
        raise
    return Table(_row(store, fields, branch) for fields in found)


def series(
    store: _engine.Store,
    glob: str,
    statistic: str,
    branch: str,
    first: int | None,
    last: int | None,
) -> Curves:
    """What Store.history() of a statistic returns."""
    steps = _steps(store, branch, first, last)
    if statistic not in _STATISTICS:
        raise ValueError(
            f"statistic {statistic!r}: one of {', '.join(_STATISTICS)}"
        )
    found = Curves({}, statistic=statistic)
    matched = False
    for info in steps:
        try:
            opened = _engine.restore(store, selector_text(info))
            there = _values_by_name(opened, glob, statistic)
        except NotFoundError:
            continue  # Removed since then.
        for name, value in there.items():
            matched = True
            if value is not None:
                one = found.setdefault(name, Series([], []))
                one.steps.append(info.step)
                one.values.append(value)
    if not matched:
        _check_no_metric(glob, steps)
        raise NotFoundError(f"no leaf of these steps matches {glob!r}")
    return found


def diff(before: _engine.Step, after: _engine.Step, glob: str) -> DiffReport:
    """What Step.diff() returns."""
    fields = _engine.diff(before, after, glob)
    if not fields["changes"] and not fields["same"]:
        _check_glob(glob, before, after)
    with without_collection():
        changes = Table(map(LeafChange.of, fields.pop("changes")))
    return DiffReport(
        before=_name(before),
        after=_name(after),
        changes=changes,
        same=fields["same"],
    )


def blame(step: _engine.Step, glob: str) -> Table[BlameRow]:
    """What Step.blame() returns."""
    entries = _engine.blame(step, glob)
    if not entries:
        _check_glob(glob, step)
    with without_collection():
        return Table(map(BlameRow.of, entries))


def _steps(
    store: _engine.Store, branch: str, first: int | None, last: int | None
) -> list[StepInfo]:
    return [
        StepInfo(**fields)
        for fields in store.steps(branch)
        if (first is None or fields["step"] >= first)
        and (last is None or fields["step"] <= last)
    ]


def _row(
    store: _engine.Store, fields: dict[str, Any], branch: str
) -> HistoryRow:
    info = fields.pop("leaf")
    kind = LeafType.of(info)
    detail = LeafDetail.of(fields.pop("detail"))
    stats = detail.stats if kind.kind == "array" else None
    return HistoryRow(
        kind=kind.kind,
        dtype=kind.dtype,
        shape=kind.shape,
        nbytes=detail.nbytes,
        digest=detail.digest,
        value=_value(store, info, detail.nbytes, fields["step"], branch),
        **fields,
        **(stats._asdict() if stats is not None else {}),
    )


def _value(
    store: _engine.Store, info: LeafInfo, nbytes: int, step: int, branch: str
) -> bool | int | float | complex | str | None:
    """What a number was in that step, or a short str."""
    from ckptree.arrays import values

    text = values.kind_of(info) == "str" and nbytes <= _LONGEST
    if not text and not _is_number(info, complex_too=True):
        return None
    try:
        opened = _engine.restore(store, on_branch(branch, step))
        (value,) = values.read(opened, [info])
    except NotFoundError:
        return None  # Removed since then.
    shown: bool | int | float | complex | str = _plain(value)
    return shown


def _is_number(info: LeafInfo, *, complex_too: bool = False) -> bool:
    """Of Python, or an array of no dimensions."""
    from ckptree.arrays import values

    kind = values.kind_of(info)
    if kind != "array":
        return kind in _NUMBERS or (complex_too and kind == "complex")
    if info.shape != () or info.packed:
        return False
    if info.tag not in ("", values.SCALAR_TAG):
        return False
    return complex_too or not info.dtype_name.startswith("complex")


def _plain(value: Any) -> Any:
    return value.item() if hasattr(value, "item") else value


def _check_glob(glob: str, *steps: _engine.Step) -> None:
    """KeyError where a glob was asked for that nothing matches."""
    if glob and not any(step.leaves(glob) for step in steps):
        names = " or ".join(_name(step) for step in steps)
        raise NotFoundError(f"nothing in step {names} matches {glob!r}")


def _check_no_metric(name: str, steps: list[StepInfo]) -> None:
    """KeyError where that is the name of a metric, and of no leaf."""
    if any(name in info.metrics for info in steps):
        raise NotFoundError(
            f"none of these steps has a leaf {name}: it is a metric, which "
            f"steps() has: steps()[-1].metrics[{name!r}], or "
            f"steps().plot({name!r})"
        )


def _name(step: _engine.Step) -> str:
    return selector_text(StepInfo(**step.info()))


def _values_by_name(
    step: _engine.Step, glob: str, statistic: str
) -> dict[str, Any]:
    """None where a leaf has no such statistic."""
    from ckptree.arrays import values

    leaves = [i for i in step.leaves(glob) if i.is_leaf or i.tie_to is not None]
    held = [i if i.tie_to is None else step.find(i.tie_to) for i in leaves]
    found: dict[str, Any] = dict.fromkeys(info.name for info in leaves)
    if statistic == "value":
        chosen = [i for i, at in enumerate(held) if _is_number(at)]
        read = map(_plain, values.read(step, [held[i] for i in chosen]))
        found.update(zip([leaves[i].name for i in chosen], read))
        return found
    for info, at, fields in zip(leaves, held, step.details(held)):
        if fields["stats"] and values.kind_of(at) == "array":
            found[info.name] = fields["stats"][statistic]
    return found
