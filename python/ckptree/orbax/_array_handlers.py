# SPDX-License-Identifier: Apache-2.0
"""Handlers of single arrays and of random keys."""

from __future__ import annotations

import numbers
import sys
from typing import TYPE_CHECKING, Any

import numpy as np

from ckptree.orbax import _tree_restore, _tree_save
from ckptree.orbax._handler import StoreHandler
from ckptree.orbax._items import Item
from ckptree.orbax._option_states import tell
from ckptree.orbax.args import (
    ArrayRestore,
    ArraySave,
    JaxRandomKeyRestore,
    JaxRandomKeySave,
    NumpyRandomKeyRestore,
    NumpyRandomKeySave,
)
from ckptree.orbax.checkpoint_args import register_with_handler

if TYPE_CHECKING:
    from ckptree.orbax._items import StoredItem


def _is_jax(value: Any) -> bool:
    jax = sys.modules.get("jax")
    return jax is not None and isinstance(value, jax.Array)


class ArrayCheckpointHandler(StoreHandler):
    """One array or number: ArraySave, ArrayRestore."""

    def __init__(self, checkpoint_name: str | None = None) -> None:
        tell("ArrayCheckpointHandler", locals(), ArrayCheckpointHandler)

    def pack(self, args: Any) -> Item:
        value = args.item
        known = isinstance(value, (np.ndarray, np.generic, numbers.Number))
        if not known and not _is_jax(value):
            raise TypeError(
                f"Unsupported type: {type(value)}: one array or number"
            )
        return _tree_save.save(value, args.save_args)

    def unpack(self, item: StoredItem, args: Any) -> Any:
        args = args or ArrayRestore()
        return _tree_restore.restore(item, args.item, args.restore_args)


class JaxRandomKeyCheckpointHandler(StoreHandler):
    """A key of jax.random, typed or of numbers. Comes back with the
    implementation that it had."""

    def __init__(self, key_name: str | None = None) -> None:
        tell(
            "JaxRandomKeyCheckpointHandler",
            locals(),
            JaxRandomKeyCheckpointHandler,
        )

    def pack(self, args: Any) -> Item:
        if not _is_jax(args.item):
            raise TypeError(
                f"Unsupported type: {type(args.item)}: a key of JAX"
            )
        return _tree_save.save(args.item, args.save_args)

    def unpack(self, item: StoredItem, args: Any) -> Any:
        import jax

        made = _tree_restore.restore(
            item, None, getattr(args, "restore_args", None)
        )
        return made if isinstance(made, jax.Array) else jax.numpy.asarray(made)


class NumpyRandomKeyCheckpointHandler(StoreHandler):
    """What numpy.random.get_state() gave, a tuple or a dict."""

    def __init__(self, key_name: str | None = None) -> None:
        tell(
            "NumpyRandomKeyCheckpointHandler",
            locals(),
            NumpyRandomKeyCheckpointHandler,
        )

    def pack(self, args: Any) -> Item:
        if not isinstance(args.item, (tuple, dict)):
            raise TypeError(
                f"Unsupported type: {type(args.item)}: numpy.random.get_state()"
            )
        made = _tree_save.save(args.item, None)
        return made._replace(about={"tuple": isinstance(args.item, tuple)})

    def unpack(self, item: StoredItem, args: Any) -> Any:
        made = _tree_restore.restore(item)
        return tuple(made) if item.about.get("tuple") else made


register_with_handler(ArrayCheckpointHandler, for_save=True)(ArraySave)
register_with_handler(ArrayCheckpointHandler, for_restore=True)(ArrayRestore)
register_with_handler(JaxRandomKeyCheckpointHandler, for_save=True)(
    JaxRandomKeySave
)
register_with_handler(JaxRandomKeyCheckpointHandler, for_restore=True)(
    JaxRandomKeyRestore
)
register_with_handler(NumpyRandomKeyCheckpointHandler, for_save=True)(
    NumpyRandomKeySave
)
register_with_handler(NumpyRandomKeyCheckpointHandler, for_restore=True)(
    NumpyRandomKeyRestore
)
