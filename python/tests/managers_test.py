# SPDX-License-Identifier: Apache-2.0
"""Several managers and stores of one path in one process."""

import gc
import os
import shutil
import subprocess
import sys
import threading
import warnings

import ckptree
import numpy as np
import pytest
from ckptree import CheckpointManager

STATE = {"w": np.arange(1000)}
# Managers that nobody closes say so; here most are closed by close_all().
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")

# Long enough on its way that something else happens before.
BIG = {"w": np.arange(4 << 20)}

OPENS = """
import ckptree, sys
with ckptree.Store(sys.argv[1]) as store:
    print(list(store))
"""


def elsewhere(path, program=OPENS):
    """What a program prints that is given the path, or its error."""
    found = subprocess.run(
        [sys.executable, "-c", program, str(path)],
        capture_output=True,
        text=True,
    )
    return found.stdout if found.returncode == 0 else found.stderr


def save(manager, *steps, **options):
    saved = [manager.save(step, STATE, **options) for step in steps]
    manager.wait_until_finished(timeout=60)
    return saved


def at_once(count, function):
    """Calls it with 0, 1, ..., on a thread each, until all have ended."""
    threads = [
        threading.Thread(target=function, args=(i,)) for i in range(count)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=120)
        assert not thread.is_alive()


@pytest.fixture
def path(tmp_path):
    yield tmp_path / "run"
    ckptree.close_all()


# ---- One engine ----


def test_a_cell_that_runs_again(path):
    manager = CheckpointManager(path, max_to_keep=3)
    save(manager, 1)
    with pytest.warns(ResourceWarning, match="not closed"):
        manager = CheckpointManager(path, max_to_keep=2)
    save(manager, 2, 3, 4)
    assert manager.all_steps() == [3, 4]
    manager.close()
    assert elsewhere(path) == "[3, 4]\n"


def test_one_that_only_restores_changes_no_policy(path):
    with CheckpointManager(path) as manager:
        save(manager, *range(10))
    for options in (
        {"max_to_keep": 1},
        {"best_metric": "loss", "best_mode": "min", "max_to_keep": 2},
        {},
    ):
        with CheckpointManager(path, **options) as manager:
            manager.restore()
    with ckptree.Store(path) as store:
        store.save(10, STATE).result(timeout=60)
        assert list(store) == list(range(11))


def test_a_run_that_was_removed_is_begun_anew(path):
    first = CheckpointManager(path)
    save(first, 1, 2)
    shutil.rmtree(path)
    with CheckpointManager(path) as manager:
        assert manager.all_steps() == []
        save(manager, 7)
        assert manager.all_steps() == [7]
    with pytest.raises(ckptree.StateError, match="closed"):
        first.all_steps()
    assert elsewhere(path) == "[7]\n"


def test_a_run_that_was_moved_keeps_its_steps(path):
    first = ckptree.Store(path)
    first.save(1, {"n": 1}).result(timeout=60)
    away = f"{path}-away"
    os.rename(path, away)
    with ckptree.Store(path) as store:
        store.save(5, {"n": 5}).result(timeout=60)
    with pytest.raises(ckptree.StateError, match="closed"):
        first.steps()
    assert elsewhere(path) == "[5]\n" and elsewhere(away) == "[1]\n"
    with ckptree.open(away) as store:
        assert store.restore() == {"n": 1} and store.verify().ok


def test_overwrite_replaces_and_says_so(path, caplog):
    with CheckpointManager(path) as manager:
        save(manager, 1, 2)
        assert not manager.save(2, STATE)
        assert not manager.save(1, STATE)
        said = [r for r in caplog.records if "was not saved" in r.message]
        assert len(said) == 1 and "step 2" in said[0].message
        assert manager.save(2, {"n": 9}, overwrite=True)
        manager.wait_until_finished()
        assert manager.restore(2) == {"n": 9}


