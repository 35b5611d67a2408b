# SPDX-License-Identifier: Apache-2.0
"""What the engine has to say, as records of Python's logging.

The logger is `logging.getLogger("ckptree")`. A record has the directory of the
store as its attribute `store`, and the part of the engine that speaks as
`part`; its message is "store DIRECTORY: TEXT". Warnings and errors go to
standard error where nobody configured logging, as those of other packages.

What happens while a store is opened is logged before the call returns. The rest
is logged by a thread of its own, which is there from the first store on, or at
the end of a call that waits, like flush(). A handler may call the store.
"""

from __future__ import annotations

import atexit
import logging
import os
import sys
import threading

from ckptree import _engine

_LOGGER = logging.getLogger("ckptree")
# As the engine counts its severities.
_LEVELS = (logging.INFO, logging.WARNING, logging.ERROR)
# How long the exit of the interpreter waits for a handler, in seconds.
_AT_EXIT = 30

_thread: threading.Thread | None = None


def _log(severity: int, store: str, part: str, text: str) -> None:
    level = _LEVELS[severity]
    if not _LOGGER.isEnabledFor(level):
        return
    about = {"store": store, "part": part}
    try:
        _LOGGER.log(
            level, "store %s: %s", store, text.rstrip(), extra=about
        )
    except Exception:
        # Of a handler: neither the call nor the thread can help it.
        if logging.raiseExceptions:
            sys.excepthook(*sys.exc_info())


def _run() -> None:
    while (message := _engine.next_log()) is not None:
        try:
            _log(*message)
        except SystemExit:
            pass  # Only a call can end, not the thread.


def _start() -> None:
    """Called when a store is opened."""
    global _thread
    if _thread is not None:
        return
    thread = threading.Thread(target=_run, name="ckptree logging", daemon=True)
    _thread = thread
    try:
        thread.start()
    except RuntimeError:
        # The interpreter exits: what is left goes to standard error.
        _engine.close_logs()


def stop_at_exit() -> None:
    """To be called before anything is registered that logs at exit: that is
    called earlier."""
    atexit.register(_stop)


def _stop() -> None:
    _engine.close_logs()
    if _thread is not None and _thread.ident is not None:
        _thread.join(_AT_EXIT)


def _after_fork() -> None:
    # The thread is the parent's, and so is what it has yet to say.
    global _thread
    _thread = None
    _engine.renew_logs()


os.register_at_fork(after_in_child=_after_fork)
