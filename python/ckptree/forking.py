# SPDX-License-Identifier: Apache-2.0
"""What is done before a process forks."""

from __future__ import annotations

import importlib
import os
import sys


def finish_imports() -> None:
    """Waits for what other threads are importing of this package. A child would
    have the locks of these imports, and nobody to open them."""
    for name in list(sys.modules):
        if name.startswith("ckptree."):
            try:
                importlib.import_module(name)
            except Exception:  # Whoever imports it is told.
                pass


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=finish_imports)
