# SPDX-License-Identifier: Apache-2.0
"""PyTorch's Distributed Checkpoint by several processes, and an address of an
object store: they share the folder of a store that ships; what needs none is
refused."""

import shutil

import ckptree
import pytest

torch = pytest.importorskip(
    "torch", reason="PyTorch could not be installed: see requirements_torch.txt"
)

import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from ckptree.torch.dcp import StoreReader, StoreWriter
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor
from torch_ranks import run

ROWS = torch.arange(64 * 300, dtype=torch.float32).reshape(64, 300)


def state(step):
    """Rows that are spread over the processes, and a number of each."""
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    return {"w": distribute_tensor(ROWS * step, mesh, [Shard(0)]), "step": step}


def loaded(reader, step):
    found = state(0)
    dcp.load(found, checkpoint_id=step, storage_reader=reader)
    mine = state(step)["w"].to_local()
    return found["step"], torch.equal(found["w"].to_local(), mine)


def saves(rank, folder, address):
    options = {"remote": address, "durable": "remote"}
    store = None
    if rank == 0:
        store = ckptree.Store(folder / "run", **options)
    dist.barrier()
    writer = StoreWriter(folder / "run" if store is None else store)
    for step in (1, 2):
        dcp.save(state(step), checkpoint_id=step, storage_writer=writer)
    with StoreReader(address) as reader:
        found = [loaded(reader, 1), loaded(reader, 2)]
    writer.close()
    if store is not None:
        store.close()
    return found


def loads(rank, address):
    with StoreReader(address) as reader:
        return [loaded(reader, 1), loaded(reader, 2)]


def test_a_folder_that_ships_is_saved_to_and_loaded_by_its_address(
    tmp_path, monkeypatch
):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "ranks").mkdir()
    address = f"file://{tmp_path}/far"
    wanted = [(1, True), (2, True)]
    found = run(tmp_path / "ranks", 2, saves, tmp_path, address)
    assert found == [wanted, wanted]
    # Machines that have the address alone, and of another number.
    shutil.rmtree(tmp_path / "run")
    shutil.rmtree(tmp_path / "cache")
    for world in (1, 2):
        found = run(tmp_path / "ranks", world, loads, address)
        assert found == [wanted] * world
    with ckptree.open(address) as store:
        assert [part.rank for part in store[2].metadata.parts] == [0, 1]
        assert store.verify("deep").ok


def refused(rank, folder, address):
    """What each process is told where it makes its writer."""
    ranks = ckptree.Ranks.torch(
        deadline=60, open_deadline=60, shared_folder=False
    )
    options = {"remote": address, "durable": "remote"}
    with ckptree.Store(
        folder / f"disk{rank}", ranks=ranks, **options
    ) as store:
        with pytest.raises(ckptree.UnsupportedError, match="share no folder"):
            StoreWriter(store)
        # What was said works all the same.
        saved = {"w": torch.ones(3)}
        store.save(1, saved).result(timeout=60)
    with (
        ckptree.open(address) as store,
        pytest.raises(ckptree.InvalidArgumentError, match="by its address"),
    ):
        StoreWriter(store)
    with pytest.raises(ckptree.InvalidArgumentError, match="'s3'"):
        StoreWriter("s3://bucket/run")
    return "told"


def test_what_needs_no_folder_is_refused_at_the_call(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "ranks").mkdir()
    address = f"file://{tmp_path}/far"
    found = run(tmp_path / "ranks", 2, refused, tmp_path, address)
    assert found == ["told", "told"]
