# SPDX-License-Identifier: Apache-2.0
"""What goes on while and after a step is saved: callbacks, policies that are
asked then, and which save an error is of."""

import asyncio
import threading

import ckptree.orbax as ours
import numpy as np
import pytest

from no_room import no_room, too_large


def asynchronous(ocp, callback):
    return ocp.AsyncOptions(post_finalization_callback=callback)


@pytest.fixture(params=["AsyncCheckpointer", "manager"])
def saving(request, ocp, tmp_path):
    """Makes what saves trees with a callback: a function to save one, and the
    checkpointer or manager."""
    made = []

    def make(callback):
        options = asynchronous(ocp, callback)
        if request.param == "manager":
            options = ocp.CheckpointManagerOptions(async_options=options)
            saver = ocp.CheckpointManager(tmp_path / "run", options=options)

            def save(step, tree):
                saver.save(step, args=ocp.args.StandardSave(tree))
        else:
            handler = ocp.StandardCheckpointHandler()
            saver = ocp.AsyncCheckpointer(handler, async_options=options)

            def save(step, tree):
                args = ocp.args.StandardSave(tree)
                saver.save(tmp_path / str(step), args=args)

        made.append(saver)
        return save, saver

    yield make
    for saver in made:
        saver.close()


def test_a_callback_comes_by_itself(saving):  # OPT-18
    called = threading.Event()
    save, _ = saving(called.set)
    save(0, {"a": np.ones(3)})
    assert called.wait(timeout=20)  # Nobody waits for the save.


def test_no_callback_of_a_save_that_failed(saving):  # OPT-18
    called = []
    save, saver = saving(lambda: called.append(1))
    save(0, {"a": np.ones(3)})
    saver.wait_until_finished()
    assert called == [1]
    with no_room(), pytest.raises(Exception):
        save(1, {"a": too_large()})
        saver.wait_until_finished()
    for thread in threading.enumerate():
        if thread.name == "ckptree step 1":
            thread.join()
    assert called == [1]
    save(2, {"a": np.ones(3)})
    saver.wait_until_finished()
    assert called == [1, 1]


def test_waiting_for_a_save_waits_for_its_callback(saving):
    begun, go_on, ended = (threading.Event() for _ in range(3))

    def callback():
        begun.set()
        go_on.wait(timeout=60)
        ended.set()

    save, saver = saving(callback)
    save(0, {"a": np.ones(3)})
    assert begun.wait(timeout=60)
    threading.Timer(0.1, go_on.set).start()
    saver.wait_until_finished()
    assert ended.is_set()


def test_an_error_of_a_callback_is_raised_once(saving):
    failing = [True]

    def callback():
        if failing:
            failing.clear()
            raise ZeroDivisionError("of the callback")

    save, saver = saving(callback)
    save(0, {"a": np.ones(3)})
    with pytest.raises(ZeroDivisionError, match="of the callback"):
        saver.wait_until_finished()
    saver.wait_until_finished()
    save(1, {"a": np.ones(3)})
    saver.wait_until_finished()


def test_a_manager_is_saving_while_its_callback_runs(ocp, tmp_path):
    go_on = threading.Event()
    options = ocp.CheckpointManagerOptions(
        async_options=asynchronous(ocp, lambda: go_on.wait(timeout=60))
    )
    with ocp.CheckpointManager(tmp_path / "run", options=options) as manager:
        manager.save(0, args=ocp.args.StandardSave({"a": 1}))
        assert manager.is_saving_in_progress()
        go_on.set()
        manager.wait_until_finished()
        assert not manager.is_saving_in_progress()


# ---- Policies of the user's own ----


class NotTwice:
    """Saves when nothing is being saved; notes what it is told."""

    def __init__(self):
        self.seen = []

    def should_save(self, step, previous_steps, *, context):
        busy = context.is_saving_in_progress
        self.seen.append((step.step, [p.step for p in previous_steps], busy))
        return not busy


def test_a_policy_sees_the_save_in_progress(ocp, tmp_path):  # OPT-24, SD-03
    go_on = threading.Event()
    policy = NotTwice()
    options = ocp.CheckpointManagerOptions(
        save_decision_policy=policy,
        async_options=asynchronous(ocp, lambda: go_on.wait(timeout=60)),
    )
    with ocp.CheckpointManager(tmp_path / "run", options=options) as manager:

        def save(step):
            return manager.save(step, args=ocp.args.StandardSave({"a": step}))

        assert [save(1), save(2)] == [True, False]
        go_on.set()
        manager.wait_until_finished()
        assert [save(2), save(3)][0]
        manager.wait_until_finished()
    assert policy.seen[:3] == [(1, [], False), (2, [1], True), (2, [1], False)]


