# SPDX-License-Identifier: Apache-2.0
"""A template and a step: walked, matched, compared and loaded, leaf by leaf.

This is the one way into a template. What leaves match, how strict the
comparison is and what a value becomes differ between restore(like=) and the
drop-ins, so each of them says it, in a class of its own over Restoring.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import (
    TYPE_CHECKING,
    Any,
    Callable,
    Mapping,
    Sequence,
    overload,
)

from ckptree import adapters
from ckptree.adapters.protocol import PARTS
from ckptree.arrays import casting, values
from ckptree.errors import Difference, MismatchError
from ckptree.garbage import without_collection
from ckptree.restoring.inventory import Inventory

if TYPE_CHECKING:
    from ckptree import _engine
    from ckptree.adapters.protocol import Request
    from ckptree.progress import Meter

    OnNode = Callable[[str, str, bool, str], None]
    OnLeaf = Callable[[str, Any], Any]


class Restoring(ABC):
    """One restore into a template; run() is it. A side of it defines where(),
    walk(), ask() and convert(), and what it wants of the others."""

    def __init__(self, step: _engine.Step) -> None:
        self.step = step
        self.meter: Meter | None = None
        self.there = Inventory(step)
        # Of the template: leaves as see() has them, by name; and containers,
        # with their kind, and whether they are empty.
        self.leaves: dict[str, Any] = {}
        self.nodes: list[tuple[str, str, bool]] = []
        # The tags of containers that are one leaf in parts, by name.
        self.tags: dict[str, str] = {}
        # As Difference has it, but what was expected and found may not be text
        # yet: of very many nobody asks for it. A name alone is missing, a leaf
        # of the step alone is unexpected: so these take no memory.
        self.differences: list[Any] = []

    def run(self, template: Any) -> Any:
        """A tree like the template. MismatchError, with every path where the
        two differ."""
        made = self.load(self.compare(template))
        self.check()
        get = made.get
        with without_collection():
            return self.walk(template, _pass_by, get)

    def compare(self, template: Any) -> dict[str, Request]:
        """What to read for the template; nothing is read yet. MismatchError."""
        with without_collection():
            self.walk(template, self._on_node, self._on_leaf)
            self.match()
            asked = self.ask_all()
            self.compare_rest()
            self.check()
        return asked

    def _on_node(self, name: str, kind: str, empty: bool, tag: str) -> None:
        self.nodes.append((name, kind, empty))
        if tag.startswith(PARTS):
            self.tags[name] = tag

    def _on_leaf(self, name: str, leaf: Any) -> Any:
        self.leaves[name] = self.see(leaf)
        return leaf

    # ---- What a side says ----

    @abstractmethod
    def where(self) -> str:
        """What a message calls the step."""

    @abstractmethod
    def walk(self, template: Any, on_node: OnNode, on_leaf: OnLeaf) -> Any:
        """The template with what `on_leaf` makes of its leaves."""

    def see(self, leaf: Any) -> Any:
        """What is kept of a leaf of the template. It raises for what is no
        leaf; the message gets its path."""
        return leaf

    def match(self) -> None:
        """Called when all leaves and containers are known."""

    @abstractmethod
    def ask(self, name: str, leaf: Any) -> Request | None:
        """What to read for a leaf. None: the template's value stays, or the two
        differ there."""

    def ask_all(self) -> dict[str, Request]:
        """ask() of all leaves, by their names."""
        asked = {}
        for name, leaf in self.leaves.items():
            request = self.ask(name, leaf)
            if request is not None:
                asked[name] = request
        return asked

    def compare_rest(self) -> None:
        """Notes how the two differ beside the template's leaves."""

    @abstractmethod
    def convert(self, name: str, value: Any) -> Any:
        """What becomes of a value of Python or NumPy. casting.Changed: it would
        be another one."""

    @abstractmethod
    def changed(self, name: str, what: str) -> None:
        """Notes that a conversion would change a value."""

    def hint(self) -> str:
        """One line for many differences; empty: there is none to give."""
        return ""

    def remedy(self) -> str:
        """One line that is said before all differences; empty: there is
        none."""
        return ""

    # ---- What sides have in common ----

    def load(self, asked: Mapping[str, Request]) -> dict[str, Any]:
        """The values of what was asked for, by the names of the template."""
        infos = [request.info for request in asked.values()]
        step = values.reading(self.step, infos, self.meter)
        made, changed = load(step, asked, self.convert)
        for name, what in changed.items():
            self.changed(name, what)
        return made

    def differ(
        self, path: str, problem: str, expected: Any, found: Any, hint: str = ""
    ) -> None:
        """Notes one path where the two differ. What was expected is text or
        becomes it, what was found is text or a leaf of the step."""
        self.differences.append((path, problem, expected, found, hint))

    def check(self) -> None:
        """MismatchError where differences were noted."""
        if self.differences:
            hint, remedy = self.hint(), self.remedy()
            found = _Differences(
                self.differences, self.leaves, self.there.shown
            )
            raise MismatchError(self.where(), found, hint, remedy)


def _pass_by(name: str, kind: str, empty: bool, tag: str) -> None:
    pass


class _Differences(Sequence[Difference]):
    """Those of a restore, which become text when they are looked at."""

    def __init__(
        self,
        noted: list[Any],
        leaves: Mapping[str, Any],
        shown: Callable[[_engine.LeafInfo], str],
    ) -> None:
        self._noted = noted
        self._leaves = leaves
        self._shown = shown

    def __len__(self) -> int:
        return len(self._noted)

    @overload
    def __getitem__(self, number: int) -> Difference: ...

    @overload
    def __getitem__(self, number: slice) -> list[Difference]: ...

    def __getitem__(
        self, number: int | slice
    ) -> Difference | list[Difference]:
        if isinstance(number, slice):
            return [self._made(noted) for noted in self._noted[number]]
        return self._made(self._noted[number])

    def _made(self, noted: Any) -> Difference:
        if isinstance(noted, str):
            return Difference(noted, "missing", str(self._leaves[noted]), "")
        if not isinstance(noted, tuple):
            shown = self._shown(noted)
            return Difference(noted.name, "unexpected", "", shown)
        path, problem, expected, found, hint = noted
        shown = found if isinstance(found, str) else self._shown(found)
        return Difference(path, problem, str(expected), shown, hint)


def load(
    step: _engine.Step,
    asked: Mapping[str, Request],
    convert: Callable[[str, Any], Any],
) -> tuple[dict[str, Any], dict[str, str]]:
    """The values that are asked for, in one read for each framework; and what
    would change in some, by name. Those that no framework's loader makes go
    through `convert`."""
    made: dict[str, Any] = {}
    changed: dict[str, str] = {}
    makers: dict[str, list[str]] = {"numpy": []}
    for name, request in asked.items():
        makers.setdefault(request.arrays, []).append(name)
    plain = makers.pop("numpy")
    read = values.read(step, [asked[name].info for name in plain])
    for name, value in zip(plain, read):
        try:
            made[name] = convert(name, value)
        except casting.Changed as what:
            changed[name] = str(what)
    for maker, names in makers.items():
        loader = adapters.loader(maker)
        loaded, others = loader.load(step, [asked[name] for name in names])
        made.update(zip(names, loaded))
        changed.update((names[i], what) for i, what in others.items())
    return made, changed
