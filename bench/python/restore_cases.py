# SPDX-License-Identifier: Apache-2.0
"""py_restore_*: 1 GiB comes back, opening included, out of the disk and out of
the page cache, beside every peer that can do it. The floor is of the best one.

A peer that maps its file has made nothing when it returns: the clock stops when
one byte of each page was looked at. Out of the page cache such a map costs no
copy, but it is no memory of the program's own either: it stands beside without
a floor."""

from __future__ import annotations

import gc
import os
import shutil
from typing import Any, Callable, Mapping

import ckptree
import numpy as np
from beside import Beside
from files import forget, remember
from measure import Report, fail, median, seconds, take_turns
from peers import (
    H5,
    Dcp,
    Icechunk,
    Orbax,
    Peer,
    PlainOrbax,
    Safetensors,
    TorchSafetensors,
    TorchSave,
    there,
)
from states import NumpyState, Tree, flat, leaves_of, touch_pages, tree_of

_LEAF_BYTES = 16 << 20
_MAPS = (TorchSafetensors.name,)
_FLOOR = 1.5

Read = Callable[[], Any]


def of_numpy(report: Report) -> None:
    state = _state(report)
    _restore(
        report,
        "NumPy",
        state,
        lambda reader: reader.restore("latest", like=state.tree),
        state.tree,
        (Safetensors, TorchSafetensors, H5, Icechunk),
    )


def of_torch(report: Report) -> None:
    """New tensors by all of them, but for DCP, which has no other way than into
    tensors that are made before."""
    import ckptree.torch

    state = _state(report)
    _restore(
        report,
        "PyTorch",
        state,
        ckptree.torch.load,
        state.tree,
        (TorchSave, TorchSafetensors, Dcp),
    )


def of_jax(report: Report) -> None:
    """Over 8 devices of the CPU, a row of each array on each."""
    import jax

    state = _state(report)
    mesh = jax.sharding.Mesh(np.array(jax.devices()), ("rows",))
    sharding = jax.sharding.NamedSharding(
        mesh, jax.sharding.PartitionSpec("rows")
    )
    like = tree_of(
        [
            jax.ShapeDtypeStruct(array.shape, array.dtype, sharding=sharding)
            for array in state.arrays
        ]
    )
    if len(jax.devices()) != 8:
        fail(f"JAX has {len(jax.devices())} devices, not 8")
    saved = jax.tree.map(
        lambda array: jax.device_put(array, sharding), state.tree
    )
    _restore(
        report,
        "JAX, 8 devices",
        state,
        lambda reader: reader.restore("latest", like=like),
        like,
        (Orbax, PlainOrbax),
        saved,
    )


def _state(report: Report) -> NumpyState:
    return NumpyState(8 if report.settings.quick else 64, _LEAF_BYTES)


def _restore(
    report: Report,
    kind: str,
    state: NumpyState,
    ours: Callable[[Any], Any],
    like: Tree,
    peers: tuple[Callable[[], Peer], ...],
    saved: Tree | None = None,
) -> None:
    """`like` is what peers get; `saved` what is saved, where that is not the
    state."""
    directory = report.settings.directory
    saved = state.tree if saved is None else saved
    store_path = os.path.join(directory, "store")
    with ckptree.Store(store_path) as store:
        store.save(0, saved).result()
    reads: dict[str, tuple[str, Read]] = {}
    for i, peer in enumerate(there(report, *peers)):
        path = os.path.join(directory, f"peer{i}")
        peer.save(path, saved)
        reads[peer.name] = (path, _reader(peer, path, like))

    def by_us() -> Any:
        with ckptree.open(store_path) as reader:
            return ours(reader)

    reads["ours"] = (store_path, by_us)
    gigabytes = state.nbytes / 1e9
    names = [name for name in reads if name != "ours"]
    cold = {
        name: _timed(state, path, read, cold=True)
        for name, (path, read) in reads.items()
    }
    with Beside(report.settings, len(state.arrays), _LEAF_BYTES) as beside:
        took = take_turns(
            report.settings.repeats,
            {
                "raw O_DIRECT read": beside.doing("raw_read"),
                "the engine alone": beside.doing("restore"),
                **cold,
            },
        )
    rates = {
        name: [gigabytes / t for t in times] for name, times in took.items()
    }
    _show(report, f"{kind}: out of the disk", rates, names, names)
    for name in ("the engine alone", "raw O_DIRECT read"):
        report.figure(
            f"{kind}: out of the disk",
            "GB/s",
            rates["ours"],
            (name, rates[name]),
            goal=0.95 if name == "the engine alone" else None,
        )
    warm = {}
    for name, (path, read) in reads.items():
        warm[name] = _timed(state, path, read, cold=False)
        warm[name]()  # What is made once is there.
    took = take_turns(report.settings.repeats, warm)
    rates = {
        name: [gigabytes / t for t in times] for name, times in took.items()
    }
    copying = [name for name in names if name not in _MAPS]
    _show(report, f"{kind}: out of the page cache", rates, names, copying)
    for path, _ in reads.values():
        shutil.rmtree(path) if os.path.isdir(path) else os.remove(path)


def _reader(peer: Peer, path: str, like: Tree) -> Read:
    return lambda: peer.restore(path, like)


def _show(
    report: Report,
    what: str,
    rates: Mapping[str, list[float]],
    names: list[str],
    judged: list[str],
) -> None:
    """The floor is of the fastest of `judged`."""
    best = max(judged, key=lambda name: median(rates[name]), default="")
    for name in names:
        floor = _FLOOR if name == best else None
        report.figure(
            what, "GB/s", rates["ours"], (name, rates[name]), floor=floor
        )


def _timed(
    state: NumpyState, path: str, read: Read, cold: bool
) -> Callable[[], float]:
    def run() -> float:
        if cold:
            forget(path)
        else:
            remember(path)
        found: list[Any] = []

        def work() -> None:
            found.append(read())
            touch_pages(_host_arrays(found[0]))

        taken = seconds(work)
        restored = dict(leaves_of(found[0]))
        for name, array in flat(state.tree).items():
            other = np.asarray(restored[name])
            if not np.array_equal(array.view("u4"), other.view("u4")):
                fail(f"a restore gave other bytes than were saved: {name}")
        found.clear()
        gc.collect()
        if cold:
            forget(path)  # The next one starts without it.
        return taken

    return run


def _host_arrays(tree: Tree) -> Any:
    """Each array; of one that is over several devices each of its parts."""
    for _, array in leaves_of(tree):
        shards = getattr(array, "addressable_shards", None)
        if shards is None:
            yield np.asarray(array)
        else:
            for shard in shards:
                yield np.asarray(shard.data)