def test_it_closes_with_the_last_that_holds_it(path):
    first = CheckpointManager(path)
    store = ckptree.Store(path)
    second = CheckpointManager(path)
    save(first, 1)
    save(second, 2)
    store.save(3, STATE).result(60)
    for each in (first, second, store):
        assert list(each) == [1, 2, 3]
    for one, rest in ((second, store), (store, first)):
        one.close()
        one.close()
        assert one.closed and not rest.closed and list(rest) == [1, 2, 3]
        assert "UnavailableError" in elsewhere(path)
    calls = (
        lambda: second.save(9, STATE),
        lambda: second.should_save(9),
        lambda: second.restore(),
        second.all_steps,
        second.best_step,
        second.store.steps,
        second.wait_until_finished,
        lambda: second[1],
    )
    for call in calls:
        with pytest.raises(ckptree.StateError, match="closed"):
            call()
    assert save(first, 4) == [True]
    first.close()
    assert elsewhere(path) == "[1, 2, 3, 4]\n"


def test_the_store_of_a_manager_closes_it_alone(path):
    first, second = CheckpointManager(path), CheckpointManager(path)
    first.save(1, BIG)
    first.store.close()
    assert first.closed and not second.closed
    with pytest.raises(ckptree.StateError, match="closed"):
        first.save(2, STATE)
    assert save(second, 2) == [True] and list(second) == [1, 2]


def test_a_traceback_does_no_harm(path):
    def loop():
        manager = CheckpointManager(path, max_to_keep=1)
        save(manager, 1)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError) as held:
        loop()
    with CheckpointManager(path, max_to_keep=2) as manager:
        save(manager, 2, 3)
        assert manager.all_steps() == [2, 3]
    # Who held it still does, until all are closed.
    assert held.value is not None
    assert "UnavailableError" in elsewhere(path)
    ckptree.close_all()
    assert elsewhere(path) == "[2, 3]\n"


def test_a_manager_with_a_cycle_goes(path):
    other = CheckpointManager(path)
    manager = CheckpointManager(path)
    cycle = [manager]
    cycle.append(cycle)
    manager.save(1, BIG)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        del manager, cycle
        gc.collect()
    # It has waited for its save, and left the rest alone.
    assert other.all_steps() == [1] and save(other, 2) == [True]
    other.close()
    assert elsewhere(path) == "[1, 2]\n"


def test_options_that_contradict(path):
    manager = CheckpointManager(path, max_saves_in_flight=3)
    for options, text in (
        ({"chunk_bytes": 1 << 20}, "chunk_bytes=4194304, not 1048576"),
        ({"threads": 2}, "threads=0, not 2"),
        ({"max_saves_in_flight": 4}, "max_saves_in_flight=3, not 4"),
    ):
        for opens in (CheckpointManager, ckptree.Store):
            with pytest.raises(ckptree.StateError, match=text):
                opens(path, **options)
    # What is as usual says nothing; one that waits sooner is no contradiction.
    with CheckpointManager(path, max_saves_in_flight=2) as second:
        save(second, 1)
    with pytest.raises(ValueError, match="save_interval_steps"):
        CheckpointManager(path, save_interval_steps=0)
    with pytest.raises(ckptree.StoreNotFoundError, match="none"):
        CheckpointManager(path, branch="none")
    # Whoever failed holds nothing.
    manager.close()
    assert elsewhere(path) == "[1]\n"


def test_what_fails_makes_no_store(tmp_path):
    for options in ({"max_to_keep": -1}, {"preservation": "latest(0)"}):
        with pytest.raises(ValueError):
            CheckpointManager(tmp_path / "new", **options)
    with pytest.raises(FileNotFoundError):
        CheckpointManager(tmp_path / "new", branch="b")
    assert os.listdir(tmp_path) == []


# ---- What one does to the other ----


def test_a_save_in_flight_is_seen(path):
    first, second = CheckpointManager(path), CheckpointManager(path)
    assert first.save(5, BIG)
    assert not second.should_save(5) and not second.save(4, STATE)
    assert second.restore()["w"].size == BIG["w"].size  # Waits for it.
    assert second.all_steps() == [5]


def test_one_closes_while_the_other_saves(path):
    first, second = CheckpointManager(path), CheckpointManager(path)
    first.save(1, BIG)
    second.close()
    assert first.save(2, BIG)
    first.close()
    with ckptree.open(path) as reader:
        for step in (1, 2):
            assert np.array_equal(reader.restore(step)["w"], BIG["w"])


