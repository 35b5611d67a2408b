# SPDX-License-Identifier: Apache-2.0
"""Lightning with its checkpoints in one store, where they share what did not
change. The path that a ModelCheckpoint thinks of is the note of a step:

  trainer = lightning.Trainer(plugins=[StoreIO("runs/lm")], ...)
  trainer.fit(model, ckpt_path=trainer.checkpoint_callback.best_model_path)
"""

import ckptree
from lightning.pytorch.plugins.io import CheckpointIO


class StoreIO(CheckpointIO):
    """`path`: of the store, which may hold steps already."""

    def __init__(self, path):
        self.store = ckptree.Store(path)

    def steps_of(self, path):
        return [s.step for s in self.store.steps() if s.note == str(path)]

    def save_checkpoint(self, checkpoint, path, storage_options=None):
        before, step = self.steps_of(path), max(self.store, default=0) + 1
        self.store.save(step, checkpoint, note=str(path)).result()
        for step in before:
            self.store.delete(step)

    def load_checkpoint(self, path, map_location=None, weights_only=None):
        steps = self.steps_of(path)
        if not steps:
            raise FileNotFoundError(f"{self.store.path} has no step of {path}")
        return self.store[steps[-1]].torch()

    def remove_checkpoint(self, path):
        for step in self.steps_of(path):
            self.store.delete(step)
