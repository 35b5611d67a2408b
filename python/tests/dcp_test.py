# SPDX-License-Identifier: Apache-2.0
"""PyTorch's Distributed Checkpoint over a store, beside its own files: the same
bytes, of one process and of many, whoever of them is lost."""

import io
import os
import pathlib
import signal

import ckptree
import pytest
from again import again

torch = pytest.importorskip(
    "torch", reason="PyTorch could not be installed: see requirements_torch.txt"
)

import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from ckptree import _engine
from ckptree.torch import _dcp_items
from ckptree.torch.dcp import StoreReader, StoreWriter
from torch.distributed._shard import sharded_tensor
from torch.distributed._shard.sharding_spec import (
    EnumerableShardingSpec,
    ShardMetadata,
)
from torch.distributed.checkpoint.default_planner import (
    DefaultLoadPlanner,
    DefaultSavePlanner,
)
from torch.distributed.checkpoint.state_dict import (
    get_state_dict,
    set_state_dict,
)
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import (
    DTensor,
    Replicate,
    Shard,
    distribute_tensor,
)
from torch_ranks import run

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")

UNEVEN = 7  # Rows: of eight ranks the last has none, of four it has one.


def bits(value):
    if not isinstance(value, torch.Tensor):
        return repr(value)
    local = value.to_local() if isinstance(value, DTensor) else value
    flat = local.detach().contiguous().reshape(-1).view(torch.uint8)
    return str(value.dtype), tuple(value.shape), flat.numpy().tobytes()


def flat(state, prefix=()):
    if isinstance(state, dict) and state:
        for key, value in state.items():
            yield from flat(value, (*prefix, str(key)))
    elif isinstance(state, list):
        for i, value in enumerate(state):
            yield from flat(value, (*prefix, i))
    else:
        yield prefix, bits(state)


def blank(value):
    if isinstance(value, DTensor):
        return DTensor.from_local(
            torch.zeros_like(value.to_local()),
            value.device_mesh,
            value.placements,
            shape=value.shape,
            stride=value.stride(),
        )
    if isinstance(value, torch.Tensor):
        return torch.zeros_like(value)
    if isinstance(value, dict):
        return {key: blank(v) for key, v in value.items()}
    if isinstance(value, list) and any(
        isinstance(v, (torch.Tensor, dict)) for v in value
    ):
        return [blank(v) for v in value]
    return None


