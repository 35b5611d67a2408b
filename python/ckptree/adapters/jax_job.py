# SPDX-License-Identifier: Apache-2.0
"""The processes of jax.distributed as ranks of one job."""

from __future__ import annotations

import itertools
import uuid
from typing import Any

from ckptree.errors import UnavailableError

try:
    import jax

    # What carries texts between the processes without a collective. JAX has no
    # public name for it.
    from jax._src import distributed
except ImportError:
    raise ImportError(
        "Ranks.jax() needs JAX: pip install 'ckptree[jax]', or jax for your "
        "device"
    ) from None

# Each name is another key: one that is set cannot be set again.
_count = itertools.count(1)


def meet(deadline: float) -> tuple[int, int, str]:
    """This process, how many there are, and a name that all of them have."""
    job = uuid.uuid4().hex
    known: Any = distributed.global_state
    client = known.client
    if client is None:
        if jax.process_count() == 1:
            return 0, 1, job
        raise UnavailableError(
            f"JAX runs in {jax.process_count()} processes, but not by "
            "jax.distributed: give each of them ckptree.Ranks(rank, world, "
            "job=...)"
        )
    # jax.process_index() would wait for the devices of all processes.
    rank, world = int(known.process_id), int(known.num_processes)
    if world == 1:
        return rank, world, job
    key = f"ckptree/job/{next(_count)}"
    try:
        if rank == 0:
            client.key_value_set(key, job)
            return rank, world, job
        return (
            rank,
            world,
            client.blocking_key_value_get(key, int(1000 * deadline)),
        )
    except Exception as error:  # jaxlib's own, which has no class to name.
        raise UnavailableError(
            f"rank {rank} of {world} did not hear the name of the job within "
            f"{deadline:g} s: has process 0 called Ranks.jax() as often? "
            f"({error})"
        ) from None
