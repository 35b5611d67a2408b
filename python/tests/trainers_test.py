# SPDX-License-Identifier: Apache-2.0
"""The examples for trainers of others: each is stopped, goes on in a new
process, and ends bit by bit where one ends that was not stopped."""

import importlib.util
import re
from pathlib import Path

import ckptree
import program
import pytest
from again import again

EXAMPLES = Path(__file__).parent.parent / "examples"

# By epochs: in the middle of one Lightning goes on with other batches, with
# files of its own, too.
LIGHTNING = """
import os, sys, warnings
warnings.simplefilter("ignore")
import lightning, torch
from lightning_io import StoreIO

class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Linear(8, 1)

    def training_step(self, batch, index):
        (x,) = batch
        return (self.net(x) - x.sum(1, keepdim=True)).square().mean()

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-2)

folder, steps = sys.argv[1], int(sys.argv[2])
torch.manual_seed(0)
plugin = StoreIO(os.path.join(folder, "store"))
saves = lightning.pytorch.callbacks.ModelCheckpoint(
    folder, save_top_k=2, monitor="step", mode="max")
trainer = lightning.Trainer(
    max_epochs=steps // 8, plugins=[plugin], callbacks=[saves], logger=False,
    accelerator="cpu", enable_progress_bar=False, enable_model_summary=False)
data = torch.randn(64, 8, generator=torch.Generator().manual_seed(1))
loader = torch.utils.data.DataLoader(
    torch.utils.data.TensorDataset(data), batch_size=8)
newest = [info.note for info in plugin.store.steps()][-1:]
print("begins at", newest[0].split("=")[-1] if newest else 0)
model = Model()
trainer.fit(model, loader, ckpt_path=newest[0] if newest else None)
print(trainer.global_step,
      model.net.weight.double().square().sum().item().hex())
"""

TRANSFORMERS = """
import os, sys, warnings
warnings.simplefilter("ignore")
import torch, transformers
import ckptree
from transformers_trainer import StoreTrainer, newest_folder
transformers.utils.logging.set_verbosity_error()

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Sequential(
            torch.nn.Linear(8, 4), torch.nn.Dropout(0.3), torch.nn.Linear(4, 1))

    def forward(self, x, labels=None):
        return {"loss": (self.net(x) - x.sum(1, keepdim=True)).square().mean()}

folder, steps = sys.argv[1], int(sys.argv[2])
os.makedirs(folder, exist_ok=True)
torch.manual_seed(0)
data = torch.randn(64, 8, generator=torch.Generator().manual_seed(1))
arguments = transformers.TrainingArguments(
    folder, max_steps=20, per_device_train_batch_size=8,
    save_strategy="steps", save_steps=1, eval_strategy="steps", eval_steps=1,
    logging_steps=1, metric_for_best_model="eval_loss",
    use_cpu=True, disable_tqdm=True, report_to=[])

class Stop(transformers.TrainerCallback):
    def on_step_end(self, args, state, control, **given):
        control.should_training_stop |= state.global_step >= steps

class Judged(StoreTrainer):  # The best step is one that was resumed from.
    def evaluate(self, *given, **named):
        step = self.state.global_step
        metrics = {"eval_loss": abs(step - 7) + 0.5}
        self.log(metrics)
        self.control = self.callback_handler.on_evaluate(
            self.args, self.state, self.control, metrics)
        return metrics

manager = ckptree.CheckpointManager(os.path.join(folder, "store"))
StoreTrainer.manager = manager
rows = [{"x": x, "labels": 0} for x in data]
patience = transformers.EarlyStoppingCallback(early_stopping_patience=30)
trainer = Judged(Model(), arguments, callbacks=[Stop(), patience],
                 train_dataset=rows, eval_dataset=rows)
print("begins at", manager.latest_step() or 0)
trainer.train(resume_from_checkpoint=newest_folder(arguments, manager))
print(trainer.state.global_step,
      sum(p.double().square().sum().item()
          for p in trainer.model.parameters()).hex(),
      trainer.state.best_metric, trainer.state.best_global_step,
      patience.early_stopping_patience_counter,
      [sorted(row.items()) for row in trainer.state.log_history
       if "train_runtime" not in row])
manager.close()
"""

