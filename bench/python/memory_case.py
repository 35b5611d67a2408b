# SPDX-License-Identifier: Apache-2.0
"""py_memory: how far a process grows beyond the arrays themselves."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from typing import Any

import ckptree
from measure import Report, fail
from peers import Orbax, Peer, PlainOrbax
from states import JaxState, NumpyState, Tree

_LEAF_BYTES = 16 << 20
_MIB = 1 << 20
_NOT_THERE = 75  # Exit code: a peer cannot be imported.


def memory(report: Report) -> None:
    """Each figure is of a process of its own, where a small state was saved
    and restored before: what is loaded once is not counted."""
    leaves = 16 if report.settings.quick else 128
    figures: dict[str, float] = {}
    for what in ("save", "restore"):
        for who in ("NumPy", "JAX", "Orbax", "Orbax, no compression"):
            found = _ask(report, what, who, leaves)
            if found is not None:
                name = f"ours, {who}" if who in ("NumPy", "JAX") else who
                figures[f"{what}: {name}"] = found
    for what in ("save", "restore"):
        for kind in ("NumPy", "JAX"):
            report.figure(
                f"resident beyond the arrays, {what} of {kind}",
                "MiB",
                [figures[f"{what}: ours, {kind}"]],
                floor=96,
                goal=48,
                at_least=False,
            )
        for peer in (Orbax.name, PlainOrbax.name):
            theirs = figures.get(f"{what}: {peer}")
            if theirs is not None:
                report.figure(
                    f"resident beyond the arrays, {what} of JAX",
                    "MiB",
                    [figures[f"{what}: ours, JAX"]],
                    (peer, [theirs]),
                    floor=0.5 if peer == Orbax.name else None,
                    at_least=False,
                )


def _ask(report: Report, what: str, who: str, leaves: int) -> float | None:
    """What is restored was saved by another process."""
    answer = ""
    for task in ("save", "restore") if what == "restore" else ("save",):
        here = os.path.dirname(os.path.abspath(__file__))
        done = subprocess.run(
            [sys.executable, os.path.join(here, "memory_case.py"), task, who]
            + [str(leaves), report.settings.directory],
            stdout=subprocess.PIPE,
            text=True,
        )
        answer = done.stdout.strip()
        if done.returncode == _NOT_THERE:
            report.skip(f"{what}: {who}", answer)
            return None
        if done.returncode != 0:
            fail(f"the process for {task}, {who} failed")
    shutil.rmtree(os.path.join(report.settings.directory, "large"))
    return float(answer)


# ---- In the process that is measured ----


class _Ours(Peer):
    name = "ours"

    def save(self, path: str, tree: Tree) -> None:
        with ckptree.Store(path) as store:
            store.save(0, tree, borrow=True).result()

    def restore(self, path: str, like: Tree) -> Any:
        with ckptree.open(path) as reader:
            return reader.restore("latest", like=like)


def _measure(what: str, who: str, leaves: int, directory: str) -> float:
    peer: Peer = _Ours()
    if who == Orbax.name:
        peer = Orbax()
    elif who == PlainOrbax.name:
        peer = PlainOrbax()
    kind = NumpyState if who == "NumPy" else JaxState
    small = os.path.join(directory, "small")
    path = os.path.join(directory, "large")
    like = kind(1, 4096).tree
    peer.save(small, like)
    peer.restore(small, like)
    shutil.rmtree(small)
    if what == "save":
        state = kind(leaves, _LEAF_BYTES)
        return _growth(lambda: peer.save(path, state.tree)) / _MIB
    like = _abstract(kind, leaves)
    held: list[Any] = []
    grown = _growth(lambda: held.append(peer.restore(path, like)))
    return (grown - leaves * _LEAF_BYTES) / _MIB


def _abstract(kind: type[NumpyState] | type[JaxState], leaves: int) -> Any:
    """A template that holds no arrays of its own."""
    import numpy as np
    from states import tree_of

    shape = kind(1, _LEAF_BYTES).shape
    if kind is NumpyState:
        one = np.zeros(1, np.float32)
        return tree_of([np.broadcast_to(one, shape)] * leaves)
    import jax

    return tree_of(
        [
            jax.ShapeDtypeStruct(
                shape,
                np.float32,
                sharding=jax.sharding.SingleDeviceSharding(jax.devices()[0]),
            )
        ]
        * leaves
    )


def _growth(work: Any) -> int:
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")  # The peak starts again here.
    before = _status("VmRSS")
    work()
    return _status("VmHWM") - before


def _status(field: str) -> int:
    with open("/proc/self/status") as file:
        for line in file:
            if line.startswith(field + ":"):
                return int(line.split()[1]) * 1024
    fail(f"/proc/self/status has no {field}")


def _main() -> int:
    what, who, leaves, directory = sys.argv[1:]
    try:
        print(_measure(what, who, int(leaves), directory))
    except ImportError as error:
        print(error)
        return _NOT_THERE
    return 0


if __name__ == "__main__":
    sys.exit(_main())
