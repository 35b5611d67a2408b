# SPDX-License-Identifier: Apache-2.0
"""A training that goes on in a new process, bit by bit: of PyTorch."""

import random
import re
import subprocess
import sys
from pathlib import Path

import ckptree
import pytest
from again import again

pytest.importorskip(
    "torch", reason="PyTorch could not be installed: see requirements_torch.txt"
)

TRAINING = """
import sys
import ckptree, torch

def start():
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Linear(5, 8), torch.nn.BatchNorm1d(8), torch.nn.Dropout(0.3),
        torch.nn.Linear(8, 3),
    )
    kind = sys.argv[3]
    groups = [
        {"params": list(model[0].parameters()), "lr": 3e-3},
        {"params": list(model[1:].parameters()), "weight_decay": 0.1},
    ]
    make = {
        "adamw": lambda: torch.optim.AdamW(groups, lr=1e-2, amsgrad=True),
        "sgd": lambda: torch.optim.SGD(groups, lr=1e-2, momentum=0.9),
        "plain": lambda: torch.optim.SGD(groups, lr=1e-2),
        "rates": lambda: torch.optim.Adam(
            groups, lr=torch.tensor(1e-2), betas=(0.8, 0.99), capturable=False,
            foreach=False,
        ),
    }
    optimizer = make[kind]()
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, max_lr=[0.01, 0.02], total_steps=50
    ) if kind != "rates" else torch.optim.lr_scheduler.StepLR(optimizer, 3)
    return model, optimizer, schedule

def train(model, optimizer, schedule, first, last):
    for step in range(first, last):
        x = torch.randn(16, 5)  # The data comes from the generator, too.
        loss = (model(x) - x[:, :3].sin()).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        print("loss", step, loss.item().hex())

def state_of(model, optimizer, schedule):
    return {
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "schedule": schedule.state_dict(),
        "rng": torch.get_rng_state(),
    }

training = start()
model, optimizer, schedule = training
if sys.argv[2] == "whole":
    train(*training, 0, 20)
elif sys.argv[2] == "first":
    train(*training, 0, 9)
    with ckptree.Store(sys.argv[1]) as store:
        store.save(9, state_of(*training))
else:
    assert optimizer.state_dict()["state"] == {}  # Nothing to be a template.
    torch.manual_seed(12345)
    with ckptree.open(sys.argv[1]) as store:
        state = store["latest"].torch()
    for name, part in zip(("model", "optimizer", "schedule"), training):
        part.load_state_dict(state[name])
    torch.set_rng_state(state["rng"])
    train(*training, 9, 20)

def shown(value):
    if isinstance(value, torch.Tensor):
        bits = value.detach().contiguous().reshape(-1).view(torch.uint8)
        data = bits.numpy().tobytes().hex()
        return (str(value.dtype), tuple(value.shape), data)
    if isinstance(value, dict):
        return {k: shown(v) for k, v in sorted(value.items(), key=str)}
    if isinstance(value, (list, tuple)):
        return type(value)(map(shown, value))
    return (type(value).__name__, value)

print("state", shown(state_of(*training)))
"""


