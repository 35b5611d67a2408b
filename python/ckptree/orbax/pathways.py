# SPDX-License-Identifier: Apache-2.0
"""Orbax's support of Pathways, which a store does not have."""

from __future__ import annotations

from typing import Any

from ckptree.orbax.multihost import is_pathways_backend

__all__ = ["is_pathways_backend"]


def __getattr__(name: str) -> Any:
    raise AttributeError(
        f"ckptree.orbax.pathways has no {name}: one process writes a store, "
        "and arrays are read from it directly"
    )
