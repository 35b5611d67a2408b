# SPDX-License-Identifier: Apache-2.0
"""Values made those of another type, and whether they are the same then.

`cast=True` never changes what a number is: 0.5 does not become 0, nor 300 an
int8. Only between floating types, and to or between complex ones, arrays are
rounded, as bfloat16 weights are made of float32 ones, or complex64 of float64,
and there too nothing finite becomes Inf or NaN. Numbers
of Python are not rounded: a learning rate stays what it was.
`cast="lossy"` does all of that.
"""

from __future__ import annotations

import functools
from typing import Any, Callable, Iterator

import numpy as np

Array = np.ndarray[Any, Any]

_NUMBERS: dict[str, Callable[[Any], Any]] = {
    "bool": bool,
    "int": int,
    "float": float,
    "complex": complex,
}
_ORDER = tuple(_NUMBERS)
ELEMENTS_AT_ONCE = 1 << 20


class Changed(Exception):
    """A value that a cast would change: says from what to what."""


def check_option(cast: Any) -> None:
    """ValueError where it is no value of `cast`."""
    if not isinstance(cast, bool) and cast != "lossy":
        raise ValueError(f"cast={cast!r}: False, True or 'lossy'")


def is_number(kind: str) -> bool:
    """Whether values of that kind are numbers of Python.

    >>> is_number("float"), is_number("array")
    (True, False)
    """
    return kind in _NUMBERS


def may_fit(found: str, wanted: str) -> bool:
    """Whether values of one type are mostly ones of the other as well: kinds
    of numbers, or names of element types.

    >>> may_fit("int", "float"), may_fit("float32", "bfloat16")
    (True, True)
    >>> may_fit("float", "int32")
    False
    """
    return _ORDER.index(_kind(found)) <= _ORDER.index(_kind(wanted))


def _kind(name: str) -> str:
    if name == "bool":
        return name
    return next((kind for kind in ("complex", "float") if kind in name), "int")


def number(value: Any, kind: str, *, lossy: bool) -> Any:
    """`value`, a number of Python or NumPy, as one of Python. Changed where
    that is another number."""
    given = value.item() if hasattr(value, "item") else value
    part = given
    if isinstance(given, complex) and kind in ("int", "float"):
        part = given.real
    try:
        made = _NUMBERS[kind](part)
    except (OverflowError, ValueError) as error:  # NaN, Inf or 10**400.
        raise Changed(f"{given!r} is no {kind}: {error}") from None
    if lossy or is_same(made, given):
        return made
    raise Changed(f"from {given!r} to {made!r}")


def is_same(made: Any, given: Any) -> bool:
    """Of two numbers of Python. NaN is no other number than NaN; one that loses
    its imaginary part is."""
    if isinstance(given, complex) and not isinstance(made, complex):
        return given.imag == 0 and is_same(made, given.real)
    return bool(made == given or (made != made and given != given))


def array(value: Any, dtype: np.dtype[Any], *, lossy: bool) -> Array:
    """`value`, an array, or a number of Python, as an array of that type.
    Changed where it holds another number then."""
    before: Array = np.asarray(value)
    if before.dtype == dtype:
        return before
    real = _kind(before.dtype.name) == "complex" != _kind(dtype.name)
    try:
        with np.errstate(all="ignore"):
            made = _as_type(before.real if real else before, dtype)
    except OverflowError:  # An int of more than 64 bits.
        raise Changed(f"{value!r} is no {dtype.name}") from None
    if lossy:
        return made
    if type(value) in (bool, int, float, complex):
        # One that has no such type, 2**100, is an object here.
        there = made.item()
        if not is_same(there, value):
            raise Changed(f"from {value!r} to {there!r} ({dtype.name})")
    elif before.dtype.kind != "O":
        check(before, made, before.dtype.name, dtype.name)
    return made


def _as_type(values: Array, dtype: np.dtype[Any]) -> Array:
    """As astype(); by a wider type where NumPy makes none of these elements of
    the others, as of int4 and uint4, which is of both."""
    try:
        return values.astype(dtype)
    except TypeError:
        wide = {"int": np.int8, "float": np.float32}.get(
            _kind(values.dtype.name)
        )
        if wide is None or values.dtype == wide or values.dtype.itemsize > 1:
            raise
        return values.astype(wide).astype(dtype)


