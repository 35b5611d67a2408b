# SPDX-License-Identifier: Apache-2.0
"""Handlers: each saves and restores one kind of object."""

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
from ckptree.orbax._handler import AsyncCheckpointHandler, CheckpointHandler
from ckptree.orbax._registry import (
    AlreadyExistsError,
    CheckpointHandlerRegistry,
    DefaultCheckpointHandlerRegistry,
    NoEntryError,
    create_default_handler_registry,
)
from ckptree.orbax._tree_handlers import (
    BasePyTreeCheckpointHandler,
    PyTreeCheckpointHandler,
    StandardCheckpointHandler,
)
from ckptree.orbax.args import ArrayRestore as ArrayRestoreArgs
from ckptree.orbax.args import ArraySave as ArraySaveArgs
from ckptree.orbax.args import Composite as CompositeArgs
from ckptree.orbax.args import JaxRandomKeyRestore as JaxRandomKeyRestoreArgs
from ckptree.orbax.args import JaxRandomKeySave as JaxRandomKeySaveArgs
from ckptree.orbax.args import JsonRestore as JsonRestoreArgs
from ckptree.orbax.args import JsonSave as JsonSaveArgs
from ckptree.orbax.args import (
    NumpyRandomKeyRestore as NumpyRandomKeyRestoreArgs,
)
from ckptree.orbax.args import NumpyRandomKeySave as NumpyRandomKeySaveArgs
from ckptree.orbax.args import ProtoRestore as ProtoRestoreArgs
from ckptree.orbax.args import ProtoSave as ProtoSaveArgs
from ckptree.orbax.args import PyTreeRestore as PyTreeRestoreArgs
from ckptree.orbax.args import PyTreeSave as PyTreeSaveArgs
from ckptree.orbax.args import StandardRestore as StandardRestoreArgs
from ckptree.orbax.args import StandardSave as StandardSaveArgs

__all__ = [
    "AlreadyExistsError",
    "ArrayCheckpointHandler",
    "ArrayRestoreArgs",
    "ArraySaveArgs",
    "AsyncCheckpointHandler",
    "BasePyTreeCheckpointHandler",
    "CheckpointHandler",
    "CheckpointHandlerRegistry",
    "CompositeArgs",
    "CompositeCheckpointHandler",
    "CompositeOptions",
    "DefaultCheckpointHandlerRegistry",
    "JaxRandomKeyCheckpointHandler",
    "JaxRandomKeyRestoreArgs",
    "JaxRandomKeySaveArgs",
    "JsonCheckpointHandler",
    "JsonRestoreArgs",
    "JsonSaveArgs",
    "NoEntryError",
    "NumpyRandomKeyCheckpointHandler",
    "NumpyRandomKeyRestoreArgs",
    "NumpyRandomKeySaveArgs",
    "ProtoCheckpointHandler",
    "ProtoRestoreArgs",
    "ProtoSaveArgs",
    "PyTreeCheckpointHandler",
    "PyTreeRestoreArgs",
    "PyTreeSaveArgs",
    "StandardCheckpointHandler",
    "StandardRestoreArgs",
    "StandardSaveArgs",
    "create_default_handler_registry",
]
