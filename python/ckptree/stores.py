# SPDX-License-Identifier: Apache-2.0
"""Stores of this process: open() reads one, close_all() closes all."""

from __future__ import annotations

import atexit
import os

from ckptree import _engine, logs
from ckptree.arguments import checked
from ckptree.closing import close_at_exit
from ckptree.hints import TYPE_CHECKING
from ckptree.holding import open_stores
from ckptree.options import OPEN, OpenOptions, takes
from ckptree.store import OF_OPENING, Store

if TYPE_CHECKING:
    from typing_extensions import Unpack


@checked(OF_OPENING)
@takes(OpenOptions, OPEN)
def open(
    path: str | os.PathLike[str], **options: Unpack[OpenOptions]
) -> Store:
    """A store for reading: no lock, nothing is written but which steps are open
    (in the folder `leases`), safe beside a live trainer; refresh() shows what
    it saved since. `path` may be an address, "s3://...": UnavailableError,
    within about a minute, where nobody answers.

    >>> import ckptree
    >>> ckptree.Store(tmp / "run").close()
    >>> with ckptree.open(tmp / "run") as reader:
    ...     reader.steps()
    []
    """
    return Store(path, mode="read", **options)


def close_all() -> None:
    """Closes all stores and managers of this process: those, too, that only a
    traceback of a notebook still holds. Waits for their saves; raises the first
    failure when all are closed.

    >>> store = ckptree.Store(tmp / "run")
    >>> ckptree.close_all()
    >>> store.closed
    True
    """
    first: BaseException | None = None
    for store in list(open_stores):
        try:
            store.close()
        except Exception as error:
            first = first or error
    if first is not None:
        raise first


# After all that follows: it is called last.
atexit.register(_engine.release_functions)
logs.stop_at_exit()
# Whoever registers later is called earlier: what saves at exit still can.
atexit.register(close_at_exit, close_all)
