# SPDX-License-Identifier: Apache-2.0
"""Several processes save one step: what they put is there, once; what one of
them fails at fails on all."""

import os

import ckptree
import numpy as np
import pytest
from program import run_ranks

# What rank `rank` has at a step, "w" and "epoch" as all others.
STATE = """
def state(step, **more):
    w = np.arange(3000, dtype="f4").reshape(30, 100) * step
    own = np.random.default_rng([rank, step]).integers(0, 99, 50)
    return {
        "params": {"w": w, "b": np.full(7, step)},
        "epoch": step,
        "name": "run",
        "rng": {str(rank): {"state": own, "seed": 10 * step + rank}},
        **more,
    }

def save(store, step, **more):
    return store.save(step, state(step, **more), per_rank=["rng/**"])
"""


def expect(path, steps, world):
    """Reads all of it by one process that was none of them."""
    with ckptree.open(path) as reader:
        assert [info.step for info in reader.steps()] == steps
        for step in steps:
            found = reader.restore(step)
            w = np.arange(3000, dtype="f4").reshape(30, 100) * step
            assert found["params"]["w"].tobytes() == w.tobytes()
            assert found["params"]["b"].tobytes() == np.full(7, step).tobytes()
            assert (found["epoch"], found["name"]) == (step, "run")
            assert sorted(found["rng"]) == [str(rank) for rank in range(world)]
            for rank in range(world):
                own = found["rng"][str(rank)]
                rng = np.random.default_rng([rank, step])
                wanted = rng.integers(0, 99, 50)
                assert own["state"].tobytes() == wanted.tobytes()
                assert own["seed"] == 10 * step + rank
        report = reader.verify("deep")
        assert report.ok, report.findings


# ---- What they save ----


@pytest.mark.parametrize("world", [1, 2, 4])
def test_all_of_them_save_one_step(tmp_path, world):
    code = STATE + """
with opened() as store:
    handles = [save(store, step) for step in (1, 2, 3)]
    say([handle.result(timeout=60) for handle in handles])
    say(store.restore(3)["epoch"], [info.step for info in store.steps()])
    say(repr(store).split(", ")[1])
say(os.getpid())
"""
    said = run_ranks(code, world, tmp_path / "s")
    for rank in range(world):
        assert said[rank][:3] == [
            [[1, 2, 3]],
            [3, [1, 2, 3]],
            [f"rank {rank} of {world}>"],
        ]
    expect(tmp_path / "s", [1, 2, 3], world)
    with ckptree.open(tmp_path / "s") as reader:
        parts = reader[1].metadata.parts
        whole = reader.step_info(1).logical_bytes
        html = reader[1]._repr_html_()
    assert [part.rank for part in parts] == list(range(world))
    assert [part.pid for part in parts] == [said[r][3][0] for r in said]
    assert {part.host for part in parts} == {os.uname().nodename}
    assert all(part.seconds > 0 for part in parts)
    # Nothing is there twice.
    assert sum(part.nbytes for part in parts) == whole
    assert f"saved by {world} ranks" in html


def test_another_number_of_them_goes_on(tmp_path):
    code = STATE + """
with opened() as store:
    step = int(rest[0])
    if step > 1:
        say(store.restore()["params"]["b"].tolist())
    save(store, step).result()
"""
    for step, world in enumerate((4, 2, 1, 3), start=1):
        said = run_ranks(code, world, tmp_path / "s", step)
        for rank in said if step > 1 else ():
            assert said[rank] == [[[step - 1] * 7]]
        with ckptree.open(tmp_path / "s") as reader:
            assert len(reader.restore(step)["rng"]) == world
            report = reader.verify("deep")
            assert report.ok, report.findings


def test_what_did_not_change_is_not_written_again(tmp_path):
    code = """
with opened() as store:
    for step in (1, 2):
        big = np.random.default_rng(1).random(1 << 17)
        state = {"w": big, "own": {str(rank): big + rank}, "step": step}
        store.save(step, state, per_rank=["own"]).result()
"""
    run_ranks(code, 2, tmp_path / "s")
    with ckptree.open(tmp_path / "s") as reader:
        first, second = reader.steps()
    assert first.new_bytes == first.logical_bytes == 3 * (1 << 20) + 8
    assert second.new_bytes < 100


# ---- What they do not agree on ----


