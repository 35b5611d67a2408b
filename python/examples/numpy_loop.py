# SPDX-License-Identifier: Apache-2.0
"""Fits a line by NumPy, saves as it goes, and goes on from the newest step.

  python numpy_loop.py STORE [STEPS]
"""

import sys

import ckptree
import numpy as np


def main(path: str, steps: int) -> None:
    rng = np.random.default_rng(0)
    x = rng.random((256, 4))
    y = x @ np.array([1.0, -2.0, 3.0, 0.5])
    state = {"w": np.zeros(4), "momentum": np.zeros(4), "lr": 0.3}
    keep = ckptree.Latest(3) | ckptree.EveryN(50)
    with ckptree.CheckpointManager(path, preservation=keep) as manager:
        state, newest = manager.store.restore_or(state)
        first = 0 if newest is None else newest + 1
        print(f"begins at step {first}")
        for step in range(first, steps):
            error = x @ state["w"] - y
            gradient = x.T @ error / len(x)
            state["momentum"] = 0.5 * state["momentum"] + gradient
            state["w"] = state["w"] - state["lr"] * state["momentum"]
            loss = float((error**2).mean())
            manager.save(step, state, metrics={"loss": loss})


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 100)
