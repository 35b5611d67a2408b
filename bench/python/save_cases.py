# SPDX-License-Identifier: Apache-2.0
"""py_save and py_restore: the cost of the bytes."""

from __future__ import annotations

import gc
import os
import shutil
from typing import Any, Callable

import ckptree
from beside import Beside
from files import forget, make_durable
from measure import Report, fail, ratios, seconds, take_turns
from peers import (
    Orbax,
    Peer,
    PlainOrbax,
    Safetensors,
    TorchSafetensors,
    TorchSave,
    there,
)
from states import JaxState, NumpyState, leaves_of, same, touch_pages

_LEAF_BYTES = 16 << 20
_AGE = 2  # Steps that an aged store holds before a save.

State = NumpyState | JaxState


def save(report: Report) -> None:
    """Until it is durable, everything changed, into a new store and into one
    that holds steps."""
    _save(report, "NumPy", NumpyState, Safetensors, TorchSafetensors, TorchSave)
    _save(report, "JAX", JaxState, Orbax, PlainOrbax)


def restore(report: Report) -> None:
    """From the disk into new arrays, opening included."""
    _restore(
        report, "NumPy", NumpyState, Safetensors, TorchSafetensors, TorchSave
    )
    _restore(report, "JAX", JaxState, Orbax, PlainOrbax)


def _leaves(report: Report) -> int:
    return 16 if report.settings.quick else 128


def _save(
    report: Report,
    kind: str,
    state_kind: type[NumpyState] | type[JaxState],
    *peers: Callable[[], Peer],
) -> None:
    settings = report.settings
    state = state_kind(_leaves(report), _LEAF_BYTES)
    gigabytes = _leaves(report) * _LEAF_BYTES / 1e9
    aged = _AgedStore(os.path.join(settings.directory, "aged"), state)
    as_is: dict[str, list[float]] = {}

    def fresh() -> float:
        path = os.path.join(settings.directory, "fresh")
        with ckptree.Store(path) as store:
            taken = _timed_save(store, 0, state, borrow=True)
        shutil.rmtree(path)
        return taken

    def by_peer(peer: Peer) -> Callable[[], float]:
        def run() -> float:
            path = os.path.join(settings.directory, "peer")
            tree = state.change(0)
            written = seconds(lambda: peer.save(path, tree))
            synced = seconds(lambda: make_durable(path))
            _remove(path)
            as_is.setdefault(peer.name, []).append(written)
            return written + synced

        return run

    others = there(report, *peers)
    with Beside(settings, _leaves(report), _LEAF_BYTES) as beside:
        contenders = {
            "raw": beside.doing("raw_write"),
            "C++ fresh": beside.doing("save_fresh"),
            "C++ aged": beside.doing("save_aged"),
            "fresh": fresh,
            "aged": lambda: aged.save(borrow=True),
        }
        if kind == "NumPy":
            contenders["copied"] = lambda: aged.save(borrow=False)
        contenders |= {peer.name: by_peer(peer) for peer in others}
        took = take_turns(settings.repeats, contenders)
        # These differ by little, and one save from the next by more.
        near = ("C++ fresh", "C++ aged", "fresh", "aged")
        more = take_turns(
            2 * settings.repeats, {name: contenders[name] for name in near}
        )
        for name in near:
            took[name] += more[name]
    aged.close()

    def rate(name: str, times: list[float]) -> None:
        report.show(f"{kind}: {name}", [gigabytes / t for t in times], "GB/s")

    rate("raw O_DIRECT write", took["raw"])
    rate("engine alone, fresh store", took["C++ fresh"])
    rate("save, lent, fresh store", took["fresh"])
    rate("save, lent, aged store", took["aged"])
    if "copied" in took:
        rate("save, copied, aged store", took["copied"])
    for peer in others:
        rate(f"{peer.name}, durable", took[peer.name])
        rate(f"{peer.name}, as it is", as_is[peer.name])
    for age in ("fresh", "aged"):
        report.at_least(
            f"{kind}: save / engine alone, {age}",
            ratios(took[f"C++ {age}"], took[age]),
            0.95,
        )
    report.at_least(
        f"{kind}: save / raw, fresh",
        ratios(took["raw"], took["fresh"]),
        None,
        goal=0.88,
    )
    for peer in others:
        report.at_least(
            f"{kind}: save / {peer.name}, durable",
            ratios(took[peer.name], took["aged"]),
            1,
        )


