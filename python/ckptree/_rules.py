# SPDX-License-Identifier: Apache-2.0
"""What values of a state are: containers, leaves, or neither. The extension
asks here for every type that it does not know by itself, which are None, bool,
int, float, complex, str, bytes, dict, list, tuple, named tuples and NumPy's
arrays. What is of a framework, its adapter says.
"""

from __future__ import annotations

import dataclasses
import sys
from collections import Counter, OrderedDict, defaultdict
from typing import Any, Literal, NamedTuple

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
_LEAVES = (bool, int, float, complex, str, bytes, np.ndarray)


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


def container(value: Any) -> Container | Literal[False] | None:
    """The container that `value` is, or None where it is a leaf or unknown, as
    all values of its type; False where others of its type may be containers."""
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
        return _dataclass_container(value)
    return None


def adapt(value: Any) -> Container | Pieces | Content:
    """What is to be saved of `value`. TypeError where it cannot be."""
    if isinstance(value, Document):
        return value.content
    adapter = adapters.owner(value)
    found = container(value) if adapter is None else adapter.pieces(value)
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
    """The rules for a state that several processes save together."""

    def __getattr__(self, name: str) -> Any:
        return globals()[name]

    @staticmethod
    def adapt(value: Any) -> Container | Pieces | Content:
        part = getattr(adapters.owner(value), "part", None)
        found = None if part is None else part(value)
        return adapt(value) if found is None else found


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
    if isinstance(value, (bool, int, float, complex, str, bytes)):
        base = next(
            t
            for t in (bool, int, float, complex, str, bytes)
            if isinstance(value, t)
        )
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


def _dataclass_container(value: Any) -> Container:
    names = [field.name for field in dataclasses.fields(value)]

    def rebuild(children: list[Any]) -> Any:
        # Frozen ones, and fields that __init__ does not take, come through.
        made = object.__new__(type(value))
        for name, child in zip(names, children):
            object.__setattr__(made, name, child)
        return made

    return Container(
        OBJECT,
        type_name(value),
        [(ATTRIBUTE, name, getattr(value, name)) for name in names],
        rebuild,
    )
