# SPDX-License-Identifier: Apache-2.0
"""What is asked of single leaves when they are saved and restored."""

from __future__ import annotations

import dataclasses
import os
from typing import Any

from ckptree.orbax._absent import WHERE, absent
from ckptree.orbax._option_states import tell


@dataclasses.dataclass
class SaveArgs:
    """Of a leaf that is saved. `dtype`: its elements are converted to it.

    `aggregate`, `chunk_byte_size` and `shard_axes` do nothing: a store cuts
    arrays by itself, and packs what is small.
    """

    aggregate: bool = False
    dtype: Any = None
    chunk_byte_size: int | None = None
    shard_axes: tuple[int, ...] = ()


@dataclasses.dataclass
class RestoreArgs:
    """Of a leaf that is restored. `restore_type`: int, float, bool, str, bytes,
    numpy.ndarray or jax.Array; None: as it was saved. `dtype`: its elements are
    converted to it."""

    restore_type: Any = None
    dtype: Any = None


@dataclasses.dataclass
class ArrayRestoreArgs(RestoreArgs):
    """Of a leaf that becomes an array of JAX, placed by `sharding`, or `mesh`
    and `mesh_axes`; without either where it was saved, if those devices are
    there. `strict`: ValueError where `global_shape` is not the saved shape;
    else the end of each axis is cut off or filled with zeros."""

    restore_type: Any = None  # jax.Array
    mesh: Any = None
    mesh_axes: Any = None
    sharding: Any = None
    global_shape: tuple[int, ...] | None = None
    shape: tuple[int, ...] | None = None
    strict: bool = True

    def __post_init__(self) -> None:
        if self.restore_type is None:
            import jax

            self.restore_type = jax.Array
        if self.shape is None:
            self.shape = self.global_shape
        if self.global_shape is None:
            self.global_shape = self.shape
        if self.shape != self.global_shape:
            raise ValueError(
                f"shape {self.shape} and global_shape {self.global_shape} "
                "differ: pass one of them"
            )


# Of Orbax's files, which a store does not have.
_OF_FILES = (
    "ParamInfo",
    "SingleReplicaArrayHandler",
    "TypeHandler",
    "get_cast_tspec_deserialize",
    "get_cast_tspec_serialize",
    "get_json_tspec_read",
    "get_json_tspec_write",
    "get_ts_context",
    "merge_ocdbt_per_process_files",
)


def __getattr__(name: str) -> Any:
    if name in _OF_FILES:
        raise AttributeError(
            f"ckptree.orbax.type_handlers has no {name}: a store has no files "
            "of single leaves. ckptree.open(path)[step][name][...] reads a "
            "part of one; CheckpointHandler is for kinds of your own; "
            f"{WHERE}"
        )
    absent(__name__)(name)


# What the classes here have, of objects of Orbax's own classes.
_OF_RESTORE = ("restore_type", "dtype")
_OF_ARRAY = ("mesh", "mesh_axes", "sharding", "global_shape", "shape", "strict")


def is_of_orbax(value: Any, name: str = "") -> bool:
    """Whether it is an object of Orbax itself, of a class of that name."""
    return any(
        cls.__module__.partition(".")[0] == "orbax"
        and name in ("", cls.__name__)
        for cls in type(value).__mro__
    )


def as_save_args(value: Any) -> SaveArgs | None:
    """SaveArgs, ours or Orbax's; None where `value` is neither."""
    if isinstance(value, SaveArgs):
        return value
    if is_of_orbax(value, "SaveArgs"):
        return SaveArgs(dtype=value.dtype)
    return None


def as_restore_args(value: Any) -> RestoreArgs | None:
    """RestoreArgs, ours or Orbax's; None where `value` is neither."""
    if isinstance(value, RestoreArgs):
        return value
    for cls, names in (
        (ArrayRestoreArgs, _OF_RESTORE + _OF_ARRAY),
        (RestoreArgs, _OF_RESTORE),
    ):
        if is_of_orbax(value, cls.__name__):
            return cls(
                **{n: getattr(value, n) for n in names if hasattr(value, n)}
            )
    return None


class SingleReplicaArrayRestoreArgs(ArrayRestoreArgs):
    """As ArrayRestoreArgs: one process reads everything."""


