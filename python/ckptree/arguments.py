# SPDX-License-Identifier: Apache-2.0
"""What arguments are: one check for each name, for all public calls.

checked() goes over the public methods of a class, or over one function, and
gives each parameter the kind of its name. What is of another type is a
TypeError, what can never be meant a ValueError, both by the parameter's name;
and the engine gets plain ints, floats and bools, whatever NumPy made of them.
"""

from __future__ import annotations

import functools
import math
import os
import reprlib
from collections.abc import Callable, Iterable, Mapping
from types import CodeType, FunctionType

from ckptree.errors import InvalidArgumentError
from ckptree.hints import Any, TypeVar

Made = TypeVar("Made", bound=Callable[..., Any])
Convert = Callable[[str, Any], Any]

INT64 = 2**63 - 1
INT32 = 2**31 - 1


class Kind:
    """What an argument is: `what` a message calls it, and a function of its
    name and value, which returns the value as the engine takes it, or
    NotImplemented where it is not of this kind.

    >>> integer(low=1)("threads", "x")
    Traceback (most recent call last):
    TypeError: threads is an int, not 'x'
    """

    def __init__(self, what: str, convert: Convert) -> None:
        self.what = what
        self.convert = convert

    def __call__(self, name: str, value: Any) -> Any:
        found = self.convert(name, value)
        if found is NotImplemented:
            raise TypeError(f"{name} is {self.what}, not {shown(value)}")
        return found


def shown(value: Any) -> str:
    """As a message shows it: not too long, whatever its repr() does."""
    if isinstance(value, int):
        bits = value.bit_length()
        return repr(value) if bits < 70 else f"an int of {bits} bits"
    try:
        return reprlib.repr(value)
    except Exception:
        return f"a {type(value).__name__}"


def refuse(name: str, value: Any, what: str) -> InvalidArgumentError:
    """The error of a value that can never be meant."""
    return InvalidArgumentError(f"{name} is {what}, not {shown(value)}")


def no_option(call: str, name: str, known: Iterable[str]) -> TypeError:
    """The error of an option that a call does not have; `call`: the qualified
    name of its function.

    >>> no_option("Store.save", "metric", ["note", "metrics"])
    TypeError("Store.save() has no option 'metric': did you mean 'metrics'?")
    >>> no_option("Latest.__init__", "count", ["n"])
    TypeError("Latest() has no option 'count': it has n")
    """
    names = sorted(known)
    import difflib  # Takes as long as many modules do, and is rarely used.

    meant = difflib.get_close_matches(name, names, n=1)
    hint = f"did you mean {meant[0]!r}?" if meant else f"it has {_list(names)}"
    called = call.removesuffix(".__init__")
    return TypeError(f"{called}() has no option {name!r}: {hint}")


def called(function: Callable[..., Any], arguments: tuple[Any, ...]) -> str:
    """The qualified name of a function as users know it: what a class of this
    package has from a base is its own.

    >>> class Base:
    ...     def tag(self): ...
    >>> class Store(Base): ...
    >>> called(Store.tag, (Store(),))
    'Store.tag'
    """
    name = function.__qualname__
    base, _, method = name.rpartition(".")
    owner = arguments[0] if arguments else None
    bases = (owner if isinstance(owner, type) else type(owner)).__mro__
    if any(kind.__qualname__ == base for kind in bases):
        for kind in bases:
            if kind.__module__.startswith("ckptree."):
                return f"{kind.__qualname__}.{method}"
    return name


def _list(names: list[str]) -> str:
    return ", ".join(names) or "none"


# ---- Kinds ----


def integer(low: int = -INT64 - 1, high: int = INT64) -> Kind:
    """An int, or what Python takes as one: not a bool, not 2.0.

    >>> integer(low=0)("depth", -1)
    Traceback (most recent call last):
    ckptree.errors.InvalidArgumentError: depth is 0 or more, not -1
    """

    def convert(name: str, value: Any) -> Any:
        # An array has __index__ as well, and may refuse.
        try:
            number = NotImplemented if _is_bool(value) else value.__index__()
        except (AttributeError, TypeError):
            return NotImplemented
        if number is NotImplemented or low <= number <= high:
            return number
        raise refuse(name, number, _bounds(low, high, number < low))

    return Kind("an int", convert)


