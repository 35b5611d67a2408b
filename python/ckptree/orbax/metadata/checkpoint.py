# SPDX-License-Identifier: Apache-2.0
"""Metadata of a step, and of a manager's directory."""

from __future__ import annotations

import dataclasses
from typing import Any


@dataclasses.dataclass
class StepStatistics:
    """How long saving it took, in seconds."""

    save_duration_secs: float | None = None


@dataclasses.dataclass
class StepMetadata:
    """What is known of a step. With one item that has no name `item_metadata`
    is its own, and so is `item_handlers` of a checkpointer; else they are by
    item. Of the metrics, which a manager wrote, the metadata is None."""

    item_handlers: Any = None
    item_metadata: Any = None
    metrics: Any = dataclasses.field(default_factory=dict)
    performance_metrics: StepStatistics = dataclasses.field(
        default_factory=StepStatistics
    )
    init_timestamp_nsecs: int | None = None
    commit_timestamp_nsecs: int | None = None
    custom_metadata: dict[str, Any] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass
class RootMetadata:
    """What was said of the run when its manager was made."""

    internal_metadata: dict[str, Any] = dataclasses.field(default_factory=dict)
    custom_metadata: dict[str, Any] = dataclasses.field(default_factory=dict)
