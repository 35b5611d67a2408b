# SPDX-License-Identifier: Apache-2.0
"""What others save at the same time, to the same place: it is theirs, and it
stays. What metrics a step has when another manager saved it."""

import subprocess
import sys

import ckptree
import ckptree.orbax as ocp
import ckptree.orbax.experimental.v1 as v1
import numpy as np
import pytest
from ckptree.orbax import _saving

ANOTHER = """
import sys
import ckptree.orbax as ocp
import numpy as np
ocp.PyTreeCheckpointer().save(sys.argv[1], {"w": np.full(3, 7)})
"""


@pytest.fixture
def between(monkeypatch):
    """Calls a function between the look at a path and the save to it."""
    real = _saving.Saving._open

    def set_to(function):
        def late(self, *args):
            monkeypatch.setattr(_saving.Saving, "_open", real)
            function()
            return real(self, *args)

        monkeypatch.setattr(_saving.Saving, "_open", late)

    return set_to


def test_what_another_process_saved_in_between_stays(between, tmp_path):
    path = tmp_path / "one"
    command = [sys.executable, "-c", ANOTHER, str(path)]
    between(lambda: subprocess.run(command, check=True))
    with pytest.raises(ValueError, match="already exists"):
        ocp.PyTreeCheckpointer().save(path, {"w": np.full(3, 1)})
    found = ocp.PyTreeCheckpointer().restore(path)
    assert found["w"].tolist() == [7, 7, 7]


