# SPDX-License-Identifier: Apache-2.0
"""What a path that is missing may be called in the step."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Callable, Iterable

if TYPE_CHECKING:
    from ckptree import _engine

_MAX_CANDIDATES = 1000
_MAX_TRIED = 8
_BRACKETS = dict.fromkeys(map(ord, "[]{}"))


class Renames:
    """Names of a template to names of a step: of a leaf, or of a subtree with
    all below it; the longest one wins.

    >>> Renames({"params": "model/weights"}).apply("params/w")
    'model/weights/w'

    The whole tree is "".

    >>> Renames({"": "params"}).apply("w"), Renames({"x": ""}).apply("x/w")
    ('params/w', 'w')
    """

    def __init__(self, names: dict[str, str]) -> None:
        longest = sorted(names.items(), key=lambda pair: -len(pair[0]))
        self._names = dict(longest)

    def __bool__(self) -> bool:
        return bool(self._names)

    def apply(self, name: str) -> str:
        new = name
        while new:
            old = self._names.get(new)
            if old is not None:
                rest = name[len(new) :]
                return old + rest if old else rest[1:]
            new = new.rpartition("/")[0]
        old = self._names.get("", "")
        return f"{old}/{name}" if name and old else old or name

    def rooted(self, here: str, there: str) -> Renames:
        """These, where the whole tree has a name: in the template, in the step.

        >>> Renames({"": "l"}).rooted("state", "").apply("state/[0]")
        'l/[0]'
        """
        named = {new: old for new, old in self._names.items() if new}
        for new, old in self._names.items():
            named.setdefault(new or here, old)
        return Renames({new: old or there for new, old in named.items()})

    def pairs(self) -> list[tuple[str, str]]:
        """Names of the template, and those of the step."""
        return list(self._names.items())

    def check(self, names: Iterable[str]) -> None:
        """ValueError where one of them renames nothing."""
        known: set[str] = set()
        for name in names if self._names else ():
            while name and name not in known:
                known.add(name)
                name = name.rpartition("/")[0]
        for new, old in self._names.items():
            if new and new not in known:
                raise ValueError(
                    f"rename={{{new!r}: {old!r}}}: the template has no {new!r}"
                )


def closest(name: str, names: list[str]) -> str:
    """The name that is most like it; empty: none is. Of very many only those
    that end or begin alike are looked at.

    >>> closest("params/v", ["params", "params/w", "lr"])
    'params/w'
    """
    if len(names) > _MAX_CANDIDATES:
        end, begin = name.rpartition("/")[2], name.partition("/")[0]
        names = [n for n in names if n.endswith(end)] + [
            n for n in names if n.startswith(begin)
        ]
    found = difflib.get_close_matches(name, names[:_MAX_CANDIDATES], n=1)
    return found[0] if found else ""


def in_brackets(name: str, leaves: Iterable[str]) -> str:
    """The leaf or subtree that is called so but for the brackets of places in
    lists, and of keys that are numbers; empty: there is none.

    >>> in_brackets("l/0", ["l/[0]/w"]), in_brackets("l/[1]/w", ["l/{1}/w"])
    ('l/[0]', 'l/{1}/w')
    """
    if not any("0" <= character <= "9" for character in name):
        return ""
    parts = name.count("/") + 1
    wanted = name.translate(_BRACKETS)
    for leaf in leaves:
        found = leaf.translate(_BRACKETS)
        if found == wanted or found.startswith(wanted + "/"):
            return "/".join(leaf.split("/")[:parts])
    return ""


class Closest:
    """Leaves of the step that nobody asked for, for those that are missing."""

    def __init__(
        self,
        there: list[_engine.LeafInfo],
        shown: Callable[[_engine.LeafInfo], str],
    ) -> None:
        self._alike: dict[str, list[str]] = {}
        for info in there[:_MAX_CANDIDATES]:
            self._alike.setdefault(shown(info), []).append(info.name)

    def hint(self, name: str, wanted: str) -> str:
        """What a message advises; empty: nothing is alike."""
        found = difflib.get_close_matches(
            name, self._alike.get(wanted, []), n=1, cutoff=0.5
        )
        if not found:
            return ""
        return f"or pass rename={{{name!r}: {found[0]!r}}}"


def moved(missing: list[str], there: Iterable[str]) -> str:
    """One hint for many paths that are missing: a subtree, or the whole tree,
    that lies elsewhere in the step; empty where there is none.

    >>> names = [f"layer{i}/w" for i in range(100)]
    >>> moved(names, ["params/" + name for name in names])
    "rename={'': 'params'} would find 100 of those that are missing"
    """
    names = list(there)
    known = set(names)
    if len(missing) < 2 or not known:
        return ""
    by_end: dict[str, list[str]] = {}
    for name in {missing[0], missing[len(missing) // 2], missing[-1]}:
        by_end.setdefault(name.rpartition("/")[2], []).append(name)
    pairs = set()
    left = dict.fromkeys(by_end, _MAX_CANDIDATES)
    for other in [name for name in names if name.endswith(tuple(by_end))]:
        end = other.rpartition("/")[2]
        if left.get(end, 0) > 0:
            left[end] -= 1
            pairs |= {_without_common_end(n, other) for n in by_end[end]}
    # What have most in common first; some names say which of them it is.
    likely = sorted(pairs, key=lambda pair: (sum(map(len, pair)), pair))
    some = missing[:: 1 + len(missing) // _MAX_CANDIDATES]
    best = max(
        likely[:_MAX_TRIED],
        key=lambda pair: _found(pair, some, known),
        default=None,
    )
    count = 0 if best is None else _found(best, missing, known)
    if best is None or count < 2:
        return ""
    return (
        f"rename={{{best[0]!r}: {best[1]!r}}} would find {count} of those that "
        "are missing"
    )


def _found(pair: tuple[str, str], missing: list[str], known: set[str]) -> int:
    """How many are there under another name."""
    new, old = pair
    if not new and old:
        return sum(f"{old}/{name}" in known for name in missing)
    apply = Renames(dict([pair])).apply
    return sum(apply(name) in known for name in missing)


def _without_common_end(name: str, other: str) -> tuple[str, str]:
    """
    >>> _without_common_end("a/b/w", "c/b/w")
    ('a', 'c')
    """
    left, right = name.split("/"), other.split("/")
    while left and right and left[-1] == right[-1]:
        left.pop()
        right.pop()
    return "/".join(left), "/".join(right)
