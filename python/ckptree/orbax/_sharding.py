# SPDX-License-Identifier: Apache-2.0
"""Shardings of JAX as plain data, and back where the same devices are there."""

from __future__ import annotations

import sys
from typing import Any


def to_plain(sharding: Any) -> dict[str, Any] | None:
    """A NamedSharding, or one device, as what JSON can write; None of
    others."""
    import jax

    if isinstance(sharding, jax.sharding.NamedSharding):
        mesh = sharding.mesh
        if not all(
            isinstance(n, (str, tuple, type(None))) for n in sharding.spec
        ):
            return None
        plain = {
            "axes": [[str(name), size] for name, size in mesh.shape.items()],
            "devices": [device.id for device in mesh.devices.flat],
            "spec": [
                list(part) if isinstance(part, tuple) else part
                for part in sharding.spec
            ],
        }
        types = [kind.name for kind in mesh.axis_types]
        if any(name != "Auto" for name in types):
            plain["types"] = types
        return plain
    if isinstance(sharding, jax.sharding.SingleDeviceSharding):
        (device,) = sharding.device_set
        # The default one: nothing has to be said.
        return (
            None if device == jax.local_devices()[0] else {"device": device.id}
        )
    return None


def axis_types(plain: dict[str, Any]) -> tuple[Any, ...] | None:
    """Of a mesh with others than Auto: JAX's own, where it is imported."""
    names = plain.get("types")
    if names is None:
        return None
    jax = sys.modules.get("jax")
    kinds = None if jax is None else jax.sharding.AxisType
    return tuple(getattr(kinds, name, name) for name in names)


def from_plain(plain: dict[str, Any] | None) -> Any:
    """The sharding, or None where it is the default. ValueError: the devices
    are not there."""
    if plain is None:
        return None
    import jax
    import numpy as np

    if plain.get("device", 0) is None:
        return jax.sharding.SingleDeviceSharding(jax.local_devices()[0])
    there = {device.id: device for device in jax.devices()}
    wanted = plain["devices"] if "spec" in plain else [plain["device"]]
    lacking = [number for number in wanted if number not in there]
    if lacking:
        raise ValueError(
            f"it was saved on {len(wanted)} devices, of which {len(lacking)} "
            "are not here: pass shardings, in a template of "
            "jax.ShapeDtypeStruct or by ArrayRestoreArgs"
        )
    if "spec" not in plain:
        return jax.sharding.SingleDeviceSharding(there[plain["device"]])
    names = [name for name, _ in plain["axes"]]
    sizes = [size for _, size in plain["axes"]]
    devices = np.array([there[number] for number in wanted], dtype=object)
    mesh = jax.sharding.Mesh(
        devices.reshape(sizes), names, axis_types=axis_types(plain)
    )
    spec = [
        tuple(part) if isinstance(part, list) else part
        for part in plain["spec"]
    ]
    return jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(*spec))
