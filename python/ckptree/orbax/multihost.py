# SPDX-License-Identifier: Apache-2.0
"""Processes. Where JAX is imported it is asked; else there is one."""

from __future__ import annotations

import sys


def process_index() -> int:
    """Of this process.

    >>> process_index()
    0
    """
    jax = sys.modules.get("jax")
    return 0 if jax is None else int(jax.process_index())


def process_count() -> int:
    """How many there are."""
    jax = sys.modules.get("jax")
    return 1 if jax is None else int(jax.process_count())


def is_primary_host(primary_host: int | None = 0) -> bool:
    """Whether this process is the first; None: each is.

    >>> is_primary_host(0), is_primary_host(None), is_primary_host(1)
    (True, True, False)
    """
    return primary_host is None or primary_host == process_index()


def sync_global_processes(name: str, *args: object, **kwargs: object) -> None:
    """Waits for the others, where there are any."""
    if process_count() > 1:
        from jax.experimental import multihost_utils

        multihost_utils.sync_global_devices(name)


def initialize_runtime_to_distributed_ids() -> None:
    """Nothing has to be known for a store."""


def is_runtime_to_distributed_ids_initialized() -> bool:
    """Always: see initialize_runtime_to_distributed_ids()."""
    return True


def is_pathways_backend() -> bool:
    """Never."""
    return False


def reached_preemption(step: int) -> bool:
    """Whether JAX says so, where it runs distributed; else never."""
    if "jax" not in sys.modules:
        return False
    from jax.experimental import multihost_utils

    try:
        return bool(multihost_utils.reached_preemption_sync_point(step))
    except RuntimeError:
        return False
