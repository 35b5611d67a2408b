# SPDX-License-Identifier: Apache-2.0
"""What comes before a save begins: by one process, or by several that have to
be ready for the same one."""

from __future__ import annotations

import contextlib
import pathlib
from typing import TYPE_CHECKING, Any, Callable, Iterator, Mapping

from ckptree.errors import InvalidArgumentError
from ckptree.orbax import _folders, _processes
from ckptree.orbax._alike import Survey

if TYPE_CHECKING:
    from ckptree.orbax._items import Item
    from ckptree.orbax._processes import Job


class Agreement:
    """Of one save. `job`: of the processes; None: this one is alone. `what`
    names the save. Handlers share folders beside the path `store`; None: there
    is none that all of them see."""

    def __init__(
        self, job: Job | None, what: str, store: pathlib.Path | None
    ) -> None:
        self.job = job
        self._call: _processes.Call | None = None
        self._shared: _folders.Shared | None = None
        if job is not None:
            self._call = _processes.Call(job, what)
            self._shared = _folders.Shared(self._call, store)

    @property
    def is_primary(self) -> bool:
        """Whether this process does what one of them does."""
        return self.job is None or self.job.is_primary

    @contextlib.contextmanager
    def telling(self) -> Iterator[None]:
        """For all that comes before: what it raises, all raise."""
        if self._call is None or self._shared is None:
            yield
            return
        try:
            with self._call.telling(), self._shared.used():
                yield
        except BaseException as error:
            if self._shared.any and isinstance(error, Exception):
                self._call.hear_all()  # They may be writing there.
            self.clear()
            raise

    def on(
        self,
        items: Mapping[str, Item],
        said: Any,
        decide: Callable[[list[Any]], Any],
    ) -> Any:
        """What `decide` makes of what each process says, by the first of them.
        ValueError on all: their items are not the same. Ends it."""
        call = self._call
        if call is None:
            return decide([said])

        def decided(says: list[Any]) -> Any:
            if len({have for have, _ in says}) > 1:
                return None  # To be looked at.
            return [decide([other for _, other in says])]

        def refuse(texts: list[str]) -> None:
            raise InvalidArgumentError(survey.difference(call.job, texts))

        with self.telling():
            survey = Survey(items)
            found = call.agree([survey.said(), said], decided)
            if found is None:
                call.agree(survey.in_full(), refuse)
        self.clear()
        return found[0]

    def clear(self) -> None:
        """Handlers need no folders any more."""
        if self._shared is not None:
            self._shared.clear()
