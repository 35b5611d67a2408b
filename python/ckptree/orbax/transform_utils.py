# SPDX-License-Identifier: Apache-2.0
"""Trees changed while they are restored: leaves renamed, computed, or kept."""

from __future__ import annotations

import dataclasses
import re
from typing import Any, Callable

from ckptree.orbax import _wanted
from ckptree.orbax._keys import Keys, keys_of
from ckptree.orbax._tree_restore import args_by_keys
from ckptree.orbax._tree_save import is_empty, map_leaves
from ckptree.orbax.tree import from_flat_dict, to_flat_dict
from ckptree.orbax.type_handlers import RestoreArgs, is_of_orbax

_SEP = "/"


@dataclasses.dataclass
class Transform:
    """Where a leaf comes from. Stands in a tree of transformations, whose keys,
    joined by '/', are regular expressions for those of the new tree.

    `original_key`: in the original tree, with groups of the expression as \\1;
    None: the same. `use_fallback`: the new tree's value stays. `value_fn`: of
    the original value. `multi_value_fn`: of the key and the original tree, and
    in a restore of the key's RestoreArgs. ValueError: two that exclude each
    other.
    """

    original_key: str | tuple[str, ...] | None = None
    use_fallback: bool = False
    value_fn: Callable[[Any], Any] | None = None
    multi_value_fn: Callable[..., Any] | None = None

    def __post_init__(self) -> None:
        if self.value_fn is not None and self.multi_value_fn is not None:
            raise ValueError("value_fn and multi_value_fn: one of them")
        if self.multi_value_fn is not None and self.original_key is not None:
            raise ValueError("original_key and multi_value_fn: one of them")
        others = (self.original_key, self.value_fn, self.multi_value_fn)
        if self.use_fallback and any(one is not None for one in others):
            raise ValueError("use_fallback stands alone")


@dataclasses.dataclass
class RestoreTransform(Transform):
    """`multi_value_fn_input_args`: RestoreArgs of what the function uses."""

    multi_value_fn_input_args: Any = None


def apply_transformations(
    original_tree: Any,
    transformations: Any,
    new_tree: Any,
    default_to_original: bool | None = True,
) -> Any:
    """`new_tree` with leaves of `original_tree`, as `transformations` say.
    Of several that match a key the last one counts, in the order of their keys.
    Leaves of which they say nothing are the original's, where it has them, or
    with `default_to_original` False the new tree's. ValueError: a
    transformation names what the original lacks.

    >>> import ckptree.orbax as ocp
    >>> ocp.apply_transformations(
    ...     {"a": 1, "b": 2},
    ...     {"x": ocp.Transform(original_key="a", value_fn=lambda v: v * 10)},
    ...     {"x": 0, "b": 0})
    {'x': 10, 'b': 2}
    """
    return _transformed(
        original_tree,
        transformations,
        new_tree,
        default_to_original,
        lambda function, keys: function(_SEP.join(keys), original_tree),
    )


def restored(
    original_tree: Any,
    transformations: Any,
    new_tree: Any,
    default_to_original: bool | None,
    restore_args: Any,
) -> Any:
    """As apply_transformations(), of a restore: functions of several values
    take the RestoreArgs of their key, too."""
    asked = {} if restore_args is None else args_by_keys(restore_args)

    def call(function: Callable[..., Any], keys: Keys) -> Any:
        args = asked.get(keys)
        return function(
            _SEP.join(keys),
            original_tree,
            RestoreArgs() if args is None else args,
        )

    return _transformed(
        original_tree, transformations, new_tree, default_to_original, call
    )


def _transformed(
    original_tree: Any,
    transformations: Any,
    new_tree: Any,
    default_to_original: bool | None,
    call: Callable[[Callable[..., Any], Keys], Any],
) -> Any:
    original = _flat(original_tree)
    rules = _flat(transformations, Transform)
    for key, rule in rules.items():
        if not isinstance(rule, Transform) and not is_of_orbax(
            rule, "Transform"
        ):
            raise ValueError(f"transformations: {key} is no Transform")
    # As JAX goes through dicts.
    in_order = sorted(rules.items(), key=lambda one: one[0].split(_SEP))

    def value(name: str, leaf: Any) -> Any:
        keys = keys_of(name)
        key = _SEP.join(keys)
        found, made = False, leaf
        for pattern, rule in in_order:
            match = re.fullmatch(pattern, key)
            if match is None:
                continue
            found = True
            if rule.multi_value_fn is not None:
                made = call(rule.multi_value_fn, keys)
            elif not rule.use_fallback:
                made = _applied(rule, match, key)
            elif not default_to_original:
                made = _of_original(key)
        if not found and default_to_original and key in original:
            return original[key]
        return made

    def _applied(rule: Transform, match: re.Match[str], key: str) -> Any:
        source = key
        if rule.original_key is not None:
            text = rule.original_key
            source = match.expand(
                text if isinstance(text, str) else _SEP.join(text)
            )
        there = _of_original(source)
        return there if rule.value_fn is None else rule.value_fn(there)

    def _of_original(source: str) -> Any:
        if source not in original:
            raise ValueError(
                f'Transformation key "{source}" not found in origin tree; it '
                "has "
                f"{', '.join(list(original)[:10])}"
            )
        return original[source]

    return map_leaves(new_tree, value, leaves=_wanted.ABSTRACT)


def untransformed(
    original: Any, transformations: Any, new_tree: Any
) -> list[str]:
    """Keys of `new_tree` that neither the original nor a transformation has."""
    there = _flat(original)
    patterns = list(_flat(transformations, Transform))
    return [
        key
        for key in _flat(new_tree, *_wanted.ABSTRACT)
        if key not in there and not any(re.fullmatch(p, key) for p in patterns)
    ]


def _flat(tree: Any, *leaves: type) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if is_empty(tree):
        return found
    map_leaves(
        tree,
        lambda name, leaf: found.setdefault(_SEP.join(keys_of(name)), leaf),
        leaves=leaves,
    )
    return found


def converted(tree: Any, restore_args: Any) -> Any:
    """Leaves as RestoreArgs in a tree like it ask for."""
    asked = args_by_keys(restore_args)

    def value(name: str, leaf: Any) -> Any:
        args = asked.get(keys_of(name))
        if args is None:
            return leaf
        return _wanted.converted(name, leaf, args)

    return map_leaves(tree, value)


def merge_trees(*trees: Any, target: Any = None) -> Any:
    """One tree with the leaves of all, those of the last where several have
    one. None and empty containers are no leaves.

    >>> merge_trees({"a": 1, "b": {"c": 2}}, {"b": {"d": 3}})
    {'a': 1, 'b': {'c': 2, 'd': 3}}
    """
    flat: dict[Any, Any] = {}
    for tree in trees:
        flat |= to_flat_dict(tree)
    return from_flat_dict(flat, target)


def intersect_trees(*trees: Any, target: Any = None) -> Any:
    """One tree with the leaves that all have, of the last.

    >>> intersect_trees({"a": 1, "b": 2}, {"b": 3, "c": 4})
    {'b': 3}
    """
    if not trees:
        return {} if target is None else target
    flats = [to_flat_dict(tree) for tree in trees]
    common = set.intersection(*(set(flat) for flat in flats))
    return from_flat_dict(
        {k: v for k, v in flats[-1].items() if k in common}, target
    )
