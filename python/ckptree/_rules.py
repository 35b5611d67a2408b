# SPDX-License-Identifier: Apache-2.0
"""What values of a state are: containers, leaves, or neither. The extension
asks here for every type that it does not know by itself, which are None, bool,
int, float, complex, str, bytes, dict, list, tuple, named tuples and NumPy's
arrays. What is of a framework, its adapter says.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import sys
import types
from collections import Counter, OrderedDict, defaultdict
from typing import Any, Literal, NamedTuple, Sequence

import numpy as np

from ckptree import adapters
from ckptree.adapters import variables
from ckptree.arrays import memory, shardings
from ckptree.adapters.protocol import (
    ATTRIBUTE,
    DICT,
    DICT_KEY,
    OBJECT,
    Container,
    Fetched,
    Pieces,
    type_name,
)
from ckptree.arrays.dtypes import NUMBERS, to_numpy

DTYPES = NUMBERS
FETCHED_TYPE = Fetched
ARRAY_TYPE = np.ndarray
EMPTY = np.empty
LARGE_EMPTY = memory.empty
TO_NUMPY = to_numpy

_DICTS = (OrderedDict, defaultdict, Counter)
_NUMBERS_AND_TEXTS = (bool, int, float, complex, str, bytes)
_LEAVES = (*_NUMBERS_AND_TEXTS, np.ndarray)


class Content(NamedTuple):
    """A document, stored as it is; what lies under such an item is of its
    kind."""

    kind: str  # "json", "proto" or "file"
    data: bytes
    message: str = ""  # The full name of a proto's type.


class Document:
    """Content in a state. A named tuple would be a container there."""

    def __init__(self, content: Content) -> None:
        self.content = content


def container(
    value: Any, *, saves: bool = False
) -> Container | Literal[False] | None:
    """The container that `value` is, or None where it is a leaf or unknown, as
    all values of its type; False where others of its type may be containers.
    `saves`: TypeError where it holds arrays that are not among its children."""
    if type(value) in _DICTS:
        return _dict_container(value)
    owner = adapters.owner(value)
    if owner is not None:
        return adapters.parts(owner, value)
    for adapter in adapters.imported():
        found = adapter.container(value)
        if found is not None:
            return found
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        made = _dataclass_container(value)
        if made is not None and saves:
            _check_beside_fields(value)
        return made
    return None


def adapt(value: Any) -> Container | Pieces | Content:
    """What is to be saved of `value`. TypeError where it cannot be."""
    if isinstance(value, Document):
        return value.content
    adapter = adapters.owner(value)
    if adapter is not None:
        found = adapter.pieces(value)
    else:
        found = container(value, saves=True) or None
    if not found:
        raise TypeError(refusal(value))
    return found


def lineage(
    spread: dict[str, shardings.LeafSharding],
    states: dict[str, list[tuple[str, ...]]],
) -> dict[str, str]:
    """What is noted of a state, by the names of its lines: how leaves were
    spread, and where states of NNX were."""
    lines = {
        shardings.LINE: shardings.to_text(spread),
        variables.LINE: variables.to_text(states),
    }
    return {name: text for name, text in lines.items() if text}


class Spread:
    """The rules for a state that several processes save together. `per_rank`:
    the subtrees in which each has what it has for itself."""

    def __init__(self, per_rank: Sequence[str]) -> None:
        self._per_rank = per_rank

    def __getattr__(self, name: str) -> Any:
        return globals()[name]

    def adapt(self, value: Any) -> Container | Pieces | Content:
        part = getattr(adapters.owner(value), "part", None)
        found: Pieces | None = None if part is None else part(value)
        if found is None:
            return adapt(value)
        if found.owner is not None and not self._per_rank:
            # Where subtrees are named this may be in one: paths are not known
            # here. Then the commit finds what is not.
            raise ValueError(
                f"the array is on devices of process {found.owner} alone, "
                "which cannot tell it from one that each process has for "
                "itself: name it in per_rank on all of them, and that process "
                "saves it"
            )
        return found


def refusal(value: Any) -> str:
    """Why `value` is no leaf, and what to do."""
    kind = type_name(value).removeprefix("builtins.")
    if type(value) in _LEAVES:  # These are leaves everywhere else.
        return (
            f"it is one value of type {kind}; a state is a dict or another "
            'container: save {"name": value}'
        )
    if isinstance(value, np.ma.MaskedArray):
        return "a masked array is no leaf: save its data and its mask"
    if isinstance(value, np.ndarray):
        return f"a {kind} is no leaf: save numpy.asarray() of it"
    if isinstance(value, (set, frozenset)):
        return f"a {kind} is no leaf, it has no order: save a sorted list"
    if isinstance(value, _NUMBERS_AND_TEXTS):
        base = next(t for t in _NUMBERS_AND_TEXTS if isinstance(value, t))
        return (
            f"a {kind} would come back as a plain {base.__name__}: save "
            f"{base.__name__}() of it"
        )
    if isinstance(value, (dict, list, tuple)):
        return f"a {kind} is unknown: save a dict, list or tuple with its items"
    if callable(value) or isinstance(value, type(sys)):
        return f"a {kind} is code, and a checkpoint is data: leave it out"
    return (
        f"{kind} is no leaf: save arrays, numbers, str, bytes, or containers "
        "of them"
    )


def _dict_container(value: Any) -> Container:
    keys = list(value)

    def rebuild(children: list[Any]) -> Any:
        pairs = zip(keys, children)
        if isinstance(value, defaultdict):
            return defaultdict(value.default_factory, pairs)
        if isinstance(value, Counter):
            return Counter(dict(pairs))
        made = OrderedDict(pairs)
        # state_dict() of PyTorch has the versions of its modules there.
        vars(made).update(vars(value))
        return made

    return Container(
        DICT,
        type_name(value),
        [(DICT_KEY, key, value[key]) for key in keys],
        rebuild,
    )


def _dataclass_container(value: Any) -> Container | None:
    """None: it is also a dict, a list, or of another type that has values in no
    attribute."""
    if not _has_attributes_alone(type(value)):
        return None
    names = [field.name for field in dataclasses.fields(value)]

    def rebuild(children: list[Any]) -> Any:
        made = _copied(value)
        # Frozen ones, and fields that __init__ does not take, come through.
        for name, child in zip(names, children):
            object.__setattr__(made, name, child)
        return made

    return Container(
        OBJECT,
        type_name(value),
        [(ATTRIBUTE, name, getattr(value, name)) for name in names],
        rebuild,
    )


def _has_attributes_alone(kind: type) -> bool:
    """Whether object.__new__() makes one: no type of C on the way says how."""
    for base in kind.__mro__:
        if isinstance(vars(base).get("__new__"), types.BuiltinFunctionType):
            return base is object
    return True


def _copied(value: Any) -> Any:
    """Without a word of its class: that of a template has no say."""
    made: Any = object.__new__(type(value))
    if hasattr(value, "__dict__"):
        vars(made).update(_without_cached(value))
    for member in _slots(type(value)):
        with contextlib.suppress(AttributeError):  # It is not set.
            member.__set__(made, member.__get__(value))
    return made


def _without_cached(value: Any) -> dict[str, Any]:
    """The attributes of an object, but those of functools.cached_property,
    which may be made of what is going to be another value."""
    kind = type(value)
    return {
        name: held
        for name, held in vars(value).items()
        if not isinstance(
            getattr(kind, name, None), functools.cached_property
        )
    }


def _slots(kind: type) -> list[types.MemberDescriptorType]:
    return [
        member
        for base in kind.__mro__
        for member in vars(base).values()
        if isinstance(member, types.MemberDescriptorType)
    ]


def _check_beside_fields(value: Any) -> None:
    """TypeError: a dataclass has arrays in no field, which would be lost. Other
    values there are mostly made of its fields, by __post_init__()."""
    others = _without_cached(value) if hasattr(value, "__dict__") else {}
    for member in _slots(type(value)):
        with contextlib.suppress(AttributeError):
            others[member.__name__] = member.__get__(value)
    for field in dataclasses.fields(value):
        others.pop(field.name, None)
    for name, other in others.items():
        if _has_arrays(other):
            raise TypeError(
                f"{name!r} of a {type_name(value)} has arrays and is no field "
                "of the dataclass, so they would not be saved: make it one, as "
                "by dataclasses.field(init=False), or a "
                "functools.cached_property where it can be made again"
            )


def _has_arrays(value: Any) -> bool:
    met: dict[int, Any] = {}  # They live on, so that no number comes again.
    left = [value]
    while left:
        here = left.pop()
        if id(here) in met or type(here) in _NUMBERS_AND_TEXTS:
            continue
        if isinstance(here, np.generic):
            continue
        if adapters.owner(here) is not None:
            return True
        met[id(here)] = here
        if isinstance(here, dict):
            left += here.values()
        elif isinstance(here, (list, tuple, set, frozenset)):
            left += here
        else:
            found = container(here)
            left += [child for _, _, child in found.children] if found else []
    return False
