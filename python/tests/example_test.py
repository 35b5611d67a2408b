# SPDX-License-Identifier: Apache-2.0
"""The example is killed while it saves, and goes on bit-exact."""

import subprocess
import sys
from pathlib import Path

import ckptree

DIGITS = Path(__file__).parent.parent / "examples" / "digits.py"


def command(store, steps=200):
    arguments = ["--store", store, "--steps", steps, "--save-every", 5]
    return [sys.executable, str(DIGITS), *map(str, arguments)]


def test_a_killed_training_goes_on_bit_exact(tmp_path):
    killed, whole = tmp_path / "killed", tmp_path / "whole"
    with subprocess.Popen(
        command(killed), stdout=subprocess.PIPE, text=True
    ) as process:
        for line in process.stdout:
            if line.startswith("step 10:"):
                process.kill()
                break
    assert process.returncode == -9
    again = subprocess.run(
        command(killed), capture_output=True, text=True, check=True
    )
    # It may have got further before it was killed.
    assert again.stdout.startswith("goes on from step ")
    subprocess.run(command(whole), capture_output=True, check=True)
    with ckptree.open(killed) as a, ckptree.open(whole) as b:
        assert a.step_info().digest == b.step_info().digest
        assert a.step_info().step == b.step_info().step == 200
        assert a.verify().ok
