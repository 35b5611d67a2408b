# SPDX-License-Identifier: Apache-2.0
"""Where arrays are put: one place for all of them, or a tree of places like
the state, in which one may stand for a whole subtree."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Iterable

from ckptree import _engine, _rules
from ckptree.adapters.protocol import type_name
from ckptree.errors import InvalidArgumentError

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
        if isinstance(given, (str, bytes)):
            raise TypeError(
                f"{loader.PLACE}={given!r}: a {loader.PLACE_TYPE}, or a tree "
                "of them like the state"
            )
        _engine.map_state(
            given,
            _rules,
            lambda name, kind, empty, tag: None,
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
        while self._by_name:
            if name in self._by_name:
                return self._by_name[name]
            if not name:
                break
            name = name.rpartition("/")[0]
        return default

    def check(self, names: Iterable[str]) -> None:
        """ValueError where a place is that of nothing."""
        left = dict.fromkeys(self._by_name)
        for name in names if left else ():
            while name:
                left.pop(name, None)
                name = name.rpartition("/")[0]
        left.pop("", None)
        if left:
            named = next(iter(left))
            more = f" and {len(left) - 1} more" if len(left) > 1 else ""
            raise InvalidArgumentError(
                f"{self._loader.PLACE}= names {named!r}{more}, and the state "
                "has nothing of that name"
            )
