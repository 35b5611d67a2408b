# SPDX-License-Identifier: Apache-2.0
"""Hugging Face's Trainer with its checkpoints in one store:
trainer.train(resume_from_checkpoint=newest_folder(trainer.args, manager))"""

import pathlib

import ckptree.torch
from transformers import Trainer, TrainerCallback


class Saves(TrainerCallback):
    def __init__(self, manager):
        self.manager = manager

    def on_step_end(self, args, state, control, **given):
        file = pathlib.Path(args.output_dir, "trainer_state.json")
        state.save_to_json(file)
        app = {k: given[k] for k in ("model", "optimizer", "lr_scheduler")}
        app |= {"trainer": file.read_text(), "rng": ckptree.torch.Rng()}
        ckptree.torch.save(self.manager, state.global_step, app)


class StoreTrainer(Trainer):  # StoreTrainer.manager = manager
    def _load(self, **app):
        ckptree.torch.load(self.manager, app, partial=True)

    def _load_from_checkpoint(self, *folder):
        self._load(model=self.model)

    def _load_optimizer_and_scheduler(self, folder):
        if folder:
            schedule = self.lr_scheduler
            self._load(optimizer=self.optimizer, lr_scheduler=schedule)

    def _load_rng_state(self, folder):
        self._load(rng=ckptree.torch.Rng())


def newest_folder(args, manager):
    if manager.latest_step() is not None:
        text = manager["latest"]["trainer"].value()
        pathlib.Path(args.output_dir, "trainer_state.json").write_text(text)
        return args.output_dir
