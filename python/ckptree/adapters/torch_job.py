# SPDX-License-Identifier: Apache-2.0
"""The processes of torch.distributed as ranks of one job."""

from __future__ import annotations

import uuid
from typing import Any

from ckptree.errors import InvalidArgumentError

try:
    import torch.distributed as dist
except ImportError:
    raise ImportError(
        "Ranks.torch() needs PyTorch: pip install torch"
    ) from None


def meet(group: Any) -> tuple[int, int, str]:
    """This process, how many there are, and a name that all of them have."""
    names: list[str] = [uuid.uuid4().hex]
    if not dist.is_available() or not dist.is_initialized():
        return 0, 1, names[0]
    rank, world = dist.get_rank(group), dist.get_world_size(group)
    if rank < 0:
        raise InvalidArgumentError("group: this process is not of it")
    first = 0 if group is None else dist.get_global_rank(group, 0)
    dist.broadcast_object_list(names, src=first, group=group)
    return rank, world, names[0]
