# SPDX-License-Identifier: Apache-2.0
"""What goes on in the background."""

from __future__ import annotations

import concurrent.futures
import threading
from typing import Callable, Generic, TypeVar

_T = TypeVar("_T")


class AsyncResponse(Generic[_T]):
    """What save_async() returns. The work is done, and its files are closed,
    when result() returns; a program that never asks still ends only then."""

    def __init__(self, work: Callable[[], _T]) -> None:
        self._future: concurrent.futures.Future[_T] = (
            concurrent.futures.Future()
        )
        thread = threading.Thread(target=self._run, args=(work,))
        thread.start()

    def _run(self, work: Callable[[], _T]) -> None:
        try:
            made = work()
        except BaseException as error:
            self._future.set_exception(error)
        else:
            self._future.set_result(made)

    def result(self, timeout: float | None = None) -> _T:
        """Waits, in seconds at most: TimeoutError, and it goes on. Raises what
        the work failed of."""
        try:
            return self._future.result(timeout)
        except concurrent.futures.TimeoutError as error:
            if self._future.done():
                raise
            raise TimeoutError(
                f"not done after {timeout} s: it goes on"
            ) from error

    def on_complete(self, callback: Callable[[_T], object]) -> None:
        """Calls `callback` with the result when it is there, or now where it
        is; never where the work fails."""

        def call(future: concurrent.futures.Future[_T]) -> None:
            if future.exception() is None:
                callback(future.result())

        self._future.add_done_callback(call)
