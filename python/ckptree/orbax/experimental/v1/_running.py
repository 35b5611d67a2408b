"""Coroutines of handlers, run to their end."""

from __future__ import annotations

import asyncio
import concurrent.futures
import inspect
from typing import Any


def run_both(call: Any) -> Any:
    """What a coroutine of two phases returns in the end."""

    async def both() -> Any:
        result = await call
        return await result if inspect.isawaitable(result) else result

    return _run(both())


def run_one(call: Any) -> Any:
    """What a coroutine returns; a plain value as it is."""

    async def one() -> Any:
        return await call

    return _run(one()) if inspect.isawaitable(call) else call


def _run(coroutine: Any) -> Any:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(coroutine)
    # The caller's loop, such as a notebook's, cannot run it while it waits.
    with concurrent.futures.ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, coroutine).result()
