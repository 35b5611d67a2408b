# SPDX-License-Identifier: Apache-2.0
"""Modules that lie in the folder we are in, as they may come with a checkpoint:
no verb that reads or writes through Python runs one of them."""

import os
import subprocess
import sys
from pathlib import Path

import ckptree
import numpy as np
import pytest
from again import again

# The program itself, or another build of it: what pip puts in its place is of
# Python, which looks into the folder we are in where PYTHONPATH says so.
COMMAND = os.environ.get("CKPTREE_COMMAND") or (
    Path(ckptree.__file__).parent / "bin" / "ckptree"
)
# All of Python's own, and what reading goes through.
TRAPS = [*sorted(sys.stdlib_module_names - {"sys", "builtins"})] + (
    "ckptree numpy torch safetensors jax jaxlib orbax ml_dtypes sitecustomize "
    "usercustomize"
).split()


@pytest.fixture
def trapped(tmp_path):
    """A folder of modules, each of which leaves its name in `sprung`."""
    folder, sprung = tmp_path / "here", tmp_path / "sprung"
    folder.mkdir()
    sprung.mkdir()
    for name in TRAPS:
        # No import: that would be the next trap.
        (folder / f"{name}.py").write_text(
            f"open({str(sprung / name)!r}, 'w').close()\n"
            f"raise ImportError('{name} was run')\n"
        )

    def names():
        found = sorted(path.name for path in sprung.iterdir())
        for path in sprung.iterdir():
            path.unlink()
        return found

    # They do spring where nothing is done against it.
    subprocess.run(
        [sys.executable, "-c", "import ctypes"], cwd=folder, capture_output=True
    )
    assert names() == ["ctypes"]
    return folder, names


def made(tmp_path, kind):
    """A checkpoint, and the format that `export` calls it."""
    path = tmp_path / "5"
    if kind == "orbax":
        pytest.importorskip("jax")
        ocp = pytest.importorskip("orbax.checkpoint")
        with ocp.StandardCheckpointer() as saver:
            saver.save(path, {"w": np.ones(3, np.float32)})
        return path
    torch = pytest.importorskip("torch")
    pytest.importorskip("safetensors")
    state = {"w": torch.ones(3)}
    if kind == "torch":
        path = path.with_suffix(".pt")
        torch.save(state, path)
    else:
        import torch.distributed.checkpoint as dcp

        dcp.save(state, checkpoint_id=path, no_dist=True)
    return path


def run(folder, *words, python, python_path=None):
    environment = {**os.environ, "CKPTREE_PYTHON": str(python)}
    environment.pop("PYTHONPATH", None)
    if python_path is not None:
        environment["PYTHONPATH"] = python_path
    return subprocess.run(
        [COMMAND, *map(str, words)],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
    )


# An empty entry, as `PYTHONPATH=$PYTHONPATH:more` has one, is the folder we are
# in: with it Python looks there before the first line of any program.
@pytest.mark.parametrize("kind", ["torch", again("dcp"), again("orbax")])
def test_reading_runs_no_module_of_the_folder_we_are_in(
    tmp_path, trapped, kind
):
    folder, sprung = trapped
    path = made(tmp_path, kind)
    done = run(
        folder, "ls", path, python=sys.executable, python_path=":/nowhere:"
    )
    assert sprung() == []
    assert done.returncode == 0, done.stderr


def test_no_verb_runs_a_module_of_the_folder_we_are_in(tmp_path, trapped):
    """By a Python that lacks all packages: the first lines are what is looked
    at, and they come to their end."""
    folder, sprung = trapped
    bare = tmp_path / "bare"
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
    bare.chmod(0o755)
    (tmp_path / "5.pt").write_bytes(b"looked at by nobody")
    dcp = tmp_path / "dcp-5"
    dcp.mkdir()
    (dcp / ".metadata").write_bytes(b"looked at by nobody")
    store = tmp_path / "store"
    with ckptree.Store(store) as opened:
        opened.save(5, {"w": np.ones(3, np.float32)}).result()
    calls = [["import", path] for path in (tmp_path / "5.pt", dcp)]
    calls += [
        ["export", "5", tmp_path / "out", "--format", kind]
        for kind in ("torch", "dcp", "orbax")
    ]
    for path in (tmp_path / "5.pt", dcp):
        calls += [
            ["ls", path],
            ["stat", path],
            ["get", f"{path}:w"],
            ["show", f"{path}:w"],
            ["diff", "5", path],
            ["export", path, tmp_path / "out.npz"],
        ]
    for words in calls:
        done = run(folder, "-C", store, *words, python=bare)
        assert sprung() == [], words
        assert "No module named 'ckptree'" in done.stderr, words