def test_a_policy_is_asked_while_the_engine_saves(tmp_path):  # OPT-24
    """The commit of the first step waits for the test; nothing waits for it."""
    reached, go_on = threading.Event(), threading.Event()
    held = []

    class Holding:
        def should_preserve(self, checkpoints, *, context):
            if not held:
                reached.set()
                held.append(go_on.wait(timeout=20))
            return [True] * len(checkpoints)

    policy = NotTwice()
    options = ours.CheckpointManagerOptions(
        save_decision_policy=policy, preservation_policy=Holding()
    )
    with ours.CheckpointManager(tmp_path / "run", options=options) as manager:
        args = ours.args.StandardSave({"a": 1})
        assert manager.save(1, args=args, metrics={"loss": 2.0})
        assert reached.wait(timeout=60)
        assert not manager.save(2, args=args)
        assert not manager.save(1, args=args)  # Is on its way.
        go_on.set()
        manager.wait_until_finished()
        assert manager.save(3, args=args)
    assert held == [True]  # Not the timeout.
    assert policy.seen == [(1, [], False), (2, [1], True), (3, [1], False)]


def test_metrics_of_the_step_in_progress(ocp, tmp_path):
    seen = []

    class Policy:
        def should_save(self, step, previous_steps, *, context):
            seen.append([(p.step, p.metrics) for p in previous_steps])
            return True

    options = ocp.CheckpointManagerOptions(
        save_decision_policy=Policy(), best_fn=lambda metrics: metrics["loss"]
    )
    with ocp.CheckpointManager(tmp_path / "run", options=options) as manager:
        for step in range(3):
            manager.save(
                step,
                args=ocp.args.StandardSave({"a": step}),
                metrics={"loss": step / 2},
            )
    assert seen == [
        [],
        [(0, {"loss": 0.0})],
        [(0, {"loss": 0.0}), (1, {"loss": 0.5})],
    ]


# ---- What an error is of ----


def test_a_full_disk_is_told_as_such(ocp, tmp_path):
    broken = []

    def metric(metrics):
        return 1 / 0 if broken else metrics["loss"]

    options = ocp.CheckpointManagerOptions(best_fn=metric)
    manager = ocp.CheckpointManager(tmp_path / "run", options=options)
    args = ocp.args.StandardSave({"a": 1})
    manager.save(0, args=args, metrics={"loss": 1.0})
    manager.wait_until_finished()
    broken.append(True)
    with pytest.raises(ZeroDivisionError):
        manager.best_step()
    broken.clear()
    with no_room(), pytest.raises(Exception) as error:
        large = ocp.args.StandardSave({"a": too_large()})
        manager.save(1, args=large, metrics={"loss": 1.0})
        manager.wait_until_finished()
    assert not isinstance(error.value, ZeroDivisionError)
    if ocp is ours:
        assert isinstance(error.value, OSError) and "too large" in str(
            error.value
        )
    manager.close()


def test_what_a_policy_raised_is_told_as_such(tmp_path):
    class Broken:
        def should_preserve(self, checkpoints, *, context):
            raise ZeroDivisionError("of the policy")

    options = ours.CheckpointManagerOptions(preservation_policy=Broken())
    with ours.CheckpointManager(tmp_path / "run", options=options) as manager:
        manager.save(0, args=ours.args.StandardSave({"a": 1}))
        with pytest.raises(ZeroDivisionError, match="of the policy"):
            manager.wait_until_finished()
        manager.wait_until_finished()


# ---- In a notebook ----


def test_a_save_where_a_loop_runs(tmp_path):  # HR-01
    """As in a cell of a notebook. Orbax wants nest_asyncio for it."""

    class Handler(ours.AsyncCheckpointHandler):
        def save(self, directory, args):
            raise AssertionError("async_save() is what runs")

        async def async_save(self, directory, args):
            await asyncio.sleep(0)
            (directory / "text").write_text(args.item)

        def restore(self, directory, args=None):
            return (directory / "text").read_text()

    @ours.args.register_with_handler(Handler, for_save=True, for_restore=True)
    class Args(ours.args.CheckpointArgs):
        def __init__(self, item=None):
            self.item = item

    async def cell():
        with ours.CheckpointManager(
            tmp_path / "run", item_handlers=Handler()
        ) as manager:
            manager.save(0, args=Args("text"))
            manager.wait_until_finished()
            return manager.restore(0, args=Args())

    assert asyncio.run(cell()) == "text"
