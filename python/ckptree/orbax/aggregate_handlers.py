# SPDX-License-Identifier: Apache-2.0
"""Orbax's files of many small leaves. A store packs them by itself: there are
no such handlers."""

from __future__ import annotations

from typing import Any


def __getattr__(name: str) -> Any:
    raise AttributeError(
        f"ckptree.orbax.aggregate_handlers has no {name}: a store packs small "
        "leaves by itself; leave the handler out"
    )
