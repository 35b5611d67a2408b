# SPDX-License-Identifier: Apache-2.0
"""py_save_*: the cost of the bytes."""

from __future__ import annotations

import os
import shutil
from typing import Callable

import ckptree
from beside import Beside
from files import forget, make_durable
from measure import Report, seconds, take_turns
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
from states import JaxState, NumpyState

_LEAF_BYTES = 16 << 20
_AGE = 2  # Steps that an aged store holds before a save.

State = NumpyState | JaxState


# Until it is durable, everything changed, into a new store and into one that
# holds steps.
def of_numpy(report: Report) -> None:
    _save(
        report,
        "NumPy",
        NumpyState,
        Safetensors,
        TorchSafetensors,
        TorchSave,
        Dcp,
        H5,
        Icechunk,
    )


def of_jax(report: Report) -> None:
    _save(report, "JAX", JaxState, Orbax, PlainOrbax)


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

    def rates(times: list[float]) -> list[float]:
        return [gigabytes / t for t in times]

    for peer in others:
        report.show(
            f"{kind}: {peer.name}, as it is", rates(as_is[peer.name]), "GB/s"
        )
    if "copied" in took:
        report.figure(
            f"{kind}: saved, copied, aged store",
            "GB/s",
            rates(took["copied"]),
            ("raw O_DIRECT write", rates(took["raw"])),
        )
    for age in ("fresh", "aged"):
        report.figure(
            f"{kind}: saved, lent, {age} store",
            "GB/s",
            rates(took[age]),
            ("the engine alone", rates(took[f"C++ {age}"])),
            floor=0.95,
        )
    report.figure(
        f"{kind}: saved, lent, fresh store",
        "GB/s",
        rates(took["fresh"])[: settings.repeats],
        ("raw O_DIRECT write", rates(took["raw"])),
        goal=0.88,
    )
    for peer in others:
        report.figure(
            f"{kind}: saved, lent, aged store",
            "GB/s",
            rates(took["aged"])[: settings.repeats],
            (f"{peer.name}, made durable", rates(took[peer.name])),
            floor=1,
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
