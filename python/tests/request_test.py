# SPDX-License-Identifier: Apache-2.0
"""A trainer in Python does what the command asks of it."""

import os
import subprocess
import sysconfig
from pathlib import Path

import ckptree
import numpy as np
import pytest

COMMAND = os.environ.get(
    "CKPTREE_BINARY", Path(sysconfig.get_path("scripts")) / "ckptree"
)


def ask(directory, *words):
    done = subprocess.run(
        [COMMAND, "-C", str(directory), *words], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert f"done by pid {os.getpid()} " in done.stderr
    return done


def test_a_store_does_what_is_asked(tmp_path):
    with ckptree.Store(tmp_path / "run") as store:
        for step in (1, 2, 3):
            store.save(step, {"w": np.arange(4.0)}).result()
        ask(tmp_path / "run", "tag", "good", "2")
        ask(tmp_path / "run", "rm", "1", "-y")
        assert store["@good"].step == 2
        assert [step.step for step in store.steps()] == [2, 3]


def test_a_manager_goes_on_after_its_step_was_removed(tmp_path):
    with ckptree.CheckpointManager(tmp_path / "run") as manager:
        for step in (1, 2):
            manager.save(step, {"w": np.full(4, float(step))})
        manager.wait_until_finished()
        ask(tmp_path / "run", "rm", "2", "-y")
        assert manager.latest_step() == 1
        manager.save(3, {"w": np.full(4, 3.0)})
        manager.wait_until_finished()
        assert manager.all_steps() == [1, 3]


@pytest.mark.parametrize("verb", [("policy", "--apply", "-y")])
def test_a_policy_of_python_is_applied_for_a_command(tmp_path, verb):
    # The function runs on the store's thread that takes requests, and the
    # store is closed right after.
    policy = ckptree.Best("loss", "min", n=1)
    with ckptree.Store(tmp_path / "run") as store:
        for step in (1, 2, 3):
            store.save(
                step, {"n": step}, metrics={"loss": float(step)}
            ).result()
        store.set_policy(policy)
        ask(tmp_path / "run", *verb)
        assert [step.step for step in store.steps()] == [1, 3]