def test_each_keeps_by_its_own_policy(path):
    few = CheckpointManager(path, max_to_keep=1)
    save(few, 0, 1)
    every = CheckpointManager(path)
    assert every.restore()["w"].tolist() == STATE["w"].tolist()
    save(few, 2)
    assert few.all_steps() == [2]  # To restore changed nothing.
    save(every, 3, 4)
    assert few.all_steps() == [2, 3, 4]
    save(few, 5)
    assert every.all_steps() == [5]


def test_each_is_told_of_its_own_failures(path):
    def fails(step):
        raise ZeroDivisionError("of the function")

    wrong = CheckpointManager(path, should_keep_fn=fails, max_to_keep=1)
    right = CheckpointManager(path, max_to_keep=1)
    store = ckptree.Store(path)
    wrong.save(0, STATE)
    wrong._engine.settle()
    save(right, 1)
    wrong.save(2, STATE)
    wrong._engine.settle()
    right.close()
    store.close()
    with pytest.raises(ckptree.Error, match="of the function"):
        wrong.close()
    assert wrong.closed and elsewhere(path) == "[1, 2]\n"


def test_a_manager_whose_save_failed_is_closed_by_a_close_that_says_so(path):
    """A second close() took the engine away from whoever else had it."""
    store = ckptree.Store(path)
    store.save(1, STATE).result(timeout=60)
    raised = []
    for _ in range(20):  # Until the pin came before the commit.
        manager = CheckpointManager(path)
        manager.save(1, BIG, overwrite=True)
        store._engine.pin("1")  # store.pin() waits for the save.
        try:
            manager.close()
        except ckptree.StateError as error:
            raised.append(str(error))
            break
        store.unpin(1)
    assert "pinned" in raised[0]
    assert manager.closed and not store.closed
    manager.close()
    store.save(2, STATE).result(timeout=60)
    assert list(store) == [1, 2]
    store.close()
    assert elsewhere(path) == "[1, 2]\n"


@pytest.mark.parametrize("who", ["manager", "store"])
def test_a_close_in_a_function_lets_go_of_nothing(path, who):
    refused = []

    def loss(metrics):
        if ckptree._engine.in_function() and not refused:
            with pytest.raises(ckptree.StateError) as raised:
                asked.close()
            refused.append(str(raised.value))
        return metrics["loss"]

    manager = CheckpointManager(
        path, max_to_keep=2, best_fn=loss, best_mode="min"
    )
    store = ckptree.Store(path)
    asked, other = (
        (manager, store) if who == "manager" else (store, manager)
    )
    for step in range(4):
        save(manager, step, metrics={"loss": float(step)})
    assert "closes no store" in refused[0]
    other.close()
    assert not asked.closed
    if who == "manager":
        save(manager, 9, metrics={"loss": 0.0})
    else:
        store.save(9, STATE).result(timeout=60)
    asked.close()
    assert asked.closed and elsewhere(path).endswith(" 9]\n")


def test_failures_of_a_store_are_not_the_managers(path):
    store = ckptree.Store(path)
    manager = CheckpointManager(path)
    store.save(0, BIG)
    late = store.save(0, STATE)  # Fails when the one before is there.
    manager._engine.settle()
    save(manager, 1)
    assert manager.restore(0)["w"].size == BIG["w"].size
    manager.close()
    with pytest.raises(ckptree.AlreadyExistsError, match="0"):
        store.flush()
    assert late.done()


def test_threads_save_the_same_steps(path):
    managers = [CheckpointManager(path), CheckpointManager(path)]
    barrier = threading.Barrier(4)
    won, told, wrong = [], [], []

    def run(which):
        try:
            barrier.wait(timeout=60)
            manager = managers[which % 2]
            for step in range(20):
                while True:
                    try:
                        if manager.save(step, STATE, force=True):
                            won.append(step)
                    except ckptree.AlreadyExistsError as error:
                        if "was not saved" in str(error):
                            told.append(error)  # Of an earlier save.
                            continue
                    break
        except BaseException as error:
            wrong.append(error)

    at_once(4, run)
    assert wrong == []
    for manager in managers:
        manager._engine.settle()
        while True:
            try:
                manager.check_for_errors()
                break
            except ckptree.AlreadyExistsError as error:
                told.append(error)
    assert managers[0].all_steps() == list(range(20))
    # A save may fail in its own call, too: then it is not among the won.
    assert 20 <= len(won) <= 20 + len(told)
    failed = managers[0]._store.counters().saves_failed
    assert len(won) - 20 <= failed <= len(told)
    for step in range(20):
        found = managers[1].restore(step)["w"]
        assert np.array_equal(found, STATE["w"])


