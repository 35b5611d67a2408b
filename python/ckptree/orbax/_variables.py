# SPDX-License-Identifier: Apache-2.0
"""Variables of NNX. Orbax saves each as a dict with `value`, a store saves the
value itself. What an item says of its variables, so that an export can give
Orbax what Orbax would have written."""

from __future__ import annotations

import sys
from typing import Any, Literal

from ckptree import _rules
from ckptree.adapters.protocol import Container
from ckptree.orbax._keys import Keys, keys_of

# The key that Orbax has for what is in a variable.
_VALUE = "value"


class Noticing:
    """The rules of all states, which notice whether something of NNX is
    there."""

    def __init__(self) -> None:
        self.found = False

    def container(self, value: Any) -> Container | Literal[False] | None:
        made = _rules.container(value)
        if made is not None and not self.found:
            self.found = bool(with_variables()) and isinstance(
                value, with_variables()
            )
        return made

    def __getattr__(self, name: str) -> Any:
        return getattr(_rules, name)


def with_variables() -> tuple[type, ...]:
    """The types of states, modules and optimizers; none where NNX has not been
    imported."""
    if "flax.nnx" not in sys.modules:
        return ()
    from ckptree.adapters.flax import WITH_VARIABLES

    return WITH_VARIABLES


class Variables:
    """Where the variables of a tree are, by the keys below its item."""

    def __init__(self) -> None:
        self._states: list[Keys] = []
        self._plain: list[Keys] = []  # Leaves of these that are no variables.

    def see(self, name: str, leaf: Any) -> None:
        """A state, module or optimizer, as with_variables() has them."""
        if not isinstance(leaf, with_variables()):
            return
        from ckptree.adapters import flax

        above = keys_of(name)
        self._states.append(above)
        for below, part in flax.parts(leaf):
            if not flax.is_variable(part):
                self._plain.append((*above, *below))

    def about(self) -> dict[str, Any]:
        """Plain data, for as_orbax_saves()."""
        return {
            "variables": {
                "states": list(map(list, self._states)),
                "plain": list(map(list, self._plain)),
            }
        }


def as_orbax_saves(tree: Any, about: dict[str, Any]) -> Any:
    """A tree of dicts and lists, as an item holds it, with a dict for each
    variable.

    >>> about = {"variables": {"states": [["m"]], "plain": []}}
    >>> as_orbax_saves({"m": {"w": 1}, "lr": 2}, about)
    {'m': {'w': {'value': 1}}, 'lr': 2}
    """
    known = about.get("variables")
    if known is None:
        return tree
    states, plain = (
        set(map(tuple, known[name])) for name in ("states", "plain")
    )

    def built(part: Any, keys: Keys, inside: bool) -> Any:
        inside = inside or keys in states
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
        return {_VALUE: part} if inside and keys not in plain else part

    return built(tree, (), False)
