# SPDX-License-Identifier: Apache-2.0
"""Stores that ship to a folder which other machines see."""

import os
import shutil
import signal
import socket
import subprocess
import sys

import ckptree
import numpy as np
import pytest
from ckptree.errors import while_opening


def state(step):
    return {"w": np.arange(100_000, dtype="f4") + step, "step": step}


def test_a_machine_goes_on_where_another_vanished(tmp_path):
    remote = f"file://{tmp_path}/far"
    with ckptree.Store(tmp_path / "a", remote=remote) as store:
        for step in (1, 2):
            store.save(step, state(step))
        store.flush()
        store.wait_replicated(60)
    shutil.rmtree(tmp_path / "a")
    with ckptree.Store(tmp_path / "b", remote=remote) as store:
        read = store.restore("latest")
        assert read["step"] == 2
        assert (read["w"] == state(2)["w"]).all()
        store.save(3, state(3)).result()


def test_a_folder_with_what_is_of_others_gets_the_store(tmp_path):
    remote = f"file://{tmp_path}/far"
    with ckptree.Store(tmp_path / "a", remote=remote) as store:
        store.save(1, state(1))
        store.flush()
        store.wait_replicated(60)
    run = tmp_path / "run"
    (run / "logs").mkdir(parents=True)
    (run / "config.yaml").write_text("lr: 1")
    (run / "latest").symlink_to("/nowhere")
    with ckptree.Store(run, remote=remote) as store:
        assert [info.step for info in store.steps()] == [1]
        assert (store.restore(1)["w"] == state(1)["w"]).all()
        store.save(2, state(2)).result()
    assert (run / "config.yaml").read_text() == "lr: 1"
    assert os.readlink(run / "latest") == "/nowhere"
    with ckptree.open(remote) as there:
        assert [info.step for info in there.steps()] == [1, 2]


