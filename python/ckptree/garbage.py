# SPDX-License-Identifier: Apache-2.0
"""Python's collector of garbage, and what it is not to look at."""

from __future__ import annotations

import gc
from types import TracebackType


class without_collection:
    """While very many small objects are made Python looks through all of them
    for garbage, again and again, which takes longer than making them. Not for
    what waits.

    >>> with without_collection():
    ...     gc.isenabled()
    False
    """

    def __enter__(self) -> None:
        self._enabled = gc.isenabled()
        gc.disable()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._enabled:
            gc.enable()
