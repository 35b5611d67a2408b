# SPDX-License-Identifier: Apache-2.0
"""Catalog: which steps a store has, what names them, and which of them live."""

from __future__ import annotations

from collections.abc import Iterator

from ckptree import forks
from ckptree.arguments import TEXT, Kind, checked, either, optional
from ckptree.errors import InvalidArgumentError, NotFoundError
from ckptree.hints import TYPE_CHECKING, Any
from ckptree.holding import Holding
from ckptree.metadata import from_json, to_json
from ckptree.policy_argument import POLICY, engine_policy
from ckptree.records import (
    BranchInfo,
    PolicyInfo,
    PolicyReport,
    StepInfo,
    StepUsage,
    TagInfo,
)
from ckptree.selector import SELECTOR, selector_text
from ckptree.table import Table

if TYPE_CHECKING:
    from ckptree.policies import Policy
    from ckptree.selector import Selector


def _each(name: str, value: Any) -> Any:
    if isinstance(value, (list, tuple, set, range)) and not isinstance(
        value, (StepInfo, StepUsage, TagInfo)
    ):
        raise TypeError(
            "delete() takes steps one by one, delete(1, 2): of a list "
            "delete(*steps)"
        )
    return SELECTOR.convert(name, value)


_EACH = Kind(SELECTOR.what, _each)


