# SPDX-License-Identifier: Apache-2.0
"""Texts that processes of jax.distributed leave for each other, without a
collective: the coordination service keeps them."""

from __future__ import annotations

import time
from typing import Any

import jax

# JAX has no public name for it: see jax_job.
from jax._src import distributed

from ckptree.errors import UnavailableError

# A wait looks this often whether it is interrupted, in seconds.
_MOMENT = 0.5


def processes() -> int:
    """How many there are. Asks JAX for its devices only where it runs
    distributed."""
    known: Any = distributed.global_state
    if known.client is None or (known.num_processes or 1) == 1:
        return 1
    return int(jax.process_count())


def process() -> int:
    """The number of this one."""
    return int(jax.process_index()) if processes() > 1 else 0


def put(name: str, text: str) -> None:
    """For get() of another process. A name is used once."""
    _call("key_value_set", name, text)


def get(name: str, deadline: float) -> str | None:
    """What was put there; None: nothing within so many seconds."""
    end = time.monotonic() + deadline
    while True:
        left = max(0.001, end - time.monotonic())
        try:
            found: str = _call(
                "blocking_key_value_get",
                name,
                int(1000 * min(_MOMENT, left)) or 1,
            )
            return found
        except UnavailableError as error:
            if "DEADLINE_EXCEEDED" not in str(error):
                raise
            if left <= _MOMENT:
                return None


def drop(name: str) -> None:
    """Nobody asks for it any more."""
    _call("key_value_delete", name)


def _call(method: str, *args: Any) -> Any:
    known: Any = distributed.global_state
    if known.client is None:
        raise UnavailableError("jax.distributed was shut down")
    try:
        return getattr(known.client, method)(*args)
    except Exception as error:  # jaxlib's own, which has no class to name.
        raise UnavailableError(
            f"the coordination service of JAX: {error}"
        ) from None
