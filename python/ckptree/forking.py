# SPDX-License-Identifier: Apache-2.0
"""What is done before a process forks."""

from __future__ import annotations

import importlib
import os
import sys
from importlib import _bootstrap

# More than once where waiting for one lets another begin; not without end, as
# this thread may be importing one itself.
_PASSES = 100


def finish_imports() -> None:
    """Waits for what other threads are importing of this package. A child would
    have the locks of these imports, and nobody to open them."""
    for _ in range(_PASSES):
        begun = _begun()
        if not begun:
            return
        for name in begun:
            try:
                importlib.import_module(name)
            except Exception:  # Whoever imports it is told.
                pass


def _begun() -> list[str]:
    """Modules that are being imported, also those that are still looked for on
    the disk, and in sys.modules after that alone: Python has no public name for
    the locks of these, nor for what says that the others are not whole."""
    locked = list(getattr(_bootstrap, "_module_locks", ()))
    for name, module in list(sys.modules.items()):
        spec = getattr(module, "__spec__", None)
        if getattr(spec, "_initializing", False):
            locked.append(name)
    return [name for name in locked if name.startswith("ckptree.")]


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=finish_imports)
