# SPDX-License-Identifier: Apache-2.0
"""Orbax's second interface on a store: `import
ckptree.orbax.experimental.v1 as ocp`.

README.md, part "Orbax", says what differs.
"""

from ckptree.orbax.experimental.v1 import (
    arrays,
    errors,
    handlers,
    multihost,
    options,
    partial,
    path,
    training,
    tree,
)
from ckptree.orbax.experimental.v1._checkpointable import (
    AbstractCheckpointable,
    Checkpointable,
    CheckpointableHandler,
    StatefulCheckpointable,
)
from ckptree.orbax.experimental.v1._context import Context
from ckptree.orbax.experimental.v1._deleting import delete, delete_async
from ckptree.orbax.experimental.v1._deprecated import (
    load_pytree,
    load_pytree_async,
    pytree_metadata,
    save_pytree,
    save_pytree_async,
)
from ckptree.orbax.experimental.v1._loading import (
    checkpointables_metadata,
    is_orbax_checkpoint,
    load,
    load_async,
    load_checkpointables,
    load_checkpointables_async,
    metadata,
)
from ckptree.orbax.experimental.v1._metadata import (
    CheckpointMetadata,
    PyTreeMetadata,
)
from ckptree.orbax.experimental.v1._response import AsyncResponse
from ckptree.orbax.experimental.v1._saving import (
    save,
    save_async,
    save_checkpointables,
    save_checkpointables_async,
)

# In an abstract state: a leaf that is not read, and stays as it is.
PLACEHOLDER = ...

__all__ = [
    "AbstractCheckpointable",
    "AsyncResponse",
    "CheckpointMetadata",
    "Checkpointable",
    "CheckpointableHandler",
    "Context",
    "PLACEHOLDER",
    "PyTreeMetadata",
    "StatefulCheckpointable",
    "arrays",
    "checkpointables_metadata",
    "delete",
    "delete_async",
    "errors",
    "handlers",
    "is_orbax_checkpoint",
    "load",
    "load_async",
    "load_checkpointables",
    "load_checkpointables_async",
    "load_pytree",
    "load_pytree_async",
    "metadata",
    "multihost",
    "options",
    "partial",
    "path",
    "pytree_metadata",
    "save",
    "save_async",
    "save_checkpointables",
    "save_checkpointables_async",
    "save_pytree",
    "save_pytree_async",
    "training",
    "tree",
]
