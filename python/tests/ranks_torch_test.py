# SPDX-License-Identifier: Apache-2.0
"""Processes of torch.distributed as ranks: they agree on the name of a job."""

import ckptree
import pytest
from program import RANK, run_ranks

pytest.importorskip(
    "torch", reason="PyTorch could not be installed: see requirements_torch.txt"
)

BEGIN = RANK + """
import torch, torch.distributed as dist
"""
START = """
dist.init_process_group(
    "gloo", init_method="file://" + rest[0], rank=rank, world_size=world
)
"""


def test_they_save_one_step(tmp_path):
    code = START + """
first, second = ckptree.Ranks.torch(), ckptree.Ranks.torch()
say(first.job, second.job, first.rank, first.world)
with ckptree.Store(path, ranks=first) as store:
    state = {"w": torch.arange(6.0), "rng": {str(rank): torch.tensor(rank)}}
    say(store.save(1, state, per_rank=["rng"]).result())
dist.destroy_process_group()
"""
    said = run_ranks(code, 2, tmp_path / "s", tmp_path / "meet", begin=BEGIN)
    (job, other, rank, world), saved = said[1]
    assert said[0][0] == [job, other, 0, 2]
    assert (rank, world, saved) == (1, 2, [1])
    assert job != other
    with ckptree.open(tmp_path / "s") as reader:
        found = reader.restore(1)
    assert found["w"].tolist() == [0, 1, 2, 3, 4, 5]
    assert {k: int(v) for k, v in found["rng"].items()} == {"0": 0, "1": 1}


def test_a_process_outside_of_the_group_is_refused(tmp_path):
    code = START + """
one = dist.new_group([1])
say(*caught(lambda: ckptree.Ranks.torch(group=one).world))
dist.barrier()
dist.destroy_process_group()
"""
    said = run_ranks(code, 2, tmp_path / "s", tmp_path / "meet", begin=BEGIN)
    kind, message = said[0][0]
    assert kind == "InvalidArgumentError" and "group" in message
    assert said[1] == [["no error", "1"]]


def test_one_process_alone(tmp_path):
    ranks = ckptree.Ranks.torch()
    assert (ranks.rank, ranks.world) == (0, 1)