def real(low: float = -math.inf, high: float = math.inf) -> Kind:
    """A number: an int, a float, or what Python makes a float of. NaN goes
    where there are no bounds."""
    unbounded = low == -math.inf and high == math.inf

    def convert(name: str, value: Any) -> Any:
        try:
            number = float_of(value)
        except (TypeError, ValueError):
            return NotImplemented
        except OverflowError:
            raise refuse(name, value, "a float") from None
        if unbounded or low <= number <= high:  # False of NaN.
            return number
        raise refuse(name, number, _bounds(low, high))

    return Kind("a number", convert)


def exact(kind: Kind) -> Kind:
    """That kind of number, but no int that a float rounds.

    >>> exact(real())("metrics['m']", 2**53 + 1)
    Traceback (most recent call last):
    ckptree.errors.InvalidArgumentError: metrics['m']=9007199254740993: ...
    """

    def convert(name: str, value: Any) -> Any:
        number = kind.convert(name, value)
        try:
            given = value.__index__()
        except (AttributeError, TypeError):
            return number
        if number is NotImplemented or number == given:
            return number
        raise InvalidArgumentError(
            f"{name}={shown(given)}: no float is this number; pass float() of "
            "it, or keep it in metadata"
        )

    return Kind(kind.what, convert)


def float_of(value: Any) -> float:
    """TypeError for text, which float() reads."""
    if not hasattr(value, "__float__") and not hasattr(value, "__index__"):
        raise TypeError(f"no number: {shown(value)}")
    return float(value)


def optional(kind: Kind) -> Kind:
    """That, or None."""

    def convert(name: str, value: Any) -> Any:
        return None if value is None else kind.convert(name, value)

    return Kind(f"{kind.what} or None", convert)


def either(*kinds: Kind) -> Kind:
    """The first of them that it is."""

    def convert(name: str, value: Any) -> Any:
        for kind in kinds:
            found = kind.convert(name, value)
            if found is not NotImplemented:
                return found
        return NotImplemented

    return Kind(_any_of([kind.what for kind in kinds]), convert)


def instance(what: str, *types: type) -> Kind:
    """An object of these classes, as it is."""
    return Kind(
        what,
        lambda name, value: (
            value if isinstance(value, types) else NotImplemented
        ),
    )


def choice(*names: str) -> Kind:
    """One of some texts."""
    shown_names = _any_of(list(map(repr, names)))

    def convert(name: str, value: Any) -> Any:
        if not isinstance(value, str):
            return NotImplemented
        if value not in names:
            raise refuse(name, value, shown_names)
        return value

    return Kind(shown_names, convert)


def listed(kind: Kind, what: str) -> Kind:
    """A list of that kind, or any other iterable but a text."""

    def convert(name: str, value: Any) -> Any:
        if isinstance(value, (str, bytes)):
            return NotImplemented
        try:
            entries = list(value)
        except TypeError:
            return NotImplemented
        return [kind(f"{name}[{i}]", entry) for i, entry in enumerate(entries)]

    return Kind(what, convert)


def mapping(kind: Kind, what: str) -> Kind:
    """A dict with str keys of that kind."""

    def convert(name: str, value: Any) -> Any:
        if not isinstance(value, Mapping):
            return NotImplemented
        for key in value:
            if not isinstance(key, str):
                raise TypeError(f"{name}: a key is a str, not {shown(key)}")
            TEXT(f"{name}: a key", key)
        return {k: kind(f"{name}[{k!r}]", v) for k, v in value.items()}

    return Kind(what, convert)


def _utf8(name: str, value: Any) -> Any:
    if not isinstance(value, str):
        return NotImplemented
    try:
        value.encode()
    except UnicodeEncodeError:
        # As it is: its repr() may be cut where it is wrong.
        raise refuse(name, value, "text that UTF-8 can hold") from None
    return value


def _selection(name: str, value: Any) -> Any:
    found = _SELECTION.convert(name, value)
    if isinstance(found, list) and not found:
        raise refuse(name, found, "True, or globs of what to restore")
    return found


