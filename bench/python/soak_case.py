# SPDX-License-Identifier: Apache-2.0
"""soak: saves without a pause, for --minutes, under a manager that keeps three:
whether they get slower, and whether the process or the store grows."""

from __future__ import annotations

import os
import shutil
import time

import ckptree
from measure import Report, fail, median
from states import NumpyState, same

_LEAVES = 64
_LEAF_BYTES = 1 << 20
_KEPT = 3
_MIB = 1 << 20


def soak(report: Report) -> None:
    """Everything of 64 MiB changes from step to step. Tenths are of the time;
    the first one is for pools and caches, the floor is of the second."""
    path = os.path.join(report.settings.directory, "soak")
    state = NumpyState(_LEAVES, _LEAF_BYTES)
    took: list[list[float]] = [[] for _ in range(10)]
    resident: list[list[float]] = [[] for _ in range(10)]
    stored: list[list[float]] = [[] for _ in range(10)]
    whole = report.settings.minutes * 60
    begun = time.monotonic()
    step = 0
    with ckptree.CheckpointManager(path, max_to_keep=_KEPT) as manager:
        while (now := time.monotonic() - begun) < whole:
            tenth = min(9, int(10 * now / whole))
            tree = state.change(step)
            before = time.perf_counter()
            manager.save(step, tree)
            manager.wait_until_finished()
            took[tenth].append(time.perf_counter() - before)
            resident[tenth].append(_resident())
            if step % 20 == 0:
                stored[tenth].append(_stored(path))
            step += 1
        kept = list(manager.all_steps())
    if kept != list(range(step - _KEPT, step)):
        fail(f"{kept} are kept of {step} steps")
    if not all(took):
        fail(f"{step} saves are too few for ten parts: more --minutes")
    with ckptree.open(path) as reader:
        if not same(state.tree, reader.restore("latest")):
            fail("the last step is not what was saved")
    shutil.rmtree(path)
    size = f"{_LEAVES * _LEAF_BYTES // _MIB} MiB"
    report.figure(
        f"{step} saves of {size}: one of the last tenth",
        "ms",
        [median([1e3 * t for t in took[9]])],
        ("of the second tenth", [median([1e3 * t for t in took[1]])]),
        floor=1.1,
        at_least=False,
    )
    # How much at most is a matter of chance: what two of the engine's threads
    # happen to need at one time. What leaks moves the median.
    for what, sizes, of, floor in (
        ("resident, median", resident, median, 1.02),
        ("resident, at most", resident, max, 1.1),
        ("the store, at most", stored, max, 1.1),
    ):
        known = [one for one in sizes if one]
        second = known[1] if known[1:] else known[0]
        report.figure(
            f"{step} saves of {size}: {what}, in the last tenth",
            "MiB",
            [of(known[-1])],
            ("in the second tenth", [of(second)]),
            floor=floor,
            at_least=False,
        )


def _resident() -> float:
    with open("/proc/self/statm") as file:
        pages = int(file.read().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / _MIB


def _stored(path: str) -> float:
    """What `du` says: also of files that are removed while it looks."""
    blocks = 0
    for folder, _, names in os.walk(path):
        for name in names:
            try:
                blocks += os.stat(os.path.join(folder, name)).st_blocks
            except FileNotFoundError:
                pass
    return blocks * 512 / _MIB
