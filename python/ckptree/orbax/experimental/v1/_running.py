# SPDX-License-Identifier: Apache-2.0
"""Coroutines of handlers, run to their end."""

from __future__ import annotations

import inspect
from typing import Any

from ckptree.orbax import _loops


def run_both(call: Any) -> Any:
    """What a coroutine of two phases returns in the end."""

    async def both() -> Any:
        result = await call
        return await result if inspect.isawaitable(result) else result

    return _loops.run(both())


def run_one(call: Any) -> Any:
    """What a coroutine returns; a plain value as it is."""

    async def one() -> Any:
        return await call

    return _loops.run(one()) if inspect.isawaitable(call) else call

