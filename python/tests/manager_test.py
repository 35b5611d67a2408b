# SPDX-License-Identifier: Apache-2.0
"""The manager: which steps are saved, kept and found; preemption; errors."""

import gc
import logging
import logging.handlers
import os
import queue
import signal
import subprocess
import sys
import threading
from datetime import timedelta

import ckptree
import numpy as np
import pytest
from ckptree import CheckpointManager, decisions
from program import run


def state(step):
    return {"params": {"w": np.full(1000, float(step))}, "step": step}


@pytest.fixture
def manage(tmp_path):
    """Opens managers of one store; closes them all."""
    opened = []

    def open_one(**options):
        for manager in opened:
            manager.close()
        opened.append(CheckpointManager(tmp_path / "store", **options))
        return opened[-1]

    yield open_one
    for manager in opened:
        manager.close()


def save(manager, *steps, **options):
    saved = [manager.save(step, state(step), **options) for step in steps]
    manager.wait_until_finished(timeout=60)
    return saved


def test_which_steps_are_saved_and_kept(manage):
    manager = manage(save_interval_steps=2, save_on_steps=[5], max_to_keep=2)
    assert manager.latest_step() is None and manager.best_step() is None
    assert manager.should_save(1)
    saved = save(manager, 1, 2, 3, 4, 5, 6, 7)
    assert saved == [True, True, False, True, True, True, False]
    assert manager.all_steps() == [5, 6] and manager.latest_step() == 6
    assert not manager.should_save(6)
    assert manager.store.policy().text == "latest(2)"
    assert manager.store.policy().from_program
    # Without options nothing is removed any more.
    manager = manage()
    save(manager, 7, 8, 9)
    assert manager.all_steps() == [5, 6, 7, 8, 9]
    assert manager.store.policy().text == "all"


def test_what_is_kept_besides(manage):
    manager = manage(max_to_keep=1, keep_period=4)
    save(manager, *range(7))
    assert manager.all_steps() == [0, 4, 6]
    manager = manage(max_to_keep=1, should_keep_fn=lambda step: step in (0, 8))
    save(manager, 8, 9)
    assert manager.all_steps() == [0, 8, 9]
    manager = manage(preservation="latest(1) | steps(8)")
    save(manager, 10)
    assert manager.all_steps() == [8, 10]
    manager = manage(preservation=ckptree.Latest(2), keep_time_interval=None)
    save(manager, 11)
    assert manager.all_steps() == [10, 11]
    manager = manage(keep_time_interval=timedelta(hours=1), max_to_keep=1)
    save(manager, 12)
    assert manager.store.policy().text == "every(1h) | latest(1)"


def test_the_best(manage):
    manager = manage(best_metric="loss", best_mode="min", max_to_keep=2)
    for step, loss in enumerate([0.5, 0.1, 0.9, 0.2]):
        manager.save(step, state(step), metrics={"loss": loss}, metadata=[step])
    manager.wait_until_finished(timeout=60)
    assert manager.all_steps() == [1, 3] and manager.best_step() == 1
    assert manager.restore("best")["step"] == 1
    assert manager.restore("latest")["step"] == manager.restore()["step"] == 3
    assert manager.restore("healthy")["step"] == manager.restore(3)["step"] == 3
    assert manager.metrics(3) == {"loss": 0.2}
    assert manager[3].metadata.custom == [3]
    manager = manage(
        best_fn=lambda metrics: -metrics["loss"], best_mode="max", max_to_keep=1
    )
    save(manager, 4, metrics={"loss": 0.05})
    assert manager.all_steps() == [4]
    with pytest.raises(KeyError):
        manager.restore(3)


def test_the_best_is_of_the_preservation_that_was_given(manage):
    by_loss = ckptree.Best("loss", "min", n=9)
    manager = manage(preservation=ckptree.Best("accuracy", "max", n=9))
    for step, (loss, accuracy) in enumerate([(3, 0.5), (1, 0.5), (2, 0.9)]):
        save(manager, step, metrics={"loss": loss, "accuracy": accuracy})
    assert manager.best_step() == 2
    # Before its first save, where it only reads, and after its first save.
    for given in (by_loss, by_loss | ckptree.Latest(9)):
        for read_only in (True, False):
            manager = manage(preservation=given, read_only=read_only)
            assert manager.best_step() == 1
            assert manager.restore("best")["step"] == 1
    save(manager, 3, metrics={"loss": 5, "accuracy": 0.1})
    assert manager.best_step() == manager.restore("best")["step"] == 1
    assert manage(preservation=ckptree.Latest(9)).best_step() == 3


