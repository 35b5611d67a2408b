# SPDX-License-Identifier: Apache-2.0
"""PyTorch's Distributed Checkpoint loads what others than it saved: what it
would have loaded of its own files of the same state."""

import collections

import ckptree
import ckptree.torch
import pytest

torch = pytest.importorskip(
    "torch",
    reason="PyTorch could not be installed: see requirements_torch.txt",
)

import torch.distributed.checkpoint as dcp
from ckptree.torch.dcp import StoreReader
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard, distribute_tensor
from torch.optim import lr_scheduler
from torch_ranks import run

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")

Ordered = collections.OrderedDict


def net(seed):
    torch.manual_seed(seed)
    return torch.nn.Sequential(
        torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3), torch.nn.Linear(3, 2)
    )


def schedule(steps):
    model = net(0)
    optimizer = torch.optim.Adam(model.parameters())
    made = lr_scheduler.MultiStepLR(optimizer, [2, 30])
    for _ in range(steps):
        model(torch.ones(2, 4)).sum().backward()
        optimizer.step()
        made.step()
    return {"optim": optimizer.state_dict(), "lr": made.state_dict()}


STATES = {
    "a model": lambda n: {"model": net(n).state_dict()},
    "a model alone": lambda n: net(n).state_dict(),
    "an optimizer and a Counter": schedule,
    "dicts in dicts": lambda n: Ordered(
        a=Ordered(b=Ordered(c=torch.ones(2) * n), d=n),
        g=collections.Counter(h=n),
    ),
    "a defaultdict": lambda n: {
        "e": collections.defaultdict(list, {"f": [n, n]})
    },
    "lists": lambda n: {
        "of dicts": [Ordered(a=n), Ordered(b=torch.ones(1) * n), n],
        "plain": [n, [n]],
        "tuple": (n, {"a": n}),
    },
    "what is empty": lambda n: {
        "dict": {},
        "ordered": Ordered(),
        "inner": {"a": {}, "b": n},
        "plain": {"a": n},
        "list": [],
    },
}


def bits(value):
    """With types and order, but for that of keys."""
    if isinstance(value, torch.Tensor):
        return str(value.dtype), value.tolist()
    if isinstance(value, dict):
        below = sorted((repr(k), bits(v)) for k, v in value.items())
        return type(value).__name__, below
    if isinstance(value, (list, tuple)):
        return type(value).__name__, list(map(bits, value))
    return value


def native(path, state):
    with ckptree.Store(path / "run") as store:
        store.save(1, state).result()


def app(path, state):
    with ckptree.Store(path / "run") as store:
        ckptree.torch.save(store, 1, dict(state)).result()


def imported(path, state):
    state = {
        key: dict(v) if type(v) is collections.defaultdict else v
        for key, v in state.items()
    }  # Which no file of torch.save() may have.
    torch.save(state, path / "state-1.pt")
    with ckptree.Store(path / "run") as store:
        ckptree.torch.import_checkpoint(store, path / "state-1.pt")


@pytest.mark.parametrize("saved", [native, app, imported])
@pytest.mark.parametrize("kind", list(STATES))
def test_what_a_store_saved_is_loaded_as_files_of_dcp(tmp_path, saved, kind):
    state = STATES[kind](7)
    saved(tmp_path, state)
    dcp.save(state, checkpoint_id=tmp_path / "files")
    ours, theirs = STATES[kind](1), STATES[kind](1)
    with StoreReader(tmp_path / "run") as reader:
        dcp.load(ours, checkpoint_id=1, storage_reader=reader)
        names = set(reader.read_metadata().state_dict_metadata)
    dcp.load(theirs, checkpoint_id=tmp_path / "files")
    assert bits(ours) == bits(theirs)
    files = dcp.FileSystemReader(tmp_path / "files").read_metadata()
    assert names == set(files.state_dict_metadata)


Pair = collections.namedtuple("Pair", "a b")


@pytest.mark.parametrize("saved", [native, app])
def test_named_tuples_are_loaded_as_such(tmp_path, saved):
    state = {"w": torch.ones(3), "p": Pair(torch.zeros(2), (Pair(1, 2), None))}
    saved(tmp_path, state)
    loaded = {"w": torch.zeros(3), "p": Pair(torch.ones(2), (Pair(0, 0), None))}
    with StoreReader(tmp_path / "run") as reader:
        dcp.load(loaded, checkpoint_id=1, storage_reader=reader)
    assert bits(loaded["w"]) == bits(state["w"])
    assert loaded["p"].a.tolist() == [0, 0]
    assert loaded["p"].b == state["p"].b and loaded["p"].b[0].a == 1


TARGETS = {
    "windows": (torch.zeros(5).unfold(0, 3, 1), "one in memory"),
    "rows": (torch.zeros(1, 3).expand(3, 3), "one in memory"),
    "freed": (torch.zeros(3, 3).T, "freed"),
}


@pytest.mark.parametrize("kind", TARGETS)
def test_memory_that_cannot_be_read_into_is_refused(tmp_path, kind):
    native(tmp_path, {"w": torch.ones(3, 3)})
    target, why = TARGETS[kind]
    if kind == "freed":
        target.untyped_storage().resize_(8)
    with StoreReader(tmp_path / "run") as reader:
        with pytest.raises(BaseException, match=f"w: .*{why}") as raised:
            dcp.load({"w": target}, checkpoint_id=1, storage_reader=reader)
    assert type(raised.value).__name__ == "CheckpointException"
    assert target.untyped_storage().tolist() == [0] * (
        target.untyped_storage().nbytes()
    )


def test_backward_of_what_was_computed_before_is_an_error(tmp_path):
    native(tmp_path, {"w": torch.ones(3)})
    w, x = torch.zeros(3), torch.ones(3, requires_grad=True)
    loss = (w * x).sum()
    with StoreReader(tmp_path / "run") as reader:
        dcp.load({"w": w}, checkpoint_id=1, storage_reader=reader)
    assert w.tolist() == [1, 1, 1]
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def spread(rank, path):
    mesh = init_device_mesh("cpu", (2,))
    state = net(1).state_dict()
    for name, value in state.items():
        if value.dim() == 2:
            state[name] = distribute_tensor(value, mesh, [Shard(0)])
    with StoreReader(path / "run") as reader:
        loaded = {"model": state}
        dcp.load(loaded, checkpoint_id=1, storage_reader=reader)
    return {
        name: bits(v.full_tensor() if isinstance(v, DTensor) else v)
        for name, v in loaded["model"].items()
    }


def test_ranks_load_the_state_dict_of_one_process(tmp_path):
    state = net(7).state_dict()
    native(tmp_path, {"model": state})
    for found in run(tmp_path, 2, spread, tmp_path):
        assert found == {name: bits(v) for name, v in state.items()}
