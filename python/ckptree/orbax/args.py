# SPDX-License-Identifier: Apache-2.0
"""Arguments of save() and restore(), by the kind of what is saved."""

from __future__ import annotations

import dataclasses
from typing import Any

from ckptree.orbax._composite import Composite as _Composite
from ckptree.orbax.checkpoint_args import (
    CheckpointArgs,
    get_registered_args_cls,
    get_registered_handler_cls,
    has_registered_args,
    register_with_handler,
)

__all__ = [
    "ArrayRestore",
    "ArraySave",
    "CheckpointArgs",
    "Composite",
    "JaxRandomKeyRestore",
    "JaxRandomKeySave",
    "JsonRestore",
    "JsonSave",
    "NumpyRandomKeyRestore",
    "NumpyRandomKeySave",
    "ProtoRestore",
    "ProtoSave",
    "PyTreeRestore",
    "PyTreeSave",
    "StandardRestore",
    "StandardSave",
    "get_registered_args_cls",
    "get_registered_handler_cls",
    "has_registered_args",
    "register_with_handler",
]


class Composite(_Composite, CheckpointArgs):
    """Arguments of several items, by name.

    >>> both = Composite(
    ...     state=StandardSave({"w": 1}), config=JsonSave({"a": 2}))
    >>> list(both), both.config.item
    (['state', 'config'], {'a': 2})
    """


@dataclasses.dataclass
class StandardSave(CheckpointArgs):
    """A tree of arrays and numbers. `save_args`: SaveArgs in a tree like it.
    `custom_metadata`: a dict for JSON."""

    item: Any
    save_args: Any = None
    custom_metadata: Any = None


@dataclasses.dataclass
class StandardRestore(CheckpointArgs):
    """`item`: a template; without one the tree is dicts and lists. Not
    `strict`: arrays of other shapes are cut or filled, elements of other types
    converted. `fallback_sharding`: of arrays for which the template says
    none."""

    item: Any = None
    strict: bool = True
    support_layout: bool = False
    fallback_sharding: Any = None


@dataclasses.dataclass
class PyTreeSave(CheckpointArgs):
    """A tree of arrays, numbers, str, bytes and None."""

    item: Any
    save_args: Any = None
    ocdbt_target_data_file_size: int | None = None  # Does nothing.
    custom_metadata: Any = None


@dataclasses.dataclass
class PyTreeRestore(CheckpointArgs):
    """`item`: a template. `restore_args`: RestoreArgs in a tree like it, or
    like what was saved. `partial_restore`: what the template lacks is not read,
    what was not saved keeps the template's value. `transforms`: see
    transform_utils."""

    item: Any = None
    restore_args: Any = None
    transforms: Any = None
    transforms_default_to_original: bool = True
    legacy_transform_fn: Any = None
    partial_restore: bool = False


@dataclasses.dataclass
class JsonSave(CheckpointArgs):
    """What JSON can write."""

    item: Any


@dataclasses.dataclass
class JsonRestore(CheckpointArgs):
    """`item` does nothing."""

    item: Any = None


@dataclasses.dataclass
class ArraySave(CheckpointArgs):
    """One array or number."""

    item: Any
    save_args: Any = None


@dataclasses.dataclass
class ArrayRestore(CheckpointArgs):
    """`restore_args`: RestoreArgs of the array."""

    item: Any = None
    restore_args: Any = None


@dataclasses.dataclass
class ProtoSave(CheckpointArgs):
    """A message of protobuf."""

    item: Any


@dataclasses.dataclass
class ProtoRestore(CheckpointArgs):
    """`item`: the type of the message."""

    item: Any = None


@dataclasses.dataclass
class JaxRandomKeySave(CheckpointArgs):
    """A key of jax.random, typed or of numbers."""

    item: Any
    save_args: Any = None


@dataclasses.dataclass
class JaxRandomKeyRestore(CheckpointArgs):
    """`restore_args`: RestoreArgs of the key's numbers."""

    restore_args: Any = None


@dataclasses.dataclass
class NumpyRandomKeySave(CheckpointArgs):
    """What numpy.random.get_state() gave."""

    item: Any


@dataclasses.dataclass
class NumpyRandomKeyRestore(CheckpointArgs):
    """Says nothing."""