def warnings_of(caplog, manager):
    """What was logged as a warning so far."""
    manager.store.flush()  # Delivers what the engine has to say.
    return [
        record.getMessage()
        for record in caplog.records
        if record.levelname == "WARNING"
    ]


@pytest.mark.parametrize(
    "options",
    [
        {"best_metric": "acc", "best_mode": "max", "max_to_keep": 2},
        {"preservation": ckptree.Best("acc", "max", n=2) | ckptree.Latest(1)},
    ],
)
def test_a_metric_that_no_step_has_is_said_once(
    manage, caplog, request, options
):
    manager = manage(**options)
    for step in range(2):
        save(manager, step, metrics={"loss": 0.5})
    assert warnings_of(caplog, manager) == []  # Nothing would have gone yet.
    heard = queue.Queue()
    handler = logging.handlers.QueueHandler(heard)
    logging.getLogger().addHandler(handler)  # Behind that of caplog.
    request.addfinalizer(lambda: logging.getLogger().removeHandler(handler))
    for step in range(2, 8):
        save(manager, step, metrics={"loss": 0.5, "accuracy": 1})
    # By the thread that logs, maybe a moment later.
    said = heard.get(timeout=60).getMessage()
    assert warnings_of(caplog, manager) == [said]
    assert "no step has the metric 'acc'" in said and "best 2" in said
    assert "metrics of this save: accuracy, loss" in said
    assert manager.all_steps() == list(range(8))


LOSS = {"best_metric": "loss", "best_mode": "min", "max_to_keep": 2}


@pytest.mark.parametrize(
    "options, remedy",
    [
        (LOSS, "keep_checkpoints_without_metrics=False"),
        (
            {**LOSS, "best_metric": "", "best_fn": lambda m: -m["loss"]},
            "keep_checkpoints_without_metrics=False",
        ),
        ({"preservation": ckptree.Best("loss", "min", n=2)}, "unmeasured"),
        ({"preservation": 'best("loss", min, 1) | latest(1)'}, "unmeasured"),
    ],
)
def test_a_metric_that_is_nan_is_said_once(manage, caplog, options, remedy):
    manager = manage(**options)
    save(manager, 0, 1, 2, metrics={"loss": 1.0, "other": np.nan})
    assert warnings_of(caplog, manager) == []
    save(manager, *range(3, 9), metrics={"loss": np.nan})
    (said,) = warnings_of(caplog, manager)
    assert "step 3: " in said and "is NaN" in said and remedy in said
    assert manager.all_steps()[-6:] == [3, 4, 5, 6, 7, 8]  # They stay.


def test_nan_is_not_said_where_its_steps_go_or_all_stay(manage, caplog):
    for options in (
        {**LOSS, "keep_checkpoints_without_metrics": False},
        {**LOSS, "max_to_keep": None},
        {"preservation": ckptree.Best("loss", "min", unmeasured="drop")},
        {"preservation": ckptree.Best("other", "min", n=2)},
    ):
        manager = manage(**options)
        first = (manager.latest_step() or 0) + 1
        for step in (first, first + 1):
            save(manager, step, metrics={"loss": np.nan, "other": 1.0})
        assert warnings_of(caplog, manager) == []


def test_a_metric_that_some_steps_have_is_not_said(manage, caplog):
    options = {"best_metric": "acc", "best_mode": "max", "max_to_keep": 2}
    manager = manage(**options)
    save(manager, 0, metrics={"acc": 0.5})
    save(manager, *range(1, 6))
    manager = manage(**options)  # Of an earlier run.
    save(manager, *range(6, 12))
    # And where the rest of them goes.
    manager = manage(**options, keep_checkpoints_without_metrics=False)
    save(manager, *range(12, 20))
    assert warnings_of(caplog, manager) == []