@pytest.mark.parametrize("world", [2, 4])
def test_values_that_differ_are_named(tmp_path, world):
    code = STATE + """
with opened() as store:
    last = world - 1
    say(*caught(save(store, 1, seed=int(rank == last)).result))
    say(*caught(save(store, 1, **({"x": 1} if rank == last else {})).result))
    both = store.save(1, {"own": {"x": rank}}, per_rank=["own"])
    say(*caught(both.result))
    say(*caught(save(store, 1, ok=True).result))
"""
    said = run_ranks(code, world, tmp_path / "s")
    last = world - 1
    for rank in range(world):
        differ, only, both, saved = said[rank]
        assert differ[0] == only[0] == both[0] == "InvalidArgumentError"
        assert f"seed is not the same on ranks 0 and {last}" in differ[1]
        assert f"x was put by rank {last} and not by rank 0" in only[1]
        assert only[1].endswith("is to be said (per_rank)")
        assert "own/x" in both[1] and "put by ranks 0 and 1" in both[1]
        assert saved == ["no error", "1"]


def test_of_large_values_type_and_shape_are_compared(tmp_path):
    """As both READMEs say: bytes up to 64 KiB."""
    code = STATE + """
with opened() as store:
    for step, (count, more) in enumerate([(8192, 0), (8193, 0), (8193, rank)]):
        array = np.full(count + more, float(rank))
        say(*caught(store.save(step, {"a": array}).result))
"""
    said = run_ranks(code, 2, tmp_path / "s")
    for small, large, shapes in said.values():
        assert small[0] == shapes[0] == "InvalidArgumentError"
        assert "a is not the same on ranks 0 and 1" in small[1]
        assert "a has another kind, type or shape on rank 0" in shapes[1]
        assert large[0] == "no error"
    with ckptree.open(tmp_path / "s") as reader:
        assert [info.step for info in reader.steps()] == [1]
        assert len(set(reader.restore(1)["a"].tolist())) == 1


def test_options_that_differ_are_named(tmp_path):
    code = """
with opened() as store:
    say(*caught(store.save(1, {"x": 1}, overwrite=rank == 1).result))
"""
    said = run_ranks(code, 2, tmp_path / "s")
    for rank in said:
        kind, message = said[rank][0]
        assert kind == "InvalidArgumentError"
        assert "overwrite=1" in message and "overwrite=0" in message


# ---- Ranks that fail ----


def test_one_that_fails_fails_the_step_on_all(tmp_path):
    code = STATE + """
with opened() as store:
    for bad in range(world):
        more = {"bad": object()} if rank == bad else {}
        say(*caught(lambda: save(store, 1, **more).result()))
    say(*caught(lambda: save(store, 2).result()))
"""
    said = run_ranks(code, 2, tmp_path / "s")
    for rank in range(2):
        for bad in range(2):
            kind, message = said[rank][bad]
            if rank == bad:
                assert kind == "TypeError" and message.startswith("bad: ")
            else:
                assert kind == "InvalidArgumentError"
                assert f"step 1 was not saved: rank {bad}: " in message
                assert "TypeError: bad: " in message
        assert said[rank][2] == ["no error", "2"]
    expect(tmp_path / "s", [2], 2)


def test_one_that_does_not_come_to_a_save_is_named(tmp_path):
    code = STATE + """
with opened(deadline=3) as store:
    if rank != 2:
        say(*caught(save(store, 1).result))
        if rank == 0:
            open(path + "/../go", "w").close()
    else:
        open(path + "/../go").close()
    say(*caught(save(store, 2).result))
"""
    os.mkfifo(tmp_path / "go")
    said = run_ranks(code, 3, tmp_path / "s")
    for rank in (0, 1):
        kind, message = said[rank][0]
        # No WaitTimeoutError: nothing goes on.
        assert kind == "UnavailableError"
        assert "step 1 was not saved" in message
        assert "rank 2 of 3 (pid " in message
        assert "has not begun to save it after 3 s" in message
    assert all(said[rank][-1] == ["no error", "2"] for rank in said)
    expect(tmp_path / "s", [2], 3)


def test_a_failure_that_nobody_saw_is_raised_by_flush(tmp_path):
    code = STATE + """
with opened() as store:
    # Rank 1 is at a later step already: nobody waits for it.
    if rank == 0:
        save(store, 1)
        say(*caught(store.flush))
        say(*caught(store.flush))
    say(*caught(save(store, 2).result))
"""
    said = run_ranks(code, 2, tmp_path / "s")
    failed, again, saved = said[0]
    assert failed[0] == "StateError" and "rank 1 of 2" in failed[1]
    assert "saves step 2, and rank 0 step 1" in failed[1]
    assert again == ["no error", "None"]
    assert saved == said[1][0] == ["no error", "2"]


