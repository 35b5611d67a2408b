# SPDX-License-Identifier: Apache-2.0
"""py_daily: what a person waits for, with 100 000 leaves: a template that does
not fit, a step shown in a notebook, a state of JAX restored like it was."""

from __future__ import annotations

import os
import shutil
from typing import Any

import ckptree
import jax
import numpy as np
from files import forget
from measure import Report, fail, seconds

_IN_A_LAYER = 100


def daily(report: Report) -> None:
    settings = report.settings
    leaves = 10_000 if settings.quick else 100_000
    path = os.path.join(settings.directory, "daily")
    numbers = _tree(leaves, float)
    arrays = _tree(leaves, lambda i: jax.numpy.full((), i, "float32"))
    with ckptree.Store(path) as store:
        store.save(1, {"params": numbers}).result()
        store.save(2, {"params": arrays}).result()
    with ckptree.open(path) as reader:
        repeats = range(settings.repeats)
        wrong = [_wrong(reader, numbers) for _ in repeats]
        shown = [seconds(lambda: _show(reader)) for _ in repeats]
        like = [_like(reader, {"params": arrays}) for _ in repeats]
    described = [_describe(path, leaves) for _ in repeats]
    shutil.rmtree(path)
    # Whatever their number is, as it would be with 100 000.
    scale = 100_000 / leaves
    for what, took, floor, goal in (
        ("a template that does not fit", wrong, 0.3, 0.03),
        ("a step as HTML", shown, 0.3, None),
        ("restore(like) of arrays of JAX", like, 1.0, 0.4),
        ("metadata by name, cold", described, 0.1, 0.03),
    ):
        report.figure(
            f"100 000 leaves: {what}",
            "s",
            [t * scale for t in took],
            floor=floor,
            goal=goal,
            at_least=False,
        )


def _tree(leaves: int, make: Any) -> dict[str, dict[str, Any]]:
    return {
        f"layer{layer}": {
            f"w{i}": make(layer * _IN_A_LAYER + i) for i in range(_IN_A_LAYER)
        }
        for layer in range(leaves // _IN_A_LAYER)
    }


def _wrong(reader: ckptree.Store, template: Any) -> float:
    said: list[str] = []

    def run() -> None:
        try:
            reader.restore(1, like=template)
        except ckptree.MismatchError as error:
            said.append(str(error))

    taken = seconds(run)
    if not said or "rename={'': 'params'}" not in said[0]:
        fail("a template that does not fit was not told why")
    return taken


def _show(reader: ckptree.Store) -> None:
    if len(reader[2]._repr_html_()) > 100_000:
        fail("a step of many leaves is shown without an end")


def _describe(path: str, leaves: int) -> float:
    """Name, type and shape of each leaf, the store being opened."""
    forget(path)
    found: dict[str, Any] = {}

    def run() -> None:
        with ckptree.open(path) as reader:
            for leaf in reader[2].leaves():
                found[leaf.name] = (leaf.dtype, leaf.shape)

    taken = seconds(run)
    if len(found) != leaves:
        fail("a step does not have its leaves")
    return taken


def _like(reader: ckptree.Store, template: Any) -> float:
    restored: list[Any] = []

    def run() -> None:
        restored.append(reader.restore(2, like=template))
        jax.block_until_ready(restored[0])

    taken = seconds(run)
    pairs = zip(jax.tree.leaves(template), jax.tree.leaves(restored[0]))
    if not all(np.array_equal(a, b) for a, b in pairs):
        fail("a restore gave other bytes than were saved")
    return taken
