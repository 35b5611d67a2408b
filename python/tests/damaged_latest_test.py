# SPDX-License-Identifier: Apache-2.0
"""Where commits may be missing nobody can say which step is the latest one:
every way to ask for it is an error, and none goes on from an older step."""

from __future__ import annotations

import numpy as np
import pytest

import ckptree


def lose_the_journal(folder) -> None:
    """Both copies: whether there were later commits is in no other place."""
    found = [
        path
        for pattern in ("a-*", "b-*")
        for path in sorted((folder / "journal").glob(pattern))
    ]
    assert found
    for path in found:
        path.unlink()


def test_the_package(tmp_path):
    with ckptree.CheckpointManager(tmp_path / "run", max_to_keep=5) as manager:
        for step in range(3):
            manager.save(
                step, {"w": np.arange(4) + step}, metrics={"loss": 3.0 - step}
            )
    lose_the_journal(tmp_path / "run")
    with ckptree.open(tmp_path / "run") as store:
        assert [info.step for info in store.steps()] == [0, 1, 2]
        assert store[1]["w"][0] == 1
        for name in ("latest", "latest~1", "best:loss:min"):
            with pytest.raises(ckptree.CorruptionError, match="nobody can say"):
                store[name]
            with pytest.raises(ckptree.CorruptionError, match="nobody can say"):
                name in store
    with ckptree.CheckpointManager(
        tmp_path / "run", read_only=True, best_metric="loss", best_mode="min"
    ) as reader:
        for ask in (reader.latest_step, reader.best_step, reader.restore):
            with pytest.raises(ckptree.CorruptionError, match="nobody can say"):
                ask()
        assert reader.restore(1)["w"][0] == 1


def test_flax(tmp_path):
    pytest.importorskip("flax")
    from ckptree.flax import checkpoints

    state = {"w": np.arange(4)}
    for step in range(3):
        checkpoints.save_checkpoint(tmp_path, state, step, keep=5)
    folder = checkpoints.directory.folder(tmp_path, "checkpoint_")
    lose_the_journal(folder)
    assert checkpoints.available_steps(tmp_path) == [0, 1, 2]
    for ask in (
        lambda: checkpoints.latest_checkpoint(tmp_path),
        lambda: checkpoints.restore_checkpoint(tmp_path, None),
    ):
        with pytest.raises(ckptree.CorruptionError, match="nobody can say"):
            ask()


def test_orbax(tmp_path):
    pytest.importorskip("orbax.checkpoint")
    import ckptree.orbax as ocp

    with ocp.CheckpointManager(tmp_path / "run") as manager:
        for step in range(3):
            manager.save(step, args=ocp.args.StandardSave({"w": np.arange(4)}))
    lose_the_journal(tmp_path / "run")
    with ocp.CheckpointManager(
        tmp_path / "run", options=ocp.CheckpointManagerOptions(read_only=True)
    ) as reader:
        for ask in (reader.latest_step, reader.best_step, reader.restore):
            with pytest.raises(ckptree.CorruptionError, match="nobody can say"):
                ask()
