# SPDX-License-Identifier: Apache-2.0
"""Some top-level subtrees of a step, as if there were no others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ckptree import _engine


class ItemsOfStep:
    """A step of the engine whose list of leaves ends at these items."""

    def __init__(self, step: _engine.Step, items: list[str]) -> None:
        self._step = step
        self._items = set(items)

    @classmethod
    def of(cls, step: _engine.Step, items: list[str]) -> Any:
        """In the place of a step of the engine."""
        return cls(step, items)

    def leaves(self, glob: str = "") -> list[_engine.LeafInfo]:
        return [
            i
            for i in self._step.leaves(glob)
            if i.path[0][1] in self._items
        ]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._step, name)
