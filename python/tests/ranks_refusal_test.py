# SPDX-License-Identifier: Apache-2.0
"""What fails in save() on one rank, before the step is committed to: the others
hear the reason, and do not wait for it."""

import ckptree
import numpy as np
import pytest
from program import run_ranks

# Whoever waited would wait for the deadline of a minute, five times.
BEGIN = """
import datetime, time

def tried(store, step, bad, state=None, **options):
    given = {"w": np.arange(5000) * step}
    if rank == bad:
        given.update(state or {})
    else:
        options = {}
    return caught(lambda: store.save(step, given, **options).result())
"""

REFUSED = {
    "metadata": ("metadata={1: 2}", "TypeError", "InvalidArgumentError"),
    "metrics": ("metrics={'a': 'x'}", "TypeError", "InvalidArgumentError"),
    "note": ("note=7", "TypeError", "InvalidArgumentError"),
    "time": (
        "time=datetime.datetime(2026, 1, 1)",
        "ValueError",
        "InvalidArgumentError",
    ),
    "f": (
        "state={'f': lambda: 1}",
        "TypeError",
        "InvalidArgumentError",
    ),
    "no": (
        "state={'no': type('No', (), {'state_dict': 1})()}",
        "TypeError",
        "InvalidArgumentError",
    ),
}


@pytest.mark.parametrize("bad", [0, 1])
def test_the_others_hear_why(tmp_path, bad):
    calls = "\n".join(
        f"    say(*tried(store, {step}, {bad}, {given}))"
        for step, (given, *_) in enumerate(REFUSED.values(), start=1)
    )
    code = f"""{BEGIN}
with opened(deadline=60) as store:
    began = time.monotonic()
{calls}
    say("seconds", time.monotonic() - began)
    say(*tried(store, 99, None))
    # Nobody is told again.
    say(*caught(store.flush))
"""
    said = run_ranks(code, 2, tmp_path / "s")
    for rank in range(2):
        for (name, call), told in zip(REFUSED.items(), said[rank]):
            _, here, elsewhere = call
            kind, message = told
            assert kind == (here if rank == bad else elsewhere), told
            assert name in message
            if rank != bad:
                step = 1 + list(REFUSED).index(name)
                assert f"step {step} was not saved: rank {bad}: " in message
                assert f"{here}: " in message
        what, seconds = said[rank][-3]
        assert what == "seconds" and seconds < 30
        assert said[rank][-2:] == [["no error", "99"], ["no error", "None"]]
    with ckptree.open(tmp_path / "s") as reader:
        assert list(reader) == [99]
        wanted = np.arange(5000) * 99
        assert reader.restore(99)["w"].tobytes() == wanted.tobytes()
        assert reader.verify("deep").ok


@pytest.mark.parametrize("bad", [0, 1])
def test_the_others_hear_why_of_a_manager(tmp_path, bad):
    refused = {name: REFUSED[name] for name in REFUSED if name != "time"}
    calls = "\n".join(
        f"    tried({10 * n}, {given})"
        for n, (given, *_) in enumerate(refused.values(), start=1)
    )
    code = f"""
import time
ranks = ckptree.Ranks(rank, world, "test", 60, 60)
manager = ckptree.CheckpointManager(path, ranks=ranks, save_interval_steps=10)

def tried(step, state=None, bad={bad}, **options):
    given = {{"w": np.arange(5000) * step}}
    if rank == bad:
        given.update(state or {{}})
    else:
        options = {{}}
    say(*caught(lambda: manager.save(step, given, **options)))
    say(*caught(manager.wait_until_finished))

with manager:
    began = time.monotonic()
    tried(2, bad=None)  # The first one.
{calls}
    # One that nobody saves is this rank's own mistake.
    tried(71, metadata={{1: 2}})
    tried(80, force="no")
    say("seconds", time.monotonic() - began)
    tried(90, bad=None)
    say(*caught(manager.check_for_errors))
"""
    said = run_ranks(code, 2, tmp_path / "s")
    nothing = ["no error", "None"]
    for rank in range(2):
        lines = iter(said[rank])
        assert [next(lines), next(lines)] == [["no error", "True"], nothing]
        for n, (name, (_, here, _)) in enumerate(refused.items(), start=1):
            (kind, message), then = next(lines), next(lines)
            if rank == bad:
                assert kind == here and name in message
                assert then == nothing
                continue
            assert [kind, message] == ["no error", "True"]
            kind, message = then
            assert kind == "InvalidArgumentError"
            assert f"step {10 * n} was not saved: rank {bad}: " in message
            assert f"{here}: " in message and name in message
        kind, message = next(lines)
        expected = "TypeError" if rank == bad else "no error"
        assert (kind, message == "False") == (expected, rank != bad)
        assert next(lines) == nothing
        kind, _ = next(lines)
        assert kind == expected
        kind, message = next(lines)
        assert rank == bad or "force is a bool" in message
        what, seconds = next(lines)
        assert what == "seconds" and seconds < 30
        assert list(lines) == [["no error", "True"], nothing, nothing]
    with ckptree.open(tmp_path / "s") as reader:
        assert list(reader) == [2, 90]
        assert reader.verify("deep").ok


def test_the_same_step_is_tried_again(tmp_path):
    """No call is joined with another one's next call."""
    code = """
with opened() as store:
    for attempt in range(3):
        more = {"metadata": {1: 2}} if (rank, attempt) == (0, 1) else {}
        state = {"w": np.full(9, attempt)}
        say(*caught(lambda: store.save(
            1, state, overwrite=True, **more).result()))
"""
    said = run_ranks(code, 2, tmp_path / "s")
    for rank in range(2):
        assert said[rank][0] == said[rank][2] == ["no error", "1"]
        assert "keys of dicts" in said[rank][1][1] or "metadata" in (
            said[rank][1][1]
        )
    with ckptree.open(tmp_path / "s") as reader:
        assert reader.restore(1)["w"].tolist() == [2] * 9


def test_what_rank_0_refuses_is_told_as_it_is(tmp_path):
    code = """
with opened() as store:
    state = {"w": np.ones(3)}
    say(*caught(lambda: store.save(1, state).result()))
    say(*caught(lambda: store.save(1, state).result()))
    say(*caught(lambda: store.save(2, state, branch="none").result()))
    say(*caught(lambda: store.save(3, state).result()))
    say(*caught(store.flush))
"""
    said = run_ranks(code, 2, tmp_path / "s")
    for rank in range(2):
        assert said[rank][0] == ["no error", "1"]
        kind, message = said[rank][1]
        assert kind == "AlreadyExistsError" and "1 exists already" in message
        kind, message = said[rank][2]
        assert kind == "NotFoundError" and "none" in message
        assert said[rank][3:] == [["no error", "3"], ["no error", "None"]]
