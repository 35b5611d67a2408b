# SPDX-License-Identifier: Apache-2.0
"""Trains a small model of PyTorch, and goes on from the newest step bit by bit:
parameters, the optimizer's moments and the generator of random numbers.

  python torch_loop.py STORE [STEPS]
"""

import sys

import ckptree.torch
import torch


def main(path: str, steps: int) -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1)
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    rng = ckptree.torch.Rng(numpy=False, python=False)  # What is drawn from.
    app = {"model": model, "optimizer": optimizer, "rng": rng}
    with ckptree.CheckpointManager(path, max_to_keep=3) as manager:
        first = ckptree.torch.resume(manager, app)
        print(f"begins at step {first}")
        for step in range(first, steps):
            x = torch.randn(32, 8)
            loss = (model(x) - x.sum(1, keepdim=True)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            metrics = {"loss": loss.item()}
            ckptree.torch.save(manager, step, app, metrics=metrics)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 20)
