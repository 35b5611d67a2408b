# SPDX-License-Identifier: Apache-2.0
"""Closing one of several handles, where that fails."""

import ckptree
import numpy as np
import pytest


class Failing:
    """A manager whose last save has failed: closing it says so."""

    def __init__(self, managed):
        self._managed = managed

    def close(self):
        self._managed.close()
        raise ckptree.StateError("step 2 was not saved")


def test_a_close_that_tells_of_a_failed_save_closes_one_handle(tmp_path):
    store = ckptree.Store(tmp_path / "s")
    manager = ckptree.CheckpointManager(tmp_path / "s")
    manager.save(1, {"w": np.arange(3)})
    manager.wait_until_finished()
    held = manager._store
    held._managed = Failing(held._managed)
    with pytest.raises(ckptree.StateError, match="step 2 was not saved"):
        manager.close()
    assert manager.closed
    for _ in range(2):
        manager.close()
        assert not store.closed
        assert [info.step for info in store.steps()] == [1]
    store.save(2, {"w": np.arange(3)}).result()
    store.close()
    with ckptree.open(tmp_path / "s") as there:
        assert [info.step for info in there.steps()] == [1, 2]


@pytest.mark.parametrize("beside", [False, True])
def test_a_function_of_a_policy_closes_nothing(tmp_path, beside):
    store = ckptree.Store(tmp_path / "s")
    other = ckptree.Store(tmp_path / "s") if beside else None
    for step in range(3):
        store.save(step, {"w": np.full(10, step)}).result()
    met = []

    def closes(step):
        try:
            store.close()
        except ckptree.StateError as error:
            met.append(str(error))
        return True

    store.set_policy(ckptree.KeepIf(closes))
    store.apply_policy()
    assert met and all("closes no store" in text for text in met)
    assert not store.closed
    store.save(3, {"w": np.full(10, 3)}).result()
    assert [info.step for info in store.steps()] == [0, 1, 2, 3]
    store.close()
    if other is not None:
        assert len(other.steps()) == 4
        other.close()