def test_items_and_metadata(manage):
    manager = manage(metadata={"run": 1})
    shared = np.arange(4)
    tree = {"model": {"w": shared, "n": 1}, "data": {"again": shared}, "x": 2}
    manager.save(1, tree)
    assert manager.metadata() == {"run": 1}
    items = manager.item_metadata(1)
    assert set(items) == set(tree)
    leaves = {
        leaf.name: (leaf.kind, leaf.shape) for leaf in items["model"].leaves
    }
    assert leaves == {"model/n": ("int", ()), "model/w": ("array", (4,))}
    found = manager.restore(items=["data", "x"])
    assert (
        set(found) == {"data", "x"} and (found["data"]["again"] == shared).all()
    )
    like = {"data": {"again": np.zeros(4, int)}}
    found = manager.restore(1, like, items=["data"])
    assert (found["data"]["again"] == shared).all()
    with pytest.raises(ValueError, match="missing"):
        manager.restore(1, {"data": {"other": 1}}, items=["data"])
    with pytest.raises(KeyError, match="model"):
        manager.restore(1, items=["optimizer"])
    assert manage(metadata={"run": 2}).metadata() == {"run": 1}


def test_force_and_overwrite(manage):
    manager = manage(save_interval_steps=10)
    assert save(manager, 0, 3) == [True, False]
    assert save(manager, 3, force=True) == [True]
    with pytest.raises(FileExistsError):
        manager.save(3, {"w": 1}, force=True)
    manager.save(3, {"w": 7}, force=True, overwrite=True)
    assert manager.restore(3) == {"w": 7}
    assert manager.last_save.result(timeout=60) == 3


def test_force_before_the_latest_step(manage, caplog):
    manager = manage(max_to_keep=3)
    save(manager, *range(1, 6))
    assert not manager.save(3, state(3))
    (said,) = warnings_of(caplog, manager)
    assert "or save with force" not in said
    for way in ("delete_after()", "fork_from()", "overwrite=True replaces"):
        assert way in said
    # What the policy does not keep is refused at the call, and once.
    with pytest.raises(ckptree.StateError, match="step 2 .* does not keep it"):
        manager.save(2, state(2), force=True)
    manager.wait_until_finished(timeout=60)
    manager.check_for_errors()
    # The ways of the warning.
    with pytest.raises(FileExistsError, match="overwrite"):
        manager.save(3, state(3), force=True)
    assert manager.save(3, {"w": 7}, overwrite=True)
    assert manager.restore(3) == {"w": 7} and manager.all_steps() == [3, 4, 5]
    manager.store.set_policy("latest(3) | steps(2)")
    assert manager.save(2, state(2), force=True)
    assert list(manager.store) == [2, 3, 4, 5]  # It is durable.


def test_going_on_from_an_older_step(manage):
    manager = manage()
    save(manager, 1, 2, 3)
    assert save(manager, 2) == [False]
    manager.delete_after(2)
    assert manager.all_steps() == [1, 2]
    manager.delete(2)
    with pytest.raises(KeyError):
        manager.delete(2)
    save(manager, 3)
    manager.fork_from(1, "try")
    assert manager.branch == "try" and manager.all_steps() == []
    save(manager, 2)
    assert manager.all_steps() == [2]
    assert manage(branch="try").all_steps() == [2]
    assert manage().all_steps() == [1, 3]


def test_a_manager_that_only_reads(manage, tmp_path):
    with pytest.raises(FileNotFoundError):
        CheckpointManager(tmp_path / "none", read_only=True)
    writer = manage()
    save(writer, 1)
    with CheckpointManager(writer.path, read_only=True) as reader:
        assert not reader.should_save(2) and not reader.save(2, state(2))
        save(writer, 2)
        reader.reload()
        assert reader.all_steps() == [1, 2] and reader.restore()["step"] == 2
        with pytest.raises(ckptree.StateError, match="read"):
            reader.delete(1)
        with pytest.raises(ckptree.StateError, match="read"):
            reader.save(3, state(3), force=True)


@pytest.mark.parametrize(
    "options",
    [
        {"save_interval_steps": 0},
        {"max_to_keep": -1},
        {"keep_period": 0},
        {"best_mode": "most"},
        {"max_saves_in_flight": 0},
        {"preservation": "newest"},
        {"preservation": "latest(1)", "max_to_keep": 2},
        {"keep_time_interval": 0.5},
    ],
)
def test_options_that_make_no_sense(tmp_path, options):
    with pytest.raises(ValueError):
        CheckpointManager(tmp_path / "s", **options)
    assert not (tmp_path / "s").exists()


class Mine(Exception):
    pass


def test_a_decision_that_raises_keeps_its_type(manage):
    asked = []

    def should_save(step, latest):
        asked.append((step, latest))
        if step == 2:
            raise Mine("not two")
        return step != 3

    manager = manage(should_save_fn=should_save)
    assert save(manager, 1) == [True]
    for call in (lambda: manager.save(2, {}), lambda: manager.should_save(2)):
        with pytest.raises(Mine, match="not two"):
            call()
    assert save(manager, 3, 4) == [False, True]
    assert asked == [(1, None), (2, 1), (2, 1), (3, 1), (4, 1)]


