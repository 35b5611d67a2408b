# SPDX-License-Identifier: Apache-2.0
"""py_one: one leaf of 4 KiB by name, in a warm process and in a new one."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from typing import Any, Callable

import ckptree
from beside import Beside
from measure import Report, fail, median, percentile, take_turns
from states import NumpyState, flat

_LEAVES = 1000

# What a new process does; argv: where it was saved, the name of the leaf.
_OURS = """
import sys, ckptree
with ckptree.open(sys.argv[1]) as store:
    value = store["latest"][sys.argv[2]].numpy()
assert value.nbytes == 4096
assert "jax" not in sys.modules
"""
_SHAPE = """
import sys, ckptree
with ckptree.open(sys.argv[1]) as store:
    assert store["latest"][sys.argv[2]].shape
assert "numpy" not in sys.modules
"""
_SAFETENSORS = """
import sys, safetensors
with safetensors.safe_open(sys.argv[1], "numpy") as file:
    value = file.get_tensor(sys.argv[2])
assert value.nbytes == 4096
"""
_ORBAX = """
import sys, orbax.checkpoint as ocp
item, layer, leaf = sys.argv[2].split("/")
wanted = {item: {layer: {leaf: 0}}}
value = ocp.PyTreeCheckpointer().restore(
    sys.argv[1],
    args=ocp.args.PyTreeRestore(
        item=wanted,
        restore_args={item: {layer: {leaf: ocp.RestoreArgs()}}},
        partial_restore=True))[item][layer][leaf]
assert value.nbytes == 4096
"""


def one(report: Report) -> None:
    state = NumpyState(_LEAVES, 4096)
    paths = {
        name: os.path.abspath(os.path.join(report.settings.directory, name))
        for name in ("ours", "safetensors", "Orbax")
    }
    with ckptree.Store(paths["ours"]) as store:
        store.save(0, state.tree).result()
    names = list(flat(state.tree))
    scripts = {"ours": _OURS}
    readers: dict[str, Callable[[str], Any]] = {}
    _safetensors(report, state, paths["safetensors"], scripts, readers)
    _orbax(report, state, paths["Orbax"], scripts)
    _in_process(report, paths["ours"], names, readers)
    _fresh(report, paths, names[_LEAVES // 2], scripts)


def _safetensors(
    report: Report,
    state: NumpyState,
    path: str,
    scripts: dict[str, str],
    readers: dict[str, Callable[[str], Any]],
) -> None:
    try:
        import safetensors.numpy
    except ImportError as error:
        report.skip("beside safetensors", str(error))
        return
    safetensors.numpy.save_file(flat(state.tree), path)
    file = safetensors.safe_open(path, "numpy")
    readers["safetensors"] = file.get_tensor
    scripts["safetensors"] = _SAFETENSORS


def _orbax(
    report: Report, state: NumpyState, path: str, scripts: dict[str, str]
) -> None:
    """By a process of its own: this one goes on without JAX."""
    code = (
        "import sys; sys.path[:0] = sys.argv[2:]; from peers import Orbax; "
        "from states import NumpyState; "
        f"Orbax().save(sys.argv[1], NumpyState({_LEAVES}, 4096).tree)"
    )
    here = os.path.dirname(os.path.abspath(__file__))
    done = subprocess.run(
        [sys.executable, "-c", code, path, here], capture_output=True, text=True
    )
    if done.returncode != 0:
        why = done.stderr.strip().splitlines()[-1:]
        report.skip("beside Orbax", " ".join(why))
        return
    scripts["Orbax"] = _ORBAX


def _in_process(
    report: Report,
    path: str,
    names: list[str],
    readers: dict[str, Callable[[str], Any]],
) -> None:
    with (
        ckptree.open(path) as store,
        Beside(report.settings, _LEAVES, 4096) as beside,
    ):
        step = store["latest"]
        readers = {"ours": lambda name: step[name].numpy(), **readers}
        contenders: dict[str, Callable[[], float]] = {
            "engine": beside.doing("leaf")
        }
        chance = random.Random(3)
        every: list[float] = []
        for who, read in readers.items():
            kept = every if who == "ours" else []
            contenders[who] = _p50(read, names, chance, kept)
        took = take_turns(report.settings.repeats, contenders)
    us = {who: [1e6 * t for t in times] for who, times in took.items()}
    what = "one leaf of 4 KiB, read before"
    for who in ("engine", *readers):
        if who != "ours":
            name = "the engine alone" if who == "engine" else who
            report.figure(what, "us", us["ours"], (name, us[who]))
    report.show(f"{what}, p99", [1e6 * percentile(every, 0.99)], "us")
    report.figure(
        what, "us", us["ours"], None, floor=100, goal=25, at_least=False
    )


def _p50(
    read: Callable[[str], Any],
    names: list[str],
    chance: random.Random,
    every: list[float],
) -> Callable[[], float]:
    def run() -> float:
        took = []
        for _ in range(1000):
            name = chance.choice(names)
            start = time.perf_counter()
            read(name)
            took.append(time.perf_counter() - start)
        every.extend(took)
        return median(took)

    return run


def _fresh(
    report: Report, paths: dict[str, str], name: str, scripts: dict[str, str]
) -> None:
    def start(code: str, *args: str) -> Callable[[], float]:
        def run() -> float:
            begun = time.perf_counter()
            done = subprocess.run([sys.executable, "-c", code, *args])
            taken = time.perf_counter() - begun
            if done.returncode != 0:
                fail(f"a new process failed: {code}")
            return taken

        return run

    contenders = {
        "Python alone": start("pass"),
        "Python that imports NumPy": start("import numpy"),
        "import ckptree": start("import ckptree"),
        "shape": start(_SHAPE, paths["ours"], name),
        **{who: start(code, paths[who], name) for who, code in scripts.items()},
    }
    took = take_turns(report.settings.repeats + 10, contenders)
    ms = {who: [1e3 * t for t in times] for who, times in took.items()}
    for who in took:
        if who in scripts and who != "ours":
            report.figure(
                "one leaf by a new process", "ms", ms["ours"], (who, ms[who])
            )

    def beyond(what: str, who: str, start_of: str, floor: float | None) -> None:
        report.figure(
            what,
            "ms",
            [whole - start for whole, start in zip(ms[who], ms[start_of])],
            floor=floor,
            goal=None if floor is None else 12,
            at_least=False,
        )

    alone, numpy = "Python alone", "Python that imports NumPy"
    report.show("a new process of Python alone", ms[alone], "ms")
    report.show("a new process of Python that imports NumPy", ms[numpy], "ms")
    beyond("import ckptree, beyond Python alone", "import ckptree", alone, None)
    # Neither needs NumPy but for the array itself.
    beyond("shape of a leaf, beyond Python alone", "shape", alone, 25)
    beyond("one leaf, beyond Python that imports NumPy", "ours", numpy, 25)
