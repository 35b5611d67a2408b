# SPDX-License-Identifier: Apache-2.0
"""PyTorch's Distributed Checkpoint over a store that ships, and by its
address."""

import shutil

import ckptree
import pytest

torch = pytest.importorskip(
    "torch", reason="PyTorch could not be installed: see requirements_torch.txt"
)

import torch.distributed.checkpoint as dcp
from ckptree.torch.dcp import StoreReader, StoreWriter

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")


def state(step):
    return {"w": torch.full((300, 300), float(step)), "step": step}


def loaded(reader, step):
    found = {"w": torch.zeros(300, 300), "step": 0}
    dcp.load(found, checkpoint_id=step, storage_reader=reader)
    assert torch.equal(found["w"], state(step)["w"])
    return found["step"]


def test_it_is_saved_with_a_remote_and_loaded_by_its_address(
    tmp_path, monkeypatch
):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    far = f"file://{tmp_path}/far"
    options = {"remote": far, "durable": "remote"}
    with ckptree.Store(tmp_path / "a", **options) as store:
        writer = StoreWriter(store)
        for step in (1, 2):
            dcp.save(state(step), checkpoint_id=step, storage_writer=writer)
        with StoreReader(far) as reader:
            assert loaded(reader, 1) == 1
            assert loaded(reader, 2) == 2
            # A reader that is open sees what was saved since.
            dcp.save(state(3), checkpoint_id=3, storage_writer=writer)
            assert loaded(reader, 3) == 3
    shutil.rmtree(tmp_path / "a")
    with ckptree.Store(tmp_path / "b", **options) as store:
        assert loaded(StoreReader(store), 3) == 3
        dcp.save(state(4), checkpoint_id=4, storage_writer=StoreWriter(store))
    with StoreReader(far) as reader:
        assert loaded(reader, 4) == 4


def test_a_writer_takes_no_address():
    with pytest.raises(ckptree.InvalidArgumentError, match="'s3'"):
        StoreWriter("s3://bucket/run")