def test_a_function_that_decides_waits_for_no_save(manage):
    commits, go_on, asked = threading.Event(), threading.Event(), []

    def all_of_them(steps):
        commits.set()
        assert go_on.wait(timeout=60)
        return [True for _ in steps]

    def decide(step, latest):
        asked.append((step, latest))
        return True

    manager = manage(
        save_decision=decisions.SaveIf(decide),
        preservation=ckptree.Custom(all_of_them),
        max_saves_in_flight=2,
    )
    assert manager.save(1, {"n": 1})
    assert commits.wait(timeout=60)
    # The first is held up where it commits, and stays so until here.
    assert manager.should_save(2) and manager.save(2, {"n": 2})
    assert manager.is_saving_in_progress() and not go_on.is_set()
    assert asked == [(1, None), (2, 1), (2, 1)]
    go_on.set()
    manager.wait_until_finished(timeout=60)
    assert manager.all_steps() == [1, 2]


def test_a_policy_that_raises_is_told_once_and_removes_nothing(manage):
    def should_keep(step):
        raise Mine("no idea")

    manager = manage(max_to_keep=1, should_keep_fn=should_keep)
    manager.save(1, state(1))
    with pytest.raises(ckptree.Error, match="should_keep_fn.*Mine: no idea"):
        manager.wait_until_finished(timeout=60)
    manager.wait_until_finished(timeout=60)
    manager.check_for_errors()
    assert manager.all_steps() == [1]
    manager.save(2, state(2))
    manager.last_save.result(timeout=60)
    assert manager.save(3, state(3))  # It stops no save.
    with pytest.raises(ckptree.Error, match="no idea"):
        manager.close()
    manager.close()
    assert manage().all_steps() == [1, 2, 3]


def test_a_state_that_cannot_be_saved_saves_nothing(manage):
    manager = manage()
    with pytest.raises(TypeError, match="f: "):
        manager.save(1, {"f": print})
    assert not manager.is_saving_in_progress() and manager.all_steps() == []
    assert save(manager, 1) == [True]


def test_functions_run_while_saves_wait_for_each_other(manage):
    """Each save waits for the one before, whose policy needs the GIL."""
    threads = set()

    def keep(step):
        threads.add(threading.get_ident())
        return step.step % 5 == 0

    manager = manage(preservation=ckptree.KeepIf(keep) | ckptree.Latest(1))
    array = np.zeros(1 << 16)
    for step in range(21):
        array[:] = step
        assert manager.save(step, {"w": array})
    manager.wait_until_finished(timeout=60)
    assert manager.all_steps() == [0, 5, 10, 15, 20]
    assert threading.get_ident() not in threads and threads
    for step in (5, 20):
        assert (manager.restore(step)["w"] == step).all()


def test_a_store_dropped_with_a_save_in_flight_waits_without_the_gil(tmp_path):
    """Its policy needs the GIL on another thread."""
    manager = CheckpointManager(
        tmp_path / "s", preservation=ckptree.KeepIf(lambda step: True)
    )
    manager.save(1, state(1))
    with pytest.warns(ResourceWarning, match="not closed"):
        del manager
        gc.collect()
    with ckptree.open(tmp_path / "s") as reader:
        assert 1 in reader


def test_preemption_saves_once_more(manage):
    # The function needs the GIL while save() waits for the commit.
    manager = manage(save_interval_steps=100, should_keep_fn=lambda step: True)
    save(manager, 0, 1)
    manager.request_preemption()
    assert manager.reached_preemption() and not manager.saved_for_preemption()
    assert manager.save(2, state(2))
    assert (
        manager.saved_for_preemption() and not manager.is_saving_in_progress()
    )
    assert manager.all_steps() == [0, 2]
    assert not manager.save(3, state(3))


def test_the_exit_of_the_interpreter_finishes_saves(tmp_path):
    code = """
import sys, numpy as np, ckptree
manager = ckptree.CheckpointManager(
    sys.argv[1],
    preservation=ckptree.Latest(1) | ckptree.KeepIf(lambda s: s.step == 0))
manager.save(1, {"w": np.ones(1 << 20)})
manager.save(2, {"w": np.zeros(1 << 22)}, borrow=True)
"""
    done = run(code, tmp_path / "s")
    assert (done.returncode, done.stderr) == (0, "")
    with ckptree.open(tmp_path / "s") as reader:
        assert [info.step for info in reader.steps()] == [2]


