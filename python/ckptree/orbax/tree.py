# SPDX-License-Identifier: Apache-2.0
"""Trees as dicts of their leaves, and back."""

from __future__ import annotations

import sys
from typing import Any, Callable

from ckptree import _engine, _rules
from ckptree.orbax._keys import Keys, keys_of
from ckptree.orbax._tree_save import Leaves, is_empty, map_leaves
from ckptree.orbax.metadata import Metadata, tree_of

JsonType = Any
Leaf = Any
PyTree = Any


def to_flat_dict(
    tree: Any,
    sep: str | None = None,
    keep_empty_nodes: bool = False,
    is_leaf: Callable[[Any], bool] | None = None,
) -> dict[Any, Any]:
    """Leaves by their keys, tuples of str, or joined by `sep`. Metadata of
    leaves are leaves, and that of a tree is its tree.

    >>> tree = {"a": {"b": [1, 2]}, "c": ()}
    >>> to_flat_dict(tree, sep="/", keep_empty_nodes=True)
    {'a/b/0': 1, 'a/b/1': 2, 'c': ()}
    """
    flat: dict[Keys, Any] = {}
    tree = tree_of(tree)

    def on_node(name: str, kind: str, empty: bool, tag: str) -> None:
        if keep_empty_nodes and empty and keys_of(name):
            flat[keys_of(name)] = _at(tree, keys_of(name))

    def on_leaf(name: str, leaf: Any) -> Any:
        flat[keys_of(name)] = leaf
        return leaf

    def stops_at(value: Any) -> bool:
        if isinstance(value, Metadata):
            return True
        return is_leaf is not None and is_leaf(value)

    stops = Leaves(stops_at)
    _engine.map_state({"item": tree}, stops, on_node, on_leaf)
    if sep is None:
        return dict(flat)
    return {sep.join(keys): leaf for keys, leaf in flat.items()}


def from_flat_dict(
    flat_dict: dict[Any, Any],
    target: Any = None,
    sep: str | None = None,
    *,
    inplace: bool = False,
) -> Any:
    """What to_flat_dict() made: nested dicts, or the containers of `target`.
    KeyError: a leaf of `target` is not there.

    >>> from_flat_dict({"a/b": 1, "a/c": 2}, sep="/")
    {'a': {'b': 1, 'c': 2}}
    """
    by_keys = {
        _split(key, sep): value
        for key, value in flat_dict.items()
    }
    if target is not None:
        return map_leaves(target, lambda name, leaf: by_keys[keys_of(name)])
    if () in by_keys:
        if len(by_keys) > 1:
            raise ValueError("one leaf and a tree are not one tree")
        return by_keys[()]
    made: dict[Any, Any] = {}
    for keys, value in by_keys.items():
        node = made
        for key in keys[:-1]:
            node = node.setdefault(key, {})
        node[keys[-1]] = value
    return made


def _split(key: Any, sep: str | None) -> Keys:
    """A tree that is one leaf has it under the empty key."""
    if sep is None:
        return tuple(key)
    return tuple(key.split(sep)) if key else ()


def str_keypath(keypath: tuple[Any, ...]) -> tuple[str, ...]:
    """The keys of a path of JAX, as text.

    >>> import jax
    >>> [(path, _)] = jax.tree_util.tree_leaves_with_path({"a": [1]})
    >>> str_keypath(path)
    ('a', '0')
    """
    found = []
    for part in keypath:
        for name in ("key", "idx", "name"):
            if hasattr(part, name):
                found.append(str(getattr(part, name)))
                break
        else:
            raise ValueError(f"{part!r} is no key of a path of JAX")
    return tuple(found)


def is_flat_dict(tree: Any) -> bool:
    """Whether it is a dict of leaves.

    >>> is_flat_dict({"a": 1}), is_flat_dict({"a": {"b": 1}})
    (True, False)
    """
    return isinstance(tree, dict) and not any(
        isinstance(value, (dict, list, tuple)) for value in tree.values()
    )


def to_shape_dtype_struct(
    arr: Any,
    dtype: Any = None,
    scalar_dtype: Any = None,
    support_format: bool = False,
) -> Any:
    """What describes an array, with its sharding; a number as `scalar_dtype`
    makes of it.

    >>> import numpy as np
    >>> to_shape_dtype_struct(np.zeros((2, 3), "f4"))
    ShapeDtypeStruct(shape=(2, 3), dtype=float32)
    """
    if isinstance(arr, (bool, int, float)):
        return arr if scalar_dtype is None else scalar_dtype(arr)
    import jax

    sharding: Any = getattr(arr, "sharding", None)
    if hasattr(sharding, "to_jax_sharding"):
        sharding = sharding.to_jax_sharding()
    return jax.ShapeDtypeStruct(
        arr.shape, dtype if dtype is not None else arr.dtype, sharding=sharding
    )


