# SPDX-License-Identifier: Apache-2.0
"""Options that several calls take: named, typed and given a default once.

Such a call takes `**options: Unpack[RestoreOptions]`, which type checkers read;
takes() gives it the signature that help() and notebooks show, fills in the
defaults, and refuses a name that is none of them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from types import FunctionType

from ckptree.arguments import VARARGS, Parameters, called, no_option
from ckptree.hints import TYPE_CHECKING, Any, TypeVar, TypedDict

if TYPE_CHECKING:
    from typing import Literal

    from ckptree.progress import Progress

    Function = TypeVar("Function", bound=Callable[..., Any])


class RestoreOptions(TypedDict, total=False):
    """How a step becomes a state: Store.restore() says what each of them
    does."""

    partial: bool | str | list[str]
    cast: bool | Literal["lossy"]
    rename: dict[str, str] | None
    sharding: Any
    arrays: Literal["numpy", "jax", "torch"]
    device: Any
    progress: Progress


RESTORE: RestoreOptions = {
    "partial": False,
    "cast": False,
    "rename": None,
    "sharding": None,
    "arrays": "numpy",
    "device": None,
    "progress": None,
}


class OpenOptions(TypedDict, total=False):
    """How a store is opened: Store says what each of them does."""

    lock_wait: float
    threads: int
    staging_bytes: int
    staging_idle: float
    chunk_bytes: int
    collect: bool
    collect_bytes_per_second: int
    statistics: bool
    permissions: int
    max_saves_in_flight: int
    coding: Literal["none", "planes", "auto"] | None
    remote: str
    durable: Literal["local", "remote"]
    take_over: bool
    remote_timeout: float
    remote_grace: float
    local_keep: Any  # A policy, its text, or None; the engine has the text.


OPEN: OpenOptions = {
    "lock_wait": 0,
    "threads": 0,
    "staging_bytes": 0,
    "staging_idle": 10,
    "chunk_bytes": 4 << 20,
    "collect": True,
    "collect_bytes_per_second": 256 << 20,
    "statistics": True,
    "permissions": 0o666,
    "max_saves_in_flight": 2,
    "coding": None,
    "remote": "",
    "durable": "local",
    "take_over": False,
    "remote_timeout": 600,
    "remote_grace": 3600,
    "local_keep": None,
}


def in_effect(options: Mapping[str, Any]) -> dict[str, Any]:
    """What the engine makes of options of an opening that were left out.

    >>> in_effect({**OPEN, "remote": "s3://bucket/lm"})["coding"]
    'planes'
    """
    coding = options["coding"]
    if coding is None:
        coding = "planes" if options["remote"] else "none"
    return {**options, "coding": coding}


def takes(
    options: type[Any], defaults: Mapping[str, Any]
) -> Callable[[Function], Function]:
    """A decorator of a function with `**options`.

    >>> @takes(RestoreOptions, RESTORE)
    ... def restore(like=None, **options):
    ...     return options["arrays"]
    >>> restore(), restore(arrays="jax")
    ('numpy', 'jax')
    >>> import inspect
    >>> list(inspect.signature(restore).parameters)[:3]
    ['like', 'partial', 'cast']
    >>> restore(array="jax")
    Traceback (most recent call last):
    TypeError: restore() has no option 'array': did you mean 'arrays'?
    """
    hints = {
        name: getattr(hint, "__forward_arg__", hint)
        for name, hint in options.__annotations__.items()
    }

    def decorate(function: Function) -> Function:
        own = Parameters(function)
        known = {*defaults, *own.by_position, *own.by_name}

        @functools.wraps(function)
        def call(*arguments: Any, **given: Any) -> Any:
            if not known.issuperset(given):
                unknown = next(name for name in given if name not in known)
                raise no_option(called(function, arguments), unknown, known)
            return function(*arguments, **{**defaults, **given})

        call.__wrapped__ = _shown(
            function, own, hints, defaults
        )
        return call  # type: ignore[return-value]

    return decorate


def _shown(
    function: Any,
    own: Parameters,
    hints: Mapping[str, Any],
    defaults: Mapping[str, Any],
) -> FunctionType:
    """A function that is not called: what inspect takes the signature of. It
    has the parameters of `function`, and each option by its name."""
    names = (*own.by_position, *own.by_name, *hints)
    if own.rest is not None:
        names += (own.rest,)

    def nothing() -> None: ...

    code = nothing.__code__
    flags = code.co_flags | (function.__code__.co_flags & VARARGS)
    made = FunctionType(
        code.replace(
            co_argcount=len(own.by_position),
            co_kwonlyargcount=len(own.by_name) + len(hints),
            co_varnames=names,
            co_nlocals=len(names),
            co_flags=flags,
        ),
        function.__globals__,
        function.__name__,
        function.__defaults__,
    )
    functools.update_wrapper(made, function)
    del made.__wrapped__  # type: ignore[attr-defined]
    made.__kwdefaults__ = {
        **(function.__kwdefaults__ or {}),
        **{name: defaults[name] for name in hints},
    }
    annotations = dict(function.__annotations__)
    if own.options is not None:
        annotations.pop(own.options, None)
    made.__annotations__ = {**annotations, **hints}
    return made
