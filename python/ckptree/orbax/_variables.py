# SPDX-License-Identifier: Apache-2.0
"""Variables of NNX. Orbax saves each as a dict with `value`, a store saves the
value itself, and notes where the states were: so that an export can give Orbax
what Orbax would have written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ckptree.adapters import variables
from ckptree.orbax._keys import Keys, keys_of

if TYPE_CHECKING:
    from ckptree.orbax._items import StoredItem

# The key that Orbax has for what is in a variable.
_VALUE = "value"


class Variables(NamedTuple):
    """Where the variables of a tree are, by the keys below its item."""

    states: set[Keys]
    plain: set[Keys]  # Leaves of these that are no variables.


def variables_of(item: StoredItem) -> Variables:
    """Those of an item, as its step says it."""
    found = Variables(set(), set())
    line = item.step.metadata.lineage.get(variables.LINE, "")
    for name, others in variables.from_text(line).items():
        # With a root above, so that the first key is that of the item; of a
        # state that is the whole step each item is a part.
        state = keys_of(f"/{name}") if name else ()
        if state[:1] in ((), (item.name,)):
            found.states.add(state[1:])
        leaves = [(*state, *keys) for keys in others]
        found.plain.update(k[1:] for k in leaves if k[0] == item.name)
    return found


def as_orbax_saves(tree: Any, known: Variables) -> Any:
    """A tree of dicts and lists, as an item holds it, with a dict for each
    variable.

    >>> known = Variables({("m",)}, set())
    >>> as_orbax_saves({"m": {"w": 1}, "lr": 2}, known)
    {'m': {'w': {'value': 1}}, 'lr': 2}
    """

    def built(part: Any, keys: Keys, inside: bool) -> Any:
        inside = inside or keys in known.states
        if isinstance(part, dict):
            return {
                key: built(value, (*keys, str(key)), inside)
                for key, value in part.items()
            }
        if isinstance(part, list):
            return [
                built(value, (*keys, str(i)), inside)
                for i, value in enumerate(part)
            ]
        return {_VALUE: part} if inside and keys not in known.plain else part

    return built(tree, (), False) if known.states else tree