def test_many_threads_open_and_close(path):
    barrier = threading.Barrier(8)
    wrong = []

    def run(step):
        try:
            barrier.wait(timeout=60)
            with CheckpointManager(path) as manager:
                save(manager, step, force=True)
                with ckptree.Store(path) as store:
                    assert step in store
        except BaseException as error:
            wrong.append(error)

    at_once(8, run)
    assert wrong == []
    assert elsewhere(path) == f"{list(range(8))}\n"


def test_two_threads_close_one_manager(path):
    other = CheckpointManager(path)
    for round in range(20):
        manager = CheckpointManager(path)
        manager.save(round, STATE)
        barrier = threading.Barrier(2)
        wrong = []

        def close():
            try:
                barrier.wait(timeout=60)
                manager.close()
                # Whoever comes second waits for the first.
                assert round in other
            except BaseException as error:
                wrong.append(error)

        threads = [threading.Thread(target=close) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(timeout=60)
        assert wrong == [] and manager.closed
    assert other.all_steps() == list(range(20))


def test_a_reader_beside_them(path):
    first, second = CheckpointManager(path), CheckpointManager(path)
    save(first, 1)
    with CheckpointManager(path, read_only=True) as reader:
        assert reader.all_steps() == [1] and not reader.should_save(2)
        save(second, 2)
        reader.reload()
        assert reader.all_steps() == [1, 2]
    assert save(first, 3) == [True]


# ---- The end ----


def test_closing_all(path):
    def fails(step):
        raise ZeroDivisionError("of the function")

    managers = [
        CheckpointManager(path),
        CheckpointManager(path, should_keep_fn=fails, max_to_keep=1),
    ]
    stores = [ckptree.Store(path), managers[0].store]
    managers[1].save(1, BIG)
    with pytest.raises(ckptree.Error, match="of the function"):
        ckptree.close_all()
    assert all(one.closed for one in managers + stores)
    assert elsewhere(path) == "[1]\n"


ENDS = """
import ckptree, numpy as np, sys
state = {{"w": np.arange(4 << 20)}}
class Holder:
    pass
holder = Holder()
holder.me = holder
first = ckptree.CheckpointManager(sys.argv[1], max_to_keep=5)
holder.second = ckptree.CheckpointManager(
    sys.argv[1], should_keep_fn=lambda step: True, max_to_keep=1)
store = ckptree.Store(sys.argv[1])
first.save(1, state)
holder.second.save(2, state)
handle = store.save(3, state)
{end}
"""


@pytest.mark.parametrize(
    "end, code",
    [
        ("", 0),
        ("sys.exit(3)", 3),
        ("1 / 0", 1),
        ("del first, store; holder = None", 0),
        ("held = [first, store]; held.append(held); del first, store", 0),
    ],
)
def test_the_end_of_the_interpreter(path, end, code):
    found = subprocess.run(
        [sys.executable, "-c", ENDS.format(end=end), str(path)],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert found.returncode == code, found.stderr
    assert elsewhere(path) == "[1, 2, 3]\n"


FORKS = """
import ckptree, numpy as np, os, sys
managers = [ckptree.CheckpointManager(sys.argv[1]) for _ in range(2)]
managers[0].save(1, {"w": np.arange(4 << 20)})
child = os.fork()
if child == 0:
    for manager in managers:
        for call in (manager.all_steps, lambda: manager.save(5, {"w": 1})):
            try:
                call()
                os._exit(1)
            except ckptree.StateError as error:
                assert "fork" in str(error)
        manager.close()
    try:
        ckptree.CheckpointManager(sys.argv[1])
        os._exit(2)
    except ckptree.StateError:
        pass
    del managers, manager, call
    sys.exit(0)
assert os.waitpid(child, 0)[1] == 0
assert managers[1].save(2, {"w": 1})
for manager in managers:
    manager.close()
"""


def test_a_child_has_none_of_them(path):
    assert elsewhere(path, FORKS) == ""
    assert elsewhere(path) == "[1, 2]\n"
