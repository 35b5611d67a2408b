"""Catalog: the steps, tags and lines of a store."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ckptree.records import LineInfo, StepInfo, TagInfo
from ckptree.selector import selector_text

if TYPE_CHECKING:
    from ckptree._engine import Store as EngineStore
    from ckptree.selector import Selector


class Catalog:
    """Part of Store: which steps there are, and what they are called."""

    _engine: EngineStore

    def steps(self, line: str = "") -> list[StepInfo]:
        """All steps of a line, ascending by number.

        >>> [info.step for info in store.steps()]
        [100, 200]
        """
        return [StepInfo(**fields) for fields in self._engine.steps(line)]

    def info(self, step: Selector = "latest") -> StepInfo:
        """What a step is, without opening it.

        >>> store.info("best:loss").metrics
        {'loss': 0.005}
        """
        return StepInfo(**self._engine.resolve(selector_text(step)))

    def delete(self, *steps: Selector, tagged: bool = False) -> None:
        """Removes steps, durably, all or none. Their bytes are freed in the
        background, or by collect(). StateError where one is pinned, or has a
        tag: with `tagged` such steps go, too, and their tags.

        >>> store.delete(100)
        >>> 100 in store
        False
        """
        self._engine.delete([selector_text(step) for step in steps], tagged)

    def tag(self, name: str, step: Selector, *, move: bool = False) -> None:
        """A name for a step: "@name". FileExistsError without `move` where
        another step has it.

        >>> store.tag("good", 100)
        >>> store["@good"].step
        100
        """
        self._engine.tag(name, selector_text(step), move)

    def untag(self, name: str) -> None:
        """Takes a tag away. KeyError where there is none.

        >>> store.tag("good", 100)
        >>> store.untag("good")
        >>> "@good" in store
        False
        """
        self._engine.untag(name)

    def tags(self) -> list[TagInfo]:
        """All tags, by name.

        >>> store.tag("good", 100)
        >>> store.tags()
        [TagInfo(name='good', step=100, line='', version=1)]
        """
        return [TagInfo(**fields) for fields in self._engine.tags()]

    def pin(self, step: Selector) -> None:
        """A pinned step is neither deleted nor overwritten.

        >>> store.pin(100)
        >>> store.delete(100)
        Traceback (most recent call last):
        ckptree.errors.StateError: ...pinned...
        """
        self._engine.pin(selector_text(step))

    def unpin(self, step: Selector) -> None:
        """Undoes pin().

        >>> store.pin(100)
        >>> store.unpin(100)
        >>> store.info(100).pinned
        False
        """
        self._engine.unpin(selector_text(step))

    def fork(self, step: Selector, line: str) -> None:
        """A new line that goes on from `step` and shares its bytes; save to it
        with `line`.

        >>> store.fork(100, "colder")
        >>> store.save(150, state, line="colder").result()
        150
        >>> store["colder/latest"].step
        150
        """
        self._engine.fork(selector_text(step), line)

    def drop_line(self, line: str) -> None:
        """Deletes the line with all its steps.

        >>> store.fork(100, "colder")
        >>> store.drop_line("colder")
        >>> len(store.lines())
        1
        """
        self._engine.drop_line(line)

    def lines(self) -> list[LineInfo]:
        """The main line first.

        >>> store.fork(100, "colder")
        >>> [(line.name, line.origin_step) for line in store.lines()]
        [('', 0), ('colder', 100)]
        """
        return [LineInfo(**fields) for fields in self._engine.lines()]
