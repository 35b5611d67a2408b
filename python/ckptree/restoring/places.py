# SPDX-License-Identifier: Apache-2.0
"""Where arrays are put: one place for all of them, or a tree of places like
the state."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ckptree import _engine, _rules
from ckptree.adapters.protocol import type_name

if TYPE_CHECKING:
    from ckptree.adapters.protocol import Loader


class Places:
    """What `sharding=` says, or `device=`. TypeError where a leaf of the tree
    is no place."""

    def __init__(self, loader: Loader, given: Any) -> None:
        self._loader = loader
        self._by_name: dict[str, Any] = {}
        self._one = None
        if given is None or loader.is_place(given):
            self._one = given
            return
        _engine.map_state(
            given,
            _rules,
            lambda name, kind, empty: None,
            self._take,
        )

    def _take(self, name: str, place: Any) -> Any:
        if not self._loader.is_place(place):
            raise TypeError(
                f"{self._loader.PLACE}= has a {type_name(place)}, not a "
                f"{self._loader.PLACE_TYPE}"
            )
        self._by_name[name] = place
        return place

    def of(self, name: str, default: Any = None) -> Any:
        """The place of a leaf; `default` where nothing is said."""
        if self._one is not None:
            return self._one
        return self._by_name.get(name, default)
