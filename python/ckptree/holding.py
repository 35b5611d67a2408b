# SPDX-License-Identifier: Apache-2.0
"""Holding: the engine of a store, from when it is open until it is let go."""

from __future__ import annotations

import warnings
import weakref
from functools import partial

from ckptree import _engine
from ckptree.arguments import checked
from ckptree.closing import (
    Closing,
    Interrupt,
    close_behind,
    refuse_in_function,
)
from ckptree.handle import follow, with_more
from ckptree.hints import TYPE_CHECKING, cast
from ckptree.progress import showing
from ckptree.ranks import check_writes
from ckptree.records import Counters, StoreInfo
from ckptree.sharing import Closed, Shared, lock_of

if TYPE_CHECKING:
    from ckptree._engine import Manager, SaveHandle
    from ckptree._engine import Store as Engine
    from ckptree.progress import Progress
    from ckptree.ranks import Ranks

# Those that are not closed.
open_stores: weakref.WeakSet[Holding] = weakref.WeakSet()


@checked()
class Holding(Closing):
    """What a store has open: it tells what that is, waits for what is on its
    way there, and lets go of it."""

    _engine: Engine
    _managed: Manager | None  # Of its manager.
    _shared: Shared | None  # Where it writes.
    _holder: object  # What it is counted by there.
    _ranks: Ranks | None
    _is_spread: bool

    @property
    def path(self) -> str:
        """Of its directory.

        >>> store.path == str(tmp / "run")
        True
        """
        return self._engine.directory

    @property
    def closed(self) -> bool:
        """True after close().

        >>> store.closed
        False
        """
        return self._engine.closed

    def info(self) -> StoreInfo:
        """What the store as a whole is.

        >>> info = store.info()
        >>> info.read_only, info.warnings
        (False, [])
        """
        return StoreInfo(**self._engine.info())

    def counters(self) -> Counters:
        """Counts since it was opened.

        >>> store.counters().saves_committed
        2
        """
        return Counters(**self._engine.stats())

    def refresh(self) -> None:
        """Readers: sees what was committed since the last look.

        StateError where another store, or an older copy, stands at the path by
        now: open it anew.

        >>> with ckptree.open(tmp / "run") as reader:
        ...     _ = store.save(300, state).result()
        ...     reader.refresh()
        ...     300 in reader
        True
        """
        self._engine.refresh()

    def flush(
        self, timeout: float | None = None, *, progress: Progress = None
    ) -> None:
        """Waits until every save begun so far is done; raises the first failure
        that no handle raised, or TimeoutError. `progress`, as in
        SaveHandle.result(), is told the bytes of all of them.

        >>> handle = store.save(300, state)
        >>> store.flush()
        >>> handle.done()
        True
        """
        with showing(progress, "flush") as meter:
            saves = [] if self._shared is None else self._shared.saves
            begun = self._engine.saves_begun()
            waits = partial(self._engine.flush, saves=begun)
            follow(waits, timeout, saves, meter)

    def wait_replicated(self, timeout: float | None = None) -> None:
        """Waits until every commit before this call is in the remote, those
        of tag(), delete() and the like among them, and until segments that
        were found missing there are there again; TimeoutError says what
        keeps it, StateError that there is none, or who took it over.

        >>> with ckptree.Store(tmp / "a", remote=f"file://{tmp}/far") as near:
        ...     handle = near.save(1, {"w": np.ones(3)})
        ...     near.flush()
        ...     near.wait_replicated()
        """
        self._engine.wait_replicated(timeout)

    def _note(self, *begun: SaveHandle) -> None:
        """For flush(), which tells how far saves are. None is held that has
        ended: it would not count as dropped. So before a save, too."""
        shared = self._shared
        if shared is not None:
            with shared.noting:
                shared.saves = with_more(shared.saves, *begun)

    def _wait_for(self, selector: str) -> None:
        """Waits for saves in flight that may be the step that `selector` names,
        not for those that are begun after that, as another thread may do
        without end. A rank waits for none: it would wait for other ranks. Nor
        does a function that the engine calls, for which a save may wait."""
        shared = self._shared
        number = selector.rpartition("/")[2]
        if shared is None or self._ranks or number.startswith("@"):
            return  # No save overwrites a step that has a tag.
        if self._engine.forked or _engine.in_function():
            return  # What is asked next says so.
        for save in shared.saves:
            if not number.isdecimal() or save.step == int(number):
                save.wait_done(None)

    def _writing(self, call: str, *selectors: str) -> Engine:
        """For what only the process does that writes, with the steps that these
        name."""
        check_writes(call, self._engine, self._ranks)
        return self._knowing(*selectors)

    def _knowing(self, *selectors: str) -> Engine:
        """With the steps that these name, also those whose saves are in flight:
        it waits for them."""
        self._live()
        for selector in selectors:
            self._wait_for(selector)
        return self._live()

    def _live(self) -> Engine:
        """For functions of the engine, which take nothing that was closed:
        another thread may be closing it."""
        engine = self._engine
        if isinstance(engine, Closed):
            engine.check()
        return engine

    def close(self) -> None:
        """Waits for saves in flight, then closes; raises what failed unseen.
        Steps and leaves of the store cannot be read any more. A store that is
        not closed is when nobody holds it, nor a step or a leaf of it.

        >>> store.close()
        >>> store.steps()
        Traceback (most recent call last):
        ckptree.errors.StateError: ...closed...
        """
        self._release()

    def _release(self, *, waits: bool = True) -> None:
        """`waits`: for saves in flight, where others hold the engine, too.
        StateError in a function that the engine calls: it is as before."""
        if _engine.in_function():
            if self._engine.closed:
                return  # Nor does it wait for a thread that is closing it.
            if not self._engine.forked:
                refuse_in_function()
        engine, shared, managed = self._engine, self._shared, self._managed
        try:
            open_stores.discard(self)
            with lock_of(""):
                # Another thread may have been here since.
                engine, shared, managed = self._let_go()
            last = _close(engine, shared, managed, self._holder)
        except KeyboardInterrupt:
            # One that is counted no more is closed, also where it was
            # interrupted: others hold the engine.
            counted = shared is not None and self._holder in shared.users
            if counted and not engine.closed:  # It is as open as before.
                self._engine, self._shared = engine, shared
                self._managed = managed
                open_stores.add(self)
            raise
        # A manager has waited for its own saves.
        if waits and not last and managed is None and not engine.closed:
            engine.flush(None)

    def _let_go(self) -> tuple[Engine, Shared | None, Manager | None]:
        """Closed is what this object was: others may hold its engine. What it
        had."""
        had = engine, shared, managed = (
            self._engine, self._shared, self._managed)
        if shared is not None:
            closed = Closed(engine.directory, shared, managed)
            engine = cast(_engine.Store, closed)
        # Together: an interrupt may come in every call.
        self._engine, self._shared, self._managed = engine, None, None
        return had

    def _give_up(self) -> None:
        """Lets go of what something failed for that was to hold it."""
        if _engine.in_function():
            self._close_behind()
        else:
            self._release(waits=False)

    def __del__(self) -> None:
        # There is none where opening failed.
        engine = getattr(self, "_engine", None)
        if engine is None or engine.closed:
            return
        try:
            warnings.warn(
                f"{self!r} was not closed",
                ResourceWarning,
                stacklevel=2,
                source=self,
            )
        finally:  # A warning may be an error.
            if _engine.in_function():  # That saves may wait for.
                self._close_behind()
            else:
                try:
                    self._release()
                except KeyboardInterrupt:
                    # Python drops what is raised here.
                    self._interrupt = Interrupt()
                    self._close_behind()

    def _close_behind(self) -> None:
        """Closes it on a thread, which the exit of the interpreter waits
        for."""
        open_stores.discard(self)
        engine, shared, managed = self._let_go()
        holder = self._holder
        close_behind(lambda: _close(engine, shared, managed, holder))


def _close(
    engine: Engine,
    shared: Shared | None,
    managed: Manager | None,
    holder: object,
) -> bool:
    """Closes a manager, and lets go of its engine, whatever that has failed;
    not where it was interrupted. Whether the engine was closed."""
    failed: Exception | None = None
    if managed is not None:
        try:
            managed.close()
        except Exception as error:
            failed = error
    if shared is None:
        engine.close()
    last = shared is None or shared.release(holder)
    if failed is not None:
        raise failed
    return last
