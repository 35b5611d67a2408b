# SPDX-License-Identifier: Apache-2.0
"""What a CheckpointManager reads: the steps there are, and their states."""

from __future__ import annotations

import operator
from typing import (
    TYPE_CHECKING,
    Any,
    Iterable,
    Iterator,
    SupportsIndex,
    TypeVar,
    overload,
)

from ckptree.arguments import checked, integer, optional
from ckptree.errors import InvalidArgumentError
from ckptree.options import RESTORE, RestoreOptions, takes
from ckptree.records import ItemInfo
from ckptree.selector import SELECTOR, selector_text

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ckptree._engine import Manager
    from ckptree.selector import Selector
    from ckptree.step import Step
    from ckptree.store import Store

State = TypeVar("State")


@checked({"step": integer()}, restore={"step": optional(SELECTOR)})
class ManagerReading:
    """What a manager says of the steps of its branch, and restores of them."""

    _engine: Manager
    _store: Store

    @overload
    def restore(
        self,
        step: Selector | None = None,
        like: None = None,
        *,
        items: Iterable[str] = (),
        **options: Unpack[RestoreOptions],
    ) -> Any: ...

    @overload
    def restore(
        self,
        step: Selector | None,
        like: State,
        *,
        items: Iterable[str] = (),
        **options: Unpack[RestoreOptions],
    ) -> State: ...

    @overload
    def restore(
        self,
        step: Selector | None = None,
        *,
        like: State,
        items: Iterable[str] = (),
        **options: Unpack[RestoreOptions],
    ) -> State: ...

    @takes(RestoreOptions, RESTORE)
    def restore(
        self,
        step: Selector | None = None,
        like: Any = None,
        *,
        items: Iterable[str] = (),
        **options: Unpack[RestoreOptions],
    ) -> Any:
        """The state of a step. Waits for saves in flight to the store.

        Parameters
        ----------
        step : int or str, optional
            Which one: None or "latest", a number, "best" (see best_step()),
            "healthy", ... as in Store.restore().
        like : tree, optional
            A state of the same structure, as in Store.restore().
        items : list of str
            Only these top-level subtrees, as a dict.
        partial, cast, rename, sharding, arrays, device, progress
            As in Store.restore().

        Returns
        -------
        tree

        Raises
        ------
        NotFoundError
            No step matches, or there is no such item; those there are, are
            named.
        MismatchError, CorruptionError
            As Store.restore() says.

        Examples
        --------
        >>> manager.restore(1, items=["w"])
        {'w': array([1, 1, 1])}
        """
        names = list(items)
        opened = self._open(step, names)
        if names:
            from ckptree.restoring.items import ItemsOfStep

            opened._engine = ItemsOfStep.of(opened._engine, names)
        return opened.restore(like, **options)

    def _open(self, step: Selector | None, items: list[str]) -> Step:
        from ckptree.step import Step

        selector = selector_text("latest" if step is None else step)
        self._engine.settle()
        return Step(
            self._engine.restore(selector, items), selector, self._store
        )

    def __getitem__(self, step: Selector) -> Step:
        """The step, open for reading. KeyError where nothing matches."""
        return self._open(step, [])

    def __iter__(self) -> Iterator[int]:
        """The numbers of the steps, ascending."""
        return iter(self.all_steps())

    def __len__(self) -> int:
        return len(self.all_steps())

    def __bool__(self) -> bool:
        return True  # Without steps, too.

    def __contains__(self, step: Selector) -> bool:
        if isinstance(step, SupportsIndex):
            return operator.index(step) in self.all_steps()
        try:
            self._open(step, [])
        except (KeyError, InvalidArgumentError):
            return False
        return True

    def all_steps(self) -> list[int]:
        """Committed steps, ascending.

        >>> manager.all_steps()
        [0, 1, 2, 3]
        """
        return self._engine.all_steps()

    def latest_step(self) -> int | None:
        """Its number; None where there is no step.

        >>> manager.latest_step()
        3
        """
        return self._engine.latest_step()

    def best_step(self) -> int | None:
        """By the metric of the options, `preservation` among them, also before
        the first save and where nothing is saved; without such options, or
        where a policy was set by hand since, by that of the branch's policy.
        The latest where there is none; None where no step has it.

        >>> manager.best_step()
        2
        """
        return self._engine.best_step()

    def metrics(self, step: int) -> dict[str, float]:
        """As save() was given them.

        >>> manager.metrics(2)
        {'accuracy': 2.0}
        """
        return self._engine.metrics(step)

    def item_metadata(self, step: int) -> dict[str, ItemInfo]:
        """What the top-level subtrees of a step hold; reads no arrays.

        >>> manager.item_metadata(3)["w"].leaves
        [LeafType(name='w', kind='array', dtype='int64', shape=(3,))]
        """
        found = (
            ItemInfo.of(fields) for fields in self._engine.item_metadata(step)
        )
        return {item.name: item for item in found}

    def metadata(self) -> Any:
        """Of the run; None: there is none.

        >>> manager.store.set_metadata({"seed": 7})
        >>> manager.metadata()
        {'seed': 7}
        """
        return self._store.metadata(self._engine.branch)

    def reload(self) -> None:
        """Readers: sees what was committed since the last look.

        >>> path = tmp / "run"
        >>> with ckptree.CheckpointManager(path, read_only=True) as reader:
        ...     _ = manager.save(4, state)
        ...     manager.wait_until_finished()
        ...     reader.reload()
        ...     reader.latest_step()
        4
        """
        self._engine.reload()
