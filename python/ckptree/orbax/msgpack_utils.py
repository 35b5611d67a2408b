# SPDX-License-Identifier: Apache-2.0
"""Trees as bytes of msgpack, which are those of Orbax and, but for tuples, of
Flax's legacy checkpoints. Needs the package msgpack."""

from __future__ import annotations

from typing import Any

import numpy as np

from ckptree.orbax import _flax_files

# Larger arrays go in parts.
_MOST_BYTES = 1 << 30


def msgpack_serialize(pytree: Any, in_place: bool = False) -> bytes:
    """The bytes of a tree of dicts with str as keys, lists and tuples, of
    arrays of NumPy and JAX, numbers, str, bytes and None. ValueError: it has
    something else. `in_place` is taken, and changes nothing.

    >>> msgpack_restore(msgpack_serialize({"a": (1, 2.5), "b": ["x", None]}))
    {'a': (1, 2.5), 'b': ['x', None]}
    """
    msgpack = _flax_files.msgpack_package()
    packed = msgpack.packb(
        _in_parts(pytree), default=_extension, strict_types=True
    )
    return bytes(packed)


def msgpack_restore(encoded_pytree: bytes) -> Any:
    """The tree; executes nothing. ValueError: it is damaged."""
    return _flax_files.decode(encoded_pytree)


def _in_parts(tree: Any) -> Any:
    """With arrays that are too large for one value in parts."""
    if isinstance(tree, dict):
        for key in tree:
            if not isinstance(key, (str, bytes)):
                raise ValueError(f"the key {key!r} is no str")
        return {key: _in_parts(value) for key, value in tree.items()}
    if hasattr(tree, "nbytes") and tree.nbytes > _MOST_BYTES:
        flat = np.asarray(tree).reshape(-1)
        most = max(1, _MOST_BYTES // flat.itemsize)
        parts = [flat[i : i + most] for i in range(0, flat.size, most)]
        return {
            _flax_files.CHUNKED: True,
            "shape": {str(i): n for i, n in enumerate(tree.shape)},
            "chunks": {str(i): part for i, part in enumerate(parts)},
        }
    return tree


def _extension(value: Any) -> Any:
    msgpack = _flax_files.msgpack_package()
    if isinstance(value, np.generic):
        return msgpack.ExtType(_flax_files.SCALAR, _array(np.asarray(value)))
    if isinstance(value, complex):
        data = msgpack.packb((value.real, value.imag))
        return msgpack.ExtType(_flax_files.COMPLEX, data)
    if isinstance(value, tuple):
        data = msgpack.packb(
            list(value), default=_extension, strict_types=True
        )
        return msgpack.ExtType(_flax_files.TUPLE, data)
    if hasattr(value, "__array__") and hasattr(value, "dtype"):
        return msgpack.ExtType(_flax_files.ARRAY, _array(np.asarray(value)))
    raise ValueError(
        f"msgpack cannot write a {type(value).__name__}: {value!r:.80}"
    )


def _array(array: np.ndarray[Any, Any]) -> bytes:
    if array.dtype.hasobject or array.dtype.fields:
        raise ValueError(f"msgpack cannot write arrays of {array.dtype}")
    msgpack = _flax_files.msgpack_package()
    data = msgpack.packb((array.shape, array.dtype.name, array.tobytes("C")))
    return bytes(data)