def _duration(name: str, value: Any) -> Any:
    from datetime import timedelta  # Here: a process that reads goes without.

    if isinstance(value, timedelta):
        return value
    seconds = SECONDS.convert(name, value)
    if seconds is NotImplemented:
        return seconds
    try:
        return timedelta(seconds=seconds)
    except OverflowError:
        raise refuse(name, seconds, "at most a billion days") from None


def _path(name: str, value: Any) -> Any:
    known = isinstance(value, (str, bytes, os.PathLike))
    return value if known else NotImplemented


def _function(name: str, value: Any) -> Any:
    return value if callable(value) else NotImplemented


def _is_bool(value: Any) -> bool:
    return isinstance(value, bool) or type(value).__name__ in ("bool_", "bool")


def _bounds(low: float, high: float, below: bool = True) -> str:
    """A bound that nobody meets is said where it was met.

    >>> _bounds(0, 7), _bounds(0, INT64), _bounds(0, INT64, below=False)
    ('0 to 7', '0 or more', 'at most 9223372036854775807')
    """
    if high < INT32:
        return f"{low} to {high}"
    return f"{low} or more" if below else f"at most {high}"


def _any_of(whats: list[str]) -> str:
    """
    >>> _any_of(["a bool", "a str", "None"])
    'a bool, a str or None'
    """
    return " or ".join([", ".join(whats[:-1]), whats[-1]])


def _cast(name: str, value: Any) -> Any:
    if _is_bool(value) or value == "lossy":
        return value
    if isinstance(value, str):
        raise refuse(name, value, CAST.what)
    return NotImplemented


ANY = Kind("anything", lambda name, value: value)
BOOL = Kind(
    "a bool",
    lambda name, value: bool(value) if _is_bool(value) else NotImplemented,
)
TEXT = Kind("a str", _utf8)
PATH = Kind("a str or os.PathLike", _path)
FUNCTION = Kind("a function", _function)
COUNT = integer(low=0)
POSITIVE = integer(low=1)
CAST = Kind("False, True or 'lossy'", _cast)
SECONDS = real(low=0)
DURATION = Kind("a datetime.timedelta or seconds", _duration)
NUMBERS = mapping(exact(real()), "a dict of str to float")
TEXTS = listed(TEXT, "a list of str")
_SELECTION = either(BOOL, TEXT, TEXTS)
INTS = listed(integer(), "a list of ints")

# What has the same meaning wherever it has that name.
_BY_NAME: dict[str, Kind] = {
    "after": ANY,
    "arrays": choice("numpy", "jax", "torch"),
    "best_fn": optional(FUNCTION),
    "best_metric": TEXT,
    "best_mode": optional(choice("min", "max")),
    "borrow": BOOL,
    "branch": TEXT,
    "bytes_per_second": COUNT,
    "callback": FUNCTION,
    "cast": CAST,
    "chunk_bytes": COUNT,
    "collect": BOOL,
    "coding": optional(choice("none", "planes", "auto")),
    "collect_bytes_per_second": COUNT,
    "create": BOOL,
    "delete_later": BOOL,
    "depth": integer(low=0, high=INT32),
    "device": ANY,
    "durable": choice("local", "remote"),
    "first": optional(integer()),
    "force": BOOL,
    "glob": TEXT,
    "items": TEXTS,
    "keep_checkpoints_without_metrics": BOOL,
    "keep_period": optional(POSITIVE),
    "keep_time_interval": optional(DURATION),
    "last": optional(integer()),
    "level": choice("quick", "full", "deep"),
    "like": ANY,
    "lock_wait": SECONDS,
    "max_saves_in_flight": integer(low=1, high=INT32),
    "max_to_keep": optional(COUNT),
    "metadata": ANY,
    "metrics": optional(NUMBERS),
    "min_dead_fraction": real(low=0, high=1),
    "mode": choice("write or create", "write", "create", "read"),
    "move": BOOL,
    "name": TEXT,
    "note": TEXT,
    "overwrite": BOOL,
    "pack": BOOL,
    "partial": Kind(_SELECTION.what, _selection),
    "path": PATH,
    "permissions": integer(low=0, high=0o7777),
    "progress": optional(either(BOOL, FUNCTION)),
    "read_only": BOOL,
    "remote": TEXT,
    "remote_grace": SECONDS,
    "remote_timeout": SECONDS,
    "rename": optional(mapping(TEXT, "a dict of str to str")),
    "save_interval_steps": optional(POSITIVE),
    "save_on_steps": INTS,
    "save_timeout": optional(SECONDS),
    "sharding": ANY,
    "should_keep_fn": optional(FUNCTION),
    "should_save_fn": optional(FUNCTION),
    "staging_bytes": COUNT,
    "staging_idle": SECONDS,
    "state": ANY,
    "statistic": optional(TEXT),
    "statistics": BOOL,
    "tagged": BOOL,
    "take_over": BOOL,
    "threads": integer(low=0, high=1024),
    "time": ANY,  # nanoseconds() looks at it.
    "timeout": optional(SECONDS),
    "watch_sigterm": BOOL,
}


