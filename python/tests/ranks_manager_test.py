# SPDX-License-Identifier: Apache-2.0
"""The manager over several processes: rank 0 decides, all of them save, and
what they saved is read back by a process without ranks."""

import os

import ckptree
import numpy as np
import pytest
from program import RANK, run_ranks

BEGIN = RANK + """
import itertools, time

def managed(deadline=60, **options):
    ranks = ckptree.Ranks(rank, world, "test", deadline, 60)
    return ckptree.CheckpointManager(path, ranks=ranks, **options)

def state(step):
    # Alike on all ranks, and one value of each.
    return {"w": np.full(100, step), "own": {str(rank): 10 * step + rank}}

def save(manager, step, **options):
    return manager.save(step, state(step), per_rank=["own"], **options)
"""


def run(code, world, *arguments, **options):
    return run_ranks(code, world, *arguments, begin=BEGIN, **options)


def same(said):
    """What each of them said, which is the same."""
    first = said[0]
    for rank, lines in said.items():
        assert lines == first, rank
    return first


def expect(path, steps, world):
    """Reads all of it by a store of this process."""
    with ckptree.open(path) as reader:
        assert list(reader) == steps
        for step in steps:
            found = reader.restore(step)
            assert sorted(found) == ["own", "w"]
            assert found["w"].tobytes() == np.full(100, step).tobytes()
            own = {str(rank): 10 * step + rank for rank in range(world)}
            assert found["own"] == own
        report = reader.verify("deep")
        assert report.ok, report.findings


@pytest.mark.parametrize("world", [2, 4])
def test_steps_by_their_number(tmp_path, world):
    code = """
with managed(save_interval_steps=3, save_on_steps=[5]) as manager:
    for step in range(1, 11):
        due = manager.should_save(step)
        say(due, save(manager, step))
    manager.wait_until_finished()
    say(manager.all_steps(), manager.latest_step(), list(manager))
    say(manager.restore(6)["w"].tolist() == [6] * 100)
    say(manager.restore(items=["w"])["w"].tolist() == [9] * 100)
"""
    said = same(run(code, world, tmp_path / "s"))
    saved = [1, 3, 5, 6, 9]
    assert said[:10] == [[step in saved] * 2 for step in range(1, 11)]
    assert said[10:] == [[saved, 9, saved], [True], [True]]
    expect(tmp_path / "s", saved, world)


def test_nobody_waits_where_the_number_says_no(tmp_path):
    code = """
with managed(save_interval_steps=4) as manager:
    # Rank 0 comes to those alone that its options name.
    for step in range(0, 10, 4 if rank == 0 else 1):
        if save(manager, step):
            say(step)
"""
    assert same(run(code, 2, tmp_path / "s")) == [[0], [4], [8]]
    expect(tmp_path / "s", [0, 4, 8], 2)


@pytest.mark.parametrize("world", [2, 4])
def test_rank_0_decides(tmp_path, world):
    code = """
def asked(step, latest):
    if rank == world - 1:
        raise RuntimeError("nobody asks this rank")
    return step % 2 == (1 if rank == 0 else 0)

def keep(step):
    return rank == 0 and step == 3

options = dict(
    best_metric="loss", best_mode="min", max_to_keep=2 if rank == 0 else 1,
    should_keep_fn=keep, should_save_fn=asked,
)
with managed(**options) as manager:
    for step in range(10):
        loss = float("nan") if rank else 10.0 - step
        if save(manager, step, metrics={"loss": loss}, note=f"of {rank}"):
            say(step)
    manager.wait_until_finished()
    say(manager.all_steps(), manager.best_step(), manager.metrics(9))
    say(manager.store.step_info(9).note)
"""
    said = same(run(code, world, tmp_path / "s"))
    assert said[:5] == [[1], [3], [5], [7], [9]]
    assert said[5:] == [[[3, 7, 9], 9, {"loss": 1.0}], ["of 0"]]
    expect(tmp_path / "s", [3, 7, 9], world)


def test_force_overwrite_and_changes(tmp_path):
    code = """
with managed(save_interval_steps=10) as manager:
    say(save(manager, 5), save(manager, 3), save(manager, 3, force=True))
    say(save(manager, 3, overwrite=True))
    say(caught(lambda: save(manager, 3, force=True))[0])
    say(save(manager, 20), save(manager, 30))
    manager.delete(20)
    manager.delete_after(3)
    say(save(manager, 10))
    manager.fork_from(3, "warm")
    say(manager.branch, save(manager, 20))
    manager.wait_until_finished()
    say(manager.all_steps(), list(manager.store))
"""
    assert same(run(code, 2, tmp_path / "s")) == [
        [True, False, True],
        [True],
        ["AlreadyExistsError"],
        [True, True],
        [True],
        ["warm", True],
        [[20], [3, 10]],
    ]
    expect(tmp_path / "s", [3, 10], 2)


