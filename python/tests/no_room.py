# SPDX-License-Identifier: Apache-2.0
"""Saves that fail: no file may grow beyond a mebibyte for a while."""

import contextlib
import resource

import numpy as np


@contextlib.contextmanager
def no_room():
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def too_large():
    """An array that no save can write then, however it compresses."""
    return np.random.default_rng(1).random(1 << 20)