@pytest.mark.parametrize("killed", [0, 1])
def test_the_next_run_goes_on_where_one_was_killed(tmp_path, killed):
    code = STATE + f"""
import signal
with opened(deadline=2) as store:
    say(save(store, 1).result())
    if rank == {killed}:
        os.kill(os.getpid(), signal.SIGKILL)
    say(*caught(save(store, 2).result))
"""
    said = run_ranks(code, 2, tmp_path / "s", killed=[killed])
    assert said[killed] == [[1]]
    kind, message = said[1 - killed][1]
    assert kind == "UnavailableError"
    lost = "rank 1 of 2" if killed == 1 else "the coordinator"
    assert "step 2 was not saved" in message and lost in message
    expect(tmp_path / "s", [1], 2)
    again = STATE + """
with opened(job="again") as store:
    step = store.restore()["epoch"] + 1
    say(save(store, step).result())
"""
    assert run_ranks(again, 2, tmp_path / "s") == {0: [[2]], 1: [[2]]}
    expect(tmp_path / "s", [1, 2], 2)


# ---- Opening ----


def test_one_whose_program_ends_is_named_at_once(tmp_path):
    code = """
import time
store = opened(deadline=100)
store.save(1, {"w": np.ones(3)}).result()
if rank == 2:
    sys.exit()  # As where a training is done, or fails: nothing closes it.
began = time.monotonic()
say(*caught(lambda: store.save(2, {"w": np.ones(3)}).result()))
say(time.monotonic() - began)
store.close()
"""
    said = run_ranks(code, 3, tmp_path / "s")
    for rank in (0, 1):
        (kind, message), (seconds,) = said[rank]
        assert kind == "UnavailableError" and seconds < 50
        assert "rank 2 of 3" in message and "has closed its store" in message


def test_ranks_that_do_not_come_are_named_by_open(tmp_path):
    code = """
say(*caught(lambda: opened(open_deadline=0.5)))
"""
    path = tmp_path / "s"
    (kind, message), = run_ranks(code, 3, path, ranks=[0])[0]
    assert kind == "UnavailableError"
    assert "of 3 ranks 2 did not come within 0.5 s: 1, 2" in message
    assert "lock_wait" not in message  # Nobody holds it.
    (kind, message), = run_ranks(code, 3, path, ranks=[1])[1]
    assert kind == "UnavailableError"
    assert "rank 1 of 3 saw no coordinator of job test" in message
    # By all alike, though their own time ends before rank 0 judges.
    code = """
say(*caught(lambda: opened(open_deadline=4)))
"""
    for [(kind, message)] in run_ranks(code, 3, path, ranks=[0, 1]).values():
        assert kind == "UnavailableError"
        assert "of 3 ranks 1 did not come within 4 s: 2" in message


def test_open_fails_on_all_ranks_where_rank_0_cannot(tmp_path):
    (tmp_path / "other").write_text("no store")
    code = """
say(*caught(lambda: opened(open_deadline=600)))
"""
    said = run_ranks(code, 2, tmp_path / "other")
    assert said[0][0][0] != "no error" and "other" in said[0][0][1]
    kind, message = said[1][0]
    assert kind == said[0][0][0] and said[0][0][1] in message
    assert message.startswith("rank 1 of 2: rank 0 (pid ")


def test_another_world_or_job_is_refused(tmp_path):
    code = """
ranks = ckptree.Ranks(rank, 2 + rank, job="test", open_deadline=2)
say(*caught(lambda: ckptree.Store(path, ranks=ranks)))
"""
    said = run_ranks(code, 2, tmp_path / "s")
    assert said[0][0][0] == "UnavailableError"
    kind, message = said[1][0]
    assert kind == "StateError"
    assert "there are 3 ranks" in message and "says 2" in message


# ---- Calls of one rank ----


def test_only_rank_0_changes_what_was_saved(tmp_path):
    code = STATE + """
with opened() as store:
    save(store, 1).result()
    save(store, 2).result()
    calls = [
        lambda: store.tag("good", 1),
        lambda: store.untag("good"),
        lambda: store.pin(1),
        lambda: store.unpin(1),
        lambda: store.fork(1, "b"),
        lambda: store.drop_branch("b"),
        lambda: store.set_metadata({"a": 1}),
        lambda: store.set_policy("latest(1)"),
        lambda: store.apply_policy(),
        lambda: store.collect(),
        lambda: store.delete(1),
    ]
    for call in calls:
        say(*caught(call))
"""
    said = run_ranks(code, 2, tmp_path / "s")
    assert [kind for kind, _ in said[0][:-1]] == ["no error"] * 10
    assert said[0][-1][0] == "NotFoundError"  # The policy removed it.
    for name, (kind, message) in zip(
        "tag untag pin unpin fork drop_branch set_metadata set_policy "
        "apply_policy collect delete".split(),
        said[1],
        strict=True,
    ):
        assert kind == "StateError"
        assert message.startswith(f"{name}() is rank 0's alone: this is rank 1")