def test_it_is_read_by_its_address(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    remote = f"file://{tmp_path}/far"
    options = {"remote": remote, "durable": "remote"}
    with ckptree.Store(tmp_path / "a", **options) as store:
        store.save(7, state(7)).result()
        with ckptree.open(remote) as there:
            assert [info.step for info in there.steps()] == [7]
            assert (there["latest"]["w"][:] == state(7)["w"]).all()


def test_what_goes_with_nothing_is_refused(tmp_path):
    with pytest.raises(ValueError, match="remote"):
        ckptree.Store(tmp_path / "a", durable="remote")
    with pytest.raises(ValueError, match="remote"):
        ckptree.Store(tmp_path / "a", take_over=True)
    for option in ({"remote_timeout": 5}, {"remote_grace": 5}):
        with pytest.raises(ValueError, match="there is none: set remote"):
            ckptree.Store(tmp_path / "a", **option)
    with ckptree.Store(tmp_path / "a") as store:
        with pytest.raises(ckptree.StateError, match="without a remote"):
            store.wait_replicated()
    with pytest.raises(ValueError, match="begins with file"):
        ckptree.Store(tmp_path / "b", remote="gcs://bucket/run")
    for call in (ckptree.Store, ckptree.open, ckptree.CheckpointManager):
        with pytest.raises(ValueError, match="local_keep are of a remote"):
            call(tmp_path / "c", local_keep="latest(1)")
    assert not (tmp_path / "c").exists()


@pytest.mark.parametrize("keep", ["latest(1)", ckptree.Latest(1)])
@pytest.mark.parametrize("make", [ckptree.Store, ckptree.CheckpointManager])
def test_a_disk_that_keeps_some_steps(tmp_path, monkeypatch, make, keep):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    far = tmp_path / "far"
    far.mkdir()
    large = {n: np.random.default_rng(n).bytes(3 << 20) for n in (1, 2)}
    with make(tmp_path / "a", remote=f"file://{far}", local_keep=keep) as run:
        for step, value in large.items():
            run.save(step, {"w": np.frombuffer(value, "u1")})
    with ckptree.open(tmp_path / "a") as store:
        assert store.info().far_nbytes >= 2 << 20
        for step, value in large.items():
            assert store[step]["w"][:].tobytes() == value
        assert store.verify(level="deep").ok
    far.rename(tmp_path / "away")
    with ckptree.open(tmp_path / "a") as store:
        assert store[2]["w"][:].tobytes() == large[2]
        with pytest.raises(ckptree.UnavailableError, match=f"step 1.*{far}"):
            store[1]["w"][:]
        assert [row.name for row in store[1].leaves()] == ["w"]
    (tmp_path / "away").rename(far)
    options = {"remote": f"file://{far}", "local_keep": "all"}
    with ckptree.Store(tmp_path / "a", **options) as store:
        pass
    with ckptree.open(tmp_path / "a") as store:
        assert store.info().far_nbytes == 0


def test_what_a_disk_keeps_is_a_rule_without_functions(tmp_path):
    options = {"remote": f"file://{tmp_path}/far"}

    def mine(step):
        return True

    with pytest.raises(ValueError, match="function 'mine'"):
        ckptree.Store(
            tmp_path / "a", local_keep=ckptree.KeepIf(mine), **options
        )
    with pytest.raises(ValueError, match="remote_grace of 1m"):
        ckptree.Store(
            tmp_path / "a", local_keep="all", remote_grace=5, **options
        )
    assert not (tmp_path / "a").exists()


def test_the_writer_before_is_fenced_by_name(tmp_path):
    options = {"remote": f"file://{tmp_path}/far", "durable": "remote"}
    first = ckptree.Store(tmp_path / "a", **options)
    first.save(1, state(1)).result()
    with pytest.raises(ckptree.StateError, match="may still be training"):
        ckptree.Store(tmp_path / "b", **options)
    with ckptree.Store(tmp_path / "b", take_over=True, **options):
        with pytest.raises(ckptree.StateError, match="took"):
            first.save(2, state(2)).result()
    with pytest.raises(ckptree.StateError):
        first.save(3, state(3)).result()
    with pytest.raises(ckptree.StateError):
        first.close()


def test_credentials_have_a_class_of_their_own(tmp_path, monkeypatch):
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:9")
    with pytest.raises(ckptree.CredentialsError, match="AWS_ACCESS_KEY_ID"):
        ckptree.open("s3://bucket/run")
    with pytest.raises(PermissionError):
        ckptree.Store(tmp_path / "a", remote="s3://bucket/run")


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT"])
def test_who_may_not_read_is_not_told_to_read(method):
    refused = f"{method} run/store at host: 403 AccessDenied: these "
    refused += "credentials may not do that"
    with pytest.raises(ckptree.PermissionDeniedError) as told:
        with while_opening():
            raise ckptree.PermissionDeniedError(refused)
    assert ("ckptree.open()" in str(told.value)) == (method == "PUT")


def test_a_bucket_of_google_is_taken_where_its_endpoint_is_named(
    tmp_path, monkeypatch
):
    address = "gs://bucket/run"
    monkeypatch.delenv("CKPTREE_GS_ENDPOINT", raising=False)
    with pytest.raises(ValueError, match="CKPTREE_GS_ENDPOINT"):
        ckptree.Store(tmp_path / "a", remote=address)
    with pytest.raises(ValueError, match="'gs'.*CKPTREE_GS_ENDPOINT"):
        ckptree.open(address)
    monkeypatch.setenv("CKPTREE_GS_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    for name in ("GS_ACCESS_KEY_ID", "GS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name, raising=False)
    for call in (
        lambda: ckptree.open(address),
        lambda: ckptree.Store(tmp_path / "a", remote=address),
    ):
        with pytest.raises(ckptree.CredentialsError, match="GS_ACCESS_KEY_ID"):
            call()
    assert list(tmp_path.iterdir()) == []


def test_what_takes_no_address_says_so(tmp_path):
    for call in (ckptree.Store, ckptree.CheckpointManager):
        with pytest.raises(ckptree.InvalidArgumentError, match="'s3'"):
            call("s3://bucket/run")
    far = f"file://{tmp_path}/far"
    ckptree.Store(tmp_path / "a", remote=far).close()
    with pytest.raises(ckptree.InvalidArgumentError, match="not empty|read"):
        ckptree.Store(far)


def test_a_manager_ships_and_one_reads_by_the_address(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    far = f"file://{tmp_path}/far"
    options = {"remote": far, "durable": "remote", "remote_grace": 0}
    with ckptree.CheckpointManager(
        tmp_path / "a", max_to_keep=2, **options
    ) as manager:
        for step in range(1, 5):
            manager.save(step, state(step))
        manager.wait_until_finished()
        with ckptree.CheckpointManager(far, read_only=True) as there:
            assert there.all_steps() == [3, 4]
            assert (there.restore(4)["w"] == state(4)["w"]).all()
    shutil.rmtree(tmp_path / "a")
    # The next machine, from its empty disk.
    with ckptree.CheckpointManager(
        tmp_path / "b", max_to_keep=2, **options
    ) as manager:
        assert manager.latest_step() == 4
        manager.save(5, state(5))
        manager.wait_until_finished()
        assert manager.all_steps() == [4, 5]


def test_ranks_ship_what_they_save(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    far = f"file://{tmp_path}/far"
    ranks = ckptree.Ranks(0, 1, job="one")
    with ckptree.Store(
        tmp_path / "a", ranks=ranks, remote=far, durable="remote"
    ) as store:
        store.save(1, state(1)).result()
        with ckptree.open(far) as there:
            assert (there[1]["w"][:] == state(1)["w"]).all()


@pytest.mark.parametrize("how", ["open", "make"])
def test_ctrl_c_ends_the_wait_for_an_object_store(tmp_path, how):
    """Of which standard error has said before that it is waited for."""
    # Nobody listens there.
    with socket.create_server(("127.0.0.1", 0)) as once:
        port = once.getsockname()[1]
    code = (
        "ckptree.open('s3://bucket/run')"
        if how == "open"
        else f"ckptree.Store({str(tmp_path / 'a')!r}, remote='s3://bucket/run')"
    )
    # A test that runs in the background has it ignored.
    code = (
        "import signal, ckptree;"
        "signal.signal(signal.SIGINT, signal.default_int_handler);" + code
    )
    environment = os.environ | {
        "AWS_ENDPOINT_URL_S3": f"http://127.0.0.1:{port}",
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_EC2_METADATA_DISABLED": "true",
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
    }
    with subprocess.Popen(
        [sys.executable, "-c", code],
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    ) as process:
        said = process.stderr.readline()
        process.send_signal(signal.SIGINT)
        said_then = process.stderr.read()
        process.wait(timeout=120)
    assert "s3://bucket/run is waited for: " in said
    assert "KeyboardInterrupt" in said_then
    assert "Error: " not in said_then


def test_what_is_not_there_yet_is_told(tmp_path):
    remote = f"file://{tmp_path}/far"
    with ckptree.Store(tmp_path / "a", remote=remote) as store:
        store.save(1, state(1)).result()
        store.wait_replicated(60)
        info = store.info()
        assert (info.remote, info.unshipped) == (remote, 0)
    with ckptree.open(tmp_path / "a") as store:
        assert (store.info().remote, store.info().unshipped) == ("", 0)
        assert store.info().shipped_to == remote
    with ckptree.open(remote) as store:
        assert (store.info().remote, store.info().shipped_to) == (remote, "")
