# SPDX-License-Identifier: Apache-2.0
"""Inventory: all that a step has, by name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Iterator

from ckptree.arrays import values

if TYPE_CHECKING:
    from ckptree import _engine

# By the kind of the parts below: what a container is that is not listed.
_IMPLIED = {1: "dict", 2: "list", 3: "object", 4: "custom"}


class Inventory:
    """Leaves, ties and containers of a step, by name."""

    def __init__(self, step: _engine.Step) -> None:
        self._step = step
        self._listed = {info.name: info for info in step.leaves("")}
        self._implied: dict[str, str] = {}
        for info in self._listed.values():
            for name, below in info.parents():
                self._implied.setdefault(name, _IMPLIED[below])

    def value(self, name: str) -> _engine.LeafInfo | None:
        """The leaf of that name, or that a tie of that name shares."""
        info = self._listed.get(name)
        if info is not None and info.tie_to is not None:
            # Of an item that is left out: not listed.
            info = self._listed.get(info.tie_to) or self._step.find(info.tie_to)
        return info if info is not None and info.is_leaf else None

    def values(self) -> Iterator[_engine.LeafInfo]:
        """All leaves and ties."""
        for info in self._listed.values():
            if info.is_leaf or info.tie_to is not None:
                yield info

    def empty_nodes(self) -> Iterator[_engine.LeafInfo]:
        """Containers without anything below, and None."""
        for info in self._listed.values():
            if not info.is_leaf and info.tie_to is None:
                if info.name not in self._implied:
                    yield info

    def kind(self, name: str) -> str | None:
        """Of whatever has that name: "dict", "tuple", "array", ..."""
        info = self._listed.get(name)
        if info is None:
            return self._implied.get(name)
        return info.kind

    def shown_at(self, name: str) -> str:
        """What a message says of what has that name."""
        info = self._listed.get(name)
        return (
            self.shown(info)
            if info is not None
            else shown_node(self._implied[name], False)
        )

    def shown(self, info: _engine.LeafInfo) -> str:
        """What a message says of a leaf, tie or container."""
        if info.tie_to is not None:
            # Of an item that is left out: not listed.
            info = self._listed.get(info.tie_to) or self._step.find(info.tie_to)
        if not info.is_leaf:
            return shown_node(info.kind, info.name not in self._implied)
        kind = values.kind_of(info)
        if kind != "array":
            return kind
        dims = ", ".join(map(str, info.shape))
        mark = f" ({info.tag})" if info.tag.startswith("prng:") else ""
        return f"{info.dtype_name}[{dims}]{mark}"


def shown_node(kind: str, empty: bool = True) -> str:
    if kind == "none":
        return "None"
    return f"an empty {kind}" if empty else f"a {kind}"
