# SPDX-License-Identifier: Apache-2.0
"""Trainings that are spread in two ways, by FSDP and by tensor parallelism,
over a store by PyTorch's Distributed Checkpoint: saved by four processes, and
loaded by other numbers of them, onto other meshes."""

import ckptree
import pytest

torch = pytest.importorskip(
    "torch", reason="PyTorch could not be installed: see requirements_torch.txt"
)

import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from ckptree.torch.dcp import StoreReader, StoreWriter
from torch.distributed.checkpoint.state_dict import (
    get_state_dict,
    set_state_dict,
)
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)
from torch_ranks import run

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.up = torch.nn.Linear(6, 16)
        self.down = torch.nn.Linear(16, 6)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(x)))


def made(data, tensor):
    """A model over data x tensor processes; plain, of one."""
    torch.manual_seed(3)
    model = torch.nn.Sequential(Block(), Block())
    if data * tensor > 1:
        mesh = init_device_mesh(
            "cpu", (data, tensor), mesh_dim_names=("dp", "tp")
        )
        for block in model:
            if tensor > 1:
                plan = {"up": ColwiseParallel(), "down": RowwiseParallel()}
                parallelize_module(block, mesh["tp"], plan)
            if data > 1:
                fully_shard(block, mesh=mesh["dp"])
        if data > 1:
            fully_shard(model, mesh=mesh["dp"])
    return model, torch.optim.AdamW(model.parameters(), lr=0.1)


def train(model, optimizer, steps):
    generator = torch.Generator().manual_seed(steps)
    for _ in range(steps):
        x = torch.randn(4, 6, generator=generator)
        loss = (model(x) - 1).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def full(state, prefix=""):
    """Whole tensors by name, on every rank."""
    for key, value in state.items():
        name = f"{prefix}{key}"
        if isinstance(value, dict):
            yield from full(value, name + "/")
        elif isinstance(value, torch.Tensor):
            if isinstance(value, DTensor):
                value = value.full_tensor()
            yield name, value.detach().numpy().tobytes()


def state_of(model, optimizer):
    weights, moments = get_state_dict(model, optimizer)
    return {"model": weights, "optim": moments}


def save(rank, folder):
    model, optimizer = made(2, 2)
    train(model, optimizer, 2)
    state = state_of(model, optimizer)
    expected = dict(full(state))
    with StoreWriter(folder / "run") as writer:
        dcp.save(state, checkpoint_id=2, storage_writer=writer)
    return expected


def load(rank, folder, data, tensor):
    model, optimizer = made(data, tensor)
    state = state_of(model, optimizer)
    with StoreReader(folder / "run") as reader:
        dcp.load(state, checkpoint_id=2, storage_reader=reader)
    set_state_dict(
        model,
        optimizer,
        model_state_dict=state["model"],
        optim_state_dict=state["optim"],
    )
    return dict(full(state_of(model, optimizer)))


def test_fsdp_and_tensor_parallelism_onto_other_meshes(tmp_path):
    expected, *others = run(tmp_path, 4, save, tmp_path)
    assert len(expected) == 8 * 4  # Weights, two moments, counts of steps.
    assert all(other == expected for other in others)
    for data, tensor in ((1, 2), (4, 2)):
        world = data * tensor
        found = run(tmp_path, world, load, tmp_path, data, tensor)
        assert found == [expected] * world
    assert load(0, tmp_path, 1, 1) == expected
    with ckptree.open(tmp_path / "run") as store:
        weight = store[2]["model/0.up.weight"].torch()
        assert weight.numpy().tobytes() == expected["model/0.up.weight"]
        assert store.verify("deep").ok
    assert not dist.is_initialized()
