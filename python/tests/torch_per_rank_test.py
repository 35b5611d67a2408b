# SPDX-License-Identifier: Apache-2.0
"""Apps of several ranks: what all have alike is saved once, and what is a
rank's own is loaded by it."""

import pathlib
import re

import ckptree
import pytest

torch = pytest.importorskip(
    "torch", reason="PyTorch could not be installed: see requirements_torch.txt"
)

import ckptree.torch as trainings
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor
from torch.nn.parallel import DistributedDataParallel
from torch_ranks import run


def of_the_readme(rank, path, steps):
    """What the parameters are, and what this rank would draw next."""
    text = (pathlib.Path(__file__).parent.parent / "README.md").read_text()
    pattern = r"<!-- program: ddp -->\n```python\n(.*?)```"
    (program,) = re.findall(pattern, text, re.S)
    torch.manual_seed(3)
    ddp = DistributedDataParallel(torch.nn.Linear(4, 2))
    optimizer = torch.optim.AdamW(ddp.parameters(), lr=0.1)
    torch.manual_seed(100 + rank)
    calls = []

    def train(model, its):
        its.zero_grad()
        model(torch.randn(8, 4)).square().mean().backward()
        its.step()
        calls.append(1)

    names = {"ddp": ddp, "optimizer": optimizer, "train": train}
    names.update(ckptree=ckptree, rank=rank, path=path, steps=steps)
    exec(program, names)
    drawn = torch.randn(3).tolist()
    weights = [p.detach().numpy().tobytes() for p in ddp.parameters()]
    return weights, drawn, len(calls)


def test_a_training_of_two_ranks_goes_on_bit_by_bit(tmp_path):
    whole = run(tmp_path, 2, of_the_readme, tmp_path / "whole", 4)
    run(tmp_path, 2, of_the_readme, tmp_path / "run", 2)
    resumed = run(tmp_path, 2, of_the_readme, tmp_path / "run", 4)
    for rank in range(2):
        assert resumed[rank][:2] == whole[rank][:2]
        assert (whole[rank][2], resumed[rank][2]) == (4, 2)
    assert whole[0][0] == whole[1][0] and whole[0][1] != whole[1][1]
    with ckptree.open(tmp_path / "run") as store:
        assert list(store) == [0, 1, 2, 3]
        names = list(store[3])
    assert {n.split("/")[1] for n in names if n.startswith("rng")} == {
        "0",
        "1",
    }
    assert sum(n.startswith("model/weight") for n in names) == 1


def own(rank, path):
    app = {"w": torch.ones(3), "mine": {str(rank): {"seen": 10 + rank}}}
    said = []

    def tried(call):
        try:
            call()
        except Exception as error:
            said.append(f"{type(error).__name__}: {error}")

    with ckptree.Store(path, ranks=ckptree.Ranks.torch()) as store:
        trainings.save(store, 1, app, per_rank=["mine"]).result()
        # What is refused is told to all of them.
        bad = {"bad": torch.nn.Linear(2, 2, device="meta")} if rank else {}
        tried(lambda: trainings.save(store, 2, {**app, **bad}).result())

        note = {"note": 7} if rank else {}
        tried(lambda: trainings.save(store, 4, app, per_rank=["mine"], **note)
              .result())

        class Stateful:
            def state_dict(self):
                raise RuntimeError("no state")

            def load_state_dict(self, state):
                pass

        bad = {"bad": Stateful()} if rank else {}
        tried(lambda: trainings.save(store, 3, {**app, **bad}).result())
    dist.barrier()
    with ckptree.open(path) as store:
        into = {"w": torch.zeros(3), "mine": {str(rank): {"seen": 0}}}
        trainings.load(store, into, per_rank=["mine/**"])
        said.append([into["w"].tolist(), into["mine"]])
        first = trainings.resume(store, into, per_rank=["mine"])
        more = {"w": torch.zeros(3), "mine": {"7": {"seen": 0}}}
        tried(lambda: trainings.load(store, more, per_rank=["mine"]))
        tried(
            lambda: trainings.load(
                store, into, per_rank=["mine"], broadcast=True
            )
        )
    return said, first


def test_each_rank_loads_its_own(tmp_path):
    for rank, (said, first) in enumerate(run(tmp_path, 2, own, tmp_path / "s")):
        refused, noted, failed, loaded, differs, both = said
        assert "note is a str, not 7" in noted
        assert loaded == [[1, 1, 1], {str(rank): {"seen": 10 + rank}}]
        assert first == 2
        assert "bad/" in refused and "no state" in failed
        if rank == 0:
            assert "step 2 was not saved: rank 1: " in refused
            assert "step 3 was not saved: rank 1: " in failed
        # What is missing of its own is an error still.
        assert differs.startswith("MismatchError")
        assert "mine/7: missing" in differs and "mine/0" not in differs
        assert both.startswith("InvalidArgumentError: per_rank")
    with ckptree.open(tmp_path / "s") as store:
        assert list(store) == [1]


def shards(rank, path):
    mesh = init_device_mesh("cpu", (1,))
    spread = distribute_tensor(torch.arange(8.0), mesh, [Shard(0)])
    with ckptree.Store(path) as store:
        with pytest.raises(TypeError) as error:
            trainings.save(store, 1, {"x": {"d": spread}})
    return str(error.value)


def test_a_shard_is_sent_to_dcp(tmp_path):
    (said,) = run(tmp_path, 1, shards, tmp_path / "s")
    assert said.startswith("x/d: a DTensor")
    assert said.index("ckptree.torch.dcp.StoreWriter") < said.index("full_")


def test_per_rank_is_of_an_app(tmp_path):
    with ckptree.Store(tmp_path / "s") as store:
        store.save(1, {"w": torch.ones(2)}).result()
        with pytest.raises(ckptree.InvalidArgumentError, match="need an app"):
            trainings.load(store, per_rank=["rng"])
