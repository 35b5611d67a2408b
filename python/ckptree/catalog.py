# SPDX-License-Identifier: Apache-2.0
"""Catalog: the steps, tags and branches of a store."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ckptree.records import BranchInfo, StepInfo, TagInfo
from ckptree.selector import selector_text

if TYPE_CHECKING:
    from ckptree._engine import Store as EngineStore
    from ckptree.selector import Selector


class Catalog:
    """Part of Store: which steps there are, and what they are called."""

    _engine: EngineStore

    def steps(self, branch: str = "") -> list[StepInfo]:
        """All steps of a branch, ascending by number.

        >>> [info.step for info in store.steps()]
        [100, 200]
        """
        return [StepInfo(**fields) for fields in self._engine.steps(branch)]

    def info(self, step: Selector = "latest") -> StepInfo:
        """What a step is, without opening it.

        >>> store.info("best:loss:min").metrics
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
        [TagInfo(name='good', step=100, branch='', version=1)]
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

    def fork(self, step: Selector, branch: str) -> None:
        """A new branch that goes on from `step` and shares its bytes; save to
        it with `branch`.

        >>> store.fork(100, "colder")
        >>> store.save(150, state, branch="colder").result()
        150
        >>> store["colder/latest"].step
        150
        """
        self._engine.fork(selector_text(step), branch)

    def drop_branch(self, branch: str) -> None:
        """Deletes the branch with all its steps.

        >>> store.fork(100, "colder")
        >>> store.drop_branch("colder")
        >>> len(store.branches())
        1
        """
        self._engine.drop_branch(branch)

    def branches(self) -> list[BranchInfo]:
        """The main branch first.

        >>> store.fork(100, "colder")
        >>> [(branch.name, branch.origin_step) for branch in store.branches()]
        [('', 0), ('colder', 100)]
        """
        return [BranchInfo(**fields) for fields in self._engine.branches()]
