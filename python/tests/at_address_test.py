# SPDX-License-Identifier: Apache-2.0
"""Checkpointers of Orbax's kind, and Flax's checkpoints, at addresses of an
object store."""

import os
import pathlib
import shutil
import subprocess
import sys

import ckptree
import ckptree.orbax as ocp
import numpy as np
import pytest
from ckptree.flax import checkpoints
from ckptree.orbax.experimental import v1
from s3_server import served


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """The disk of a machine, which may vanish."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture(scope="module")
def bucket():
    """One of an S3 that answers like one."""
    with served() as server:
        yield server.address


def shipped(folder):
    """The address of a folder to which a store was shipped."""
    folder.mkdir(parents=True)
    address = f"file://{folder}"
    with ckptree.Store(
        folder.parent / f"{folder.name}.seed", remote=address, durable="remote"
    ):
        pass
    return address


@pytest.fixture
def googles(bucket, monkeypatch):
    """The same bucket by the name of Google's, as CKPTREE_GS_ENDPOINT asks."""
    endpoint = os.environ["AWS_ENDPOINT_URL_S3"]
    monkeypatch.setenv("CKPTREE_GS_ENDPOINT", endpoint)
    monkeypatch.setenv("GS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("GS_SECRET_ACCESS_KEY", "test")
    return bucket.replace("s3://", "gs://")


@pytest.fixture(params=["s3", "gs", "file"])
def prefix(request, tmp_path):
    """Where addresses begin; below it any is an address."""
    if request.param != "file":
        name = "bucket" if request.param == "s3" else "googles"
        return f"{request.getfixturevalue(name)}/{tmp_path.name}"
    for name in ("one", "two", "three"):
        shipped(tmp_path / "far" / name)
    return f"file://{tmp_path}/far"


def tree(n):
    return {"w": np.full(70_000, n, "f4"), "n": n}


def same(found, n):
    return found["n"] == n and (found["w"] == n).all()


KINDS = {
    "plain": lambda: ocp.Checkpointer(ocp.PyTreeCheckpointHandler()),
    "tree": ocp.PyTreeCheckpointer,
    "async": lambda: ocp.AsyncCheckpointer(ocp.PyTreeCheckpointHandler()),
    "standard": ocp.StandardCheckpointer,
}


def wait(checkpointer):
    getattr(checkpointer, "wait_until_finished", lambda: None)()


@pytest.mark.parametrize("kind", KINDS)
def test_a_checkpointer_saves_to_addresses(prefix, cache, kind):
    with KINDS[kind]() as checkpointer:
        for n, name in enumerate(("one", "two")):
            checkpointer.save(f"{prefix}/{name}", tree(n))
        wait(checkpointer)
        # Nothing of them is on this machine.
        assert not list((cache / "ckptree" / "saves").iterdir())
        shutil.rmtree(cache)
        with pytest.raises(ValueError, match="already exists.*force=True"):
            checkpointer.save(f"{prefix}/one", tree(5))
        checkpointer.save(f"{prefix}/one", tree(7), force=True)
        wait(checkpointer)
    with KINDS[kind]() as checkpointer:
        assert same(checkpointer.restore(f"{prefix}/one"), 7)
        assert same(checkpointer.restore(f"{prefix}/two/"), 1)
        found = checkpointer.metadata(f"{prefix}/one").item_metadata
        assert found["w"].shape == (70_000,)
        with pytest.raises(FileNotFoundError, match="three"):
            checkpointer.restore(f"{prefix}/three")


def test_handlers_and_composites_take_addresses(prefix):
    handler = ocp.StandardCheckpointHandler()
    handler.save(f"{prefix}/one", args=ocp.args.StandardSave(tree(1)))
    assert same(handler.restore(f"{prefix}/one"), 1)
    assert same(v1.load(f"{prefix}/one"), 1)
    assert str(v1.metadata(f"{prefix}/one").path) == f"{prefix}/one"
    assert v1.is_orbax_checkpoint(f"{prefix}/one")
    assert not v1.is_orbax_checkpoint(f"{prefix}/three")
    both = ocp.Checkpointer(ocp.CompositeCheckpointHandler("state", "about"))
    items = ocp.args.Composite(
        state=ocp.args.StandardSave(tree(2)),
        about=ocp.args.JsonSave({"lr": 0.5}),
    )
    both.save(f"{prefix}/two", args=items)
    found = both.restore(f"{prefix}/two")
    assert same(found.state, 2) and found.about == {"lr": 0.5}


def test_steps_of_a_run_are_restored(prefix):
    run = f"{prefix}/one"
    with ocp.CheckpointManager(
        run, remote_options=ocp.RemoteOptions()
    ) as manager:
        for step in (3, 4):
            manager.save(step, args=ocp.args.StandardSave(tree(step)))
        manager.wait_until_finished()
    checkpointer = ocp.StandardCheckpointer()
    assert same(checkpointer.restore(run), 4)
    assert same(checkpointer.restore(f"{run}/3"), 3)
    assert same(checkpointer.restore(f"{run}/3/default"), 3)
    with pytest.raises(ValueError, match="step 9.*CheckpointManager"):
        checkpointer.save(f"{run}/9", tree(9))
    with pytest.raises(ValueError, match="is a run, with steps up to 4"):
        checkpointer.save(run, tree(9), force=True)


KILLED = """
import os, sys, ckptree
import numpy as np
import ckptree.orbax as ocp

def die(self, *arguments, **options):
    os._exit(9)

ckptree.Store.save = die
ocp.PyTreeCheckpointer().save(sys.argv[1], {"w": np.ones(70_000), "n": 1})
"""


def test_what_a_killed_save_has_left_is_told_and_replaced(prefix, cache):
    address = f"{prefix}/one"
    ended = subprocess.run([sys.executable, "-c", KILLED, address])
    assert ended.returncode == 9
    left = list((cache / "ckptree" / "saves").iterdir())
    assert len(left) == 2
    checkpointer = ocp.PyTreeCheckpointer()
    with pytest.raises(FileNotFoundError):
        checkpointer.restore(address)
    with pytest.raises(ckptree.StateError, match="pass force=True"):
        checkpointer.save(address, tree(1))
    assert not list((cache / "ckptree" / "saves").iterdir())
    checkpointer.save(address, tree(2), force=True)
    assert same(checkpointer.restore(address), 2)


def test_what_cannot_be_at_an_address_is_refused(bucket):
    mode = ocp.options.FileOptions(path_permission_mode=0o700)
    checkpointer = ocp.StandardCheckpointer(file_options=mode)
    with pytest.raises(ValueError, match="path_permission_mode"):
        checkpointer.save(f"{bucket}/mode", tree(1))
    checkpointer = ocp.StandardCheckpointer()
    with pytest.raises(ValueError, match="'gs'"):
        checkpointer.save("gs://bucket/one", tree(1))
    with pytest.raises(ValueError, match="'gs'"):
        checkpointer.restore("gs://bucket/one")
    with pytest.raises(ValueError, match="'s3'"):
        v1.save(f"{bucket}/one", tree(1))
    with pytest.raises(ValueError, match="'gs'"):
        checkpoints.save_checkpoint("gs://bucket/run", tree(1), 1)


@pytest.fixture(params=["s3", "file"])
def run(request, tmp_path):
    """A directory of Flax's checkpoints."""
    if request.param == "s3":
        return f"{request.getfixturevalue('bucket')}/{tmp_path.name}/run"
    for name in ("checkpoint_", "best_"):
        shipped(tmp_path / "run" / checkpoints.directory.folder("/", name).name)
    return f"file://{tmp_path}/run"


def test_flax_saves_to_an_address(run, cache):
    assert checkpoints.latest_checkpoint(run) is None
    assert checkpoints.available_steps(run) == []
    with pytest.warns(UserWarning, match="no checkpoint"):
        assert checkpoints.restore_checkpoint(run, None) is None
    for step in range(1, 4):
        name = checkpoints.save_checkpoint(run, tree(step), step, keep=2)
        assert name == f"{run}/checkpoint_{step}"
        # Another machine, which has the address alone.
        if step == 2:
            shutil.rmtree(cache)
    checkpoints.save_checkpoint(run, tree(9), 9, prefix="best_")
    shutil.rmtree(cache)
    assert checkpoints.available_steps(run) == [2, 3]
    assert checkpoints.latest_checkpoint(run) == f"{run}/checkpoint_3"
    assert checkpoints.latest_checkpoint(run, "best_") == f"{run}/best_9"
    assert same(checkpoints.restore_checkpoint(run, None), 3)
    assert same(checkpoints.restore_checkpoint(run, tree(0), step=2), 2)
    assert same(checkpoints.restore_checkpoint(f"{run}/checkpoint_2", None), 2)
    assert same(checkpoints.restore_checkpoint(f"{run}/best_9", None), 9)
    with pytest.raises(ValueError, match="Matching checkpoint not found"):
        checkpoints.restore_checkpoint(run, None, step=1)


def test_flax_overwrites_at_an_address(run):
    for step in (1, 2):
        checkpoints.save_checkpoint(run, tree(step), step, keep=5)
    with pytest.raises(checkpoints.InvalidCheckpointError):
        checkpoints.save_checkpoint(run, tree(5), 1, keep=5)
    checkpoints.save_checkpoint(run, tree(5), 1, keep=5, overwrite=True)
    assert checkpoints.available_steps(run) == [1]
    assert same(checkpoints.restore_checkpoint(run, None), 5)


def test_flax_saves_to_an_address_in_the_background(run):
    manager = checkpoints.AsyncManager()
    checkpoints.save_checkpoint(run, tree(1), 1, async_manager=manager)
    checkpoints.save_checkpoint(run, tree(2), 2, async_manager=manager)
    manager.wait_previous_save()
    checkpointer = ocp.AsyncCheckpointer(ocp.PyTreeCheckpointHandler())
    checkpoints.save_checkpoint(
        run, tree(3), 3, orbax_checkpointer=checkpointer
    )
    checkpointer.wait_until_finished()
    assert same(checkpoints.restore_checkpoint(run, None), 3)


FLAX_KILLED = """
import os
import sys

import numpy as np
from ckptree.flax import checkpoints

checkpoints.save_checkpoint(sys.argv[1], {"w": np.ones(9), "n": 1}, 1)

def die(*arguments, **options):
    os._exit(9)

checkpoints._begin = die
checkpoints.save_checkpoint(sys.argv[1], {"w": np.ones(9), "n": 2}, 2)
"""


def test_flax_goes_on_where_a_machine_was_killed(run, cache):
    ended = subprocess.run([sys.executable, "-c", FLAX_KILLED, run])
    assert ended.returncode == 9
    shutil.rmtree(cache)
    with pytest.raises(ckptree.StateError) as told:
        checkpoints.save_checkpoint(run, tree(3), 3, keep=2)
    assert "ckptree.flax.checkpoints: pass take_over=True" in str(told.value)
    assert "ckptree.orbax" not in str(told.value)
    checkpoints.save_checkpoint(run, tree(3), 3, keep=2, take_over=True)
    assert checkpoints.available_steps(run) == [1, 3]
    checkpoints.save_checkpoint_multiprocess(
        run, tree(4), 4, keep=2, take_over=True
    )
    assert same(checkpoints.restore_checkpoint(run, None), 4)


@pytest.mark.parametrize(
    "save",
    [checkpoints.save_checkpoint, checkpoints.save_checkpoint_multiprocess],
)
def test_flax_keeps_some_steps_in_its_folder(run, cache, save):
    large = {n: np.random.default_rng(n).bytes(3 << 20) for n in (1, 2)}
    for step, value in large.items():
        tree = {"w": np.frombuffer(value, "u1")}
        save(run, tree, step, keep=5, local_keep="latest(1)")
    (folder,) = (cache / "ckptree").glob("run-*")
    with ckptree.open(folder) as store:
        assert store.info().far_nbytes >= 2 << 20
    for step, value in large.items():
        found = checkpoints.restore_checkpoint(run, None, step=step)
        assert found["w"].tobytes() == value


def test_flax_takes_over_addresses_alone(tmp_path):
    for save in (
        checkpoints.save_checkpoint,
        checkpoints.save_checkpoint_multiprocess,
    ):
        with pytest.raises(ckptree.InvalidArgumentError, match="take_over"):
            save(tmp_path / "run", tree(1), 1, take_over=True)
        with pytest.raises(ckptree.InvalidArgumentError, match="local_keep is"):
            save(tmp_path / "run", tree(1), 1, local_keep="all")
        with pytest.raises(TypeError, match="take_over is a bool"):
            save(tmp_path / "run", tree(1), 1, take_over="yes")
        with pytest.raises(TypeError, match="local_keep is a policy"):
            save(tmp_path / "run", tree(1), 1, local_keep=3)
    assert not (tmp_path / "run").exists()


def test_flax_as_a_path_where_nothing_was_shipped(tmp_path):
    checkpoints.save_checkpoint(f"file://{tmp_path}/run", tree(1), 1)
    assert list(pathlib.Path(tmp_path / "run").iterdir())
    assert same(checkpoints.restore_checkpoint(str(tmp_path / "run"), None), 1)
    assert not os.path.exists(tmp_path / "cache")
