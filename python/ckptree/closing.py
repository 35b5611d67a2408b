# SPDX-License-Identifier: Apache-2.0
"""Closing: what `with` closes; and what an interrupt leaves to be closed."""

from __future__ import annotations

import _thread
import io
import sys
import threading
from collections.abc import Callable

from ckptree import _engine
from ckptree.errors import StateError
from ckptree.hints import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from types import TracebackType

    Self = TypeVar("Self", bound="Closing")


class Closing:
    """`with` closes it at the end, whatever happened. StateError where what
    says of itself whether it is closed is so at its beginning."""

    if TYPE_CHECKING:

        def close(self) -> None: ...

    def __enter__(self: Self) -> Self:
        if getattr(self, "closed", False):
            raise StateError(
                f"store {getattr(self, 'path', '')} was closed: open it again"
            )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is None:
            self.close()
            return
        # What the body raised goes on; what the closing says comes with it.
        try:
            self.close()
        except Exception as failed:
            said = f"and closing it said: {type(failed).__name__}: {failed}"
            if hasattr(error, "add_note"):  # From Python 3.11 on.
                error.add_note(said)
            else:
                raise


def refuse_in_function() -> None:
    """StateError in a function that the engine calls: who closes waits for
    saves, which may wait for it. To be asked before anything is let go of."""
    if _engine.in_function():
        raise StateError(
            "a function that the engine calls closes no store: close it when "
            "the function has returned"
        )


class Interrupt:
    """Ctrl-C once more, when this object goes. Python drops what __del__()
    raises; whoever was interrupted in one keeps such an object, which goes with
    it: then no code of Python runs but that of the caller, who gets the
    KeyboardInterrupt."""

    __del__ = staticmethod(_thread.interrupt_main)


class _NotFlushed:
    """A stream, but that it cannot be flushed when the interpreter ends."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def flush(self) -> None:
        self._stream.flush()
        if sys.is_finalizing():
            raise OSError("a save failed in the exit")


def close_at_exit(close: Callable[[], object]) -> None:
    """For atexit. Where `close` fails Python says so on stderr, and the process
    ends with 120, as always when something failed after the program. Python has
    no call for that; but it looks whether stderr can be flushed, when all
    functions of atexit were called."""
    try:
        close()
    except Exception:
        sys.stderr = _NotFlushed(sys.stderr or io.StringIO())
        raise


def close_behind(close: Callable[[], object]) -> None:
    """Calls `close` on a thread of its own, for which the exit of the
    interpreter waits; in the exit itself, on this one."""
    # Not as the one that it is started by: threads of the engine are daemons to
    # Python.
    thread = threading.Thread(
        target=close, name="ckptree closing", daemon=False
    )
    try:
        thread.start()
    except RuntimeError:
        close()