def _restore(
    report: Report,
    kind: str,
    state_kind: type[NumpyState] | type[JaxState],
    *peers: Callable[[], Peer],
) -> None:
    settings = report.settings
    state = state_kind(_leaves(report), _LEAF_BYTES)
    gigabytes = _leaves(report) * _LEAF_BYTES / 1e9
    store_path = os.path.join(settings.directory, "store")
    with ckptree.Store(store_path) as store:
        store.save(0, state.tree, borrow=True).result()

    def cold(path: str, read: Callable[[], Any]) -> float:
        forget(path)
        restored: list[Any] = []

        def run() -> None:
            restored.append(read())
            touch_pages(array for _, array in leaves_of(restored[0]))

        taken = seconds(run)
        if not same(state.tree, restored[0]):
            fail("a restore gave other bytes than were saved")
        restored.clear()
        gc.collect()
        forget(path)  # The next one starts without it.
        return taken

    def by_us(like: Any) -> Any:
        with ckptree.open(store_path) as reader:
            return reader.restore("latest", like=like)

    others = there(report, *peers)
    paths = {
        peer.name: os.path.join(settings.directory, f"peer{i}")
        for i, peer in enumerate(others)
    }
    for peer in others:
        peer.save(paths[peer.name], state.tree)
        forget(paths[peer.name])
    forget(store_path)

    def by_peer(peer: Peer) -> Callable[[], float]:
        path = paths[peer.name]
        return lambda: cold(path, lambda: peer.restore(path, state.tree))

    with Beside(settings, _leaves(report), _LEAF_BYTES) as beside:
        contenders = {
            "raw": beside.doing("raw_read"),
            "C++": beside.doing("restore"),
            "like": lambda: cold(store_path, lambda: by_us(state.tree)),
        }
        if kind == "NumPy":
            contenders["plain"] = lambda: cold(store_path, lambda: by_us(None))
        contenders |= {peer.name: by_peer(peer) for peer in others}
        took = take_turns(settings.repeats, contenders)
    shutil.rmtree(store_path)
    for path in paths.values():
        _remove(path)

    def rate(name: str, times: list[float]) -> None:
        report.show(f"{kind}: {name}", [gigabytes / t for t in times], "GB/s")

    rate("raw O_DIRECT read", took["raw"])
    rate("engine alone, cold, fresh memory", took["C++"])
    rate("restore, cold, with a template", took["like"])
    if "plain" in took:
        rate("restore, cold, without", took["plain"])
    for peer in others:
        rate(f"{peer.name}, cold", took[peer.name])
    report.at_least(
        f"{kind}: restore / engine alone",
        ratios(took["C++"], took["like"]),
        0.95,
    )
    report.at_least(
        f"{kind}: restore / raw",
        ratios(took["raw"], took["like"]),
        None,
        goal=0.88,
    )
    for peer in others:
        report.at_least(
            f"{kind}: restore / {peer.name}",
            ratios(took[peer.name], took["like"]),
            1,
        )


class _AgedStore:
    """A store that always holds as many steps."""

    def __init__(self, path: str, state: State) -> None:
        self._path = path
        self._state = state
        self._store = ckptree.Store(path)
        self._step = 0
        for _ in range(_AGE):
            _timed_save(self._store, self._next(), state, borrow=True)

    def save(self, borrow: bool) -> float:
        taken = _timed_save(self._store, self._next(), self._state, borrow)
        self._store.delete(self._step - 1 - _AGE)
        self._store.collect()
        forget(self._path)  # The next one starts without it.
        return taken

    def close(self) -> None:
        self._store.close()
        shutil.rmtree(self._path)

    def _next(self) -> int:
        self._step += 1
        return self._step - 1


def _timed_save(
    store: ckptree.Store, step: int, state: State, borrow: bool
) -> float:
    tree = state.change(step)
    return seconds(lambda: store.save(step, tree, borrow=borrow).result())


def _remove(path: str) -> None:
    shutil.rmtree(path) if os.path.isdir(path) else os.remove(path)
