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