TITAN = """
import sys
import torch
from titan_hooks import CheckpointManager

class Trainer:  # Its own state is one of the states, as torchtitan has it.
    def __init__(self, folder):
        torch.manual_seed(0)
        self.step = 0
        self.model = torch.nn.Linear(8, 1)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-2)
        self.saves = CheckpointManager(
            {"model": self.model, "optimizer": self.optimizer,
             "train_state": self}, folder + "/store", interval=4)

    def state_dict(self):
        return {"step": self.step}

    def load_state_dict(self, state):
        self.step = state["step"]

    def train(self, steps):
        assert self.saves.load() is (self.step > 0)
        print("begins at", self.step)
        while self.step < steps:
            self.step += 1
            x = torch.randn(32, 8)
            loss = (self.model(x) - x.sum(1, keepdim=True)).square().mean()
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            self.saves.save(self.step, last_step=self.step == steps)
            self.saves.maybe_wait_for_staging()
        print(self.step, self.model.weight.double().square().sum().item().hex())
        self.saves.close()

Trainer(sys.argv[1]).train(int(sys.argv[2]))
"""


def run(code, folder, steps):
    path = f"import sys; sys.path.insert(0, {str(EXAMPLES)!r})\n"
    done = program.run(path + code, folder, steps, timeout=300)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    begin = next(n for n, s in enumerate(lines) if s.startswith("begins at"))
    first = int(re.findall(r"[0-9]+", lines[begin])[0])
    return first, lines[-1]


def needs(*names):
    for name in names:
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"{name} is not installed")


@pytest.mark.parametrize(
    "code, needed, steps",
    [
        (LIGHTNING, ["lightning", "torch"], (8, 24)),
        (TRANSFORMERS, ["transformers", "accelerate", "torch"], (7, 20)),
        again(TITAN, ["torch"], (7, 20)),
        again(
            (EXAMPLES / "accelerate_loop.py").read_text(),
            ["accelerate", "torch"], (7, 20),
        ),
    ],
    ids=["lightning", "transformers", "titan", "accelerate"],
)
def test_it_goes_on_where_it_was(tmp_path, code, needed, steps):
    needs(*needed)
    parts, whole = tmp_path / "parts", tmp_path / "whole"
    assert run(code, parts, steps[0])[0] == 0
    first, said = run(code, parts, steps[1])
    assert first == steps[0] and said.startswith(f"{steps[1]} ")
    assert run(code, whole, steps[1]) == (0, said)
    folders = [f if (f / "LOCK").exists() else f / "store"
               for f in (parts, whole)]
    with ckptree.open(folders[0]) as a, ckptree.open(folders[1]) as b:
        assert a.step_info().logical_bytes == b.step_info().logical_bytes > 0
        if needed != ["lightning", "torch"]:  # That has times in it.
            assert a.step_info().step == b.step_info().step


def test_a_path_that_nobody_saved_is_named(tmp_path, monkeypatch):
    pytest.importorskip("lightning")
    monkeypatch.syspath_prepend(str(EXAMPLES))
    io = importlib.import_module("lightning_io").StoreIO(tmp_path / "run")
    io.save_checkpoint({"a": 1}, "saved.ckpt")
    assert io.load_checkpoint("saved.ckpt") == {"a": 1}
    with pytest.raises(FileNotFoundError, match="run has no step of no.ckpt"):
        io.load_checkpoint("no.ckpt")
    io.store.close()


@pytest.mark.parametrize(
    "name",
    ["accelerate_loop", "lightning_io", "titan_hooks", "torch_loop",
     "transformers_trainer"],
)
def test_it_is_short(name):
    text = (EXAMPLES / f"{name}.py").read_text()
    code = [line for line in text.splitlines() if line.strip()]
    assert len(code) <= 40 and "ckptree" in text
