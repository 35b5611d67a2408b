# SPDX-License-Identifier: Apache-2.0
"""What follows a save by itself, whether or not somebody waits for it."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Callable

from ckptree.errors import WaitTimeoutError

if TYPE_CHECKING:
    from ckptree.handle import SaveHandle


class Deferred:
    """Runs on a thread of its own from now on: what is to be done before a
    save can be made. Keeps what it returns, or raises, for wait(), which raises
    it once."""

    def __init__(self, step: int, run: Callable[[], Any]) -> None:
        self.step = step
        self._run = run
        self._made: Any = None
        self._error: BaseException | None = None
        # Not a daemon: the exit of the interpreter waits for it.
        self._thread = threading.Thread(target=self._work)
        self._thread.start()

    def _work(self) -> None:
        try:
            self._made = self._run()
        except BaseException as error:
            self._error = error

    def ended(self) -> bool:
        """Never waits."""
        return not self._thread.is_alive()

    def join(self, timeout: float | None = None) -> None:
        """As wait(), but what it raised stays."""
        if self._thread is threading.current_thread():
            return  # What it begins waits for itself.
        self._thread.join(timeout)
        if self._thread.is_alive():
            raise WaitTimeoutError(
                f"step {self.step} is not durable after {timeout} s; the save "
                "goes on"
            )

    def wait(self, timeout: float | None = None) -> Any:
        """What it returns, when all of it has ended. TimeoutError: it goes
        on."""
        self.join(timeout)
        error, self._error = self._error, None
        if error is not None:
            raise error
        return self._made


class Following:
    """Runs on a thread of its own once the save has ended; keeps what that
    raises for wait(), which raises it once."""

    def __init__(
        self, handle: SaveHandle, run: Callable[[SaveHandle], Any]
    ) -> None:
        self.step = handle.step
        self._run = run
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None
        handle.on_complete(self._follow)

    def _follow(self, handle: SaveHandle) -> None:
        self._thread = threading.current_thread()
        try:
            self._run(handle)
        except BaseException as error:
            self._error = error
        finally:
            self._ended.set()

    def ended(self) -> bool:
        """Whether all of it has. Never waits."""
        return self._ended.is_set()

    def wait(self, timeout: float | None = None) -> None:
        """Until all of it has ended. TimeoutError: it goes on."""
        if self._thread is threading.current_thread():
            return  # What follows waits for itself.
        if not self._ended.wait(timeout):
            raise WaitTimeoutError(
                f"step {self.step} is not durable after {timeout} s; the save "
                "goes on"
            )
        error, self._error = self._error, None
        if error is not None:
            raise error


def after_commit(handle: SaveHandle, callback: Callable[[], Any]) -> Following:
    """Calls `callback` if the save is committed; what a save failed of stays
    for whoever waits for that."""

    def run(handle: SaveHandle) -> None:
        if handle.progress().phase == "done":
            callback()

    return Following(handle, run)
