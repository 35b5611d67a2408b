# SPDX-License-Identifier: Apache-2.0
"""Files below a directory: made durable, brought into the page cache and
dropped from it."""

from __future__ import annotations

import os
from typing import Iterator


def make_durable(path: str) -> None:
    """fsync of every file and directory at and below `path`, and of the
    directory that names it: what peers leave out."""
    for name in _files(path):
        _sync(name)
    for folder, _, _ in os.walk(path):
        _sync(folder)
    _sync(os.path.dirname(os.path.abspath(path)))


def forget(path: str) -> None:
    """The next read comes from the disk."""
    for name in _files(path):
        fd = os.open(name, os.O_RDONLY)
        try:
            os.fsync(fd)  # Only what was written can be dropped.
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(fd)


def remember(path: str) -> None:
    """The next read comes out of the page cache, whichever way its reader
    goes: one that reads past it brings nothing into it."""
    for name in _files(path):
        with open(name, "rb", buffering=0) as file:
            while file.read(16 << 20):
                pass


def _files(path: str) -> Iterator[str]:
    if os.path.isfile(path):
        yield path
    for folder, _, names in os.walk(path):
        for name in names:
            yield os.path.join(folder, name)


def _sync(name: str) -> None:
    fd = os.open(name, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
