# SPDX-License-Identifier: Apache-2.0
"""What a path that is missing may be called in the step."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Callable, Iterable

if TYPE_CHECKING:
    from ckptree import _engine

_MAX_CANDIDATES = 1000


class Renames:
    """Names of a template to names of a step: of a leaf, or of a subtree with
    all below it; the longest one wins.

    >>> Renames({"params": "model/weights"}).apply("params/w")
    'model/weights/w'
    """

    def __init__(self, names: dict[str, str]) -> None:
        self._names = sorted(names.items(), key=lambda pair: -len(pair[0]))

    def apply(self, name: str) -> str:
        for new, old in self._names:
            if name == new or name.startswith(new + "/"):
                return old + name[len(new) :]
        return name

    def check(self, names: Iterable[str]) -> None:
        """ValueError where one of them renames nothing."""
        known = list(names)
        for new, old in self._names:
            if not any(n == new or n.startswith(new + "/") for n in known):
                raise ValueError(
                    f"rename={{{new!r}: {old!r}}}: the template has no {new!r}"
                )


def closest(
    name: str,
    wanted: str,
    there: list[_engine.LeafInfo],
    shown: Callable[[_engine.LeafInfo], str],
) -> str:
    """A hint at a leaf that nobody asked for and that is alike."""
    alike = [info.name for info in there if shown(info) == wanted]
    found = difflib.get_close_matches(
        name, alike[:_MAX_CANDIDATES], n=1, cutoff=0.5
    )
    if not found:
        return ""
    return f"or pass rename={{{name!r}: {found[0]!r}}}"
