# SPDX-License-Identifier: Apache-2.0
"""py_reshard: arrays saved on a mesh of (4, 2) devices, restored to (1, 8) and
(8, 1). The devices are eight of the CPU: __main__ asks JAX for them."""

from __future__ import annotations

import gc
import os
import shutil
from typing import Any, Callable

import ckptree
from files import forget
from measure import Report, fail, seconds, take_turns
from peers import Orbax, Peer, PlainOrbax, there
from states import NumpyState, touch_pages

_DEVICES = 8


def reshard(report: Report) -> None:
    import jax

    if len(jax.devices()) != _DEVICES:
        fail(f"JAX has {len(jax.devices())} devices, not {_DEVICES}")
    quick = report.settings.quick
    source = NumpyState(*((2, 64 << 20) if quick else (8, 256 << 20)))
    names = [f"w{i}" for i in range(len(source.arrays))]
    saved_on = _sharding(4, 2)
    state = {
        name: jax.device_put(array, saved_on)
        for name, array in zip(names, source.arrays)
    }
    jax.block_until_ready(state)
    nbytes = source.nbytes
    directory = report.settings.directory
    path = os.path.join(directory, "sharded")
    with ckptree.Store(path) as store:
        store.save(0, state).result()
    others = there(report, Orbax, PlainOrbax)
    for peer in others:
        peer.save(os.path.join(directory, peer.name), state)
    del state
    read_bytes: list[float] = []

    def by_us(like: Any) -> Any:
        with ckptree.open(path) as reader:
            before = reader.counters().bytes_read
            restored = reader.restore("latest", like=like)
            read_bytes.append((reader.counters().bytes_read - before) / nbytes)
            return restored

    for rows, columns in ((4, 2), (1, 8), (8, 1)):
        sharding = _sharding(rows, columns)
        like = {
            name: jax.ShapeDtypeStruct(
                array.shape, array.dtype, sharding=sharding
            )
            for name, array in zip(names, source.arrays)
        }

        def cold(at: str, read: Callable[[], Any]) -> Callable[[], float]:
            return lambda: _cold(at, read, names, source)

        def reading(peer: Peer) -> Callable[[], float]:
            at = os.path.join(directory, peer.name)
            return cold(at, lambda: peer.restore(at, like))

        read_bytes.clear()
        took = take_turns(
            report.settings.repeats,
            {
                "ours": cold(path, lambda: by_us(like)),
                **{peer.name: reading(peer) for peer in others},
            },
        )
        mesh = f"({rows}, {columns})"
        for who, times in took.items():
            if who == "ours":
                continue
            # Most stores were written with its defaults: the floor is theirs.
            default = who == Orbax.name and mesh != "(4, 2)"
            report.figure(
                f"(4, 2) to {mesh}, out of the disk",
                "GB/s",
                [nbytes / t / 1e9 for t in took["ours"]],
                (who, [nbytes / t / 1e9 for t in times]),
                floor=2 if default else None,
                goal=5 if default else None,
            )
        report.figure(
            f"(4, 2) to {mesh}: read",
            "GB",
            [nbytes * times / 1e9 for times in read_bytes],
            ("the bytes that are needed", [nbytes / 1e9] * len(read_bytes)),
            floor=1.05,
            at_least=False,
        )
    shutil.rmtree(directory)


def _sharding(rows: int, columns: int) -> Any:
    import jax
    import numpy as np

    devices = np.array(jax.devices()).reshape(rows, columns)
    mesh = jax.sharding.Mesh(devices, ("rows", "columns"))
    return jax.sharding.NamedSharding(
        mesh, jax.sharding.PartitionSpec("rows", "columns")
    )


def _cold(
    path: str, read: Callable[[], Any], names: list[str], source: NumpyState
) -> float:
    import numpy as np

    forget(path)
    restored: list[Any] = []

    def run() -> None:
        restored.append(read())
        touch_pages(
            np.ascontiguousarray(shard.data)
            for array in restored[0].values()
            for shard in array.addressable_shards
        )

    taken = seconds(run)
    for name, array in zip(names, source.arrays):
        there = np.asarray(restored[0][name]).view(np.uint32)
        if not np.array_equal(there, array.view(np.uint32)):
            fail("a restore gave other bytes than were saved")
    restored.clear()
    gc.collect()
    return taken
