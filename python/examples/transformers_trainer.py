# SPDX-License-Identifier: Apache-2.0
"""Hugging Face's Trainer with its checkpoints in one store, saved as
save_strategy and save_steps say:
trainer.train(resume_from_checkpoint=newest_folder(trainer.args, manager))"""

import pathlib

import ckptree.torch
from transformers import Trainer
from transformers.trainer_callback import ExportableState


class StoreTrainer(Trainer):  # StoreTrainer.manager = manager
    def _save_checkpoint(self, model, trial):
        for part in [*self.callback_handler.callbacks, self.control]:
            if isinstance(part, ExportableState):
                name = type(part).__name__
                self.state.stateful_callbacks[name] = part.state()
        file = pathlib.Path(self.args.output_dir, "trainer_state.json")
        self.state.save_to_json(file)
        app = {"model": self.model, "optimizer": self.optimizer,
               "lr_scheduler": self.lr_scheduler,
               "trainer": file.read_text(), "rng": ckptree.torch.Rng()}
        ckptree.torch.save(self.manager, self.state.global_step, app)

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
