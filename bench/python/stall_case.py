# SPDX-License-Identifier: Apache-2.0
"""py_stall: how long a trainer with arrays of JAX waits in save()."""

from __future__ import annotations

import os
import shutil
from typing import Callable

import ckptree
from beside import Beside
from measure import Report, seconds, take_turns
from peers import Orbax, there
from states import JaxState


def stall(report: Report) -> None:
    quick = report.settings.quick
    _few(report, leaves=16 if quick else 128, leaf_bytes=16 << 20)
    _many(report, leaves=20_000 if quick else 100_000)


def _few(report: Report, leaves: int, leaf_bytes: int) -> None:
    settings = report.settings
    state = JaxState(leaves, leaf_bytes)
    orbax = there(report, Orbax)
    with (
        _Saver(os.path.join(settings.directory, "few"), state) as saver,
        Beside(settings, leaves, leaf_bytes) as beside,
    ):
        beside.seconds("copy")  # Now the memory was touched.
        contenders: dict[str, Callable[[], float]] = {
            "memcpy": beside.doing("copy"),
            "ours": saver.stall,
        }
        if orbax:
            path = os.path.join(settings.directory, "peer")
            contenders["Orbax"] = lambda: _orbax_stall(orbax[0], path, state)
        took = take_turns(settings.repeats + 2, contenders)
    shown = f"{leaves} x 16 MiB"
    what = f"wait in save(), {shown}"
    report.figure(
        what, "ms", _ms(took["ours"]), ("memcpy of all", _ms(took["memcpy"]))
    )
    if orbax:
        report.figure(
            what, "ms", _ms(took["ours"]), ("Orbax", _ms(took["Orbax"]))
        )
    report.figure(
        what, "ms", _ms(took["ours"]), None, floor=5, goal=1, at_least=False
    )


def _many(report: Report, leaves: int) -> None:
    """The leaves are arrays of 4 KiB; Orbax would take minutes."""
    settings = report.settings
    state = JaxState(leaves, 4096)
    first = []
    again = []
    for _ in range(3):
        with _Saver(os.path.join(settings.directory, "many"), state) as saver:
            first.append(saver.stall())
            again += [saver.stall() for _ in range(3)]
    shown = f"{leaves // 1000} k leaves"
    scale = leaves / 100_000
    report.figure(
        f"wait in the first save(), {shown}",
        "ms",
        _ms(first),
        floor=150 * scale,
        goal=60 * scale,
        at_least=False,
    )
    report.figure(
        f"wait in save() of the same tree again, {shown}",
        "ms",
        _ms(again),
        floor=60 * scale,
        goal=10 * scale,
        at_least=False,
    )


class _Saver:
    def __init__(self, path: str, state: JaxState) -> None:
        self._path = path
        self._state = state
        self._step = 0
        self._store = ckptree.Store(path)

    def stall(self) -> float:
        step = self._step
        tree = self._state.change(step)
        self._step += 1
        handles = []
        taken = seconds(lambda: handles.append(self._store.save(step, tree)))
        handles[0].result()
        if step > 0:
            self._store.delete(step - 1)
            self._store.collect()
        return taken

    def __enter__(self) -> _Saver:
        return self

    def __exit__(self, *_: object) -> None:
        self._store.close()
        shutil.rmtree(self._path)


def _orbax_stall(peer: Orbax, path: str, state: JaxState) -> float:
    tree = state.change(0)
    taken = seconds(lambda: peer.begin(path, tree))
    peer.wait()
    shutil.rmtree(path)
    return taken


def _ms(times: list[float]) -> list[float]:
    return [1e3 * t for t in times]
