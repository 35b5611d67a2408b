# SPDX-License-Identifier: Apache-2.0
"""Closing: what `with` closes; and what an interrupt leaves to be closed."""

from __future__ import annotations

import _thread
import threading
from typing import TYPE_CHECKING, Callable, TypeVar

if TYPE_CHECKING:
    from types import TracebackType

    Self = TypeVar("Self", bound="Closing")


class Closing:
    """`with` closes it at the end, whatever happened."""

    if TYPE_CHECKING:

        def close(self) -> None: ...

    def __enter__(self: Self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


class Interrupt:
    """Ctrl-C once more, when this object goes. Python drops what __del__()
    raises; whoever was interrupted in one keeps such an object, which goes with
    it: then no code of Python runs but that of the caller, who gets the
    KeyboardInterrupt."""

    __del__ = staticmethod(_thread.interrupt_main)


def close_behind(close: Callable[[], object]) -> None:
    """Calls `close` on a thread of its own, for which the exit of the
    interpreter waits; in the exit itself, on this one."""
    thread = threading.Thread(target=close, name="ckptree closing")
    try:
        thread.start()
    except RuntimeError:
        close()
