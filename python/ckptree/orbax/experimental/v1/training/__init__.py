# SPDX-License-Identifier: Apache-2.0
"""Steps of a training loop."""

from ckptree.orbax.experimental.v1.training import (
    errors,
    preservation_policies,
    save_decision_policies,
)
from ckptree.orbax.experimental.v1.training._checkpointer import Checkpointer
from ckptree.orbax.experimental.v1.training._metadata import (
    CheckpointMetadata,
    RootMetadata,
)

__all__ = [
    "CheckpointMetadata",
    "Checkpointer",
    "RootMetadata",
    "errors",
    "preservation_policies",
    "save_decision_policies",
]
