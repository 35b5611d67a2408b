# SPDX-License-Identifier: Apache-2.0
"""Shardings of JAX as plain data, and back where the same devices are there."""

from __future__ import annotations

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
        return {
            "axes": [[str(name), size] for name, size in mesh.shape.items()],
            "devices": [device.id for device in mesh.devices.flat],
            "spec": [
                list(part) if isinstance(part, tuple) else part
                for part in sharding.spec
            ],
        }
    if isinstance(sharding, jax.sharding.SingleDeviceSharding):
        (device,) = sharding.device_set
        # The default one: nothing has to be said.
        return (
            None if device == jax.local_devices()[0] else {"device": device.id}
        )
    return None


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
    mesh = jax.sharding.Mesh(devices.reshape(sizes), names)
    spec = [
        tuple(part) if isinstance(part, list) else part
        for part in plain["spec"]
    ]
    return jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(*spec))
