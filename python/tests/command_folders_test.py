# SPDX-License-Identifier: Apache-2.0
"""`ckptree import` of folders of several checkpoints that go through Python."""

import json
import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import numpy as np
import pytest

# Another build of the command than the one that is installed.
COMMAND = os.environ.get("CKPTREE_COMMAND") or (
    Path(sysconfig.get_path("scripts")) / "ckptree"
)


def run(*arguments, code=0):
    done = subprocess.run(
        [COMMAND, *map(str, arguments)],
        capture_output=True,
        text=True,
        env={**os.environ, "CKPTREE_PYTHON": sys.executable},
    )
    assert done.returncode == code, done.stderr
    return done.stdout if code == 0 else done.stderr


def steps_of(said):
    return [row["step"] for row in json.loads(said)["steps"]]


def test_steps_of_pytorch_and_of_safetensors(tmp_path):
    torch = pytest.importorskip("torch")
    safetensors = pytest.importorskip("safetensors.numpy")
    runs, store = tmp_path / "runs", tmp_path / "store"
    for step in (5, 6, 7, 8):
        (runs / f"checkpoint-{step}").mkdir(parents=True)
    w = np.ones(3, np.float32)
    safetensors.save_file({"w": w}, runs / "checkpoint-5/model.safetensors")
    state = {"w": torch.ones(3)}
    torch.save(state, runs / "checkpoint-6" / "pytorch_model.bin")
    for name in ("optimizer.pt", "scheduler.pt"):
        torch.save(state, runs / "checkpoint-7" / name)
    for name in ("a", "b"):
        path = runs / "checkpoint-8" / f"{name}.safetensors"
        safetensors.save_file({"w": w}, path)
    said = run("-C", store, "import", runs, "--json")
    assert steps_of(said) == [5, 6, 7, 8]
    assert run("-C", store, "get", "5:w") == "[1.0 1.0 1.0]\n"
    assert run("-C", store, "get", "7:scheduler/w") == "[1.0 1.0 1.0]\n"
    assert run("-C", store, "get", "8:b/w") == "[1.0 1.0 1.0]\n"
    (runs / "checkpoint-9").mkdir()
    other = tmp_path / "other"
    said = run("-C", other, "import", runs, code=2)
    assert "checkpoint-9" in said and not other.exists()


@pytest.mark.parametrize("prefix", ["checkpoint-", "checkpoint_", "step_", ""])
def test_steps_of_orbax(tmp_path, prefix):
    pytest.importorskip("jax")
    ocp = pytest.importorskip("orbax.checkpoint")
    runs, store = tmp_path / "runs", tmp_path / "store"
    with ocp.StandardCheckpointer() as saver:
        for step in (5, 6):
            state = {"w": np.full(3, step, np.float32)}
            saver.save(runs / f"{prefix}{step}", state)
    said = run("-C", store, "import", runs, "--json")
    assert steps_of(said) == [5, 6]
    listed = json.loads(run("-C", store, "ls", 6, "--json"))["leaves"]
    (key,) = [row["key"] for row in listed]
    assert run("-C", store, "get", f"6:{key}") == "[6.0 6.0 6.0]\n"
    # What is there is left as it is.
    run("-C", store, "import", runs)
    assert sorted(p.name for p in runs.iterdir()) == [
        f"{prefix}5",
        f"{prefix}6",
    ]
    mixed = runs / f"{prefix or 'step-'}7"
    mixed.mkdir()
    other = tmp_path / "other"
    said = run("-C", other, "import", runs, code=2)
    assert mixed.name in said and not other.exists()


def test_orbax_beside_arrays_is_refused_by_name(tmp_path):
    pytest.importorskip("jax")
    ocp = pytest.importorskip("orbax.checkpoint")
    runs, store = tmp_path / "runs", tmp_path / "store"
    with ocp.StandardCheckpointer() as saver:
        saver.save(runs / "checkpoint-6", {"w": np.ones(3, np.float32)})
    (runs / "checkpoint-5").mkdir()
    np.save(runs / "checkpoint-5" / "w.npy", np.ones(3))
    said = run("-C", store, "import", runs, code=2)
    assert "checkpoint-5" in said and not store.exists()


def test_stopped_before_its_first_step_it_leaves_no_store(
    tmp_path, monkeypatch
):
    torch = pytest.importorskip("torch")
    from ckptree.torch import __main__ as program

    def stopped(*_, **__):
        raise KeyboardInterrupt

    torch.save({"w": torch.ones(1)}, tmp_path / "step_1.pt")
    monkeypatch.setattr(program, "import_checkpoint", stopped)
    store = tmp_path / "store"
    words = ["import", str(tmp_path / "step_1.pt"), str(store)]
    assert program.main(words) == 130
    assert not store.exists()