@pytest.mark.parametrize(
    "kind", ["adamw", again("sgd"), again("plain"), "rates"]
)
def test_a_new_process_goes_on_bit_by_bit(tmp_path, kind):
    def run(part):
        done = subprocess.run(
            [sys.executable, "-c", TRAINING, str(tmp_path / "run"), part, kind],
            capture_output=True, text=True, timeout=300,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    whole, first, rest = run("whole"), run("first"), run("rest")
    assert len(whole) == 21 and len(first) == 10 and len(rest) == 12
    assert whole[:9] == first[:9]
    assert whole[9:] == rest  # Each loss, then model, optimizer, RNG.
    assert first[9] != whole[20]


def test_the_program_of_the_readme_resumes_in_a_new_process(tmp_path):
    readme = (Path(__file__).parent.parent / "README.md").read_text()
    (program,) = re.findall(
        r"<!-- program: torch -->\n```python\n(.*?)```", readme, re.S
    )
    begin = "import sys, torch; torch.manual_seed(int(sys.argv[3]))\n"
    begin += "import random, numpy; random.seed(int(sys.argv[3]))\n"
    begin += "numpy.random.seed(int(sys.argv[3]))\n"
    begin += "path, steps = sys.argv[1], int(sys.argv[2])\n"
    end = """
def shown(value):  # A step has no order of keys.
    if isinstance(value, dict):
        return {str(k): shown(value[k]) for k in sorted(value, key=str)}
    return list(map(shown, value)) if isinstance(value, list) else value
print(shown(model.state_dict()), shown(optimizer.state_dict()))
print(torch.get_rng_state().sum(), torch.rand(3).tolist())
"""

    def run(name, steps, seed):
        done = subprocess.run(
            [sys.executable, "-c",
             begin + "torch.set_printoptions(precision=17)\n" + program + end,
             str(tmp_path / name), str(steps), str(seed)],
            capture_output=True, text=True, timeout=300,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    whole, first = run("whole", 12, seed=1), run("cut", 7, seed=1)
    losses = re.findall(r"^(\d+) (\S+)$", whole, re.M)
    assert [int(step) for step, _ in losses] == list(range(12))
    rest = run("cut", 12, seed=2)  # What the seed makes must not matter.
    assert rest == whole[whole.index("7 " + losses[7][1]):]
    assert first.startswith(whole[:whole.index("7 " + losses[7][1])])


# All that an app may have, and all of it in use: what is not put back shows.
APP = """
import random, sys
import ckptree.torch, numpy as np, torch

torch.manual_seed(int(sys.argv[3]))
random.seed(int(sys.argv[3]))
np.random.seed(int(sys.argv[3]))

class Loader:
    def __init__(self):
        self.order, self.at = list(range(7)), 7

    def next(self):
        if self.at == 7:
            random.shuffle(self.order)
            self.at = 0
        self.at += 1
        return self.order[self.at - 1]

    def state_dict(self):
        return {"order": list(self.order), "at": self.at}

    def load_state_dict(self, state):
        self.order, self.at = state["order"], state["at"]

model = torch.nn.Sequential(
    torch.nn.Linear(5, 8), torch.nn.BatchNorm1d(8), torch.nn.Dropout(0.3),
    torch.nn.Linear(8, 3),
)
average = torch.optim.swa_utils.AveragedModel(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, amsgrad=True)
schedule = torch.optim.lr_scheduler.MultiStepLR(optimizer, [5, 9, 9, 15], 0.5)
scaler = torch.amp.GradScaler("cpu", init_scale=4.0, growth_interval=3)
noise, own = torch.Generator().manual_seed(3), np.random.default_rng(4)
loader = Loader()
app = {
    "model": model, "average": average, "optimizer": optimizer,
    "schedule": schedule, "scaler": scaler, "noise": noise,
    "more": {"own": own, "loader": loader}, "losses": [], "best": None,
    "rng": ckptree.torch.Rng(),
}
with ckptree.CheckpointManager(sys.argv[1], max_to_keep=2) as manager:
    for step in range(ckptree.torch.resume(manager, app), int(sys.argv[2])):
        x = torch.randn(16, 5) + 0.1 * torch.randn(16, 5, generator=noise)
        x = x * np.random.rand() + own.standard_normal() + loader.next()
        loss = (model(x) - x[:, :3].sin()).square().mean()
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        schedule.step()
        average.update_parameters(model)
        app["losses"].append(loss.item())
        app["best"] = min(app["losses"])
        print("step", step, loss.item().hex(), app["best"].hex())
        ckptree.torch.save(manager, step, app)
print("end", sum(p.double().sum().item() for p in average.parameters()).hex(),
      scaler.get_scale(), len(app["losses"]), schedule.get_last_lr())
"""


@pytest.mark.parametrize("seed", [1, again(2)])
def test_a_training_that_is_killed_at_random_goes_on_bit_by_bit(
    tmp_path, seed
):
    steps, moments = 300, random.Random(seed)

    def run(name, seed_of_process, lines=None):
        """What it prints until it is killed, after so many lines."""
        with subprocess.Popen(
            [sys.executable, "-u", "-c", APP, str(tmp_path / name),
             str(steps), str(seed_of_process)],
            stdout=subprocess.PIPE, text=True,
        ) as process:
            said = []
            for line in process.stdout:
                said.append(line)
                if len(said) == lines:
                    process.kill()
            process.wait(timeout=300)
        assert process.returncode == (0 if lines is None else -9)
        return said

    def is_begun():
        try:
            with ckptree.open(tmp_path / "killed") as store:
                return len(store) > 0
        except FileNotFoundError:
            return False

    whole = run("whole", 1)
    assert len(whole) == steps + 1
    last = -1
    for kill in range(4):
        # What the seed of a process makes must not matter, but at the start.
        seed_of_process = 100 + kill if is_begun() else 1
        said = run("killed", seed_of_process, moments.randint(1, 30))
        if not said[-1].endswith("\n"):
            said.pop()
        first = int(said[0].split()[1])
        # It goes on after the last durable step, and prints what was printed.
        assert first <= last + 1
        assert said == whole[first:first + len(said)]
        last = first + len(said) - 1
    assert is_begun() and 0 < last < steps - 1
    rest = run("killed", 200)
    first = int(rest[0].split()[1])
    assert 0 < first <= last + 1 and rest == whole[first:]
