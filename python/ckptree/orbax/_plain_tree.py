# SPDX-License-Identifier: Apache-2.0
"""A tree without a template, as Orbax gives it: tuples and other sequences as
lists, named tuples and objects as dicts, empty ones of these as None."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ckptree import _engine

_DICT_KEY, _INDEX, _ATTRIBUTE, _FLATTENED = range(1, 5)
_EMPTY: dict[str, Any] = {"dict": dict, "list": list, "tuple": list}


class _Node:
    def __init__(self) -> None:
        self.kind = ""
        self.value: Any = None
        self.is_value = False
        # Kind and key of a part of the path; a dict keeps them in order.
        self.children: dict[tuple[int, Any], _Node] = {}


def build(infos: list[_engine.LeafInfo], values: dict[str, Any]) -> Any:
    """The tree of all that is listed under an item. `values`: by the names of
    leaves and ties."""
    root = _Node()
    for info in infos:
        node = root
        for part in info.path[1:]:
            node = node.children.setdefault(part, _Node())
        node.kind = info.kind
        if info.name in values:
            node.value = values[info.name]
            node.is_value = True
    return _built(root)


def _built(node: _Node) -> Any:
    if node.is_value:
        return node.value
    if not node.children:
        return _EMPTY.get(node.kind, lambda: None)()
    kinds = {kind for kind, _ in node.children}
    made = {key: _built(child) for (_, key), child in node.children.items()}
    if kinds == {_INDEX} and sorted(made) == list(range(len(made))):
        return [made[i] for i in range(len(made))]
    if kinds == {_FLATTENED}:
        return {str(key): value for key, value in made.items()}
    return made
