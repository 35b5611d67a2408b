# SPDX-License-Identifier: Apache-2.0
"""Handlers: what saves and loads objects of one kind."""

from ckptree.orbax.experimental.v1._checkpointable import (
    AbstractCheckpointable,
    Checkpointable,
    CheckpointableHandler,
    StatefulCheckpointable,
)
from ckptree.orbax.experimental.v1._handler_registry import (
    CheckpointableHandlerRegistry,
    global_registry,
    local_registry,
    register_handler,
)
from ckptree.orbax.experimental.v1._store_handlers import (
    JsonHandler,
    ProtoHandler,
    PyTreeHandler,
)

__all__ = [
    "AbstractCheckpointable",
    "Checkpointable",
    "CheckpointableHandler",
    "CheckpointableHandlerRegistry",
    "JsonHandler",
    "ProtoHandler",
    "PyTreeHandler",
    "StatefulCheckpointable",
    "global_registry",
    "local_registry",
    "register_handler",
]
