# SPDX-License-Identifier: Apache-2.0
"""py_million: a million leaves of 16 bytes: saved, saved again with one of them
changed, what changed in that, restored; and what each takes in memory."""

from __future__ import annotations

import os
import shutil
from typing import Any

import ckptree
import numpy as np
from measure import Report, fail, seconds

_IN_A_LAYER = 1000


def million(report: Report) -> None:
    settings = report.settings
    leaves = 100_000 if settings.quick else 1_000_000
    path = os.path.join(settings.directory, "million")
    values = np.arange(leaves * 4, dtype=np.float32).reshape(leaves, 4)
    tree = {
        f"layer{layer}": {
            f"w{i}": values[layer * _IN_A_LAYER + i]
            for i in range(_IN_A_LAYER)
        }
        for layer in range(leaves // _IN_A_LAYER)
    }
    held: list[Any] = []
    with ckptree.Store(path) as store:
        store.save(0, {"first": np.zeros(4, np.float32)}).result()
        before = _resident("VmRSS")
        saved = seconds(lambda: store.save(1, tree).result())
        grown = (_resident("VmHWM") - before) / 1e9
        values[leaves // 2, 0] = -1
        again = seconds(lambda: store.save(2, tree).result())
        compared = seconds(lambda: held.append(store.diff(1, 2)))
        if "w" not in str(held.pop()):
            fail("the diff names no leaf")
    with ckptree.open(path) as reader:
        restored = seconds(lambda: held.append(reader.restore(2, like=tree)))
    layer, leaf = divmod(leaves // 2, _IN_A_LAYER)
    if held.pop()[f"layer{layer}"][f"w{leaf}"][0] != -1:
        fail("a restore gave other values")
    shutil.rmtree(path)
    # Whatever their number is, as it would be with a million.
    scale = 1_000_000 / leaves
    for what, figure, floor, goal in (
        ("durable save, s", saved, 2.0, 1.0),
        ("its memory, GB", grown, 0.6, 0.3),
        ("again with one changed, s", again, 0.8, 0.3),
        ("restore, s", restored, 3.0, 1.5),
        ("diff of that one, s", compared, 0.3, 0.02),
    ):
        report.at_most(
            f"1 M leaves: {what}",
            [figure * scale],
            floor,
            goal,
            absolute=True,
        )


def _resident(name: str) -> float:
    with open("/proc/self/status", encoding="ascii") as status:
        for line in status:
            if line.startswith(name + ":"):
                return 1024.0 * float(line.split()[1])
    fail(f"{name} is not in /proc/self/status")