def test_a_rank_that_leaves_a_save_out(tmp_path):
    code = """
with managed(deadline=2, save_interval_steps=2) as manager:
    save(manager, 2)
    if rank != 1:
        save(manager, 4)
        say(*caught(manager.wait_until_finished))
    say(save(manager, 6))
"""
    said = run(code, 4, tmp_path / "s")
    assert said[1] == [[True]]
    for rank in (0, 2, 3):
        (kind, message), then = said[rank]
        assert kind == "UnavailableError"
        assert "step 4" in message and "rank 1 of 4" in message
        assert then == [True]
    expect(tmp_path / "s", [2, 6], 4)


def test_rank_0_does_not_come(tmp_path):
    code = """
with managed(deadline=1) as manager:
    if rank == 1:
        say(*caught(lambda: save(manager, 5)))
        say(*caught(lambda: manager.reached_preemption(5)))
        open(path + "/../go", "w").close()
    else:
        open(path + "/../go").close()
    say(save(manager, 6))
"""
    os.mkfifo(tmp_path / "go")
    said = run(code, 2, tmp_path / "s")
    for (kind, message), call in zip(
        said[1], ("save(5)", "reached_preemption(5)")
    ):
        assert kind == "UnavailableError"
        assert f"rank 1 of 2: rank 0 did not come to {call}" in message
    assert said[0] == said[1][2:] == [[True]]
    expect(tmp_path / "s", [6], 2)


def test_ctrl_c_while_rank_0_does_not_come(tmp_path):
    """It ends the wait, not only what comes after the deadline; the same call
    once more hears of what rank 0 did."""
    code = """
with managed(deadline=20) as manager:
    for step in range(5):
        save(manager, step)
    manager.wait_until_finished()
    for go, call in {
        "a": lambda: manager.delete(1),
        "b": lambda: manager.delete_after(3),
        "c": lambda: manager.fork_from(2, "warm"),
    }.items():
        go = path + "/../" + go
        if rank == 1:
            begun = time.monotonic()
            say(interrupted(call), time.monotonic() - begun < 20)
            say(manager.branch)
            open(go, "w").close()
        else:
            open(go).close()
        call()
        say(manager.all_steps(), manager.branch)
"""
    # One each: rank 0 may come to the next before rank 1 has closed the last.
    for go in "abc":
        os.mkfifo(tmp_path / go)
    said = run(code, 2, tmp_path / "s")
    made = [[[0, 2, 3, 4], ""], [[0, 2, 3], ""], [[], "warm"]]
    assert said[0] == made
    stopped = [["interrupted", True], [""]]
    assert said[1] == [line for end in made for line in (*stopped, end)]
    with ckptree.open(tmp_path / "s") as reader:
        assert list(reader) == [0, 2, 3]


@pytest.mark.parametrize("world", [2, 4])
def test_a_failure_is_raised_on_all_ranks(tmp_path, world):
    code = """
with managed() as manager:
    for step, bad in enumerate([0, world - 1]):
        wrong = {"w": object()} if rank == bad else {"w": 1}
        say(*caught(lambda: manager.save(step, wrong)))
        say(*caught(manager.wait_until_finished))
        say(*caught(manager.check_for_errors))
    # The next save tells it, where nobody has asked.
    say(*caught(lambda: manager.save(7, {"seed": rank})))
    say(*caught(lambda: save(manager, 8)))
    say(save(manager, 9))
"""
    said = run(code, world, tmp_path / "s")
    for rank, lines in said.items():
        for n, bad in enumerate((0, world - 1)):
            (kind, message), (later, what), none = lines[3 * n : 3 * n + 3]
            assert none[0] == "no error"
            if rank == bad:
                assert (kind, later) == ("TypeError", "no error")
                assert "w: " in message
            else:
                assert kind == "no error"
                assert f"step {n} was not saved: rank {bad}" in what
        first, then, last = lines[6:]
        assert first == ["no error", "True"]
        assert then[0] == "InvalidArgumentError"
        assert "seed is not the same on ranks 0 and" in then[1]
        assert last == [True]
    expect(tmp_path / "s", [9], world)