def serialize_tree(tree: Any, keep_empty_nodes: bool = False) -> Any:
    """The tree as dicts and lists: sequences as lists, everything else as dicts
    of str. Empty containers go, unless they are kept, as they are.

    >>> serialize_tree({"a": (1, {2: 3}), "b": {}}, keep_empty_nodes=True)
    {'a': [1, {'2': 3}], 'b': {}}
    """
    # The names with marks tell lists from dicts.
    nodes: dict[Keys, str] = {}
    leaves: dict[Keys, Any] = {}

    def on_node(name: str, kind: str, empty: bool, tag: str) -> None:
        nodes[keys_of(name)] = kind
        if empty and keep_empty_nodes:
            leaves[keys_of(name)] = _at(tree, keys_of(name))

    def on_leaf(name: str, leaf: Any) -> Any:
        leaves[keys_of(name)] = leaf
        return leaf

    map_leaves(tree, on_leaf, on_node=on_node)
    if () in leaves:
        return leaves[()]
    return _nested(leaves, nodes, ())


def _at(tree: Any, keys: Keys) -> Any:
    """What has these keys; None where only its own library could say."""
    for key in keys:
        if isinstance(tree, dict):
            tree = next((v for k, v in tree.items() if str(k) == key), None)
        elif isinstance(tree, (list, tuple)) and key.isdecimal():
            tree = tree[int(key)]
        else:
            tree = getattr(tree, key, None)
    return tree


def _nested(leaves: dict[Keys, Any], nodes: dict[Keys, str], at: Keys) -> Any:
    size = len(at)
    below: dict[str, dict[Keys, Any]] = {}
    for keys, leaf in leaves.items():
        below.setdefault(keys[size], {})[keys] = leaf
    made = {}
    for key, rest in below.items():
        here = (*at, key)
        made[key] = rest[here] if here in rest else _nested(rest, nodes, here)
    if nodes.get(at) in ("list", "tuple"):
        return list(made.values())
    return made


def deserialize_tree(
    serialized: Any, target: Any, keep_empty_nodes: bool = False
) -> Any:
    """What serialize_tree() made, in the containers of `target`, whose leaves
    it must have: KeyError. With `keep_empty_nodes` None and empty containers of
    `target` are such leaves, too; without they stay. The arguments may be the
    other way round, as Flax's guide has them, where only one of them is dicts
    and lists."""
    if not _is_serialized(serialized) and _is_serialized(target):
        serialized, target = target, serialized
    flat = to_flat_dict(serialized, keep_empty_nodes=keep_empty_nodes)
    missing: list[str] = []
    if keep_empty_nodes:
        target = _marked(target)

    def on_leaf(name: str, leaf: Any) -> Any:
        keys = keys_of(name)
        if keys in flat:
            return flat[keys]
        if leaf is _EMPTY and _has(serialized, keys):
            return _at(serialized, keys)
        missing.append("/".join(keys))
        return leaf

    made = map_leaves(target, on_leaf)
    if missing:
        raise KeyError(f"not in what was serialized: {', '.join(missing)}")
    return made


# Stands for None and empty containers of a target.
_EMPTY = object()


def _marked(tree: Any) -> Any:
    """With _EMPTY in their place."""
    if "jax" in sys.modules:
        import jax

        return jax.tree.map(
            lambda leaf: _EMPTY if is_empty(leaf) else leaf,
            tree,
            is_leaf=is_empty,
        )
    if is_empty(tree):
        return _EMPTY
    if type(tree) is dict:
        return {key: _marked(value) for key, value in tree.items()}
    if type(tree) in (list, tuple):
        return type(tree)(map(_marked, tree))
    return tree


def _has(tree: Any, keys: Keys) -> bool:
    """Of what was serialized: dicts and lists."""
    for key in keys:
        if isinstance(tree, list) and key.isdecimal() and int(key) < len(tree):
            tree = tree[int(key)]
        elif isinstance(tree, dict) and key in tree:
            tree = tree[key]
        else:
            return False
    return True


def _is_serialized(tree: Any) -> bool:
    if isinstance(tree, dict):
        return all(
            isinstance(k, str) and _is_serialized(v) for k, v in tree.items()
        )
    if type(tree) is list:
        return all(map(_is_serialized, tree))
    return not isinstance(tree, tuple) and _rules.container(tree) is None