class ArrayHandler:
    """Stands for Orbax's handler of arrays of JAX. The engine stores them by
    itself: its options do nothing, and a warning says so once."""

    def __init__(
        self,
        metadata_key: str | None = None,
        primary_host: int | None = 0,
        replica_id: int | None = 0,
        use_replica_parallel: bool | None = None,
        min_slice_bytes_for_replica_parallel: int | None = None,
        max_replicas_for_replica_parallel: int | None = None,
        enable_write_sharding_file: bool = True,
        array_metadata_store: Any = None,
        enable_replica_parallel_separate_folder: bool = False,
        dispatcher: Any = None,
        callback: Any = None,
    ) -> None:
        tell("ArrayHandler", locals(), ArrayHandler)

    def typestr(self) -> str:
        return "jax.Array"


class NumpyHandler(ArrayHandler):
    """As ArrayHandler, of NumPy's arrays."""

    def __init__(
        self,
        metadata_key: str | None = None,
        ocdbt_process_id: str | None = None,
        deepcopy_host_arrays: bool = True,
    ) -> None:
        tell("NumpyHandler", locals(), NumpyHandler)

    def typestr(self) -> str:
        return "np.ndarray"


class ScalarHandler(ArrayHandler):
    """As ArrayHandler, of numbers."""

    def __init__(
        self,
        metadata_key: str | None = None,
        ocdbt_process_id: str | None = None,
    ) -> None:
        tell("ScalarHandler", locals(), ScalarHandler)

    def typestr(self) -> str:
        return "scalar"


class StringHandler(ArrayHandler):
    """As ArrayHandler, of str."""

    def __init__(self, filename: str | None = None) -> None:
        tell("StringHandler", locals(), StringHandler)

    def typestr(self) -> str:
        return "string"


# Those that the engine stands for; what a subclass does it would not do.
_OURS = (ArrayHandler, NumpyHandler, ScalarHandler, StringHandler)


class TypeHandlerRegistry:
    """Types of leaves, and their handlers: of the engine's own kinds only.

    >>> create_type_handler_registry((str, StringHandler())).get(str).typestr()
    'string'
    """

    def __init__(self, *handlers: tuple[Any, ArrayHandler]) -> None:
        self._handlers: list[tuple[Any, ArrayHandler]] = []
        for kind, handler in handlers:
            self.add(kind, handler)

    def add(
        self,
        ty: Any,
        handler: ArrayHandler,
        func: Any = None,
        override: bool = False,
        ignore_warnings: bool = False,
    ) -> None:
        """ValueError where the type has one and `override` is not set.
        NotImplementedError for a handler of your own: see the message."""
        if type(handler) not in _OURS:
            raise NotImplementedError(
                f"{type(handler).__qualname__} writes files for single leaves, "
                "and a store has none: make your type a node of JAX's trees "
                "(jax.tree_util.register_pytree_with_keys), or save the item "
                "by a CheckpointHandler of your own"
            )
        if self.has(ty) and not override:
            raise ValueError(f"a handler for {ty!r} was already registered")
        self._handlers = [(k, h) for k, h in self._handlers if k is not ty]
        self._handlers.append((ty, handler))

    def get(self, ty: Any) -> ArrayHandler:
        for kind, handler in self._handlers:
            if isinstance(ty, type) and issubclass(ty, kind):
                return handler
        raise ValueError(f"unknown type {ty!r}: no handler was registered")

    def has(self, ty: Any) -> bool:
        return any(kind is ty for kind, _ in self._handlers)


def check_type_handlers(registry: Any) -> None:
    """NotImplementedError: it is no TypeHandlerRegistry of this package."""
    if registry is not None and not isinstance(registry, TypeHandlerRegistry):
        raise NotImplementedError(
            f"type_handler_registry: a {type(registry).__name__} may have "
            "handlers of single leaves, which a store does not call: take "
            "create_type_handler_registry() of ckptree.orbax, or leave it out"
        )


def create_type_handler_registry(
    *handlers: tuple[Any, ArrayHandler],
) -> TypeHandlerRegistry:
    """A registry of these pairs."""
    return TypeHandlerRegistry(*handlers)


def register_type_handler(
    ty: Any, handler: Any, func: Any = None, override: bool = False
) -> None:
    """As TypeHandlerRegistry.add(), for all."""
    _everywhere.add(ty, handler, func, override)


_everywhere = TypeHandlerRegistry()


def is_ocdbt_checkpoint(path: str | os.PathLike[str]) -> bool:
    """Whether a directory was written by TensorStore's OCDBT, as Orbax does.

    >>> is_ocdbt_checkpoint(tmp)
    False
    """
    return os.path.exists(os.path.join(path, "manifest.ocdbt"))
