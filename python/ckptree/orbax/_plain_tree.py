# SPDX-License-Identifier: Apache-2.0
"""A tree without a template, as Orbax gives it: tuples and other sequences as
lists, named tuples and objects as dicts, empty ones of these as None. A
FrozenDict is a dict, also an empty one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Sequence

if TYPE_CHECKING:
    from ckptree import _engine

_DICT_KEY, _INDEX, _ATTRIBUTE, _FLATTENED = range(1, 5)
_EMPTY: dict[str, Any] = {"dict": dict, "list": list, "tuple": list}
# Nodes of JAX that are dicts: where they are empty only their tag says so.
_DICTS = ("flax.core.frozen_dict.FrozenDict",)


class _Node:
    __slots__ = ("children", "kind")

    def __init__(self) -> None:
        self.kind = ""
        # By kind and key of a part of the path, nodes and values; a dict keeps
        # them in order.
        self.children: dict[tuple[int, Any], Any] = {}


def build(infos: list[_engine.LeafInfo], values: dict[str, Any]) -> Any:
    """The tree of all that is listed under an item. `values`: by the names of
    leaves and ties."""
    root = _Node()
    for info in infos:
        name = info.name
        parts = info.path[1:]
        if name in values:
            if not parts:
                return values[name]
            above = _node(root, parts[:-1])
            above.children[parts[-1]] = values[name]
        else:
            kind = "dict" if info.tag in _DICTS else info.kind
            _node(root, parts).kind = kind
    return _built(root)


def _node(root: _Node, parts: Sequence[tuple[int, Any]]) -> _Node:
    node = root
    for part in parts:
        child = node.children.get(part)
        if child is None:
            child = node.children[part] = _Node()
        node = child
    return node


def _built(node: Any) -> Any:
    if type(node) is not _Node:
        return node
    if not node.children:
        return _EMPTY.get(node.kind, lambda: None)()
    kinds = {kind for kind, _ in node.children}
    made = {key: _built(child) for (_, key), child in node.children.items()}
    if kinds == {_INDEX} and sorted(made) == list(range(len(made))):
        return [made[i] for i in range(len(made))]
    if kinds == {_FLATTENED}:
        return {str(key): value for key, value in made.items()}
    return made
