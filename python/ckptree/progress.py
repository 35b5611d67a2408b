# SPDX-License-Identifier: Apache-2.0
"""How far a call is: what `progress` means wherever a call takes it.

False or None: nothing is said. True: a bar of tqdm. A function: it is called as
`progress(done, total)` on the thread of the call, at most ten times a second
and once at the end; what it raises stops the call, and is raised by it.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ckptree.hints import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ckptree import _engine

Function = Callable[[int, int], object]
Progress = bool | Function | None

# The bytes that a leaf counts for which is no array.
SMALL = 8


def steps_on_stderr() -> Function:
    """For a command that moves steps: one line with their number, where stderr
    is a terminal."""
    shown = sys.stderr.isatty()

    def show(done: int, of: int) -> None:
        if shown:
            end = "\n" if done == of else ""
            print(
                f"\r{done} of {of} steps", end=end, file=sys.stderr, flush=True
            )

    return show


class _Bar:
    """A bar of tqdm, which begins with the first number."""

    def __init__(self, what: str, unit: str) -> None:
        try:
            from tqdm.auto import tqdm
        except ImportError:
            raise ImportError(
                "progress=True shows a bar of tqdm: pip install tqdm, or pass "
                "a function of the numbers done and total"
            ) from None
        self._make = tqdm
        self._named = {"desc": what, "unit": unit, "unit_scale": unit == "B"}
        self._bar: Any = None

    def __call__(self, done: int, total: int) -> None:
        if self._bar is None:
            self._bar = self._make(total=total, **self._named)
        self._bar.total = total
        self._bar.update(done - self._bar.n)

    def close(self) -> None:
        if self._bar is not None:
            self._bar.close()


class Meter:
    """What a call tells of itself, on its way to whoever wants to know."""

    # Seconds between two calls.
    INTERVAL = 0.1

    def __init__(self, show: Function, rare: bool) -> None:
        self._show = show
        self._rare = rare
        self._next = 0.0
        self._said: tuple[int, int] | None = None
        self._done = 0
        self._total = 0

    def __call__(self, done: int, total: int) -> None:
        """So much is done, of so much; nothing where it is not yet known of how
        much."""
        if total == 0:
            return
        self._total = total
        self._done = max(self._done, min(done, total))
        now = time.monotonic()
        if self._rare or now >= self._next:
            self._next = now + self.INTERVAL
            self._say()

    def end(self) -> None:
        """All is done."""
        self._done = self._total
        self._say()

    def _say(self) -> None:
        if self._said != (self._done, self._total):
            self._said = (self._done, self._total)
            self._show(*self._said)


@contextmanager
def showing(
    progress: Progress,
    what: str,
    unit: str = "B",
    rare: bool = False,
) -> Iterator[Meter | None]:
    """What the call in the block tells how far it is; None: nobody wants to
    know. ImportError, before the block, where there is no tqdm for a bar.
    `rare`: what it tells is so rare that all of it is shown.

    >>> with showing(print, "counting", rare=True) as meter:
    ...     for i in range(1, 3):
    ...         meter(i, 3)
    1 3
    2 3
    3 3
    """
    if progress is None or progress is False:
        yield None
        return
    bar = _Bar(what, unit) if progress is True else None
    try:
        meter = Meter(bar or progress, rare)  # type: ignore[arg-type]
        yield meter
        meter.end()
    finally:
        if bar is not None:
            bar.close()


@contextmanager
def stopping(progress: Progress, what: str) -> Iterator[Function]:
    """The same as a function, for a thread that works while the block waits:
    it stops that where the block is left by an exception."""
    left = False

    with showing(progress, what) as meter:

        def tell(done: int, total: int) -> None:
            if left:
                raise InterruptedError(f"the {what} was stopped")
            if meter is not None:
                meter(done, total)

        try:
            yield tell
        except BaseException:
            left = True
            raise


class Reading:
    """In the place of a step of the engine: all that is read of it is told to
    a meter, as parts of so many bytes in all."""

    def __init__(self, step: _engine.Step, meter: Meter, total: int) -> None:
        self._step = step
        self._meter = meter
        self._total = total
        self._before = 0

    def read(self, requests: Any) -> None:
        nbytes = sum(array.nbytes for _, array, _, _ in requests)
        self._step.read(requests, self._part(nbytes))
        self._end_of_part(nbytes)

    def values(self, leaves: list[_engine.LeafInfo]) -> list[Any]:
        nbytes = SMALL * len(leaves)
        found = self._step.values(leaves, self._part(nbytes))
        self._end_of_part(nbytes)
        return found

    def _part(self, nbytes: int) -> Function:
        def tell(done: int, total: int) -> None:
            here = nbytes * done // total if total else 0
            self._meter(self._before + here, self._total)

        return tell

    def _end_of_part(self, nbytes: int) -> None:
        self._before += nbytes
        self._meter(self._before, self._total)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._step, name)
