# SPDX-License-Identifier: Apache-2.0
"""Paths: stores are in directories of this machine."""

from __future__ import annotations

import os
from collections.abc import Callable

from ckptree import _engine
from ckptree.errors import InvalidArgumentError, NotFoundError
from ckptree.hints import TypeVar

T = TypeVar("T")

_FOLDER = "file://"


def with_parents(directory: str, create: bool, opened: Callable[[], T]) -> T:
    """What `opened` returns; where it makes a store, and the folders above are
    missing, they are made: not before the options were looked at."""
    try:
        return opened()
    except NotFoundError:
        parent = os.path.dirname(os.path.abspath(directory))
        if not create or os.path.isdir(parent):
            raise
        os.makedirs(parent, exist_ok=True)
        return opened()


def place_to_read(path: str | os.PathLike[str]) -> str:
    """The same of a store that is only read: addresses in an object store stay
    as they are, gs:// where CKPTREE_GS_ENDPOINT is set.

    >>> place_to_read("s3://bucket/lm"), place_to_read("file:///runs/lm")
    ('s3://bucket/lm', '/runs/lm')
    """
    given = os.fsdecode(os.fspath(path))
    if given.startswith(("s3://", "rados://")):
        return plain_address(given)
    # As the engine: only where somebody has asked for it.
    if given.startswith("gs://") and os.environ.get("CKPTREE_GS_ENDPOINT"):
        return plain_address(given)
    if not given.startswith(_FOLDER + "/"):
        return local_path(path)
    # A folder that others see, with what a store has shipped there.
    if _is_shipped_to(given[len(_FOLDER) :]):
        return plain_address(given)
    folder = local_path(path)
    # The same where the URL has escapes, as pathlib writes it.
    return plain_address(_FOLDER + folder) if _is_shipped_to(folder) else folder


def plain_address(address: str) -> str:
    """The one text of all that name the same place, as the engine has it.

    >>> plain_address("s3://bucket/lm/"), plain_address("file:///runs//lm/")
    ('s3://bucket/lm', 'file:///runs/lm')
    """
    scheme, mark, place = address.partition("://")
    if scheme == "file":
        while "//" in place:
            place = place.replace("//", "/")
    return scheme + mark + (place.rstrip("/") or place[:1])


def _is_shipped_to(folder: str) -> bool:
    return os.path.isfile(os.path.join(folder, "store"))


def local_path(path: str | os.PathLike[str]) -> str:
    """The path of this machine that is meant; every call that takes a directory
    asks here, and the engine says what is wrong. ValueError for URLs, by the
    name of their scheme, and for addresses that lack slashes, as pathlib makes
    them; a URL of a file is its path.

    >>> local_path("file:///runs/lm"), local_path("runs/lm")
    ('/runs/lm', 'runs/lm')
    >>> local_path("gs://bucket/lm")
    Traceback (most recent call last):
    ckptree.errors.InvalidArgumentError: ...on 'gs'...
    """
    given = os.fspath(path)
    start = os.fsencode(given)
    if start == b"~" or start.startswith(b"~/"):
        raise InvalidArgumentError(
            f"{os.fsdecode(start)}: '~' is no folder of yours here: call "
            "os.path.expanduser()"
        )
    return _engine.local_path(given)
