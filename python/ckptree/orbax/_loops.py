# SPDX-License-Identifier: Apache-2.0
"""Coroutines run to their end where nothing can wait for them."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextvars
import inspect
from typing import Any, Callable, Coroutine


def run(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """What it returns."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(coroutine)
    # The caller's loop, such as a notebook's, cannot run it while it waits.
    context = contextvars.copy_context()
    with concurrent.futures.ThreadPoolExecutor(1) as thread:
        return thread.submit(context.run, asyncio.run, coroutine).result()


def run_save(call: Callable[[], Any]) -> None:
    """Calls an async_save() and waits for all that it began."""
    for future in begin_save(call):
        future.result()


def begin_save(call: Callable[[], Any]) -> list[Any]:
    """Calls an async_save(); returns the futures of what goes on."""

    async def save() -> Any:
        made = call()
        return await made if inspect.isawaitable(made) else made

    return list(run(save()) or ())