def test_what_another_process_is_saving_goes_on(between, tmp_path):
    path = tmp_path / "one"
    program = """
import sys, ckptree
with ckptree.Store(sys.argv[1]) as store:
    print("made", flush=True)
    sys.stdin.readline()
    store.save(0, {"w": 7}).result()
"""
    others = []

    def begin():
        others.append(
            subprocess.Popen(
                [sys.executable, "-c", program, str(path)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
        )
        assert others[0].stdout.readline() == "made\n"

    between(begin)
    with pytest.raises(ValueError, match="already exists"):
        ocp.PyTreeCheckpointer().save(path, {"w": np.full(3, 1)})
    others[0].communicate("\n")
    assert others[0].returncode == 0
    with ckptree.open(path) as store:
        assert store.restore(0) == {"w": 7}


def test_a_save_that_fails_leaves_nothing_of_its_own(tmp_path):
    path = tmp_path / "one"
    path.mkdir()
    with pytest.raises(ValueError):
        ocp.PyTreeCheckpointer().save(path, {"w": object()}, force=True)
    assert list(path.iterdir()) == []
    ocp.PyTreeCheckpointer().save(path, {"w": np.ones(1)}, force=True)


def test_v1_deletes_no_forks_and_nothing_that_is_pinned(tmp_path):
    path = tmp_path / "run"
    with ckptree.Store(path) as store:
        store.save(0, {"w": 1}).result()
        store.fork(0, "trial")
        store.save(1, {"w": 2}, branch="trial").result()
    with pytest.raises(ValueError, match="a run with 2 steps"):
        v1.delete(path)
    with ckptree.Store(path) as store:
        store.delete("trial/1")
        store.pin(0)
    with pytest.raises(ckptree.StateError, match="pinned"):
        v1.delete(path)
    with ckptree.Store(path) as store:
        store.unpin(0)
        store.tag("best", 0)
    with pytest.raises(ckptree.StateError, match="tagged"):
        v1.delete(path)
    with ckptree.Store(path) as store:
        assert store.restore(0) == {"w": 1}
        store.untag("best")
    assert v1.delete(path)
    assert list(tmp_path.iterdir()) == []


def test_v1_deletes_nothing_that_is_saved_meanwhile(monkeypatch, tmp_path):
    from ckptree.orbax.experimental.v1 import _deleting

    path = tmp_path / "run"
    v1.save(path, {"w": np.ones(2)})

    def look(directory):
        with ckptree.Store(directory) as store:
            store.save(5, {"w": 5}).result()
        return False

    monkeypatch.setattr(_deleting, "is_open", look)
    with pytest.raises(ckptree.StateError, match="2 steps"):
        v1.delete(path)
    with ckptree.open(path) as store:
        assert list(store) == [0, 5]


# ---- Metrics ----


def manager(path, **options):
    return ocp.CheckpointManager(
        path,
        options=ocp.CheckpointManagerOptions(
            best_fn=lambda metrics: metrics["eval"]["loss"],
            best_mode="min",
            **options,
        ),
    )


def save(manager, step, loss, **options):
    metrics = None if loss is None else {"eval": {"loss": loss}}
    args = ocp.args.StandardSave({"w": np.full(2, step)})
    manager.save(step, args=args, metrics=metrics, **options)
    manager.wait_until_finished()


def test_a_step_that_is_saved_again_has_no_old_metrics(tmp_path):
    with manager(
        tmp_path / "run",
        max_to_keep=1,
        keep_checkpoints_without_metrics=True,
    ) as saver:
        save(saver, 1, 0.5)
        save(saver, 2, 0.1)
        saver.delete(2)
        save(saver, 2, None)
        for step, loss in (3, 0.3), (4, 0.2), (5, 0.4), (6, 0.45):
            save(saver, step, loss)
        assert saver.best_step() == 4
        assert 4 in saver.all_steps()
    with manager(tmp_path / "run", read_only=True) as reader:
        assert reader.best_step() == 4


@pytest.mark.parametrize("keeps", [True, False])
def test_metrics_of_steps_of_another_manager(tmp_path, keeps):
    options = dict(max_to_keep=1, keep_checkpoints_without_metrics=keeps)
    with manager(tmp_path / "run", **options) as one:
        save(one, 1, 0.5)
        with manager(tmp_path / "run", **options) as two:
            save(two, 2, 0.1)
        save(one, 3, 0.3)
        save(one, 4, 0.35)
        assert one.best_step() == 2
        assert one.all_steps() == [2, 4]  # And the newest.


def test_metrics_of_a_step_that_another_manager_replaced(tmp_path):
    with (
        ocp.CheckpointManager(tmp_path / "run") as one,
        ocp.CheckpointManager(tmp_path / "run") as two,
    ):
        save(one, 1, 1.0)
        assert one.metrics(1) == {"eval": {"loss": 1.0}}
        two.delete(1)
        save(two, 1, 2.0)
        assert one.metrics(1) == {"eval": {"loss": 2.0}}
        assert two.metrics(1) == {"eval": {"loss": 2.0}}


def test_a_step_that_a_plain_store_saved_has_its_metrics(tmp_path):
    with ocp.CheckpointManager(
        tmp_path / "run",
        options=ocp.CheckpointManagerOptions(
            best_fn=lambda metrics: metrics["loss"], best_mode="min"
        ),
    ) as saver:
        args = ocp.args.StandardSave({"w": np.ones(1)})
        saver.save(1, args=args, metrics={"loss": 0.5})
        saver.wait_until_finished()
        with ckptree.Store(tmp_path / "run") as store:
            store.save(2, {"w": 1}, metrics={"loss": 0.1}).result()
        assert saver.best_step() == 2


def test_the_step_in_flight_has_metrics_and_can_be_deleted(tmp_path):
    with ocp.CheckpointManager(tmp_path / "run") as saver:
        large = {"w": np.zeros(2_000_000)}
        args = ocp.args.StandardSave(large)
        saver.save(1, args=args, metrics={"loss": 1.0})
        assert saver.latest_step() == 1
        saver.delete(1)
        saver.save(2, args=args, metrics={"loss": 2.0})
        assert saver.metrics(2) == {"loss": 2.0}
        saver.wait_until_finished()
        assert list(saver.all_steps()) == [2]


def test_metrics_that_a_store_cannot_order_by(tmp_path):
    odd = {"": 1, "損失" * 40: 2.0, "many": 10**400, "x" * 200: 3, "ok": 4}
    with ocp.CheckpointManager(tmp_path / "run") as saver:
        args = ocp.args.StandardSave({"w": np.ones(1)})
        saver.save(1, args=args, metrics=odd)
        saver.wait_until_finished()
        assert saver.metrics(1) == odd
    with ckptree.open(tmp_path / "run") as store:
        assert store.step_info(1).metrics == {"ok": 4}


def test_a_save_that_was_refused_has_no_metrics(tmp_path):
    options = ocp.CheckpointManagerOptions(
        max_to_keep=2,
        best_fn=lambda metrics: metrics["m"],
        best_mode="max",
        enable_async_checkpointing=False,
    )
    state = {"a": np.arange(5)}
    with ocp.CheckpointManager(tmp_path / "s", options=options) as manager:

        def save(step, value, state=state):
            manager.save(
                step, args=ocp.args.StandardSave(state), metrics={"m": value}
            )

        save(0, 5.0)
        save(1, 4.0)
        with pytest.raises(Exception, match="leaf"):
            save(2, 100.0, {"a": object()})
        with ckptree.Store(tmp_path / "s") as store:
            store.save(2, {"default": state}, metrics={"m": 1.0}).result()
        save(3, 6.0)
        assert manager.all_steps() == [0, 3]
        assert manager.best_step() == 3
