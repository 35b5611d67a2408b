# SPDX-License-Identifier: Apache-2.0
"""Managers of several processes of JAX at an address of an object store: they
share no folder."""

import os

import ckptree
import numpy as np
import pytest
from orbax_ranks import run

# Each process has a cache of its own, as on a machine of its own; `address` is
# what all of them see.
BEGIN = """
address = f"file://{path}/far"
os.environ["XDG_CACHE_HOME"] = f"{path}/cache{rank}"
HERE = ocp.RemoteOptions()

def state(step):
    w = np.arange(32, dtype="f4").reshape(8, 4) + step
    r = np.arange(3, dtype="f4") * step
    return {"w": spread(w, "x", "y"), "r": spread(r), "n": step}

def args(step):
    return ocp.args.StandardSave(state(step))

def managed(here=HERE, **options):
    return ocp.CheckpointManager(
        address, options=ocp.CheckpointManagerOptions(**options),
        remote_options=here)
"""


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def last(said, world=2):
    return [said[rank][-1] for rank in range(world)]


def test_processes_save_together_to_an_address(tmp_path):
    code = BEGIN + """
with managed(max_to_keep=2) as manager:
    say(manager.latest_step())
    for step in range(4):
        manager.save(step, args=args(step))
    manager.wait_until_finished()
    say(list(manager.all_steps()), str(manager.directory))
    same = plain(manager.restore(3, args=ocp.args.StandardRestore(state(0))))
    say(same == plain(state(3)))
# Another job, which has the address alone.
os.environ["XDG_CACHE_HOME"] = f"{path}/other{rank}"
with managed(max_to_keep=2) as manager:
    say(list(manager.all_steps()))
    same = plain(manager.restore(2, args=ocp.args.StandardRestore(state(0))))
    manager.save(4, args=args(4))
    manager.wait_until_finished()
    say(same == plain(state(2)), list(manager.all_steps()))
    manager.delete(3)
    say(list(manager.all_steps()))
"""
    said = run(code, 2, tmp_path, "ckptree.orbax")
    for rank in (0, 1):
        first, (steps, directory), same, *others = said[rank]
        assert (first, steps, same) == ([None], [2, 3], [True])
        assert directory.startswith(f"{tmp_path}/cache{rank}/")
        assert others == [[[2, 3]], [True, [3, 4]], [[4]]]
    with ckptree.open(f"file://{tmp_path}/far") as store:
        assert list(store) == [4]
        assert [part.rank for part in store[4].metadata.parts] == [0, 1]
        wanted = np.arange(32, dtype="f4").reshape(8, 4) + 4
        assert (store[4].restore()["default"]["w"] == wanted).all()
        assert store.verify("deep").ok


def test_processes_of_one_machine_have_folders_of_their_own(tmp_path):
    code = BEGIN + """
os.environ["XDG_CACHE_HOME"] = f"{path}/cache"
with managed() as manager:
    manager.save(0, args=args(0))
    manager.wait_until_finished()
    say(manager.directory.name)
here = ocp.RemoteOptions(local_directory=f"{path}/lm")
with managed(here) as manager:
    manager.save(1, args=args(1))
    manager.wait_until_finished()
    say(manager.directory.name, list(manager.all_steps()))
"""
    said = run(code, 2, tmp_path, "ckptree.orbax")
    (one,), (two,) = said[0][0], said[1][0]
    assert two == f"{one}.1"
    assert last(said) == [["lm", [0, 1]], ["lm.1", [0, 1]]]
    with ckptree.open(tmp_path / "lm") as store:
        assert list(store) == [0, 1]


def test_what_one_fails_at_all_raise(tmp_path):
    code = BEGIN + """
import pathlib

class Files(ocp.CheckpointHandler):
    def save(self, directory, args):
        pathlib.Path(directory, f"part-{rank}").write_text("x")
    def restore(self, directory, args=None):
        return sorted(os.listdir(directory))

@ocp.args.register_with_handler(Files, for_save=True, for_restore=True)
class FilesArgs(ocp.args.CheckpointArgs):
    def __init__(self, item=None):
        self.item = item

def saved(manager, step, args):
    manager.save(step, args=args)
    manager.wait_until_finished()
    return manager.all_steps()

with managed() as manager:
    both = ocp.args.Composite(files=FilesArgs(1), n=ocp.args.JsonSave({"n": 1}))
    say(*caught(lambda: saved(manager, 0, both)))
    unlike = ocp.args.Composite(n=ocp.args.StandardSave({"n": rank}))
    say(*caught(lambda: saved(manager, 1, unlike)))
    alike = ocp.args.Composite(n=ocp.args.StandardSave({"n": 7}))
    say(*caught(lambda: saved(manager, 2, alike)))
    # Another job, while this one has it open.
    other = ocp.RemoteOptions(local_directory=f"{path}/second")
    with managed(other) as second:
        say(*caught(lambda: saved(second, 3, alike)))
    say(*caught(lambda: saved(manager, 4, alike)))
tree = ocp.PyTreeCheckpointer()
say(*caught(lambda: tree.save("s3://bucket/one", {"n": 1})))
from ckptree.flax import checkpoints
say(*caught(lambda: checkpoints.save_checkpoint("s3://bucket/x", {"n": 1}, 1)))
"""
    said = run(code, 2, tmp_path, "ckptree.orbax")
    for rank in (0, 1):
        files, unlike, alike, other, again, *alone = said[rank]
        assert files[0] == "UnsupportedError"
        assert "folder that all processes see" in files[1]
        assert unlike[0] == "InvalidArgumentError"
        assert alike == ["no error", "[2]"]
        assert other[0] == "StateError" and "take_over=True" in other[1]
        assert again == ["no error", "[2, 4]"]
        assert len(alone) == 2
        for kind, message in alone:
            assert kind == "UnsupportedError", message
            assert "CheckpointManager" in message


def test_a_process_that_is_killed_fails_the_step(tmp_path):
    code = BEGIN + """
waits = ocp.AsyncOptions(timeout_secs=5)
manager = managed(async_options=waits)
manager.save(0, args=args(0))
manager.wait_until_finished()
if rank == 1:
    os.kill(os.getpid(), signal.SIGKILL)
def fails():
    manager.save(1, args=args(1))
    manager.wait_until_finished()
say(*caught(fails))
# JAX waits for the other one.
_answers.flush()
os._exit(0)
"""
    said = run(code, 2, tmp_path, "ckptree.orbax", killed=[1])
    kind, message = said[0][-1]
    assert kind in ("UnavailableError", "TimeoutError"), message
    with ckptree.open(f"file://{tmp_path}/far") as store:
        assert list(store) == [0]
        assert store.verify("deep").ok
