# SPDX-License-Identifier: Apache-2.0
"""Trains under Accelerate, and goes on from the newest step bit by bit: what
prepare() returned has state_dict()s as everything else.

  python accelerate_loop.py STORE [STEPS]
"""

import sys

import ckptree.torch
import torch
from accelerate import Accelerator


def main(path: str, steps: int) -> None:
    torch.manual_seed(0)
    accelerator = Accelerator(cpu=True)
    model = torch.nn.Linear(8, 1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 5, 0.5)
    model, optimizer, schedule = accelerator.prepare(
        model, optimizer, schedule
    )
    app = {"model": model, "optimizer": optimizer, "schedule": schedule,
           "rng": ckptree.torch.Rng()}
    with ckptree.CheckpointManager(path, max_to_keep=3) as manager:
        first = ckptree.torch.resume(manager, app)
        print(f"begins at step {first}")
        for step in range(first, steps):
            x = torch.randn(32, 8)
            loss = (model(x) - x.sum(1, keepdim=True)).square().mean()
            optimizer.zero_grad()
            accelerator.backward(loss)
            optimizer.step()
            schedule.step()
            ckptree.torch.save(manager, step, app)
    print(steps, model.weight.double().square().sum().item().hex())


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 20)
