# SPDX-License-Identifier: Apache-2.0
"""Places of an app that become what a step says, whatever is there now."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from ckptree import _engine, _rules
from ckptree.adapters import torch_keys
from ckptree.adapters.protocol import type_name
from ckptree.adapters.torch_parts import PLAIN
from ckptree.restoring.inventory import shown_node


class Slot:
    """A leaf of the template that becomes whatever the step has there."""

    def __init__(
        self, before: Any, owner: Any = None, *, stays: bool = False
    ) -> None:
        self.before = before
        self.owner = owner  # None: plain data.
        self.stays = stays  # Where the step has nothing for it.
        # Of the step: the place, and all below it.
        self.infos: list[_engine.LeafInfo] = []
        self.depth = 0
        self._tensors: dict[str, torch.Tensor] | None = None
        self._arrays: set[str] = set()
        self._lists: set[str | None] = set()  # In which there are some.
        # Of the names of both: DCP has made ints among the keys str.
        self._by_text: dict[str, str] = {}

    def __str__(self) -> str:
        if self.owner is None:
            return shown_before(self.before)
        return f"the state of a {type_name(self.owner)}"

    def find(self, there: str) -> None:
        """Looks where in the step the place is, which is called `there`."""
        for info in self.infos:
            if info.name == there:
                self.depth = len(info.path)
                return
        if self.infos:
            names = [name for name, _ in self.infos[0].parents()]
            self.depth = names.index(there) + 1

    def tensor(self, below: str) -> torch.Tensor | None:
        """The one that is there now, by its name below this place."""
        if self._tensors is None:
            self._tensors = {}
            _engine.map_state(
                {"x": self.before}, _rules, _pass_by, self._note
            )
            if not self._names_parameters():
                known = [*self._tensors, *self._arrays]
                by_text = {torch_keys.without_braces(n): n for n in known}
                self._by_text = {**by_text, **{n: n for n in known}}
        return self._tensors.get(self._by_text.get(below, below))

    def _names_parameters(self) -> bool:
        """Whether the step is of an optimizer whose parameters have names, in
        any order: "0" is one of them, and not the first one then."""
        return any(
            info.kind == "str" and keys[::2] == ["param_groups", "params"]
            for info in self.infos
            for keys in [[key for _, key in info.path[self.depth :]][:3]]
        )

    def has_array(self, below: str) -> bool:
        """Whether NumPy has an array there now, or in the list that it is of,
        which may have grown. No store says whose an array was."""
        self.tensor(below)
        name = self._by_text.get(below, below)
        return name in self._arrays or _list_of(name) in self._lists

    def _note(self, name: str, leaf: Any) -> Any:
        below = name[len("x/") :]
        if type(leaf) in PLAIN and self._tensors is not None:
            self._tensors[below] = leaf.detach()
        elif isinstance(leaf, np.ndarray):
            self._arrays.add(below)
            parent = _list_of(below)
            if parent is not None:
                self._lists |= {parent, torch_keys.without_braces(parent)}
        return leaf


def _list_of(name: str) -> str | None:
    """
    >>> _list_of("best/[2]"), _list_of("[0]"), _list_of("best/w")
    ('best', '', None)
    """
    parent, _, last = name.rpartition("/")
    return parent if last.startswith("[") else None


def _pass_by(name: str, kind: str, empty: bool, tag: str) -> None:
    pass


def shown_before(value: Any) -> str:
    if value is None:
        return "None"
    if isinstance(value, (dict, list, tuple)):
        return shown_node(type(value).__name__, not value)
    return "array" if isinstance(value, np.ndarray) else type(value).__name__
