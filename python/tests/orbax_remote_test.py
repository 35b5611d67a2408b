# SPDX-License-Identifier: Apache-2.0
"""Managers of Orbax's kind at an address of an object store."""

import fcntl
import os
import shutil
import subprocess
import sys

import numpy as np
import pytest

import ckptree
import ckptree.orbax as ocp
from ckptree.orbax.experimental import v1


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """The disk of a machine, which may vanish."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def address(tmp_path):
    """A folder that others see; in a bucket where there is one."""
    endpoint = os.environ.get("CKPTREE_TEST_S3")
    if endpoint is None:
        return f"file://{tmp_path}/far"
    os.environ["AWS_ENDPOINT_URL_S3"] = endpoint
    bucket = os.environ["CKPTREE_TEST_BUCKET"]
    return f"s3://{bucket}/orbax/{tmp_path.name}"


HERE = ocp.RemoteOptions()


def save(manager, step):
    arguments = ocp.args.StandardSave({"w": np.full(70_000, step, "f4")})
    return manager.save(step, args=arguments)


def test_an_empty_machine_goes_on(address, cache):
    options = ocp.CheckpointManagerOptions(max_to_keep=2)
    with ocp.CheckpointManager(
        address, options=options, remote_options=HERE
    ) as manager:
        assert manager.latest_step() is None
        for step in range(3):
            assert save(manager, step)
        manager.wait_until_finished()
        assert cache in manager.directory.parents
    shutil.rmtree(cache)
    with ocp.CheckpointManager(
        address, options=options, remote_options=HERE
    ) as manager:
        assert manager.all_steps() == [1, 2]
        assert (manager.restore(2)["w"] == 2).all()
        assert save(manager, 3)
        manager.wait_until_finished()
        assert manager.all_steps() == [2, 3]
        assert (manager.restore(3)["w"] == 3).all()


def test_what_is_waited_for_is_there(address, cache, tmp_path, monkeypatch):
    with ocp.CheckpointManager(address, remote_options=HERE) as manager:
        save(manager, 7)
        manager.wait_until_finished()
        # Another machine, which sees the address alone.
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "other"))
        readers = ocp.CheckpointManagerOptions(read_only=True)
        with ocp.CheckpointManager(address, options=readers) as there:
            assert there.latest_step() == 7
            assert (there.restore(7)["w"] == 7).all()
            save(manager, 8)
            manager.wait_until_finished()
            there.reload()
            assert there.latest_step() == 8


def test_who_only_looks_ends_no_writer(address, tmp_path, monkeypatch):
    with ocp.CheckpointManager(address, remote_options=HERE) as manager:
        save(manager, 1)
        manager.wait_until_finished()
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "other"))
        with ocp.CheckpointManager(address) as other:
            assert (other.restore(1)["w"] == 1).all()
            with pytest.raises(ckptree.StateError, match="take_over=True"):
                save(other, 2)
        assert save(manager, 2)
        manager.wait_until_finished()
        # Where it is known to be dead, or is to be.
        with ocp.CheckpointManager(
            address, remote_options=ocp.RemoteOptions(take_over=True)
        ) as other:
            save(other, 3)
            other.wait_until_finished()
        save(manager, 4)
        with pytest.raises(ckptree.StateError, match="took"):
            manager.wait_until_finished()
        with pytest.raises(ckptree.StateError):
            manager.close()


def test_a_machine_that_was_left_goes_on(address, tmp_path, monkeypatch):
    for step, disk in enumerate(("one", "two", "one")):
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / disk))
        with ocp.CheckpointManager(address, remote_options=HERE) as manager:
            save(manager, step)
            manager.wait_until_finished()
            assert manager.all_steps() == list(range(step + 1))


def test_what_another_fetched_since_is_not_removed(
    address, tmp_path, monkeypatch
):
    for step, disk in enumerate(("one", "two")):
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / disk))
        with ocp.CheckpointManager(address, remote_options=HERE) as manager:
            save(manager, step)
            manager.wait_until_finished()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "one"))
    took = fcntl.flock
    others = []

    def another_comes_first(*held):
        others.append(
            subprocess.Popen(
                [sys.executable, "-c", ANOTHER, address],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
        )
        assert others[0].stdout.readline() == "saved\n"
        took(*held)

    monkeypatch.setattr(fcntl, "flock", another_comes_first)
    manager = ocp.CheckpointManager(address, remote_options=HERE)
    with pytest.raises(ckptree.UnavailableError, match="another writer"):
        save(manager, 3)
    (other,) = others
    assert other.communicate("\n", timeout=60)[0] == "[0, 1, 2, 3]\n"
    assert other.returncode == 0
    manager.close()


# Goes on there, once more when it is told to.
ANOTHER = """
import sys
import numpy as np
import ckptree.orbax as ocp

def save(step):
    manager.save(step, args=ocp.args.StandardSave({"w": np.full(70_000, step)}))
    manager.wait_until_finished()

with ocp.CheckpointManager(
    sys.argv[1], remote_options=ocp.RemoteOptions()
) as manager:
    save(2)
    print("saved", flush=True)
    sys.stdin.readline()
    save(3)
    assert (manager.restore(2)["w"] == 2).all()
    print(manager.all_steps())
