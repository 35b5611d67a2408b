# SPDX-License-Identifier: Apache-2.0
"""Which step a dcp.save() is: each says its own, and all ranks the same."""

import ckptree
import pytest

torch = pytest.importorskip(
    "torch", reason="PyTorch could not be installed: see requirements_torch.txt"
)

import torch.distributed.checkpoint as dcp
from ckptree.torch.dcp import StoreWriter
from torch_ranks import run

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")


def refused(state, step, writer):
    """What dcp.save() raised."""
    try:
        dcp.save(state, checkpoint_id=step, storage_writer=writer)
    except BaseException as error:
        return str(error)
    return "it was saved"


def ones(factor):
    return {"w": torch.ones(2) * factor}


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_step_is_of_one_save(tmp_path, overwrite):
    with StoreWriter(tmp_path / "run", overwrite=overwrite) as writer:
        dcp.save(ones(1), checkpoint_id=100, storage_writer=writer)
        assert "which step?" in refused(ones(2), None, writer)
        # Neither has one that came to nothing.
        with pytest.raises(ckptree.InvalidArgumentError):
            writer.reset("epoch")
        assert "which step?" in refused(ones(2), None, writer)
        dcp.save(ones(3), checkpoint_id=101, storage_writer=writer)
    with ckptree.open(tmp_path / "run") as store:
        assert {n: store[n].torch()["w"].tolist() for n in store} == {
            100: [1, 1],
            101: [3, 3],
        }


def test_a_closed_writer_says_so(tmp_path):
    with StoreWriter(tmp_path / "run") as writer:
        dcp.save(ones(1), checkpoint_id=1, storage_writer=writer)
    assert "was closed: make another one" in refused(ones(2), 2, writer)
    with ckptree.Store(tmp_path / "run") as store:  # Nobody holds it.
        assert list(store) == [1]


def other_steps(rank, path):
    with StoreWriter(path, overwrite=True, deadline=20) as writer:
        dcp.save(ones(1), checkpoint_id=7, storage_writer=writer)
        said = [
            refused(ones(2), 8 + rank, writer),
            refused(ones(2), None, writer),
            refused(ones(2), None if rank == 1 else 9, writer),
        ]
        dcp.save(ones(3), checkpoint_id=10, storage_writer=writer)
    return said


def test_all_ranks_save_the_same_step(tmp_path):
    for said in run(tmp_path, 2, other_steps, tmp_path / "run"):
        assert "checkpoint_id=9 on rank 1, and 8 on rank 0" in said[0]
        assert "which step?" in said[1] and "which step?" in said[2]
    with ckptree.open(tmp_path / "run") as store:
        assert {n: store[n].torch()["w"].tolist() for n in store} == {
            7: [1, 1],
            10: [3, 3],
        }