def spread(rank=0, world=1):
    """A state of every kind of entry; of one process without meshes."""
    generator = torch.Generator().manual_seed(5)

    def random(*shape, dtype=torch.float32):
        return torch.randn(*shape, generator=generator).to(dtype)

    rows = random(UNEVEN, 3)
    square = random(8, 6, dtype=torch.bfloat16)
    same, grid, half = random(5), random(6, 10), random(9)
    if dist.is_initialized():
        mesh = init_device_mesh("cpu", (world,))
        rows = distribute_tensor(rows, mesh, [Shard(0)])
        square = distribute_tensor(square, mesh, [Shard(1)])
        same = distribute_tensor(same, mesh, [Replicate()])
        across = 2 if world > 2 else 1
        plane = init_device_mesh("cpu", (across, world // across))
        grid = distribute_tensor(grid, plane, [Shard(0), Shard(1)])
        half = distribute_tensor(half, plane, [Replicate(), Shard(0)])
    return {
        "model": {"layers.0.rows": rows, "layers.0.square": square},
        "same": same,
        "plane": {"grid": grid, "half": half},
        "plain": random(3, 2, dtype=torch.float64),
        "zero": torch.zeros(0, 3),
        "scalar": torch.tensor(2.5),
        "groups": [{"lr": 0.5, "betas": (0.9, 0.99)}, random(2)],
        "epoch": 3,
        "name": "run",
        "nothing": None,
        "empty": {},
        "list": [1, "a", [2.5]],
        "bytes": b"\0\xff",
        "dtype": torch.float16,
    }


def save_both(rank, folder, world):
    state = spread(rank, world)
    with StoreWriter(folder / "run") as writer:
        dcp.save(state, checkpoint_id=1, storage_writer=writer)
    dcp.save(state, checkpoint_id=folder / "files")
    return load_both(rank, folder, world)


def load_both(rank, folder, world):
    """What this rank has of both, and what it should have."""
    state = spread(rank, world)
    ours, theirs = blank(state), blank(state)
    with StoreReader(folder / "run") as reader:
        dcp.load(ours, checkpoint_id=1, storage_reader=reader)
    dcp.load(theirs, checkpoint_id=folder / "files")
    return [list(flat(s)) for s in (state, ours, theirs)]


def check_both(found, world):
    assert len(found) == world
    for state, ours, theirs in found:
        assert len(state) == 20
        assert ours == theirs == state


@pytest.mark.parametrize("world", [again(1), 2, again(4)])
def test_it_is_what_pytorchs_own_files_give(tmp_path, world):
    check_both(run(tmp_path, world, save_both, tmp_path, world), world)
    with ckptree.open(tmp_path / "run") as store:
        whole = store[1].torch()
        assert store.verify("deep").ok
    # By another way: no DCP, no processes.
    expected = spread()
    for name in ("rows", "square"):
        key = f"layers.0.{name}"
        assert bits(whole["model"][key]) == bits(expected["model"][key])
    for name in ("grid", "half"):
        assert bits(whole["plane"][name]) == bits(expected["plane"][name])
    assert bits(whole["same"]) == bits(expected["same"])
    assert whole["groups"][0]["betas"] == (0.9, 0.99)
    if world < 4:
        return
    for other in (2, 8):
        check_both(run(tmp_path, other, load_both, tmp_path, other), other)
    check_both([load_both(0, tmp_path, 1)], 1)


def sharded(rank, folder):
    """A tensor of three shards, two of them of one rank, into two others."""

    def made(*rows):
        starts = [sum(count for count, _ in rows[:i]) for i in range(len(rows))]
        spec = EnumerableShardingSpec(
            [
                ShardMetadata([start, 0], [count, 4], f"rank:{owner}/cpu")
                for start, (count, owner) in zip(starts, rows)
            ]
        )
        return sharded_tensor.zeros(spec, 10, 4)

    tensor, other = made((2, 0), (1, 1), (7, 0)), made((8, 1), (2, 0))
    for shard in tensor.local_shards():
        shard.tensor += shard.metadata.shard_offsets[0] + 1
    with StoreWriter(folder / "run") as writer:
        dcp.save({"w": tensor}, checkpoint_id=1, storage_writer=writer)
    with StoreReader(folder / "run") as reader:
        dcp.load({"w": other}, storage_reader=reader)
    return [shard.tensor[:, 0].tolist() for shard in other.local_shards()]


def test_a_rank_may_have_many_shards_of_a_tensor(tmp_path):
    found = run(tmp_path, 2, sharded, tmp_path)
    assert found == [[[4, 4]], [[1, 1, 3, 4, 4, 4, 4, 4]]]


# ---- FSDP2 ----


def trained(world):
    torch.manual_seed(3)
    model = torch.nn.Sequential(
        torch.nn.Linear(6, 16), torch.nn.ReLU(), torch.nn.Linear(16, 2)
    )
    mesh = init_device_mesh("cpu", (world,))
    for layer in (model[0], model[2]):
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model, torch.optim.AdamW(model.parameters(), lr=0.1)


def losses(model, optimizer, first, last):
    found = []
    for step in range(first, last):
        generator = torch.Generator().manual_seed(step)
        x = torch.randn(4, 6, generator=generator)
        loss = (model(x) - x[:, :2]).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        found.append(loss.item())
    return found


def fsdp(rank, folder, world):
    model, optimizer = trained(world)
    before = losses(model, optimizer, 0, 3)
    weights, moments = get_state_dict(model, optimizer)
    with StoreWriter(folder / "fsdp") as writer:
        dcp.save(
            {"model": weights, "optim": moments},
            checkpoint_id=3,
            storage_writer=writer,
        )
    unbroken = losses(model, optimizer, 3, 6)
    model, optimizer = trained(world)
    weights, moments = get_state_dict(model, optimizer)
    state = {"model": weights, "optim": moments}
    with StoreReader(folder / "fsdp") as reader:
        dcp.load(state, storage_reader=reader)
    set_state_dict(
        model,
        optimizer,
        model_state_dict=state["model"],
        optim_state_dict=state["optim"],
    )
    return before, unbroken, losses(model, optimizer, 3, 6)


def test_fsdp_goes_on_where_it_was(tmp_path):
    for before, unbroken, resumed in run(tmp_path, 2, fsdp, tmp_path, 2):
        assert len({*before, *unbroken}) == 6
        assert resumed == unbroken
    with ckptree.open(tmp_path / "fsdp") as store:
        assert store["latest"]["model/0.weight"].shape == (16, 6)
        assert "optim/state/0.weight/exp_avg" in store["latest"]


# ---- Ranks that fail ----


class Failing(DefaultSavePlanner):
    """One rank does not write its part."""

    def __init__(self, fail):
        super().__init__()
        self.fail = fail

    def finish_plan(self, new_plan):
        self.fail()
        return super().finish_plan(new_plan)


def kill():
    os.kill(os.getpid(), signal.SIGKILL)


def refuse():
    raise RuntimeError("this rank cannot")


def failing(rank, folder, world, fails, how):
    """Three saves, the second without rank `fails`; then one of rank 0 alone,
    of the same writer."""
    state = spread(rank, world)
    writer = StoreWriter(folder / "run")
    dcp.save(state, checkpoint_id=1, storage_writer=writer)
    planner = Failing(how) if rank == fails else DefaultSavePlanner()
    said = ""
    try:
        dcp.save(
            state, checkpoint_id=2, storage_writer=writer, planner=planner
        )
    except BaseException as error:
        said = str(error)
    if how is refuse:
        dcp.save(state, checkpoint_id=3, storage_writer=writer)
    if rank == 0:
        dcp.save(
            {"w": torch.ones(2)},
            checkpoint_id=4,
            storage_writer=writer,
            no_dist=True,
        )
    writer.close()
    return said


@pytest.mark.parametrize("fails", [0, 1])
def test_a_rank_that_raises_fails_the_step_on_all(tmp_path, fails):
    for said in run(tmp_path, 2, failing, tmp_path, 2, fails, refuse):
        assert "this rank cannot" in said
    with ckptree.open(tmp_path / "run") as store:
        assert [step.step for step in store.steps()] == [1, 3, 4]
        assert store.verify("deep").ok
    with ckptree.Store(tmp_path / "run"):
        assert os.listdir(tmp_path / "run" / "staging") == []


def test_a_rank_that_is_killed_leaves_nothing_of_the_step(tmp_path):
    first, *others = run(tmp_path, 4, failing, tmp_path, 4, 2, kill)
    assert first and others[1] == "killed"
    with ckptree.open(tmp_path / "run") as store:
        assert [step.step for step in store.steps()] == [1, 4]
        assert bits(store[1].torch()["plain"]) == bits(spread()["plain"])
        assert store.verify("deep").ok


# ---- Asynchronous ----


def asynchronous(rank, folder, world):
    group = dist.new_group(backend="gloo")
    state = spread(rank, world)
    with StoreWriter(folder / "run") as writer:
        for step in (1, 2):
            state["plain"] += 1
            saved = dcp.async_save(
                state,
                checkpoint_id=step,
                storage_writer=writer,
                process_group=group,
            )
            state["plain"] += 100  # Not in it any more.
            saved.result()
            state["plain"] -= 100
    return None


def test_async_save(tmp_path):
    run(tmp_path, 2, asynchronous, tmp_path, 2)
    with ckptree.open(tmp_path / "run") as store:
        for step in (1, 2):
            found = store[step].torch()
            assert bits(found["plain"]) == bits(spread()["plain"] + step)
        # Each rank knows what it saved last.
        assert store.step_info(2).new_bytes == 6 * 8


def of_the_readme(rank, folder, world):
    state = spread(rank, world)
    text = (pathlib.Path(__file__).parent.parent / "README.md").read_text()
    start = text.index("```python", text.index("<!-- program: dcp -->"))
    program = text[start:].partition("\n")[2].partition("```")[0]
    before = list(flat(state))
    exec(program, {"state": state, "path": folder / "run"})
    return before == list(flat(state))


def test_the_program_of_the_readme_runs(tmp_path):
    assert run(tmp_path, 2, of_the_readme, tmp_path, 2) == [True, True]
    with ckptree.open(tmp_path / "run") as store:
        assert [step.step for step in store.steps()] == [100, 200]


def test_two_tensors_that_are_the_same_memory(tmp_path):
    w = torch.arange(4.0)
    save(tmp_path / "run", 1, {"a": w, "b": w, "c": w[1:]})
    found = load(tmp_path / "run", 1, {k: torch.zeros(4) for k in "ab"})
    assert found["a"].tolist() == found["b"].tolist() == [0, 1, 2, 3]


# ---- One process ----


def save(path, step, state, planner=None, **options):
    with StoreWriter(path, **options) as writer:
        dcp.save(
            state, checkpoint_id=step, storage_writer=writer, planner=planner
        )


def load(path, step, state, planner=None, **options):
    with StoreReader(path, **options) as reader:
        dcp.load(
            state, checkpoint_id=step, storage_reader=reader, planner=planner
        )
    return state


def refused(call):
    """The text of the exception that DCP wraps."""
    with pytest.raises(BaseException) as raised:
        call()
    return str(raised.value)


def test_names_are_paths_and_a_step_is_as_any_other(tmp_path):
    with StoreWriter(tmp_path / "run") as writer:
        writer.describe(metrics={"loss": 0.5}, note="warm", metadata=[1])
        for step in (1, 2):
            dcp.save(spread(), checkpoint_id=step, storage_writer=writer)
    with ckptree.open(tmp_path / "run") as store:
        assert {"model/layers.0.rows", "groups/[0]/lr", "groups/[1]"} <= {
            *store[2]
        }
        assert store["best:loss:min"].step == 1
        assert store.step_info(1).note == "warm"
        assert store[1].metadata.custom == [1]
        assert store.step_info(2).new_bytes == 0
        assert not store[1].diff(store[2]).changed


def test_what_a_store_saved_is_loaded(tmp_path):
    state = {
        "model": {"a.w": torch.arange(6.0).reshape(2, 3)},
        "groups": [{"lr": 0.5}, torch.ones(2)],
        "rate": 0.25,
    }
    with ckptree.Store(tmp_path / "run") as store:
        store.save(1, state).result()
        found = load(store, "latest", blank(state))
    assert list(flat(found)) == list(flat(state))


def test_planners_of_the_users_own(tmp_path):
    class Renamed(DefaultSavePlanner):
        def set_up_planner(self, state_dict, *args, **more):
            renamed = {f"my_{k}": v for k, v in state_dict.items()}
            super().set_up_planner(renamed, *args, **more)

    class Halved(DefaultSavePlanner):
        def transform_object(self, write_item, object):
            made = super().transform_object(write_item, object)
            return made.half() if isinstance(made, torch.Tensor) else made

    state = {"w": torch.ones(2), "n": {"m": [1, torch.ones(1)]}, "x": 5}
    path = tmp_path / "run"
    save(path, 1, state, Renamed())
    assert load(path, 1, {"my_w": torch.zeros(2)})["my_w"].sum() == 2
    save(path, 2, state, Halved())
    halves = load(path, 2, {"w": torch.zeros(2).half(), "x": None})
    assert halves["w"].sum() == 2 and halves["x"] == 5
    as_it_is = {"flatten_state_dict": False}
    save(path, 3, state, DefaultSavePlanner(**as_it_is))
    whole = load(
        path,
        3,
        {"w": torch.zeros(2), "n": None, "x": None},
        DefaultLoadPlanner(**as_it_is, flatten_sharded_tensors=False),
    )
    assert list(flat(whole)) == list(flat(state))


class Unknown:
    pass


def test_what_cannot_be_done_is_refused_by_name(tmp_path):
    path = tmp_path / "run"
    state = {"a": {"w": torch.ones(2)}}
    save(path, 1, state)
    for said, call in {
        "step 1": lambda: save(path, 1, state),
        "a.code: ": lambda: save(path, 2, {"a": {"code": Unknown()}}),
        "sparse": lambda: save(path, 2, {"w": torch.ones(2).to_sparse()}),
        "meta": lambda: save(path, 2, {"w": torch.ones(2, device="meta")}),
        "checkpoint_id is the number": lambda: save(path, "epoch", state),
        "which step?": lambda: save(path, None, state),
        "use_collectives": lambda: dcp.save(
            state,
            checkpoint_id=2,
            storage_writer=StoreWriter(path),
            use_collectives=False,
        ),
        "step 7": lambda: load(path, 7, state),
        "no run": lambda: load(tmp_path / "no run", 7, state),
        "torch.float16": lambda: load(
            path, 1, {"a": {"w": torch.ones(2).half()}}
        ),
    }.items():
        assert said in refused(call), said
    with ckptree.open(path) as store:
        assert len(store.steps()) == 1
    halves = {"a": {"w": torch.zeros(2).half()}}
    assert load(path, 1, halves, cast=True)["a"]["w"].tolist() == [1, 1]


class Harmful:
    """Makes a folder where it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (self.path,)


def test_nothing_of_a_store_is_executed(tmp_path):
    harm = str(tmp_path / "harm")
    stream = io.BytesIO()
    torch.save(Harmful(harm), stream)
    stream.seek(0)
    torch.load(stream, weights_only=False)
    os.rmdir(harm)  # It would.
    saved = _dcp_items.Branch(
        _dcp_items.CUSTOM,
        _dcp_items.SAVED,
        [(_dcp_items.DICT_KEY, "bytes", stream.getvalue())],
    )
    path = tmp_path / "run"
    with ckptree.Store(path) as store:
        root = _dcp_items.Branch(
            _dcp_items.DICT, "", [(_dcp_items.DICT_KEY, "x", saved)]
        )
        _engine.save(
            store._live(), step=1, state=root, rules=_dcp_items.Rules(),
            overwrite=False, delete_later=False, branch="", metrics={},
            note="", metadata="", borrow=False,
        ).wait_committed(60)  # fmt: skip
    assert "weights_only" in refused(lambda: load(path, 1, {"x": None}))
    assert not os.path.exists(harm)
