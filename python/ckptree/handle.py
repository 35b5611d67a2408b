# SPDX-License-Identifier: Apache-2.0
"""SaveHandle: one save on its way."""

from __future__ import annotations

import contextlib
import math
import os
import threading
import time
from collections.abc import Callable, Generator, Sequence

from ckptree.arguments import ANY, checked
from ckptree.errors import WaitTimeoutError
from ckptree.hints import TYPE_CHECKING, Any
from ckptree.progress import showing
from ckptree.records import Progress as SaveProgress

if TYPE_CHECKING:
    from ckptree import _engine
    from ckptree.progress import Meter, Progress

# How often a wait looks how far the save is, in seconds.
_MOMENT = 0.05


def follow(
    waits: Callable[[float | None], None],
    timeout: float | None,
    saves: Sequence[_engine.SaveHandle],
    meter: Meter | None,
) -> None:
    """Calls `waits`, which raises WaitTimeoutError after so many seconds; where
    there is a meter a moment at a time, and tells it how far `saves` are."""
    if meter is None:
        waits(timeout)
        return
    end = math.inf if timeout is None else time.monotonic() + timeout
    moment = 0.0  # What is over already needs none.
    while True:
        left = end - time.monotonic()
        try:
            waits(max(0.0, min(left, moment)))
            return
        except WaitTimeoutError:
            if left <= moment:
                raise
        told = [save.progress() for save in saves]
        meter(
            sum(one["bytes_compared"] for one in told),
            sum(one["bytes_total"] for one in told),
        )
        moment = _MOMENT


def with_more(
    saves: Sequence[_engine.SaveHandle], *begun: _engine.SaveHandle
) -> list[_engine.SaveHandle]:
    """Those of `saves` that are on their way, and what was begun."""
    return [*(save for save in saves if not save.done()), *begun]


@checked({"engine": ANY})
class SaveHandle:
    """One save on its way. Dropping it neither waits nor cancels: the store
    finishes its saves, and a failure nobody saw is raised by the next save(),
    or by flush() or close(), which raise those of handles that are held, too.
    May be used from any thread; Ctrl-C interrupts every wait.

    Examples
    --------
    >>> import ckptree, numpy as np
    >>> store = ckptree.Store(tmp / "run")
    >>> handle = store.save(1, {"w": np.zeros(3)})
    >>> handle.result(timeout=60)
    1
    """

    def __init__(self, engine: _engine.SaveHandle) -> None:
        self._engine = engine
        self._process = os.getpid()

    def _not_forked(self) -> None:
        if os.getpid() != self._process:
            self._engine.wait_committed(0.0)  # Raises, and says what to do.

    @property
    def step(self) -> int:
        """The number of the step.

        Examples
        --------
        >>> handle.step
        1
        """
        return self._engine.step

    def wait_staged(self, timeout: float | None = None) -> None:
        """Waits until the memory of what was saved may change again.

        That is at once, but for arrays that were borrowed.

        Parameters
        ----------
        timeout : float, optional
            Seconds to wait at most; None waits on.

        Raises
        ------
        TimeoutError
            The time was over; the save goes on.
        Error
            Why the save failed.

        Examples
        --------
        >>> w = np.zeros(3)
        >>> handle = store.save(2, {"w": w}, borrow=True)
        >>> handle.wait_staged()
        >>> w += 1  # Not before.
        """
        self._engine.wait_staged(timeout)

    def staged(self) -> bool:
        """Whether the memory of what was saved may change again, however the
        save ends. Never waits; wait_staged() does.

        Returns
        -------
        bool

        Examples
        --------
        >>> handle.staged()  # Nothing was borrowed.
        True
        """
        self._not_forked()
        return self._engine.staged()

    def result(
        self, timeout: float | None = None, *, progress: Progress = None
    ) -> int:
        """Waits until the step is durable and visible.

        Parameters
        ----------
        timeout : float, optional
            Seconds to wait at most; None waits on.
        progress : bool or callable, optional
            True: a bar of tqdm. A function: it is called with the bytes that
            were compared and written where they are new, and the bytes in all,
            on this thread, at most ten times a second and once at the end. What
            it raises ends the wait, and the save goes on: cancel() stops it.

        Returns
        -------
        int
            The number of the step.

        Raises
        ------
        TimeoutError
            The time was over; the save goes on.
        CancelledError
            cancel() stopped the save.
        Error
            Why the save failed.

        Examples
        --------
        >>> handle.result()
        1
        """
        with showing(progress, f"step {self.step}") as meter:
            follow(self._engine.wait_committed, timeout, [self._engine], meter)
        return self._engine.step

    def done(self) -> bool:
        """Whether the save was committed, failed or was cancelled. Never waits.

        Returns
        -------
        bool

        Examples
        --------
        >>> handle.done()
        True
        """
        self._not_forked()
        return self._engine.done()

    def cancel(self) -> None:
        """Asks the save to stop; result() says whether it did.

        Examples
        --------
        >>> handle.cancel()  # Too late: nothing happens.
        >>> handle.result()
        1
        """
        self._not_forked()
        self._engine.cancel()

    def progress(self) -> SaveProgress:
        """How far the save is.

        Returns
        -------
        Progress
            The phase, and bytes done so far.

        Examples
        --------
        >>> handle.progress().phase
        'done'
        """
        self._not_forked()
        return SaveProgress(**self._engine.progress())

    def on_complete(self, callback: Callable[[SaveHandle], object]) -> None:
        """Calls a function once the save is committed, failed or cancelled.

        result() says which of them, and only there a failure counts as seen.

        Parameters
        ----------
        callback : callable
            Called with this handle, never on this thread, but on one of its
            own, which the exit of the interpreter waits for; closing the store
            does not. What it raises goes to threading.excepthook, which prints
            it.

        Raises
        ------
        TypeError
            `callback` is no function.
        StateError
            This process was forked off the one that saves.

        Examples
        --------
        >>> import threading
        >>> told = threading.Event()
        >>> handle.on_complete(lambda handle: told.set())
        >>> told.wait(timeout=60)
        True
        """
        self._is_over()

        def run() -> None:
            self._engine.wait_done(None)
            callback(self)

        threading.Thread(target=run, name=f"ckptree step {self.step}").start()

    def _is_over(self) -> bool:
        """StateError in a forked child."""
        return self._ends_within(0)

    def _ends_within(self, seconds: float) -> bool:
        """Waits so long; a failure counts as seen by nobody."""
        try:
            self._engine.wait_done(seconds)
        except WaitTimeoutError:
            return False
        return True

    def __await__(self) -> Generator[Any, None, int]:
        """As result(), without blocking the event loop. Where the task is
        cancelled the save goes on, and its failure is still to be raised."""
        return self._awaited().__await__()

    async def _awaited(self) -> int:
        import asyncio

        if self._is_over():
            return self.result()
        loop = asyncio.get_running_loop()
        over: asyncio.Future[None] = loop.create_future()

        def tell() -> None:
            if not over.done():
                over.set_result(None)

        def wait() -> None:
            while not over.done():  # It is once the task is cancelled.
                if self._ends_within(_MOMENT):
                    with contextlib.suppress(RuntimeError):  # A closed loop.
                        loop.call_soon_threadsafe(tell)
                    return

        # No thread of the loop's own, for all of which asyncio.run() waits.
        name = f"ckptree await of step {self.step}"
        threading.Thread(target=wait, name=name).start()
        await over
        # Not on that thread: nobody may be there any more to hear of a failure.
        return self.result()

    def __repr__(self) -> str:
        return f"<SaveHandle of step {self.step}, {self.progress().phase}>"
