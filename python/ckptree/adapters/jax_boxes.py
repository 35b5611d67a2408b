# SPDX-License-Identifier: Apache-2.0
"""The boxes of an array of JAX that the devices of this process have, and in
which memory of theirs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Iterable, NamedTuple, Sequence

import jax

from ckptree.adapters.jax_alike import PRNG_TAG

if TYPE_CHECKING:
    from ckptree import _engine

    Index = tuple[tuple[int, ...], tuple[int, ...]]  # start, shape


class Job(NamedTuple):
    """A box of an array, and the devices that want it."""

    request: int
    start: tuple[int, ...]
    shape: tuple[int, ...]
    devices: list[Any]  # Empty: the default one.
    memory: str | None = None  # The kind of theirs; None: what they take first.

    def places(self) -> list[Any]:
        """What jax.device_put() takes for `devices`."""
        if self.memory is None:
            return self.devices
        return [
            jax.sharding.SingleDeviceSharding(device, memory_kind=self.memory)
            for device in self.devices
        ]


def stays_on_host(jobs: Sequence[Job]) -> bool:
    """Whether what is read becomes the memory of all devices, or goes to memory
    of the host that they use."""
    return all(
        device.platform == "cpu" or "host" in (job.memory or "")
        for job in jobs
        for device in job.devices
    ) and (
        all(job.devices for job in jobs) or jax.default_backend() == "cpu"
    )


def _memory(sharding: Any, devices: Iterable[Any]) -> str | None:
    """The kind of memory that a sharding names where it is not what its devices
    take by themselves: "pinned_host" of an array that is offloaded."""
    kind = sharding.memory_kind
    first = next(iter(devices), None)
    if kind is None or first is None or kind == first.default_memory().kind:
        return None
    return str(kind)


def jobs(i: int, info: _engine.LeafInfo, sharding: Any) -> list[Job]:
    shape = info.shape
    whole = [Job(i, (0,) * len(shape), shape, [])]
    if sharding is None:
        return whole
    if info.tag.startswith(PRNG_TAG):
        # What a key is made of is one more axis, which is not spread.
        _devices(info.name, shape[:-1], sharding, key=True)
        return whole
    boxes: dict[Index, list[Any]] = {}
    places = _devices(info.name, shape, sharding)
    for device, index in places.items():
        boxes.setdefault(box(index, shape), []).append(device)
    memory = _memory(sharding, places)
    return [
        Job(i, start, extent, devices, memory)
        for (start, extent), devices in boxes.items()
    ]


def _devices(
    name: str, shape: tuple[int, ...], sharding: Any, *, key: bool = False
) -> Any:
    """What each device here has of an array. ValueError: the sharding does not
    fit it."""
    axes = 0
    if isinstance(sharding, jax.sharding.NamedSharding):
        axes = len(sharding.spec)
        if not isinstance(sharding.mesh, jax.sharding.Mesh):
            raise ValueError(
                f"{name}: the mesh of {sharding} is abstract and has no "
                "devices: make the sharding of a jax.sharding.Mesh"
            )
    try:
        if key and axes > len(shape):
            raise IndexError  # As JAX would of an array, and does of keys late.
        return sharding.addressable_devices_indices_map(shape)
    except (ValueError, TypeError, IndexError) as error:
        why = str(error)
        if axes > len(shape):
            why = (
                f"the sharding has more axes ({axes}) than the leaf "
                f"({len(shape)}): give it another, in a tree of shardings or "
                "in `like`"
            )
        raise ValueError(
            f"{name}: {sharding} does not fit shape {shape}: {why}"
        ) from None


def box(index: Any, shape: tuple[int, ...]) -> Index:
    """What a shard holds: start and shape, for slices that may be open."""
    bounds = [part.indices(dim)[:2] for part, dim in zip(index, shape)]
    return (
        tuple(start for start, _ in bounds),
        tuple(stop - start for start, stop in bounds),
    )
