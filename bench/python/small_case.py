# SPDX-License-Identifier: Apache-2.0
"""py_small: many small arrays of NumPy, saved and restored."""

from __future__ import annotations

import os
import shutil
from typing import Any, Callable

import ckptree
from beside import Beside
from files import forget, make_durable
from measure import Report, fail, seconds, take_turns
from peers import Orbax, Peer, Safetensors, there
from states import NumpyState, same

_LEAF_BYTES = 4096


def small(report: Report) -> None:
    settings = report.settings
    leaves = 20_000
    state = NumpyState(leaves, _LEAF_BYTES)
    path = os.path.join(settings.directory, "small")
    store = ckptree.Store(path)
    steps = iter(range(1 << 30))
    others = there(report, Safetensors)
    with Beside(settings, leaves, _LEAF_BYTES) as beside:
        saved = take_turns(
            settings.repeats + 2,
            {
                "raw": beside.doing("raw_write"),
                "C++": beside.doing("save_aged"),
                "ours": lambda: _save(store, next(steps), state),
                **{
                    p.name: _saving(p, settings.directory, state)
                    for p in others
                },
            },
        )
        _save(store, next(steps), state)
        store.close()

        def by_us() -> float:
            forget(path)
            return _checked(state, lambda: _restore(path, state))

        restored = take_turns(
            settings.repeats + 2,
            {
                "raw": beside.doing("raw_read"),
                "C++": beside.doing("restore"),
                "ours": by_us,
                **{
                    p.name: _reading(p, settings.directory, state)
                    for p in others
                },
            },
        )
    shutil.rmtree(path)

    for what, took in (("saved", saved), ("restored, cold", restored)):
        shown = {"raw": "raw O_DIRECT", "C++": "the engine alone"}
        rates = {
            name: [leaves / t / 1e3 for t in times]
            for name, times in took.items()
        }
        for name in ("raw", "C++", *(p.name for p in others)):
            report.figure(
                f"20 000 leaves of 4 KiB {what}",
                "k leaves/s",
                rates["ours"],
                (shown.get(name, name), rates[name]),
                floor=0.33 if name not in shown else None,
            )
    _beside_orbax(report, 1_000 if settings.quick else 5_000)


def _beside_orbax(report: Report, leaves: int) -> None:
    """Fewer: it takes a millisecond for each."""
    directory = report.settings.directory
    state = NumpyState(leaves, _LEAF_BYTES)
    path = os.path.join(directory, "small")
    for orbax in there(report, Orbax):
        with ckptree.Store(path) as store:
            theirs = _saving(orbax, directory, state)()
            ours = _save(store, 0, state)
        _faster(report, f"{leaves} leaves saved", leaves, ours, theirs)
        forget(path)
        ours = _checked(state, lambda: _restore(path, state))
        theirs = _reading(orbax, directory, state)()
        _faster(report, f"{leaves} leaves restored", leaves, ours, theirs)
        shutil.rmtree(path)


def _faster(
    report: Report, what: str, leaves: int, ours: float, theirs: float
) -> None:
    report.figure(
        what,
        "k leaves/s",
        [leaves / ours / 1e3],
        ("Orbax", [leaves / theirs / 1e3]),
        floor=1,
    )


def _save(store: ckptree.Store, step: int, state: NumpyState) -> float:
    tree = state.change(step)
    return seconds(lambda: store.save(step, tree).result())


def _restore(path: str, state: NumpyState) -> Any:
    with ckptree.open(path) as reader:
        return reader.restore("latest", like=state.tree)


def _saving(
    peer: Peer, directory: str, state: NumpyState
) -> Callable[[], float]:
    """What it wrote stays there, to be read."""
    path = os.path.join(directory, peer.name)

    def work() -> None:
        peer.save(path, state.tree)
        make_durable(path)

    def run() -> float:
        state.change(0)
        if os.path.isdir(path):
            shutil.rmtree(path)
        return seconds(work)

    return run


def _reading(
    peer: Peer, directory: str, state: NumpyState
) -> Callable[[], float]:
    path = os.path.join(directory, peer.name)

    def run() -> float:
        forget(path)
        return _checked(None, lambda: peer.restore(path, state.tree))

    return run


def _checked(state: NumpyState | None, read: Callable[[], Any]) -> float:
    restored: list[Any] = []
    taken = seconds(lambda: restored.append(read()))
    if state is not None and not same(state.tree, restored[0]):
        fail("a restore gave other bytes than were saved")
    return taken
