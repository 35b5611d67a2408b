# SPDX-License-Identifier: Apache-2.0
"""PyTorch's checkpoints and an object store that goes away in the middle: the
call says so, nothing is half there, and the next one works."""

import ckptree
import pytest
from s3_server import Folder, served

torch = pytest.importorskip(
    "torch", reason="PyTorch could not be installed: see requirements_torch.txt"
)

import ckptree.torch
import torch.distributed.checkpoint as dcp
from ckptree.torch.dcp import StoreReader, StoreWriter
from torch.distributed.checkpoint.api import CheckpointException

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture(params=["file", "s3"])
def far(request, tmp_path):
    """What can be taken away, and an address there."""
    if request.param == "file":
        folder = Folder(tmp_path / "far")
        yield folder, folder.address
    else:
        with served() as server:
            yield server, f"{server.address}/{tmp_path.name}"


def state(step):
    w = torch.arange(1_000_000, dtype=torch.float32)
    return {"w": w + step, "step": step}


def empty():
    return {"w": torch.zeros(1_000_000), "step": 0}


def same(found, step):
    return found["step"] == step and torch.equal(found["w"], state(step)["w"])


def steps_at(address):
    with ckptree.open(address) as store:
        assert store.verify("deep").ok
        return list(store)


def test_a_save_while_it_is_away_fails_by_name(tmp_path, far):
    server, address = far
    options = {"remote": address, "durable": "remote", "remote_timeout": 1}
    with ckptree.Store(tmp_path / "run", **options) as store:
        writer = StoreWriter(store)
        dcp.save(state(1), checkpoint_id=1, storage_writer=writer)
        server.stop()
        with pytest.raises(CheckpointException, match=address):
            dcp.save(state(2), checkpoint_id=2, storage_writer=writer)
        with pytest.raises(ckptree.Error, match=address):
            store.save(3, state(3)).result()
        server.start()
        store.wait_replicated(60)
        dcp.save(state(4), checkpoint_id=4, storage_writer=writer)
        writer.close()
    # What the directory had by then came along, whole.
    assert steps_at(address) == [1, 2, 3, 4]
    found = empty()
    with StoreReader(address) as reader:
        dcp.load(found, checkpoint_id=2, storage_reader=reader)
    assert same(found, 2)


def test_a_load_while_a_share_is_away_fails_by_name(tmp_path):
    server = Folder(tmp_path / "far")
    options = {"remote": server.address, "durable": "remote"}
    with ckptree.Store(tmp_path / "run", **options) as store:
        for step in (1, 2):
            store.save(step, state(step)).result()
    with (
        StoreReader(server.address) as reader,
        ckptree.open(server.address) as store,
    ):
        found = empty()
        dcp.load(found, checkpoint_id=1, storage_reader=reader)
        assert same(found, 1)
        step = store[2]
        server.stop()
        match = "is its file system mounted"
        with pytest.raises(CheckpointException, match=match):
            dcp.load(found, checkpoint_id=2, storage_reader=reader)
        assert same(found, 1)
        with pytest.raises(ckptree.UnavailableError, match="mounted"):
            ckptree.torch.load(step, found)
        # Nobody has made one in its place.
        assert not (tmp_path / "far").exists()
        server.start()
        dcp.load(found, checkpoint_id=2, storage_reader=reader)
        assert same(found, 2)
        found = empty()
        ckptree.torch.load(step, found)
        assert same(found, 2)
