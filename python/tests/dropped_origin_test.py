# SPDX-License-Identifier: Apache-2.0
"""Forks without a step whose origin is of a branch that was dropped."""

import ckptree
import numpy as np
import pytest


def test_it_goes_on_from_nothing_and_says_why(store):
    def put(step, value, **options):
        state = {"w": np.full(2, float(value))}
        store.save(step, state, **options).result(timeout=60)

    put(2, 2)
    store.fork(2, "a")
    put(2, 222, branch="a")
    store.fork("a/2", "e")
    store.drop_branch("a")
    said = "^branch 'e' has no step to go on from: step 2 of a branch, which "
    for ask in (
        lambda: store.restore_or(None, "e/latest"),
        lambda: store.restore("e/latest"),
        lambda: store["e/latest"],
    ):
        with pytest.raises(ckptree.NotFoundError, match=said + ".* dropped"):
            ask()
    store.close()
    with ckptree.CheckpointManager(store.path, branch="e") as manager:
        with pytest.raises(ckptree.NotFoundError, match="branch 'e' has no"):
            manager.restore()
        assert manager.save(3, {"w": np.full(2, 3.0)}, force=True)
        manager.wait_until_finished()
        assert manager.restore()["w"].tolist() == [3, 3]
