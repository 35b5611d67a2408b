# SPDX-License-Identifier: Apache-2.0
"""Trainings of PyTorch: save and load modules, optimizers, schedulers, random
generators and whatever else has a state_dict(), all in one call.

A new process goes on where the last one was, bit by bit, in three lines: `app`,
resume() and save().

>>> import ckptree.torch
>>> model = torch.nn.Linear(3, 1)
>>> optimizer = torch.optim.AdamW(model.parameters())
>>> app = {"model": model, "optimizer": optimizer, "rng": ckptree.torch.Rng()}
>>> with ckptree.CheckpointManager(tmp / "run", max_to_keep=3) as manager:
...     for step in range(ckptree.torch.resume(manager, app), 5):
...         loss = model(torch.randn(8, 3)).square().mean()
...         optimizer.zero_grad()
...         loss.backward()
...         optimizer.step()
...         saved = ckptree.torch.save(manager, step, app)

An app is a dict, of dicts and lists as deep as you like, of

* what has state_dict() and load_state_dict(): modules, optimizers, schedulers,
  a GradScaler, metrics, a StatefulDataLoader, Rng, objects of your own. What
  torch.compile() or DistributedDataParallel put around a module is no part of
  the names, so that a checkpoint fits with and without.
* generators: torch.Generator, numpy.random.Generator and RandomState,
  random.Random.
* tensors, which are read in place.
* plain states: numbers, str, bytes, None, arrays of NumPy, lists, dicts. They
  are replaced in their dict or list, and have the keys then that the step has:
  load(partial=True) keeps those that are new in the app.

import_checkpoint() and export_checkpoint() take states from files of
torch.save(), of safetensors and folders of DCP, and write them.

States of Rng and of generators are taken after all others, and put back after
all others: what makes the others may draw numbers. A StatefulDataLoader draws
one later, where its loop begins: python/README.md says what to do.
"""

from __future__ import annotations

from ckptree.adapters import torch as _adapter  # It says what to install.
from ckptree.torch._calls import load, save
from ckptree.torch._exporting import export_checkpoint
from ckptree.torch._generators import Rng
from ckptree.torch._importing import import_checkpoint
from ckptree.torch._resuming import resume

import torch

__all__ = [
    "Rng",
    "export_checkpoint",
    "import_checkpoint",
    "load",
    "resume",
    "save",
]