@pytest.mark.parametrize("world, to", [(1, 0), (2, 0), (2, 1), (4, 2)])
def test_sigterm_on_one_rank(tmp_path, world, to):
    code = """
to = int(rest[0])
with managed(watch_sigterm=True, save_interval_steps=5) as manager:
    for step in itertools.count(1):
        if rank == to and step == 17:
            os.kill(os.getpid(), signal.SIGTERM)
        saved = save(manager, step)
        if manager.saved_for_preemption():
            say(step, saved, manager.reached_preemption())
            break
    say(manager.is_saving_in_progress(), manager.latest_step() == step)
"""
    said = same(run(code, world, tmp_path / "s", to))
    step, *flags = said[0]
    assert flags == [True, True] and said[1] == [False, True]
    assert step >= 17
    with ckptree.open(tmp_path / "s") as reader:
        steps = list(reader)
    due = [n for n in range(1, step) if n == 1 or n % 5 == 0]
    expect(tmp_path / "s", [*due, step], world)
    assert steps[-1] == step


def test_reached_preemption_at_a_step(tmp_path):
    code = """
with managed(save_interval_steps=5) as manager:
    for step in itertools.count(1):
        save(manager, step)
        if rank == 1 and step == 12:
            manager.request_preemption()
        # The save of this step may have heard of it before.
        before = manager.saved_for_preemption()
        if manager.reached_preemption(step):
            say(step, before)
            break
    say(save(manager, step + 1), manager.saved_for_preemption())
"""
    said = same(run(code, 4, tmp_path / "s"))
    step, before = said[0]
    assert step >= 12
    due = not before or (step + 1) % 5 == 0
    assert said[1] == [due, True]
    with ckptree.open(tmp_path / "s") as reader:
        assert reader.step_info().step == (step + 1 if due else step)


def test_another_number_of_processes_goes_on(tmp_path):
    code = """
with managed(save_interval_steps=2, max_to_keep=2) as manager:
    found = manager.latest_step()
    first = 0 if found is None else found
    if found is not None:
        say(manager.restore()["w"].tolist() == [found] * 100)
    for step in range(first + 1, first + 5):
        if save(manager, step):
            say(step)
"""
    last = 0
    for world in (4, 1, 2):
        said = same(run(code, world, tmp_path / "s"))
        if last:
            assert said == [[True], [last + 2], [last + 4]]
        else:
            assert said == [[1], [2], [4]]
        last += 4
        expect(tmp_path / "s", [last - 2, last], world)


def test_a_killed_rank_is_named(tmp_path):
    code = """
manager = managed(deadline=2)
save(manager, 1)
manager.wait_until_finished()
if rank == 2:
    os.kill(os.getpid(), signal.SIGKILL)
save(manager, 2)
say(*caught(manager.wait_until_finished))
manager.close()
"""
    said = run(code, 4, tmp_path / "s", killed=[2])
    for rank in (0, 1, 3):
        kind, message = said[rank][0]
        assert kind == "UnavailableError" and "rank 2 of 4" in message
    expect(tmp_path / "s", [1], 4)


def test_closing_tells_a_failure_and_then_nothing(tmp_path):
    code = """
manager = managed()
manager.save(1, {"seed": rank})
say(caught(manager.close)[0], caught(manager.close)[0], manager.closed)
say(caught(lambda: save(manager, 2))[0])
"""
    assert same(run(code, 2, tmp_path / "s")) == [
        ["InvalidArgumentError", "no error", True],
        ["StateError"],
    ]


def test_what_is_of_one_process(tmp_path):
    ranks = ckptree.Ranks(0, 1)
    with pytest.raises(ckptree.InvalidArgumentError, match="each can read"):
        ckptree.CheckpointManager(tmp_path / "s", ranks=ranks, read_only=True)
    assert not (tmp_path / "s").exists()
    with ckptree.CheckpointManager(tmp_path / "s", ranks=ranks) as manager:
        assert repr(manager) == (
            f"<ckptree.CheckpointManager {tmp_path / 's'}, rank 0 of 1>"
        )
        assert manager.save(1, {"own": {"0": 1}}, per_rank=["own"])
    with ckptree.CheckpointManager(tmp_path / "s") as manager:
        with pytest.raises(ValueError, match="open the store with ranks="):
            manager.save(2, {"own": {"0": 1}}, per_rank=["own"])
