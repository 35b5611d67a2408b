# SPDX-License-Identifier: Apache-2.0
"""The driver of CUDA, where the process has one: copies go by it from memory of
a device into the memory of the engine, whichever framework has the array."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Callable

from ckptree import _engine
from ckptree.adapters.protocol import Direct

LIBRARY = "libcuda.so.1"


@lru_cache(maxsize=None)
def _driver(library: str) -> _engine.CudaDriver | None:
    try:
        found = _engine.cuda_driver(library)
    except Exception:  # Not there, or of no device: others copy.
        return None
    _engine.lock_staging(found.lock, found.unlock)
    return found


def direct(
    address: int, check: Callable[[], Any] | None = None
) -> Direct | None:
    """Of dense memory; None where no device of CUDA has it."""
    driver = _driver(LIBRARY)
    if driver is None:
        return None
    try:
        return Direct(driver, driver.device_of(address), address, check)
    except Exception:
        return None