def test_a_forked_child_is_refused(tmp_path):
    code = """
import os, sys, ckptree
manager = ckptree.CheckpointManager(sys.argv[1], max_to_keep=2)
manager.save(1, {"w": 1})
if os.fork() == 0:
    for call in (
        manager.all_steps,
        lambda: manager.save(2, {}),
        manager.restore,
    ):
        try: call()
        except ckptree.StateError as error: print("fork()" in str(error))
    del manager
    sys.exit(0)
os.wait()
manager.close()
"""
    done = run(code, tmp_path / "s")
    assert (done.stdout, done.stderr) == ("True\n" * 3, "")


def test_ctrl_c_interrupts_a_manager(tmp_path):
    code = """
import signal, sys, threading, ckptree, numpy as np

# What was started in the background ignores it.
signal.signal(signal.SIGINT, signal.default_int_handler)

about_to_wait = threading.Event()

def interrupt():
    about_to_wait.wait()
    signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

threading.Thread(target=interrupt).start()
array = np.zeros(1 << 20)
step = 0
with ckptree.CheckpointManager(
    sys.argv[1],
    preservation=ckptree.KeepIf(lambda s: False) | ckptree.Latest(2),
) as manager:
    try:
        while True:
            step += 1
            array[:] = step
            manager.save(step, {"w": array})
            manager.wait_until_finished()
            about_to_wait.set()
    except KeyboardInterrupt:
        print("interrupted")
    manager.wait_until_finished()
    manager.save(step + 1, {"w": array})
    same = np.array_equal(manager.restore(step + 1)["w"], array)
    print(same, manager.store.verify().ok)
"""
    done = run(code, tmp_path / "s")
    assert (done.stdout, done.stderr) == ("interrupted\nTrue True\n", "")


TRAINING = """
import signal, sys, ckptree, numpy as np

seen = []
signal.signal(signal.SIGTERM, lambda *_: seen.append("mine"))
rng = np.random.default_rng(7)
state = {"w": rng.normal(size=(64, 64)), "step": 0}
stop = int(sys.argv[2])
with ckptree.CheckpointManager(
    sys.argv[1], save_interval_steps=1000, watch_sigterm=True
) as manager:
    if manager.latest_step() is not None:
        state = manager.restore(like=state)
        print("from", state["step"], flush=True)
    while state["step"] != stop:
        w = state["w"]
        state = {"w": w + 1e-3 * np.tanh(w @ w), "step": state["step"] + 1}
        manager.save(state["step"], state)
        if state["step"] == 3:
            print("running", flush=True)
        if manager.saved_for_preemption():
            print("saved", state["step"], manager.all_steps(), seen, flush=True)
            break
    else:
        manager.save(stop, state, force=True, overwrite=True)
"""


def test_sigterm_saves_once_more_and_the_training_goes_on_bit_exact(tmp_path):
    killed, whole = tmp_path / "killed", tmp_path / "whole"
    with subprocess.Popen(
        [sys.executable, "-c", TRAINING, str(killed), "-1"],
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout.readline() == "running\n"
        os.kill(process.pid, signal.SIGTERM)
        _, step, steps = process.stdout.readline().split(maxsplit=2)
    assert process.returncode == 0
    assert steps.rstrip().endswith(f"{step}] ['mine']")
    stop = int(step) + 5
    done = run(TRAINING, killed, stop)
    assert (done.stdout, done.stderr) == (f"from {step}\n", "")
    assert run(TRAINING, whole, stop).returncode == 0
    with ckptree.open(killed) as a, ckptree.open(whole) as b:
        assert a.step_info(stop).digest == b.step_info(stop).digest
        assert a.verify().ok


def test_states_of_jax(manage):
    jax = pytest.importorskip("jax")
    manager = manage(max_to_keep=1)
    tree = {"w": jax.numpy.arange(6.0).reshape(2, 3), "key": jax.random.key(1)}
    assert manager.save(1, tree)
    found = manager.restore(like=tree)
    assert (found["w"] == tree["w"]).all() and found["key"] == tree["key"]


def test_a_decision_of_ones_own(manage):
    decision = decisions.InitialSave() | decisions.FixedInterval(3)
    manager = manage(save_decision=decision)
    assert save(manager, 1, 2, 3) == [True, False, True]
    assert repr(decision) == "any_of(InitialSave(), FixedInterval(3))"
