# SPDX-License-Identifier: Apache-2.0
"""The types that are promised: stubs and mypy."""

import subprocess
import sys
from pathlib import Path

SOURCES = Path(__file__).parent.parent


def test_the_stubs_are_those_of_the_extension(tmp_path):
    made = tmp_path / "_engine.pyi"
    command = [sys.executable, "-m", "nanobind.stubgen", "-q"]
    command += ["--exclude-values", "-m", "ckptree._engine", "-o", str(made)]
    subprocess.run(command, check=True, cwd=tmp_path)
    committed = SOURCES / "ckptree" / "_engine.pyi"
    assert made.read_text() == committed.read_text(), (
        f"write the stubs anew: {' '.join(command[1:-1])} {committed}"
    )


def test_mypy_is_content(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--cache-dir", str(tmp_path)]
        + ["--config-file", str(SOURCES.parent / "pyproject.toml")],
        cwd=SOURCES,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert (SOURCES / "ckptree" / "py.typed").exists()


TYPED = """
import ckptree.torch
from typing import Any
from typing_extensions import assert_type

def look(store: ckptree.Store, manager: ckptree.CheckpointManager) -> None:
    state = {"lr": 0.5}
    assert_type(store.restore(1, state), dict[str, float])
    assert_type(store.restore(like=state), dict[str, float])
    assert_type(store.restore("latest"), Any)
    assert_type(store[1].restore(state, cast=True), dict[str, float])
    assert_type(manager.restore(like=state), dict[str, float])
    assert_type(store.restore_or(state), tuple[dict[str, float], int | None])
    store.restore(1, stat=state)  # type: ignore[call-overload]

def train(store: ckptree.Store, manager: ckptree.CheckpointManager) -> None:
    app: dict[str, Any] = {"rng": ckptree.torch.Rng()}
    assert_type(ckptree.torch.save(store, 1, app), ckptree.SaveHandle)
    assert_type(ckptree.torch.save(manager, 1, app), bool)
    assert_type(ckptree.torch.load(store[1], app), dict[str, Any])
    assert_type(ckptree.torch.load(store), Any)
    assert_type(ckptree.torch.resume(manager, app), int)
    ckptree.torch.save(store, 1, app, force=True)  # type: ignore[call-overload]
"""


def test_a_restore_is_of_the_type_of_its_template(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(TYPED)
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--cache-dir", tmp_path]
        + ["--warn-unused-ignores", program],
        cwd=SOURCES,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
