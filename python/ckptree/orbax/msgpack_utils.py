# SPDX-License-Identifier: Apache-2.0
"""Trees as bytes of msgpack, which are those of Orbax and, but for tuples, of
Flax's legacy checkpoints. Needs the package msgpack."""

from __future__ import annotations

from typing import Any

import numpy as np

from ckptree.arrays import dtypes
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
    try:
        return _packed(_in_parts(pytree), 0)
    except RecursionError:
        raise ValueError(
            "dicts and lists lie in each other deeper than Python goes"
        ) from None


def _packed(tree: Any, tuples: int) -> bytes:
    """`tuples`: how many it lies in."""
    _flax_files.check_tuples(tuples)
    packed = _flax_files.msgpack_package().packb(
        tree,
        default=lambda value: _extension(value, tuples),
        strict_types=True,
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


def _extension(value: Any, tuples: int) -> Any:
    msgpack = _flax_files.msgpack_package()
    if isinstance(value, np.generic):
        return msgpack.ExtType(_flax_files.SCALAR, _array(np.asarray(value)))
    if isinstance(value, complex):
        data = msgpack.packb((value.real, value.imag))
        return msgpack.ExtType(_flax_files.COMPLEX, data)
    if isinstance(value, tuple):
        data = _packed(list(value), tuples + 1)
        return msgpack.ExtType(_flax_files.TUPLE, data)
    if hasattr(value, "__array__") and hasattr(value, "dtype"):
        return msgpack.ExtType(_flax_files.ARRAY, _array(np.asarray(value)))
    raise ValueError(
        f"msgpack cannot write a {type(value).__name__}: {value!r:.80}"
    )


def _array(array: np.ndarray[Any, Any]) -> bytes:
    # The type is written by its name, which says nothing of the order of bytes.
    array = array.astype(array.dtype.newbyteorder("<"), copy=False)
    try:
        name = dtypes.NAMES[array.dtype]
    except TypeError:
        raise ValueError(
            f"msgpack cannot write arrays of {array.dtype}"
        ) from None
    msgpack = _flax_files.msgpack_package()
    return bytes(msgpack.packb((array.shape, name, array.tobytes("C"))))
