# SPDX-License-Identifier: Apache-2.0
"""What the engine has to say, as records of Python's logging.

The logger is `logging.getLogger("ckptree")`. A record has the directory of the
store as its attribute `store`, and the part of the engine that speaks as
`part`; its message is "store DIRECTORY: TEXT". Warnings and errors go to
standard error where nobody configured logging, as those of other packages.

What happens while a store is opened is logged before the call returns. The rest
is logged by a thread of its own, or at the end of a call that waits, like
flush(). The thread is there from the first store on that is open for writing or
in an object store; of others from the first message on. A handler may call the
store.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading

from ckptree import _engine
from ckptree.advice import in_python
from ckptree.hints import TYPE_CHECKING

if TYPE_CHECKING:
    import logging

# As the engine counts its severities, and as logging does.
_LEVELS = (20, 30, 40)
# How long the exit of the interpreter waits for a handler, in seconds.
_AT_EXIT = 30

_thread: threading.Thread | None = None


# Whether logging, if it is imported, is so after stop_at_exit(); and whether
# _stop() ends it for that.
_registered = False
_ends_logging = False


def logger() -> logging.Logger:
    """Imports logging, which a program that opens no store does without."""
    import logging

    _end_logging_last()
    return logging.getLogger("ckptree")


def _end_logging_last() -> None:
    """The functions of atexit are called from the last to the first: what ends
    logging, which was imported after this module, would be called before those
    that still log. So it is called by the last of ours."""
    global _ends_logging
    logging = sys.modules.get("logging")
    if logging is None or _ends_logging or not _registered:
        return
    _ends_logging = True
    atexit.unregister(logging.shutdown)


def _log(severity: int, store: str, part: str, text: str) -> None:
    level = _LEVELS[severity]
    to = logger()
    if not to.isEnabledFor(level):
        return
    about = {"store": store, "part": part}
    try:
        to.log(
            level,
            "store %s: %s",
            store,
            in_python(text.rstrip()),
            extra=about,
        )
    except Exception:
        # Of a handler: neither the call nor the thread can help it.
        if sys.modules["logging"].raiseExceptions:
            sys.excepthook(*sys.exc_info())


def warn(store: str, part: str, text: str) -> None:
    """A warning of this package's own, as those of the engine are."""
    _log(1, store, part, text)


def _run() -> None:
    while (message := _engine.next_log()) is not None:
        try:
            _log(*message)
        except SystemExit:
            pass  # Only a call can end, not the thread.


def _start() -> None:
    """Called when a store is opened."""
    global _thread
    # Here, and never by the thread: where Ctrl-C met an import of the main
    # thread, another one that imports beside it may wait for it for ever.
    logger()
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
    global _registered
    # Where logging is there it was registered before, and is called later.
    _registered = "logging" not in sys.modules
    atexit.register(_stop)


def _stop() -> None:
    _engine.close_logs()
    if _thread is None:
        _run()  # What a store that is open to read had yet to say.
    elif _thread.ident is not None:
        _thread.join(_AT_EXIT)
    if _ends_logging:
        sys.modules["logging"].shutdown()


def _after_fork() -> None:
    # The thread is the parent's, and so is what it has yet to say.
    global _thread
    _thread = None
    _engine.renew_logs()


os.register_at_fork(after_in_child=_after_fork)
