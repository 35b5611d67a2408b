# SPDX-License-Identifier: Apache-2.0
"""Tries three learning rates from the same step, each on a branch of its own:
the branches share the bytes of what they begin with. Prints the best.

  python sweep.py STORE
"""

import sys

import ckptree
import numpy as np

RATES = {"small": 0.05, "middle": 0.2, "large": 1.9}


def train(store: ckptree.Store, state: dict, steps: range, branch: str = ""):
    for step in steps:
        error = state["w"] - state["target"]
        state["w"] = state["w"] - state["lr"] * error
        loss = float((error**2).mean())
        store.save(step, state, metrics={"loss": loss}, branch=branch)
    store.flush()


def main(path: str) -> None:
    target = np.random.default_rng(0).random(1000)
    begin = {"w": np.zeros(1000), "target": target, "lr": 0.01}
    with ckptree.Store(path) as store:
        if "latest" not in store:
            train(store, begin, range(10))
        for branch, rate in RATES.items():
            if branch not in [known.name for known in store.branches()]:
                store.fork("latest", branch)
            # A new branch has no step yet: it goes on from the main one's.
            newest = f"{branch}/latest"
            newest = newest if newest in store else "latest"
            state = store.restore(newest, like=begin) | {"lr": rate}
            first = store.step_info(newest).step + 1
            train(store, state, range(first, 30), branch)
        losses = {
            branch: store.step_info(f"{branch}/latest").metrics["loss"]
            for branch in RATES
        }
        for branch, loss in losses.items():
            print(f"{branch}: {loss:.3g}")
        print(f"the best is {min(losses, key=losses.__getitem__)}")


if __name__ == "__main__":
    main(sys.argv[1])
