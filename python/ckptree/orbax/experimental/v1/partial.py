# SPDX-License-Identifier: Apache-2.0
"""Saving a checkpoint in several parts, which is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from ckptree.orbax.experimental.v1.path import PathLike

_WHY = (
    "partial: save the whole tree by save(path, state, overwrite=True): a "
    "store writes only the arrays that changed, so the parts that were saved "
    "before cost nothing, and each save is complete"
)


def save(
    path: PathLike, state: Any, *, custom_metadata: Any = None
) -> NoReturn:
    """NotImplementedError: says what to use."""
    raise NotImplementedError(_WHY)


def save_async(
    path: PathLike, state: Any, *, custom_metadata: Any = None
) -> NoReturn:
    """NotImplementedError: says what to use."""
    raise NotImplementedError(_WHY)


def finalize(path: PathLike) -> NoReturn:
    """NotImplementedError: says what to use."""
    raise NotImplementedError(_WHY)