class Parameters:
    """The names of what a function takes, below its decorators. The module
    inspect knows more, and to import it takes as long as to import this
    package.

    >>> def save(step, *paths, note="", **options): ...
    >>> found = Parameters(save)
    >>> found.by_position, found.rest, found.by_name, found.options
    (('step',), 'paths', ('note',), 'options')
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        while hasattr(function, "__wrapped__"):
            function = function.__wrapped__
        code: CodeType = function.__code__
        names = iter(code.co_varnames)

        def take(count: int) -> tuple[str, ...]:
            return tuple(next(names) for _ in range(count))

        self.by_position = take(code.co_argcount)
        self.by_name = take(code.co_kwonlyargcount)
        self.rest = next(names) if code.co_flags & VARARGS else None
        self.options = next(names) if code.co_flags & _VARKEYWORDS else None


# As inspect calls them.
VARARGS = 4
_VARKEYWORDS = 8


def checked(
    kinds: Mapping[str, Kind] | None = None,
    **of_calls: Mapping[str, Kind],
) -> Callable[[Made], Made]:
    """A decorator of a class or a function: checks what its public calls are
    given. `kinds`: of names that only this class has; `of_calls`: of names that
    mean something else in one call. A parameter without a kind is an error at
    once.

    >>> @checked({"step": integer(low=0)})
    ... def save(step, borrow=False):
    ...     return step
    >>> save("x")
    Traceback (most recent call last):
    TypeError: step is an int, not 'x'
    """
    known = {**_BY_NAME, **(kinds or {})}

    def decorate(made: Made) -> Made:
        if not isinstance(made, type):
            return _checking(made, {**known, **of_calls.get(made.__name__, {})})
        for name, method in list(vars(made).items()):
            if name.startswith("_") and name != "__init__":
                continue
            of_call = {**known, **of_calls.get(name, {})}
            if isinstance(method, classmethod):
                inner = _checking(method.__func__, of_call)
                setattr(made, name, classmethod(inner))
            elif isinstance(method, FunctionType):
                setattr(made, name, _checking(method, of_call))
        return made

    return decorate


def _checking(function: Made, kinds: Mapping[str, Kind]) -> Made:
    """The function, whose arguments are checked before it is called."""
    named = Parameters(function)
    by_position = list(named.by_position)
    positional: list[tuple[str, Kind] | None] = []
    if by_position[:1] in (["self"], ["cls"]):
        positional.append(None)
        by_position = by_position[1:]
    by_name = {name: kinds[name] for name in [*by_position, *named.by_name]}
    positional += [(name, by_name[name]) for name in by_position]
    rest: tuple[str, Kind] | None = None
    if named.rest is not None:
        rest = (named.rest, kinds[named.rest])
    open_ended = named.options is not None
    if not by_name and rest is None and not open_ended:
        return function

    @functools.wraps(function)
    def call(*arguments: Any, **given: Any) -> Any:
        taken = list(arguments)
        for i, value in enumerate(arguments):
            named = positional[i] if i < len(positional) else rest
            if named is not None:
                taken[i] = named[1](named[0], value)
        for name, value in given.items():
            if name in by_name:
                given[name] = by_name[name](name, value)
            elif not open_ended:
                raise no_option(called(function, arguments), name, by_name)
        return function(*taken, **given)

    return call  # type: ignore[return-value]
