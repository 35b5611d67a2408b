# SPDX-License-Identifier: Apache-2.0
"""Files and folders that are there whole, or not at all: they are written
beside their place, brought to the disk, and then renamed."""

from __future__ import annotations

import contextlib
import ctypes
import os
import pathlib
import shutil
import stat
import uuid
from typing import Callable, Iterator

from ckptree.errors import AlreadyExistsError, InvalidArgumentError


@contextlib.contextmanager
def whole_file(path: pathlib.Path, overwrite: bool) -> Iterator[pathlib.Path]:
    """The file to write in the block. It has its name after the block; where
    the block raises, it is gone. What a link leads to is replaced, and the
    link stays. AlreadyExistsError: there is one already, also where it came
    while the block ran. InvalidArgumentError: it is no file."""
    if path.is_dir():
        raise InvalidArgumentError(
            f"{path} is a folder: name a file in it, or another format"
        )
    check_kind(path)
    _check_free(path, overwrite)
    path = _led_to(path)
    folder = _beside(path)
    folder.mkdir()
    # torch.save() writes the name of the file into it.
    written = folder / path.name
    try:
        yield written
        _sync(written)
        if overwrite:
            check_kind(path)  # It may have come while the block ran.
            os.replace(written, path)
        else:
            _rename_new(written, path)
        _sync(path.parent)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def whole_folder(
    path: pathlib.Path, overwrite: bool, may_go: Callable[[str], bool]
) -> Iterator[pathlib.Path]:
    """The folder to write to in the block, as whole_file(). An empty folder may
    be there. `may_go`: whether a file of that name in the old folder is one
    that `overwrite` may remove."""
    check_kind(path)
    if path.exists() and not path.is_dir():
        raise InvalidArgumentError(f"{path} is a file: choose another name")
    has_any = path.is_dir() and any(path.iterdir())
    if has_any or not path.is_dir():
        _check_free(path, overwrite)
    if has_any:
        others = [c.name for c in path.iterdir() if not _is_file(c, may_go)]
        if others:
            raise InvalidArgumentError(
                f"{path} holds {others[0]!r}, which is no file of such a "
                "checkpoint: choose another folder"
            )
    path = _led_to(path)
    written, old = _beside(path), _beside(path)
    written.mkdir()
    try:
        yield written
        for child in written.iterdir():
            _sync(child)
        _sync(written)
        if not has_any or not _exchange(written, path):
            if has_any:
                os.rename(path, old)
            try:
                os.rename(written, path)  # Fails where there is something.
            except OSError as error:
                raise _there_is(path) from error
        _sync(path.parent)
    finally:
        # However far it came: the old one goes when there is one in its place.
        if has_any and old.is_dir() and not os.path.lexists(path):
            os.rename(old, path)
        _remove(written)
        if os.path.lexists(path):
            _remove(old)


def check_kind(path: pathlib.Path) -> None:
    """InvalidArgumentError where there is something that is neither a file nor
    a folder: a device or a pipe that is replaced is one no more, for
    everybody."""
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        return
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise InvalidArgumentError(
            f"{path} is neither a file nor a folder (a device, a pipe or a "
            "socket): choose another name"
        )


def _led_to(path: pathlib.Path) -> pathlib.Path:
    """Where the links of that name lead, also where nothing is there yet."""
    if not path.is_symlink():
        return path
    found = pathlib.Path(os.path.realpath(path))
    if not found.parent.is_dir():
        raise FileNotFoundError(
            f"{path} leads to {found}, and there is no folder {found.parent}"
        )
    return found


def _remove(path: pathlib.Path) -> None:
    """A folder, or what another program has put in its place."""
    if path.is_symlink() or path.is_file():
        with contextlib.suppress(OSError):
            path.unlink()
    else:
        shutil.rmtree(path, ignore_errors=True)


def _exchange(written: pathlib.Path, path: pathlib.Path) -> bool:
    """Both change their names, in one step; False: not on this file system."""
    try:
        rename = ctypes.CDLL(None, use_errno=True).renameat2
    except (AttributeError, OSError):
        return False
    here, exchange = -100, 2  # AT_FDCWD, RENAME_EXCHANGE
    names = os.fsencode(written), os.fsencode(path)
    return bool(rename(here, names[0], here, names[1], exchange) == 0)


def _is_file(child: pathlib.Path, may_go: Callable[[str], bool]) -> bool:
    return child.is_file() and may_go(child.name)


def _check_free(path: pathlib.Path, overwrite: bool) -> None:
    if not path.parent.is_dir():
        raise FileNotFoundError(f"there is no folder {path.parent}")
    if os.path.lexists(path) and not overwrite:
        raise _there_is(path)


def _there_is(path: pathlib.Path) -> AlreadyExistsError:
    return AlreadyExistsError(
        f"{path} is there already: pass overwrite=True to replace it"
    )


def _beside(path: pathlib.Path) -> pathlib.Path:
    return path.with_name(f".{path.name[:100]}.{uuid.uuid4().hex[:12]}.new")


def _rename_new(written: pathlib.Path, path: pathlib.Path) -> None:
    """As a rename that replaces nothing."""
    try:
        os.link(written, path)
    except FileExistsError:
        raise _there_is(path) from None
    except OSError:  # No file system of links.
        if os.path.lexists(path):
            raise _there_is(path) from None
        os.rename(written, path)


def _sync(path: pathlib.Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