def check(before: Array, made: Array, found: str, wanted: str) -> None:
    """Changed where the elements `made` of those before are others. The arrays
    may be of wider floating types than their own, `found` and `wanted`."""
    rounds = _kind(found) == _kind(wanted) and _kind(found) in (
        "float",
        "complex",
    )
    rounds = rounds or (_kind(found), _kind(wanted)) == ("float", "complex")
    for old, new in _blocks(before, made):
        with np.errstate(all="ignore"):
            same = _stays_finite(old, new) if rounds else _equal(old, new)
        if same is None or same.all():
            continue
        i = int(np.argmin(same))
        raise Changed(
            f"from {_shown(old[i])} to {_shown(new[i])} ({found} to {wanted})"
        )


def _blocks(a: Array, b: Array) -> Iterator[tuple[Array, Array]]:
    a, b = a.reshape(-1), b.reshape(-1)
    for start in range(0, a.size, ELEMENTS_AT_ONCE):
        part = slice(start, start + ELEMENTS_AT_ONCE)
        yield a[part], b[part]


def _stays_finite(old: Array, new: Array) -> Array | None:
    """Where what is finite stays so, and what is not is the same kind of no
    number; None: everywhere."""
    finite: Array = np.isfinite(new)
    largest = _largest_without_inf(new.dtype)
    if finite.all() and largest is None:
        return None
    was: Array = np.isfinite(old)
    # Of what is no number: Inf stays Inf, NaN stays NaN.
    same: Array = np.where(
        was,
        finite,
        (np.isnan(old) == np.isnan(new)) & (np.isinf(old) == np.isinf(new)),
    )
    if largest is not None:
        # Beyond what is rounded to it such a type has it for all else.
        same &= ~was | (np.abs(old.astype(np.float64)) <= largest)
    return same


@functools.cache
def _largest_without_inf(dtype: np.dtype[Any]) -> float | None:
    """Of a type that has its largest number in place of Inf (4 and 6 bits):
    what is still rounded to that; None of others."""
    if dtype.itemsize > 1 or dtype.kind in "fc":
        return None
    with np.errstate(all="ignore"):
        ends: Array = np.asarray([np.inf], np.float32).astype(dtype)
        if not np.isfinite(ends).all():
            return None
        most = float(ends[0])
        # The number below it: a unit of the last place.
        known = np.arange(256, dtype=np.uint8).view(dtype).astype(np.float32)
    below = float(np.max(known[known < most]))
    return most + (most - below) / 2


def _equal(old: Array, new: Array) -> Array:
    """Where two blocks hold the same numbers. Types of NumPy are compared as
    they are; a float beside an int is one that both have."""
    if _kind(old.dtype.name) == "complex":
        imaginary = new.imag if _kind(new.dtype.name) == "complex" else 0
        real = _equal(old.real, new.real)
        if _kind(new.dtype.name) == "float":
            real |= np.isnan(old.real) & np.isnan(new)  # As is_same() has it.
        return np.asarray(real & (old.imag == imaginary))
    if _kind(new.dtype.name) == "complex":
        return _equal(old, new.real)
    kinds = _kind(old.dtype.name), _kind(new.dtype.name)
    if kinds == ("int", "float"):
        return _equal_int_and_float(old, new)
    if kinds == ("float", "int"):
        return _equal_int_and_float(new, old)
    if "float" in kinds:
        return np.asarray(old == _as_type(new, old.dtype))
    return np.asarray(_wide(old) == _wide(new))


def _wide(block: Array) -> Array:
    """NumPy compares its own integers as numbers, whatever their types."""
    return block if block.dtype.isbuiltin == 1 else block.astype(np.int64)


def _equal_int_and_float(ints: Array, floats: Array) -> Array:
    ints = _wide(ints)
    floats = floats.astype(np.float64)  # As all of them are.
    info = np.iinfo(ints.dtype)
    # A power of two is exact as a float; the number below it is not.
    fits = (floats >= float(info.min)) & (floats < float(info.max + 1))
    back = np.where(fits, floats, 0).astype(ints.dtype)
    return np.asarray(
        fits & (back == ints) & (back.astype(np.float64) == floats)
    )


def _shown(element: Any) -> str:
    return str(element)
