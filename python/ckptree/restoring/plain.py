# SPDX-License-Identifier: Apache-2.0
"""A step as dicts, lists and NumPy's arrays, without a template.

Nothing that the store says is executed or imported: objects come back as dicts
of their fields, named tuples as tuples with these names.
"""

from __future__ import annotations

import functools
from collections import OrderedDict
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Callable, Mapping, Sequence

from ckptree import adapters
from ckptree.arrays import values
from ckptree.adapters.protocol import (
    ARRAY_MARK,
    PARTS,
    TENSOR_MARK,
    Request,
)
from ckptree.errors import UnsupportedError
from ckptree.garbage import without_collection
from ckptree.restoring.places import Places

if TYPE_CHECKING:
    from ckptree import _engine
    from ckptree.adapters.protocol import Loader
    from ckptree.progress import Meter

    Whole = Callable[[str, dict[str, Any]], Any]

_DICT_KEY, _INDEX, _ATTRIBUTE, _FLATTENED = range(1, 5)

# The item that a state lies under whose root names none; as the extension.
ROOT_ITEM = "state"
ROOT_MARK = "root"


def is_root(tag: str) -> bool:
    """Whether the node of that name, which has that tag, is such an item."""
    return tag.split(" ")[0] == ROOT_MARK


class _Node:
    __slots__ = ("children", "info", "value")

    def __init__(self) -> None:
        self.info: _engine.LeafInfo | None = None
        self.value: Any = None
        # Kind and key of a part of the path; a dict keeps them in order.
        self.children: dict[tuple[int, Any], _Node] = {}


def restore(
    step: _engine.Step,
    arrays: str = "numpy",
    places: dict[str, Any] | None = None,
    only: set[str] | None = None,
    meter: Meter | None = None,
    whole: Whole | None = None,
) -> Any:
    """The whole state. `arrays`: of which framework they are; `places`: the
    options of restore() that say where they go; `only`: of these leaves;
    `whole`: makes leaves of their parts, as InParts.whole() does, which it is
    where none is given."""
    loader, place = adapters.loader_for(arrays, places or {})
    infos = step.leaves("")
    if only is not None:
        infos = [info for info in infos if info.name in only]
    leaves = [info for info in infos if info.is_leaf]
    names = {info.name for info in leaves}
    # A leaf of an item that is left out may be shared with one that is not.
    ties = {info.tie_to for info in infos if info.tie_to is not None}
    leaves += [step.find(name) for name in sorted(ties - names)]
    step = values.reading(step, leaves, meter)
    if loader is None:
        read = values.read(step, leaves)
    else:
        read = _load(step, leaves, loader, place)
    if whole is None:
        whole = functools.partial(adapters.whole, loader)
    with without_collection():
        by_name = {info.name: value for info, value in zip(leaves, read)}
        root = _tree(infos, by_name, 0)
        state = {
            key: _build(child, whole)
            for (_, key), child in root.children.items()
        }
    if list(root.children) == [(_DICT_KEY, ROOT_ITEM)]:
        mark = root.children[(_DICT_KEY, ROOT_ITEM)].info
        if mark is not None and is_root(mark.tag):
            state = state[ROOT_ITEM]
    return adapters.completed(loader, state)


def subtree(
    infos: Sequence[_engine.LeafInfo],
    values_by_name: Mapping[str, Any],
    depth: int,
    whole: Whole,
) -> Any:
    """What lies at one place of a step. `infos`: of that place and all below
    it; `values_by_name`: of the leaves, and of what ties lead to; `depth`: how
    many parts the path of the place has."""
    return _build(_tree(infos, values_by_name, depth), whole)


def _tree(
    infos: Sequence[_engine.LeafInfo], by_name: Mapping[str, Any], depth: int
) -> _Node:
    root = _Node()
    for info in infos:
        node = root
        for part in info.path[depth:]:
            child = node.children.get(part)
            if child is None:
                child = node.children[part] = _Node()
            node = child
        node.info = info
        if info.is_leaf or info.tie_to is not None:
            node.value = by_name[info.tie_to or info.name]
    return root


def _load(
    step: _engine.Step,
    infos: Sequence[_engine.LeafInfo],
    loader: Loader,
    place: Any,
) -> list[Any]:
    """The values of `infos`, those arrays that the loader takes as its own."""
    places = Places(loader, place)
    places.check(info.name for info in infos)
    taken = [loader.takes(info) for info in infos]
    requests = [
        Request(info, place=places.of(info.name))
        for info, takes in zip(infos, taken)
        if takes
    ]
    loaded = iter(loader.load(step, requests)[0])
    others = iter(
        values.read(step, [i for i, takes in zip(infos, taken) if not takes])
    )
    return [next(loaded if takes else others) for takes in taken]


