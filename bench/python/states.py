# SPDX-License-Identifier: Apache-2.0
"""States of a trainer: the same bytes and names as bench/state.h has."""

from __future__ import annotations

from typing import Any, Iterator

import numpy as np

Tree = dict[str, Any]


class NumpyState:
    """`leaves` arrays of random bits in dicts of a hundred."""

    def __init__(self, leaves: int, leaf_bytes: int) -> None:
        words = leaf_bytes // 4
        side = int(words**0.5)
        self.shape = (side, words // side)
        random = np.random.default_rng(7)
        self.arrays = [
            random.integers(0, 1 << 32, words, np.uint32)
            .view(np.float32)
            .reshape(self.shape)
            for _ in range(leaves)
        ]
        self.tree = tree_of(self.arrays)
        self._every = min(leaf_bytes, 1 << 20) // 4
        self._salt = 0

    @property
    def nbytes(self) -> int:
        return sum(array.nbytes for array in self.arrays)

    def change(self, turn: int) -> Tree:
        """Changes every chunk; the same tree. `turn` is for JaxState."""
        del turn
        self._salt += 1
        for array in self.arrays:
            array.view(np.uint32).reshape(-1)[:: self._every] = self._salt
        return self.tree


class JaxState:
    """Two trees of arrays of JAX: none is made while a clock runs."""

    def __init__(self, leaves: int, leaf_bytes: int) -> None:
        import jax

        # A copy: on a CPU JAX would share NumPy's memory.
        self._trees = []
        for salt in (1, 2):
            state = NumpyState(leaves, leaf_bytes)
            for _ in range(salt):
                state.change(0)
            self._trees.append(
                tree_of([jax.numpy.array(a, copy=True) for a in state.arrays])
            )
        jax.block_until_ready(self._trees)
        self.tree = self._trees[0]
        self.shape = state.shape

    def change(self, turn: int) -> Tree:
        """A tree that differs in every chunk from that of the turn before."""
        return self._trees[turn % 2]


def tree_of(arrays: list[Any]) -> Tree:
    tree: Tree = {}
    for i, array in enumerate(arrays):
        layer = tree.setdefault(f"layer_{i // 100:03d}", {})
        layer[f"w_{i:05d}"] = array
    return {"params": tree}


def leaves_of(tree: Tree) -> Iterator[tuple[str, Any]]:
    for name, layer in tree["params"].items():
        for leaf, array in layer.items():
            yield f"params/{name}/{leaf}", array


def flat(tree: Tree) -> dict[str, Any]:
    return dict(leaves_of(tree))


def touch_pages(arrays: Any) -> None:
    """What was mapped and not read is read now: a restore is over when its
    values are there."""
    for array in arrays:
        np.asarray(array).view(np.uint8).reshape(-1)[::4096].max()


def same(tree: Tree, other: Tree) -> bool:
    there = dict(leaves_of(other))
    return all(
        np.array_equal(
            np.asarray(array).view(np.uint32),
            np.asarray(there[name]).view(np.uint32),
        )
        for name, array in leaves_of(tree)
    )
