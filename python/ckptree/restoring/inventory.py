# SPDX-License-Identifier: Apache-2.0
"""Inventory: all that a step has, by name."""

from __future__ import annotations

from typing import Iterable, Iterator

from ckptree import _engine
from ckptree.adapters.protocol import PARTS
from ckptree.arrays import values

# By the kind of the parts below: what a container is that is not listed.
_IMPLIED = {1: "dict", 2: "list", 3: "object", 4: "custom"}


class Inventory:
    """Leaves, ties and containers of a step, by name."""

    def __init__(self, step: _engine.Step) -> None:
        self._step = step
        listed, leaves, ties, below = _engine.inventory(step.leaves(""))
        self.listed = listed  # By name: leaves, ties and containers.
        self.leaves = leaves  # By name, without ties.
        self._ties = ties
        # Containers that are not listed, by name: their kinds.
        self.implied = {name: _IMPLIED[kind] for name, kind in below.items()}

    def value(self, name: str) -> _engine.LeafInfo | None:
        """The leaf of that name, or that a tie of that name shares."""
        found = self.leaves.get(name)
        if found is not None or name not in self._ties:
            return found
        tied = str(self._ties[name].tie_to)
        # Of an item that is left out: not listed.
        found = self.listed.get(tied) or self._step.find(tied)
        return found if found.is_leaf else None

    def tied(self) -> dict[str, str]:
        """By the names of all ties, and of the leaves that they lead to: the
        name of that leaf."""
        found = {name: str(tie.tie_to) for name, tie in self._ties.items()}
        return {**found, **{leaf: leaf for leaf in found.values()}}

    def values(self) -> Iterable[str]:
        """The names of all leaves and ties."""
        if not self._ties:
            return self.leaves
        return [
            name
            for name in self.listed
            if name in self.leaves or name in self._ties
        ]

    def empty_nodes(self) -> Iterator[str]:
        """The names of containers without anything below, and of None."""
        if len(self.leaves) + len(self._ties) == len(self.listed):
            return
        for name in self.listed:
            if name not in self.leaves and name not in self._ties:
                if name not in self.implied:
                    yield name

    def kind(self, name: str) -> str | None:
        """Of whatever has that name: "dict", "tuple", "array", ..."""
        info = self.listed.get(name)
        if info is None:
            return self.implied.get(name)
        return info.kind

    def tag_of_parts(self, name: str) -> str:
        """Of a leaf that is kept as its parts; empty where it is not."""
        info = self.listed.get(name)
        if info is None or not info.tag.startswith(PARTS):
            return ""
        return info.tag

    def is_tie(self, name: str) -> bool:
        """Whether it shares the value of another leaf."""
        return name in self._ties

    def shown_at(self, name: str) -> str:
        """What a message says of what has that name."""
        info = self.listed.get(name)
        return (
            self.shown(info)
            if info is not None
            else shown_node(self.implied[name], False)
        )

    def shown(self, info: _engine.LeafInfo) -> str:
        """What a message says of a leaf, tie or container."""
        if info.tie_to is not None:
            # Of an item that is left out: not listed.
            info = self.listed.get(info.tie_to) or self._step.find(info.tie_to)
        if not info.is_leaf:
            if info.tag.startswith(PARTS):
                return info.tag.removeprefix(PARTS)
            return shown_node(info.kind, info.name not in self.implied)
        kind = values.kind_of(info)
        if kind != "array":
            return kind
        if info.tag.startswith("prng:"):
            dims = ", ".join(map(str, info.shape[:-1]))
            return f"key[{dims}] ({info.tag})"
        dims = ", ".join(map(str, info.shape))
        return f"{info.dtype_name}[{dims}]"


def shown_node(kind: str, empty: bool = True) -> str:
    if kind == "none":
        return "None"
    return f"an empty {kind}" if empty else f"a {kind}"
