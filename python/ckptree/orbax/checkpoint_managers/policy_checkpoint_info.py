# SPDX-License-Identifier: Apache-2.0
"""A step as policies see it."""

from __future__ import annotations

import dataclasses
import datetime
from typing import Any


@dataclasses.dataclass
class PolicyCheckpointInfo:
    """A step as policies see it. `time` is aware of its zone."""

    step: int
    time: datetime.datetime
    metrics: Any = None


def seconds(info: Any) -> float:
    """Its time, since 1970."""
    time = info.time
    if time.tzinfo is None:
        time = time.replace(tzinfo=datetime.timezone.utc)
    return float(time.timestamp())
