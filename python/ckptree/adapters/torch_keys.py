# SPDX-License-Identifier: Apache-2.0
"""Keys of dicts that are ints, where PyTorch's Distributed Checkpoint has made
them str.

DCP saves every key as its text. An optimizer counts its parameters by ints, and
load_state_dict() passes over those moments whose keys it does not know, without
a word. So the ints are looked up where something says that there were any: the
numbers of parameters in the groups of an optimizer, and the keys of what a
state is loaded into. All other keys are what the step says.
"""

from __future__ import annotations

import re
from typing import Any

_DECIMAL = re.compile(r"0|-?[1-9][0-9]*")
# One part of a name of a leaf, of a dict with an int for its key.
_INT_PART = re.compile(r"(?<![^/])\{(-?[0-9]+)\}(?![^/])")


def of_parameters(state: Any) -> Any:
    """A state, in which dicts of optimizers have the numbers of their
    parameters as keys; changed in place.

    >>> of_parameters({"state": {"0": 7}, "param_groups": [{"params": [0]}]})
    {'state': {0: 7}, 'param_groups': [{'params': [0]}]}
    >>> of_parameters({"state": {"0": 7}, "param_groups": [{"params": ["0"]}]})
    {'state': {'0': 7}, 'param_groups': [{'params': ['0']}]}
    """
    if isinstance(state, (list, tuple)):
        for child in state:
            of_parameters(child)
    elif isinstance(state, dict):
        for child in state.values():
            of_parameters(child)
        moments = state.get("state")
        if isinstance(moments, dict):
            numbers = {str(i): i for i in _numbers(state.get("param_groups"))}
            if numbers:
                state["state"] = _renamed(moments, numbers)
    return state


def _numbers(groups: Any) -> set[int]:
    """Of the parameters; none where they have names."""
    found: set[int] = set()
    for group in groups if isinstance(groups, list) else ():
        named = group.get("params") if isinstance(group, dict) else None
        if not isinstance(named, list):
            return set()
        if any(type(number) is not int for number in named):
            return set()
        found.update(named)
    return found


def like(made: dict[Any, Any], before: dict[Any, Any]) -> dict[Any, Any]:
    """A dict of a step with keys of the types that `before` has, which is there
    now.

    >>> like({"4": 1, "9": 1}, {4: 1})
    {4: 1, 9: 1}
    >>> like({"4": 1}, {"5": 1}), like({"4": 1, "x": 2}, {4: 1, "9": 1})
    ({'4': 1}, {4: 1, 'x': 2})
    """
    if not before or any(type(key) is not str for key in made):
        return made
    if all(type(key) is int for key in before) and all(
        map(_DECIMAL.fullmatch, made)
    ):
        return ints(made)
    others = [key for key in before if type(key) is not str]
    return _renamed(
        made, {str(key): key for key in others if str(key) not in before}
    )


def ints(made: dict[Any, Any]) -> dict[Any, Any]:
    """
    >>> ints({"4": 1, "x": 1})
    {4: 1, 'x': 1}
    """
    texts = [key for key in made if type(key) is str]
    known = {key: int(key) for key in texts if _DECIMAL.fullmatch(key)}
    return _renamed(made, known)


def _renamed(made: dict[Any, Any], known: dict[str, Any]) -> dict[Any, Any]:
    """What has an int already keeps it."""
    return {
        (
            known[key]
            if type(key) is str and key in known and known[key] not in made
            else key
        ): value
        for key, value in made.items()
    }


def without_braces(name: str) -> str:
    """The name of a leaf as DCP would have it.

    >>> without_braces("state/{0}/exp_avg"), without_braces("a{0}/{x}/[1]")
    ('state/0/exp_avg', 'a{0}/{x}/[1]')
    """
    return _INT_PART.sub(r"\1", name)
