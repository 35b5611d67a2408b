# SPDX-License-Identifier: Apache-2.0
"""The `ckptree` command that the package installs."""

import subprocess
import sys
import sysconfig
from pathlib import Path

import ckptree
import numpy as np


def run(*arguments):
    command = Path(sysconfig.get_path("scripts")) / "ckptree"
    if not command.exists():  # Run by a Python that only sees the package.
        code = "from ckptree._command import main; main()"
        return subprocess.run(
            [sys.executable, "-c", code, *arguments],
            capture_output=True,
            text=True,
        )
    return subprocess.run([command, *arguments], capture_output=True, text=True)


def test_it_is_of_the_version_of_the_package():
    done = run("--version")
    assert done.returncode == 0
    assert ckptree.__version__ in done.stdout


def test_it_reads_what_the_package_saved(tmp_path):
    with ckptree.Store(tmp_path / "run") as store:
        store.save(3, {"w": np.arange(4.0)}).result()
    done = run("-C", str(tmp_path / "run"), "get", "3:w")
    assert (done.returncode, done.stdout) == (0, "[0.0 1.0 2.0 3.0]\n")


def test_ints_of_any_size(tmp_path):
    """As random generators have them in their state."""
    state = np.random.default_rng(1).bit_generator.state
    ints = [2**63, -(2**63) - 1, 2**64, 10**36, -(10**36), 7**1000]
    with ckptree.Store(tmp_path / "run") as store:
        store.save(1, {"rng": state, "i": ints}).result()
    for key, value in [
        *((f"rng/state/{name}", n) for name, n in state["state"].items()),
        *((f"i/[{i}]", n) for i, n in enumerate(ints)),
    ]:
        done = run("-C", str(tmp_path / "run"), "get", f"1:{key}")
        assert (done.returncode, done.stdout) == (0, f"{value}\n"), key


def test_its_exit_code_is_that_of_the_program(tmp_path):
    assert run("-C", str(tmp_path), "log").returncode == 3