"""


def test_a_folder_may_be_named(address, tmp_path):
    here = ocp.RemoteOptions(local_directory=tmp_path / "scratch" / "lm")
    with ocp.CheckpointManager(address, remote_options=here) as manager:
        save(manager, 1)
        assert manager.directory == tmp_path / "scratch" / "lm"
    with ckptree.open(tmp_path / "scratch" / "lm") as store:
        assert store.info().shipped_to == address


LARGE = {n: np.random.default_rng(n).bytes(3 << 20) for n in (1, 2)}


def save_large(manager):
    for step, value in LARGE.items():
        tree = {"w": np.frombuffer(value, "u1")}
        manager.save(step, args=ocp.args.StandardSave(tree))


def far_nbytes(directory):
    with ckptree.open(directory) as store:
        return store.info().far_nbytes


@pytest.mark.parametrize("keep", ["latest(1)", ckptree.Latest(1)])
def test_its_folder_keeps_some_steps(address, keep):
    few = ocp.RemoteOptions(local_keep=keep)
    assert few == ocp.RemoteOptions(local_keep="latest(1)")
    with ocp.CheckpointManager(address, remote_options=few) as manager:
        save_large(manager)
        folder = manager.directory
    assert far_nbytes(folder) >= 2 << 20
    with ocp.CheckpointManager(address, remote_options=few) as manager:
        assert manager.should_save(3)  # It has the folder open by now.
        for step, value in LARGE.items():
            assert manager.restore(step)["w"].tobytes() == value
    every = ocp.RemoteOptions(local_keep="all")
    with ocp.CheckpointManager(address, remote_options=every) as manager:
        manager.should_save(3)
    assert far_nbytes(folder) == 0


def test_a_checkpointer_of_v1_has_the_same_options(address, tmp_path):
    here = ocp.RemoteOptions(
        local_directory=tmp_path / "scratch", local_keep="latest(1)"
    )
    with v1.training.Checkpointer(address, remote_options=here) as checkpointer:
        for step, value in LARGE.items():
            checkpointer.save(step, {"w": np.frombuffer(value, "u1")})
        assert checkpointer.directory == tmp_path / "scratch"
    assert far_nbytes(tmp_path / "scratch") >= 2 << 20


def test_what_goes_with_nothing_is_refused(tmp_path, address):
    # It says where what was meant is to be given.
    with pytest.raises(ValueError, match="local_directory='/.*/run'"):
        ocp.CheckpointManager(str(tmp_path / "run"), remote_options=HERE)

    def mine(step):
        return True

    for wrong in ("newest", ckptree.KeepIf(mine)):
        with pytest.raises(ValueError, match="^local_keep: "):
            ocp.RemoteOptions(local_keep=wrong)
    for options in ({"local_keep": 3}, {"take_over": 1}):
        with pytest.raises(TypeError, match=next(iter(options))):
            ocp.RemoteOptions(**options)
    readers = ocp.CheckpointManagerOptions(read_only=True)
    for given in ({"take_over": True}, {"local_keep": "all"}):
        with pytest.raises(ValueError, match="take_over and local_keep"):
            ocp.CheckpointManager(
                address,
                options=readers,
                remote_options=ocp.RemoteOptions(**given),
            )
    with pytest.raises(ValueError, match="'gs'"):
        ocp.CheckpointManager("gs://bucket/run")
    with pytest.raises(ValueError, match="^local_directory: s3://b/y: "):
        ocp.CheckpointManager(
            address,
            remote_options=ocp.RemoteOptions(local_directory="s3://b/y"),
        )


def test_a_run_that_was_removed_is_told_where_it_is(tmp_path, cache):
    address = f"file://{tmp_path}/far"
    taking = ocp.RemoteOptions(take_over=True)
    with ocp.CheckpointManager(address, remote_options=HERE) as manager:
        save(manager, 1)
    shutil.rmtree(tmp_path / "far")
    with pytest.raises(ckptree.StateError, match="in the cache .* remove it"):
        ocp.CheckpointManager(address, remote_options=HERE)
    # Where the objects were lost the run goes on, and says so.
    with ocp.CheckpointManager(address, remote_options=taking) as manager:
        assert manager.all_steps() == [1]
    shutil.rmtree(tmp_path / "far")
    with ckptree.Store(tmp_path / "other", remote=address) as other:
        other.save(9, {"a": 1}).result(timeout=60)
    for options in (HERE, taking):
        with ocp.CheckpointManager(address, remote_options=options) as manager:
            assert manager.all_steps() == [9]
            with pytest.raises(ckptree.StateError, match="in the cache .* rem"):
                save(manager, 10)
    shutil.rmtree(cache)
    with ocp.CheckpointManager(address, remote_options=HERE) as manager:
        assert save(manager, 10)
    with ckptree.open(address) as store:
        assert [one.step for one in store.steps()] == [9, 10]


def test_what_is_not_there_is_named(tmp_path):
    options = ocp.CheckpointManagerOptions(create=False)
    address = f"file://{tmp_path}/far"
    with ocp.CheckpointManager(
        address, options=options, remote_options=HERE
    ) as manager:
        assert manager.latest_step() is None
        with pytest.raises(FileNotFoundError, match="far"):
            manager.restore()
    # A path all the same, where nothing says that it is an address.
    with ocp.CheckpointManager(f"file://{tmp_path}/run") as manager:
        save(manager, 1)
    assert (tmp_path / "run" / "journal").is_dir()
