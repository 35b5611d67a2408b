# SPDX-License-Identifier: Apache-2.0
"""Orbax's names on a store: `import ckptree.orbax as ocp`.

What differs from Orbax is in python/README.md, under "Orbax and Flax: change
the import line". This package needs neither Orbax nor TensorStore.
"""

from ckptree.orbax import (
    aggregate_handlers,
    args,
    arrays,
    checkpoint_args,
    checkpoint_managers,
    checkpoint_utils,
    checkpointers,
    handlers,
    logging,
    metadata,
    msgpack_utils,
    multihost,
    options,
    path,
    pathways,
    serialization,
    step,
    test_utils,
    transform_utils,
    tree,
    type_handlers,
    utils,
)
from ckptree.orbax._absent import say_in
from ckptree.orbax._array_handlers import (
    ArrayCheckpointHandler,
    JaxRandomKeyCheckpointHandler,
    NumpyRandomKeyCheckpointHandler,
)
from ckptree.orbax._composite_handler import (
    CompositeCheckpointHandler,
    CompositeOptions,
)
from ckptree.orbax._document_handlers import (
    JsonCheckpointHandler,
    ProtoCheckpointHandler,
)
from ckptree.orbax._exporting import export_orbax
from ckptree.orbax._handler import AsyncCheckpointHandler, CheckpointHandler
from ckptree.orbax._manager_options import CheckpointManagerOptions
from ckptree.orbax._place import OrbaxCheckpointError
from ckptree.orbax._registry import (
    CheckpointHandlerRegistry,
    DefaultCheckpointHandlerRegistry,
)
from ckptree.orbax._remote import RemoteOptions
from ckptree.orbax._transfer import import_checkpoint
from ckptree.orbax._tree_handlers import (
    BasePyTreeCheckpointHandler,
    PyTreeCheckpointHandler,
    StandardCheckpointHandler,
)
from ckptree.orbax.checkpoint_manager import (
    AbstractCheckpointManager,
    CheckpointManager,
)
from ckptree.orbax.checkpointers import (
    AbstractCheckpointer,
    AsyncCheckpointer,
    Checkpointer,
    PyTreeCheckpointer,
    StandardCheckpointer,
)
from ckptree.orbax.future import Future
from ckptree.orbax.options import AsyncOptions
from ckptree.orbax.transform_utils import (
    RestoreTransform,
    Transform,
    apply_transformations,
    merge_trees,
)
from ckptree.orbax.type_handlers import (
    ArrayRestoreArgs,
    RestoreArgs,
    SaveArgs,
)

# Last: it is made of the others.
from ckptree.orbax import experimental  # isort: skip
from ckptree.orbax.experimental import v1  # isort: skip

# Of Orbax, whose behaviour this is.
__version__ = "0.12.8"

# In a template: a leaf that is not read, and stays as it is.
PLACEHOLDER = ...

__all__ = [
    "AbstractCheckpointManager",
    "AbstractCheckpointer",
    "ArrayCheckpointHandler",
    "ArrayRestoreArgs",
    "AsyncCheckpointHandler",
    "AsyncCheckpointer",
    "AsyncOptions",
    "BasePyTreeCheckpointHandler",
    "CheckpointHandler",
    "CheckpointHandlerRegistry",
    "CheckpointManager",
    "CheckpointManagerOptions",
    "Checkpointer",
    "CompositeCheckpointHandler",
    "CompositeOptions",
    "DefaultCheckpointHandlerRegistry",
    "Future",
    "JaxRandomKeyCheckpointHandler",
    "JsonCheckpointHandler",
    "NumpyRandomKeyCheckpointHandler",
    "OrbaxCheckpointError",
    "PLACEHOLDER",
    "ProtoCheckpointHandler",
    "PyTreeCheckpointHandler",
    "PyTreeCheckpointer",
    "RemoteOptions",
    "RestoreArgs",
    "RestoreTransform",
    "SaveArgs",
    "StandardCheckpointHandler",
    "StandardCheckpointer",
    "Transform",
    "aggregate_handlers",
    "apply_transformations",
    "args",
    "arrays",
    "checkpoint_args",
    "checkpoint_managers",
    "checkpoint_utils",
    "checkpointers",
    "experimental",
    "export_orbax",
    "handlers",
    "import_checkpoint",
    "logging",
    "merge_trees",
    "metadata",
    "msgpack_utils",
    "multihost",
    "options",
    "path",
    "pathways",
    "serialization",
    "step",
    "test_utils",
    "transform_utils",
    "tree",
    "type_handlers",
    "utils",
    "v1",
]

say_in(__name__)
