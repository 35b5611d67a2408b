# SPDX-License-Identifier: Apache-2.0
"""What a template holds twice, and becomes one thing again: arrays that the
step has tied, too, and objects of a framework that several of its containers
hold."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Callable, Mapping

from ckptree import _rules, adapters

if TYPE_CHECKING:
    from ckptree.adapters.protocol import Container, Request, Together


class Ties:
    """The leaves of a template that are the same memory there, and one leaf in
    the step: each but the first is not read, and becomes what the first does.

    Where only one of the two has them tied, each has a value of its own: a
    template may have one array at every place of its shape.
    """

    def __init__(self, tied: dict[str, str]) -> None:
        # By the names that the step ties: the leaf that has their value.
        self._values = tied
        self._first: dict[tuple[str, Any], str] = {}
        # Keeps the ids of what a container makes anew from being given twice.
        self._kept: list[Any] = []
        self._later: dict[str, str] = {}

    def note(self, name: str, there: str, leaf: Any) -> None:
        """A leaf of the template, and what it is called in the step."""
        value = self._values.get(there)
        if value is None:
            return
        self._kept.append(leaf)
        first = self._first.setdefault((value, adapters.memory(leaf)), name)
        if first != name:
            self._later[name] = first

    def split(
        self, asked: Mapping[str, Request]
    ) -> tuple[Mapping[str, Request], dict[str, str]]:
        """What of that is to be read; and the rest, each with the one that it
        shares the value of. Only those are shared that go to one place."""
        later = {
            name: first
            for name, first in self._later.items()
            if name in asked
            and first in asked
            and asked[name].place == asked[first].place
        }
        if not later:
            return asked, later
        return {n: a for n, a in asked.items() if n not in later}, later


class Rules:
    """The rules of one restore, which walks its template twice, in one order:
    of containers that may hold one object, it makes the new ones together.

    One that the template has twice becomes two: an abstract model stands for
    the model and for its average, which are trained apart. What these two
    share with others, the first of them shares with the first of these.

    Confined to one thread.
    """

    def __init__(self) -> None:
        # Of each place of a container how its values are made, by the id of
        # the container, from the last to the first.
        self._rebuilds: dict[int, list[Callable[[list[Any]], Any]]] = {}
        # Those that were met once, twice, ...: no two of a set are the same.
        self._met: list[dict[int, tuple[Any, Together]]] = []
        self._times: Counter[int] = Counter()

    def __getattr__(self, name: str) -> Any:
        return getattr(_rules, name)

    def container(self, value: Any) -> Container | Any:
        """As _rules.container()."""
        found = _rules.container(value)
        if not found or found.together is None:
            return found
        rebuilds = self._rebuilds.get(id(value))
        if rebuilds:
            return found._replace(rebuild=rebuilds.pop())
        times = self._times[id(value)]
        self._times[id(value)] += 1
        if times == len(self._met):
            self._met.append({})
        self._met[times][id(value)] = value, found.together
        return found

    def settle(self) -> None:
        """Behind the first walk."""
        for met in reversed(self._met):
            for together in dict.fromkeys(t for _, t in met.values()):
                values = [v for v, t in met.values() if t is together]
                made = together(values) if len(values) > 1 else None
                for value, rebuild in zip(values, made or ()):
                    self._rebuilds.setdefault(id(value), []).append(rebuild)
