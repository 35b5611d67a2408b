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


def test_its_exit_code_is_that_of_the_program(tmp_path):
    assert run("-C", str(tmp_path), "log").returncode == 3
