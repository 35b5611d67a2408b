# SPDX-License-Identifier: Apache-2.0
"""Several processes, each with a directory of its own, save one step through
the object store that all of them see."""

import os

import ckptree
import numpy as np
import pytest
from program import run_ranks

# Rank `rank` has a directory, and a cache, of its own.
OPENED = """
import os

folder = path
os.environ["XDG_CACHE_HOME"] = f"{folder}/cache{rank}"

def opened(**more):
    options = dict(
        mode="write or create",
        ranks=ckptree.Ranks(
            rank, world, job=f"job-{world}", deadline=60, open_deadline=60,
            shared_folder=False,
        ),
        remote=f"file://{folder}/bucket",
        durable="remote",
        take_over=True,
        remote_timeout=300,
        remote_grace=1800,
    )
    return ckptree.Store(f"{folder}/disk{rank}", **{**options, **more})

def state(step):
    return {
        "params": {"w": np.arange(60000, dtype="f4") * step},
        "rng": {str(rank): np.full(50, 10 * step + rank)},
    }
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "bucket").mkdir()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path


def expect(where, steps):
    """`steps` says how many ranks saved each."""
    with ckptree.open(where) as reader:
        assert list(reader) == list(steps)
        for step, world in steps.items():
            found = reader.restore(step)
            wanted = np.arange(60000, dtype="f4") * step
            assert found["params"]["w"].tobytes() == wanted.tobytes()
            assert sorted(found["rng"]) == [str(r) for r in range(world)]
            for rank in range(world):
                own = np.full(50, 10 * step + rank)
                assert found["rng"][str(rank)].tobytes() == own.tobytes()
        assert reader.verify("deep").ok


def test_all_of_them_save_and_restore(folder):
    code = OPENED + """
with opened() as store:
    first = int(rest[0])
    for step in (first, first + 1):
        store.save(step, state(step), per_rank=["rng"]).result(timeout=60)
    found = store.restore(first + 1)
    say(found["params"]["w"][7].item(), sorted(found["rng"]))
say(os.path.exists(f"{folder}/disk{rank}"))
"""
    for world, first in ((3, 1), (2, 3)):
        said = run_ranks(code, world, folder, first)
        for rank in range(world):
            wanted = [7.0 * (first + 1), [str(r) for r in range(world)]]
            assert said[rank] == [wanted, [rank == 0]]
    saved = {1: 3, 2: 3, 3: 2, 4: 2}
    expect(f"file://{folder}/bucket", saved)
    expect(folder / "disk0", saved)


def test_a_rank_that_is_killed_fails_the_step_by_name(folder):
    code = OPENED + """
ranks = ckptree.Ranks(
    rank, world, job="kill", deadline=1, open_deadline=60, shared_folder=False
)
store = opened(ranks=ranks)
store.save(1, state(1), per_rank=["rng"]).result(timeout=60)
if rank == 1:
    os.kill(os.getpid(), 9)
say(*caught(lambda: store.save(2, state(2), per_rank=["rng"]).result()))
store.close()
"""
    said = run_ranks(code, 3, folder, killed=[1])
    for rank in (0, 2):
        kind, message = said[rank][0]
        assert kind == "UnavailableError", message
        assert "step 2 was not saved" in message and "rank 1 of 3" in message
    expect(f"file://{folder}/bucket", {1: 3})


def test_what_cannot_be_is_refused(folder):
    ranks = ckptree.Ranks(0, 2, shared_folder=False)
    address = f"file://{folder}/bucket"
    with pytest.raises(ValueError, match="set store.remote"):
        ckptree.Store(folder / "d", ranks=ranks)
    with pytest.raises(ValueError, match="durable.*'remote'"):
        ckptree.Store(folder / "d", ranks=ranks, remote=address)
    assert not os.path.exists(folder / "d")
    with pytest.raises(TypeError, match="shared_folder"):
        ckptree.Ranks(0, 2, shared_folder="no")
    assert "shared_folder=False" in repr(ranks)
