# SPDX-License-Identifier: Apache-2.0
"""The hooks that trainers like torchtitan have for checkpoints: a dict of
states, load() at the start, save() after every step. For one process."""

import ckptree.torch


class CheckpointManager:
    def __init__(self, states, folder, interval=10, keep_latest_k=3):
        self.states = states | {"rng": ckptree.torch.Rng()}
        self.manager = ckptree.CheckpointManager(
            folder, max_to_keep=keep_latest_k, save_interval_steps=interval
        )

    def load(self, step=-1):
        """Reads a step, or the latest, into the states, if there is one."""
        if self.manager.latest_step() is None:
            return False
        chosen = "latest" if step == -1 else step
        ckptree.torch.load(self.manager, self.states, step=chosen)
        return True

    def save(self, curr_step, last_step=False):
        """Returns when the states may change again."""
        ckptree.torch.save(
            self.manager, curr_step, self.states, force=last_step
        )

    def maybe_wait_for_staging(self):
        pass  # save() has waited.

    def close(self):
        self.manager.close()
