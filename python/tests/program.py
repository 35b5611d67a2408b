# SPDX-License-Identifier: Apache-2.0
"""Programs of their own, for what only the end of a process shows."""

import subprocess
import sys


def run(code, *arguments, timeout=120, **options):
    """Runs a program of Python; returns what subprocess says of it."""
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=timeout,
        **options,
    )