def _build(node: _Node, whole: Whole) -> Any:
    info = node.info
    if info is not None and (info.is_leaf or info.tie_to is not None):
        return node.value
    kind = info.kind if info is not None else _implied(node)
    if kind == "none":
        return None
    children = {
        key: _build(child, whole) for (_, key), child in node.children.items()
    }
    # What a framework makes whole is kept as an object of parts, or custom.
    if info is not None and (
        info.tag.startswith(PARTS) or (kind == "custom" and info.tag)
    ):
        try:
            made = whole(info.tag.removeprefix(PARTS), children)
        except UnsupportedError as error:
            raise UnsupportedError(f"{info.name}: {error}") from error
        except ValueError as error:
            raise ValueError(f"{info.name}: {error}") from error
        if made is not None:
            return made
        if info.tag in (ARRAY_MARK, TENSOR_MARK) and len(children) == 1:
            return next(iter(children.values()))
    if kind in ("list", "tuple", "custom") and _is_sequence(node):
        elements = [children[i] for i in range(len(children))]
        return tuple(elements) if kind == "tuple" else elements
    if kind == "tuple" and not children:
        return ()
    if kind == "list" and not children:
        return []
    if kind == "namedtuple" and info is not None:
        return named_tuple(info.tag, children)
    return children


def _implied(node: _Node) -> str:
    """The kind of a node that is not listed."""
    kinds = {kind for kind, _ in node.children}
    if kinds == {_INDEX}:
        return "list"
    return "custom" if kinds == {_FLATTENED} else "dict"


def _is_sequence(node: _Node) -> bool:
    """True where the children have the places 0, 1, ..."""
    return bool(node.children) and all(
        kind in (_INDEX, _FLATTENED) and key == i
        for i, (kind, key) in enumerate(sorted(node.children))
    )


class _Fields(tuple[Any, ...]):
    """What the classes of named_tuple() have in common."""

    __slots__ = ()
    _fields: tuple[str, ...] = ()
    _field_defaults: dict[str, Any] = {}

    def __new__(cls, *elements: Any) -> _Fields:
        if len(elements) != len(cls._fields):
            raise TypeError(
                f"{cls.__name__} has {len(cls._fields)} fields, not "
                f"{len(elements)}"
            )
        return super().__new__(cls, elements)

    @classmethod
    def _make(cls, elements: Any) -> _Fields:
        return cls(*elements)

    def _asdict(self) -> dict[str, Any]:
        return dict(zip(self._fields, self))

    def _replace(self, **others: Any) -> _Fields:
        made = self._make(others.pop(k, v) for k, v in self._asdict().items())
        if others:
            raise ValueError(
                f"{type(self).__name__} has no field {next(iter(others))!r}"
            )
        return made

    def __repr__(self) -> str:
        shown = ", ".join(f"{k}={v!r}" for k, v in self._asdict().items())
        return f"{type(self).__name__}({shown})"

    def __reduce__(self) -> Any:
        """The class is in no module: it is made again by its names."""
        tag = f"{type(self).__name__}({','.join(self._fields)})"
        return named_tuple, (tag, self._asdict())


# By tag: equal states have the same classes, which JAX compares. Bounded.
_CLASSES: OrderedDict[str, type[_Fields]] = OrderedDict()
_MAX_CLASSES = 1024


def named_tuple(tag: str, children: dict[str, Any]) -> Any:
    """A named tuple for "Name(a,b)"; the dict where that is no such thing.

    collections.namedtuple would compile the names.

    >>> named_tuple("Point(x,y)", {"x": 1, "y": 2})
    Point(x=1, y=2)
    """
    tag = tag.removeprefix(ROOT_MARK + " ")
    name, bracket, rest = tag.partition("(")
    fields = [f for f in rest.removesuffix(")").split(",") if f]
    plain = all(f.isidentifier() and not f.startswith("_") for f in fields)
    if not (bracket and name.isidentifier() and plain):
        return children
    if len(set(fields)) != len(fields) or set(fields) != set(children):
        return children
    made = _CLASSES.get(tag)
    if made is None:
        body: dict[str, Any] = {
            field: property(itemgetter(i)) for i, field in enumerate(fields)
        }
        body |= {"__slots__": (), "_fields": tuple(fields)}
        made = type(name, (_Fields,), body)
        _CLASSES[tag] = made
        if len(_CLASSES) > _MAX_CLASSES:
            _CLASSES.popitem(last=False)
    return made(*(children[field] for field in fields))