@checked(
    {"step": SELECTOR},
    delete={"steps": _EACH},
    set_policy={"policy": either(POLICY, TEXT)},
    preview_policy={"policy": optional(either(POLICY, TEXT))},
)
class Catalog(Holding):
    """The steps of a store by their numbers, tags and branches. What changes
    here reads and writes no arrays."""

    # ---- The steps there are ----

    def __contains__(self, step: Selector) -> bool:
        """Also of a number or text that names no step of any store: False, as
        of a dict. TypeError: it is neither. Waits for a save in flight that may
        be the step."""
        try:
            selector = selector_text(step)
            try:
                self._engine.resolve(selector)
            except KeyError:
                self._knowing(selector).resolve(selector)
        except (KeyError, InvalidArgumentError):
            return False
        return True

    def __iter__(self) -> Iterator[int]:
        """The numbers of the steps of the main branch, ascending."""
        return iter(self._engine.step_numbers(""))

    def __len__(self) -> int:
        return len(self._engine.step_numbers(""))

    def __bool__(self) -> bool:
        return True  # Without steps, too.

    def steps(self, branch: str = "") -> Table[StepInfo]:
        """All steps of a branch, ascending by number.

        >>> [info.step for info in store.steps()]
        [100, 200]
        """
        found = self._engine.steps(branch)
        return Table(StepInfo(**fields) for fields in found)

    def step_info(self, step: Selector = "latest") -> StepInfo:
        """What a step is, without opening it. Waits for a save in flight that
        may be the step.

        >>> store.step_info("best:loss:min").metrics
        {'loss': 0.005}
        """
        selector = selector_text(step)
        try:
            return StepInfo(**self._knowing(selector).resolve(selector))
        except NotFoundError as error:
            raise forks.advised(self.branches(), error, selector) from None

    def delete(self, *steps: Selector, tagged: bool = False) -> None:
        """Removes steps, durably, all or none. Their bytes are freed in the
        background, or by collect(). StateError where one is pinned, or has a
        tag: with `tagged` such steps go, too, and their tags. ValueError where
        none is named. A remote follows: see wait_replicated().

        >>> store.delete(100)
        >>> 100 in store
        False
        """
        if not steps:
            raise InvalidArgumentError(
                "delete() has no steps: name those that are to go"
            )
        selectors = [selector_text(step) for step in steps]
        self._writing("delete", *selectors).delete(selectors, tagged)

    def tag(self, name: str, step: Selector, *, move: bool = False) -> None:
        """A name for a step: "@name". FileExistsError without `move` where
        another step has it. A remote follows: see wait_replicated().

        >>> store.tag("good", 100)
        >>> store["@good"].step
        100
        """
        selector = selector_text(step)
        self._writing("tag", selector).tag(name, selector, move)

    def untag(self, name: str) -> None:
        """Takes a tag away. KeyError where there is none.

        >>> store.tag("good", 100)
        >>> store.untag("good")
        >>> "@good" in store
        False
        """
        self._writing("untag").untag(name)

    def tags(self) -> Table[TagInfo]:
        """All tags, by name.

        >>> store.tag("good", 100)
        >>> store.tags()
        [TagInfo(name='good', step=100, branch='', version=1)]
        """
        return Table(TagInfo(**fields) for fields in self._engine.tags())

    def pin(self, step: Selector) -> None:
        """A pinned step is neither deleted nor overwritten.

        >>> store.pin(100)
        >>> store.delete(100)
        Traceback (most recent call last):
        ckptree.errors.StateError: ...pinned...
        """
        selector = selector_text(step)
        self._writing("pin", selector).pin(selector)

    def unpin(self, step: Selector) -> None:
        """Undoes pin().

        >>> store.pin(100)
        >>> store.unpin(100)
        >>> store.step_info(100).pinned
        False
        """
        selector = selector_text(step)
        self._writing("unpin", selector).unpin(selector)

    # ---- Branches ----

    def fork(self, step: Selector, branch: str) -> None:
        """A new branch that goes on from `step` and shares its bytes; save to
        it with `branch`. Until then its latest step is `step` for a manager of
        the branch, restore_or() and ckptree.torch.resume().

        >>> store.fork(100, "colder")
        >>> store.save(150, state, branch="colder").result()
        150
        >>> store["colder/latest"].step
        150
        """
        selector = selector_text(step)
        self._writing("fork", selector).fork(selector, branch)

    def drop_branch(self, branch: str, *, tagged: bool = False) -> None:
        """Deletes the branch with all its steps. StateError, and nothing is
        deleted, where one of them is pinned, or, without `tagged`, has a tag.

        >>> store.fork(100, "colder")
        >>> store.drop_branch("colder")
        >>> len(store.branches())
        1
        """
        self._writing("drop_branch").drop_branch(branch, tagged)

    def branches(self) -> Table[BranchInfo]:
        """The main branch first.

        >>> store.fork(100, "colder")
        >>> [(branch.name, branch.origin_step) for branch in store.branches()]
        [('', 0), ('colder', 100)]
        """
        found = self._engine.branches()
        return Table(BranchInfo(**fields) for fields in found)

    # ---- Which steps live ----

    def policy(self, branch: str = "") -> PolicyInfo:
        """Which steps of the branch live. Where none was set all do.

        >>> store.policy().text
        ''
        """
        return PolicyInfo(**self._engine.policy(branch))

    def set_policy(self, policy: Policy | str, branch: str = "") -> None:
        """From now on every save to the branch, by whatever program, removes
        the steps that `policy` (of ckptree.policies, or its text) does not
        keep. Pinned and tagged ones stay. Nothing is removed by this call.

        >>> store.set_policy(ckptree.Latest(2) | ckptree.EveryN(100))
        >>> for step in (201, 202, 203):
        ...     _ = store.save(step, state).result()
        >>> [info.step for info in store.steps()]
        [100, 200, 202, 203]
        """
        self._writing("set_policy").set_policy(engine_policy(policy), branch)

    def preview_policy(
        self, policy: Policy | str | None = None, branch: str = ""
    ) -> PolicyReport:
        """What the policy of the branch, or `policy`, keeps of the steps there
        are, why, and what removing the others would free. Changes nothing.

        >>> report = store.preview_policy("latest(1)")
        >>> [(verdict.step, verdict.kept) for verdict in report.steps]
        [(100, False), (200, True)]
        """
        given = None if policy is None else engine_policy(policy)
        return PolicyReport.of(self._engine.preview_policy(branch, given))

    def apply_policy(self, branch: str = "") -> list[int]:
        """Removes now what the policy of the branch does not keep; returns it.

        >>> store.set_policy("latest(1)")
        >>> store.apply_policy()
        [100]
        """
        return self._writing("apply_policy").apply_policy(branch)

    # ---- What was said of the run ----

    def metadata(self, branch: str = "") -> Any:
        """What set_metadata() said of the run; None: nothing.

        >>> print(store.metadata())
        None
        """
        return from_json(self._engine.metadata(branch))

    def set_metadata(self, metadata: Any, branch: str = "") -> None:
        """Of the run as a whole: what json can write. None: nothing.

        >>> store.set_metadata({"learning rate": 0.5})
        >>> store.metadata()
        {'learning rate': 0.5}
        """
        self._writing("set_metadata").set_metadata(to_json(metadata), branch)