def test_a_wait_that_ends_is_no_failure(tmp_path):
    os.mkfifo(tmp_path / "go")
    code = STATE + """
go = os.path.join(os.path.dirname(path), "go")
with opened() as store:
    if rank == 1:
        open(go).close()  # Until rank 0 has waited.
    handle = save(store, 1)
    if rank == 0:
        say(*caught(lambda: handle.result(timeout=0.05)))
        say(*caught(lambda: store.flush(timeout=0.05)))
        open(go, "w").close()
    say(handle.result())
"""
    said = run_ranks(code, 2, tmp_path / "s")
    assert [kind for kind, *_ in said[0][:2]] == ["WaitTimeoutError"] * 2
    assert said[0][2] == said[1][0] == [1]


def test_ctrl_c_ends_every_wait(tmp_path):
    code = STATE + """
go = os.path.join(os.path.dirname(path), "go")
with opened(max_saves_in_flight=1) as store:
    if rank == 1:
        open(go).close()
    handle = save(store, 1)
    if rank == 0:
        say(interrupted(handle.result))
        say(interrupted(store.flush))
        say(interrupted(lambda: save(store, 2)))
        say(interrupted(store.close))
        open(go, "w").close()
    say(handle.result())
store = None
say(interrupted(lambda: opened(job="x", open_deadline=600) if rank else None))
os._exit(0)
"""
    os.mkfifo(tmp_path / "go")
    said = run_ranks(code, 2, tmp_path / "s")
    assert said[0] == [["interrupted"]] * 4 + [[1], ["None"]]
    assert said[1] == [[1], ["interrupted"]]


def test_an_interrupted_opening_is_named_by_the_next_one(tmp_path):
    code = """
import signal
signal.signal(signal.SIGALRM, signal.default_int_handler)
signal.setitimer(signal.ITIMER_REAL, 0.3)
try:
    opened(open_deadline=600)
except KeyboardInterrupt:
    say("interrupted")
say(*caught(lambda: ckptree.Store(path)))
say(os.getpid())
os._exit(0)
"""
    said = run_ranks(code, 2, tmp_path / "s", ranks=[0])[0]
    (stopped,), (kind, message), (pid,) = said
    assert (stopped, kind) == ("interrupted", "UnavailableError")
    assert f"pid {pid} " in message
    assert "that is this process" in message and "lock_wait=" in message


# ---- Arguments ----


def test_a_store_has_one_set_of_ranks(tmp_path):
    ranks = ckptree.Ranks(0, 1, job="a")
    with ckptree.Store(tmp_path / "s", ranks=ranks) as store:
        with ckptree.Store(tmp_path / "s", ranks=ranks) as again:
            again.save(1, {"x": 1}).result()
        assert store.restore() == {"x": 1}
        for other in (None, ckptree.Ranks(0, 1, job="b")):
            with pytest.raises(ckptree.StateError, match="ranks=Ranks.*'a'"):
                ckptree.Store(tmp_path / "s", ranks=other)


@pytest.mark.parametrize("mode", ["create", "read"])
def test_modes_of_one_process_are_refused(tmp_path, mode):
    ranks = ckptree.Ranks(0, 1)
    with pytest.raises(ckptree.InvalidArgumentError, match=f"mode='{mode}'"):
        ckptree.Store(tmp_path / "s", mode=mode, ranks=ranks)


def test_per_rank_is_of_ranks(store):
    with pytest.raises(ValueError, match="open the store with ranks="):
        store.save(1, {"x": 1}, per_rank=["x"])
    assert store.steps() == []


def test_ranks_that_are_none(tmp_path):
    for given, named in (
        ((1, 1), "rank is 0 to 0 of 1"),
        ((0, 1, "a b"), "job is 1 to 64"),
        ((0, 1, "x" * 65), "job is"),
        ((0, 1, "a", 0), "deadline is above 0"),
    ):
        with pytest.raises(ckptree.InvalidArgumentError, match=named):
            ckptree.Ranks(*given)
