# SPDX-License-Identifier: Apache-2.0
"""What a manager says of its steps: on its branch, and of their leaves."""

import ckptree
import numpy as np
import pytest


@pytest.fixture
def forked(tmp_path):
    with ckptree.CheckpointManager(
        tmp_path / "run", best_metric="loss", best_mode="min"
    ) as manager:
        for step in range(5):
            state = {"w": np.full(3, step), "large": 2**70, "n": 1}
            manager.save(step, state, metrics={"loss": 5.0 - step})
        manager.fork_from(1, "f")
        manager.save(2, {"w": np.zeros(3)}, metrics={"loss": 9.0})
        manager.wait_until_finished()
        yield manager


def test_in_says_what_can_be_opened(forked):
    asked = [2, np.int64(2), 4, np.int64(4), "4", "latest", "best", "@none"]
    found = [step in forked for step in asked]
    assert found == [True, True, False, False, False, True, True, False]
    for step, there in zip(asked, found):
        if there:
            assert forked[step].step == 2
        else:
            with pytest.raises(KeyError):
                forked[step]
    with pytest.raises(TypeError):
        _ = 2.5 in forked


def test_the_types_of_an_item_are_those_of_its_leaves(tmp_path):
    with ckptree.CheckpointManager(tmp_path / "run") as manager:
        manager.save(1, {"large": 2**70, "n": 1, "w": np.ones(2, "f4")})
        manager.wait_until_finished()
        leaves = [
            leaf
            for item in manager.item_metadata(1).values()
            for leaf in item.leaves
        ]
    assert [(leaf.kind, leaf.dtype, leaf.shape) for leaf in leaves] == [
        ("int", "", ()),
        ("int", "", ()),
        ("array", "float32", (2,)),
    ]


def test_two_metrics_contradict_each_other(tmp_path):
    with pytest.raises(ValueError, match="best_metric.*best_fn"):
        ckptree.CheckpointManager(
            tmp_path / "run",
            best_metric="loss",
            best_fn=lambda metrics: metrics["acc"],
            best_mode="min",
        )


@pytest.mark.parametrize("raised", [KeyboardInterrupt, ZeroDivisionError])
def test_what_the_body_raises_goes_on(tmp_path, raised):
    def broken(step):
        raise ArithmeticError("of the policy")

    with pytest.raises(raised) as error:
        with ckptree.CheckpointManager(
            tmp_path / "run", preservation=ckptree.KeepIf(broken)
        ) as manager:
            for step in (1, 2):
                manager.save(step, {"w": step})
            raise raised("of the body")
    if hasattr(error.value, "__notes__"):
        assert "of the policy" in error.value.__notes__[0]
    with ckptree.Store(tmp_path / "run") as store:
        assert [step.step for step in store.steps()] == [1, 2]
    with pytest.raises(ckptree.Error, match="of the policy"):
        with ckptree.CheckpointManager(
            tmp_path / "run", preservation=ckptree.KeepIf(broken)
        ) as manager:
            for step in (3, 4):
                manager.save(step, {"w": step})


def test_no_warning_of_nan_where_healthy_takes_it(tmp_path, caplog):
    policy = ckptree.Latest(2) | ckptree.Best("loss", "min") & ckptree.Healthy()
    with ckptree.CheckpointManager(
        tmp_path / "run", preservation=policy
    ) as manager:
        for step in range(8):
            loss = float("nan") if step < 4 else 1.0 * step
            manager.save(step, {"w": step}, metrics={"loss": loss})
        manager.wait_until_finished()
        assert manager.all_steps() == [4, 6, 7]
    assert "is NaN" not in caplog.text
