# SPDX-License-Identifier: Apache-2.0
"""Shardings as plain data."""

from __future__ import annotations

import dataclasses
import sys
from typing import Any

import numpy as np


class ShardingMetadata:
    """Where an array was, as plain data."""

    def __init__(self, plain: dict[str, Any]) -> None:
        self._plain = plain

    def to_jax_sharding(self) -> Any:
        """The jax.sharding.Sharding. ValueError: its devices are not here."""
        from ckptree.orbax._sharding import from_plain

        return from_plain(self._plain)

    @staticmethod
    def of(plain: dict[str, Any] | None) -> ShardingMetadata:
        """Of what is kept with a step; None: the default device."""
        from ckptree.orbax._sharding import axis_types

        if plain is None:
            return SingleDeviceShardingMetadata()
        if "spec" not in plain:
            return SingleDeviceShardingMetadata(plain["device"])
        sizes = [size for _, size in plain["axes"]]
        spec = tuple(
            tuple(part) if isinstance(part, list) else part
            for part in plain["spec"]
        )
        return NamedShardingMetadata(
            np.array(sizes), [name for name, _ in plain["axes"]], spec,
            axis_types=axis_types(plain), devices=tuple(plain["devices"]),
        )


def wanted_here(sharding: Any) -> Any:
    """`sharding`, but None for the device where JAX puts what is put nowhere in
    a program that has not imported JAX, which is not imported for that."""
    if isinstance(sharding, SingleDeviceShardingMetadata):
        if sharding.device is None and "jax" not in sys.modules:
            return None
    return sharding


@dataclasses.dataclass
class NamedShardingMetadata(ShardingMetadata):
    """A mesh with named axes, `shape` their sizes, and how an array lies on
    it."""

    shape: np.ndarray[Any, Any]
    axis_names: list[str]
    partition_spec: tuple[Any, ...]
    axis_types: Any = None  # Of JAX, or their names; None: all are Auto.
    device_mesh: Any = None
    devices: tuple[int, ...] = ()  # Their numbers.

    def __post_init__(self) -> None:
        sizes = [int(size) for size in self.shape]
        plain: dict[str, Any] = {
            "axes": [list(axis) for axis in zip(self.axis_names, sizes)],
            "devices": list(self.devices) or list(range(int(np.prod(sizes)))),
            "spec": [
                list(part) if isinstance(part, tuple) else part
                for part in self.partition_spec
            ],
        }
        types = [getattr(t, "name", t) for t in self.axis_types or ()]
        if any(name != "Auto" for name in types):
            plain["types"] = types
        super().__init__(plain)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, NamedShardingMetadata):
            return NotImplemented
        return self._plain == other._plain


@dataclasses.dataclass
class SingleDeviceShardingMetadata(ShardingMetadata):
    """One device, by its number; None: the first one of the process that asks,
    where what is put nowhere lies."""

    device: int | None = None

    def __post_init__(self) -> None:
        super().__init__({"device": self.device})
