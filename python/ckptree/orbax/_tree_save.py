# SPDX-License-Identifier: Apache-2.0
"""A tree as an item: its leaves checked and converted, and what restoring needs
to know of those of JAX."""

from __future__ import annotations

import sys
from collections import Counter
from typing import TYPE_CHECKING, Any, Callable, Literal, Mapping

import numpy as np

from ckptree import _engine, _rules
from ckptree.adapters.protocol import Container
from ckptree.orbax import _processes
from ckptree.orbax._items import Item
from ckptree.orbax._option_states import tell
from ckptree.orbax.type_handlers import SaveArgs, as_save_args, is_of_orbax

if TYPE_CHECKING:
    Check = Callable[[str, Any], None]

# What map_state() wants of a root.
ROOT = "item"


class Leaves:
    """The rules of all states, under which some containers are leaves."""

    def __init__(self, is_leaf: Callable[[Any], bool]) -> None:
        self._is_leaf = is_leaf

    def container(self, value: Any) -> Container | Literal[False] | None:
        return None if self._is_leaf(value) else _rules.container(value)

    def __getattr__(self, name: str) -> Any:
        return getattr(_rules, name)


def leaves_of_orbax(leaves: tuple[type, ...]) -> Leaves:
    """Under which objects of these types, and of Orbax's own, are leaves."""
    return Leaves(lambda value: isinstance(value, leaves) or is_of_orbax(value))


def map_leaves(
    tree: Any,
    on_leaf: Callable[[str, Any], Any],
    *,
    leaves: tuple[type, ...] = (),
    on_node: Callable[[str, str, bool, str], None] | None = None,
) -> Any:
    """`tree` with other leaves, by their names under the root. Where `leaves`
    are told, which would be containers, objects of Orbax's own are some,
    too."""
    made = _engine.map_state(
        {ROOT: tree},
        leaves_of_orbax(leaves) if leaves else _rules,
        on_node or (lambda name, kind, empty, tag: None),
        on_leaf,
    )
    return made[ROOT]


def is_empty(tree: Any) -> bool:
    """No leaves, and nothing but an empty container or None."""
    return tree is None or (isinstance(tree, (dict, list, tuple)) and not tree)


def save(tree: Any, save_args: Any, check: Check | None = None) -> Item:
    """`tree` as an item. `save_args`: a tree of SaveArgs like it, or None.
    `check` raises for a leaf that is not to be saved. ValueError: an empty
    tree, what is no leaf, by its name."""
    if is_empty(tree):
        raise ValueError("Found empty item: there is nothing to save in it")
    conversions = _conversions(save_args)
    of_jax = _OfJax()

    def on_leaf(name: str, leaf: Any) -> Any:
        if check is not None:
            check(name, leaf)
        dtype = conversions.pop(name, None)
        leaf = leaf if dtype is None else _converted(leaf, dtype)
        of_jax.see(name.removeprefix(ROOT), leaf)
        return leaf

    try:
        made = map_leaves(tree, on_leaf)
    except TypeError as error:
        raise ValueError(str(error)) from error
    if conversions:
        lacking = next(iter(conversions)).removeprefix(ROOT + "/")
        raise ValueError(f"save_args has {lacking}, which the item lacks")
    if save_args is None:
        made = tree  # The same objects: those that did not change are known.
    return Item(made, of_jax.about())


def copied(items: Mapping[str, Item]) -> dict[str, Item]:
    """The same with arrays of their own: the user's may change."""
    return {
        name: item._replace(state=with_own_arrays(item.state))
        if item.later is None and item.state is not None
        else item
        for name, item in items.items()
    }


def with_own_arrays(state: Any) -> Any:
    """A state that does not change with the arrays it is made of."""
    jax = sys.modules.get("jax")
    torch = sys.modules.get("torch")

    def on_leaf(name: str, leaf: Any) -> Any:
        if isinstance(leaf, np.ndarray):
            return leaf.copy()
        if torch is not None and isinstance(leaf, torch.Tensor):
            return leaf.detach().clone()
        if jax is not None and isinstance(leaf, jax.Array):
            return leaf.copy()  # The other one may be donated.
        return leaf

    return map_leaves(state, on_leaf)


def _conversions(save_args: Any) -> dict[str, Any]:
    """The element types that are asked for, by name."""
    found: dict[str, Any] = {}
    if save_args is None:
        return found

    def on_leaf(name: str, leaf: Any) -> Any:
        args = as_save_args(leaf)
        if args is None:
            raise ValueError(f"save_args: {name} is no SaveArgs: {leaf!r}")
        tell("SaveArgs", vars(leaf), SaveArgs)
        if args.dtype is not None:
            found[name] = np.dtype(args.dtype)
        return leaf

    map_leaves(save_args, on_leaf, leaves=(SaveArgs,))
    return found


def _converted(leaf: Any, dtype: Any) -> Any:
    if isinstance(leaf, (bool, int, float)) and not isinstance(
        leaf, np.generic
    ):
        # Of the type only the value is left, as in Orbax: numbers stay such.
        return np.asarray(leaf).astype(dtype).item()
    if isinstance(leaf, np.generic):
        return leaf.astype(dtype)
    if hasattr(leaf, "astype"):
        return leaf.astype(dtype)
    return leaf


class _OfJax:
    """Which leaves are of JAX, and how they are placed. What most have is said
    once."""

    def __init__(self) -> None:
        self._names: list[str] = []
        self._others: list[str] = []
        self._placed: dict[str, int] = {}
        self._placements: list[Any] = []
        self._known: dict[Any, int] = {}

    def see(self, name: str, leaf: Any) -> None:
        if isinstance(leaf, (np.ndarray, np.generic)):
            self._others.append(name)
            return
        jax = sys.modules.get("jax")
        if jax is None or not isinstance(leaf, jax.Array):
            return
        self._names.append(name)
        sharding = leaf.sharding
        number = self._known.get(sharding)
        if number is None:
            number = self._number(sharding)
            self._known[sharding] = number
        self._placed[name] = number

    def _number(self, sharding: Any) -> int:
        from ckptree.orbax._sharding import to_plain

        plain = None
        # On the devices of one process others have the same on theirs.
        if _processes.is_alone() or not sharding.is_fully_addressable:
            plain = to_plain(sharding)
        if plain not in self._placements:
            self._placements.append(plain)
        return self._placements.index(plain)

    def about(self) -> dict[str, Any]:
        if not self._names:
            return {}
        about: dict[str, Any] = {}
        # Of arrays: those of JAX, or all but those of NumPy.
        if len(self._others) < len(self._names):
            about["not_of_jax"] = self._others
        else:
            about["of_jax"] = self._names
        if any(plain is not None for plain in self._placements):
            ((most, _),) = Counter(self._placed.values()).most_common(1)
            about["placements"] = self._placements
            about["placed"] = {
                "most": most,
                "others": {
                    name: number
                    for name, number in self._placed.items()
                    if number != most
                },
            }
        return about
