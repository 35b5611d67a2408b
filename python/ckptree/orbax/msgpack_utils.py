# SPDX-License-Identifier: Apache-2.0
"""Trees as bytes of msgpack, as Flax's legacy checkpoints have them."""

from __future__ import annotations

from typing import Any

_MESSAGE = "needs Flax: pip install 'ckptree[flax]'"


def msgpack_serialize(pytree: Any, in_place: bool = False) -> bytes:
    """The bytes of a tree of dicts."""
    return bytes(_flax().msgpack_serialize(pytree, in_place))


def msgpack_restore(encoded_pytree: bytes) -> Any:
    """The tree; executes nothing."""
    return _flax().msgpack_restore(encoded_pytree)


def _flax() -> Any:
    try:
        from flax import serialization
    except ImportError:
        raise ImportError(f"ckptree.orbax.msgpack_utils {_MESSAGE}") from None
    return serialization
