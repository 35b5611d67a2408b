# SPDX-License-Identifier: Apache-2.0
"""Options of PyTorch's Distributed Checkpoint over a store: plans that their
planner keeps, ways to stage and to write in the background, kinds of values."""

import io

import ckptree
import pytest

torch = pytest.importorskip(
    "torch", reason="PyTorch could not be installed: see requirements_torch.txt"
)

import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from ckptree.torch.dcp import StoreReader, StoreWriter
from torch.distributed.checkpoint.default_planner import DefaultSavePlanner
from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions
from torch.distributed.checkpoint.state_dict_saver import (
    AsyncCheckpointerType,
)
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor
from torch_ranks import run

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")


class Cached(DefaultSavePlanner):
    """Keeps its plans, of this file alone: they are kept by the class."""

    def __init__(self):
        super().__init__(enable_plan_caching=True)


def rows(step):
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    whole = torch.arange(14.0).view(7, 2) + step
    return distribute_tensor(whole, mesh, [Shard(0)])


class Other(Cached):
    """Caches by a name of its own."""


def cached(rank, folder):
    """Four saves that have one plan, one that fails, two of another plan; and
    saves of another state, whose planner caches nothing, between them."""
    said = []
    with StoreWriter(folder / "run") as writer:

        def save(step, state, planner, writer=writer):
            try:
                dcp.save(
                    state,
                    checkpoint_id=step,
                    storage_writer=writer,
                    planner=planner,
                )
            except dcp.CheckpointException as error:
                said.append(str(error))

        for step in (1, 2, 3, 3, 4, 5):
            state = {"w": rows(step), "step": step}
            if step > 3:
                state["v"] = rows(step * 10)
            save(step, state, Cached())
            if step < 3:
                save(10 + step, {"w": rows(0)}, DefaultSavePlanner())
    with StoreWriter(folder / "run") as other:
        save(6, {**state, "w": rows(6)}, Cached(), other)
        save(7, state, Other(), other)
        save(8, state, Other(), other)
    return said


def test_plans_that_the_planner_keeps(tmp_path):
    for again, several in run(tmp_path, 2, cached, tmp_path):
        assert "step 3" in again
        assert "two classes of planners" in several
    with ckptree.open(tmp_path / "run") as store:
        assert [info.step for info in store.steps()] == [
            *range(1, 8),
            *(11, 12),
        ]
        whole = torch.arange(14.0).view(7, 2)
        assert torch.equal(store[12].torch()["w"], whole)
        assert torch.equal(store[6].torch()["w"], whole + 6)
        assert torch.equal(store[6].torch()["v"], whole + 50)
        for step in (1, 2, 3, 4, 5):
            found = store[step].torch()
            assert torch.equal(found["w"], whole + step)
            assert found["step"] == step
            assert ("v" in found) == (step > 3)
            if step > 3:
                assert torch.equal(found["v"], whole + step * 10)
        assert store.verify("deep").ok


def changed_where_it_fails(rank, folder):
    """The plan changes in a save that fails: the next one has to know it."""
    writer = StoreWriter(folder / "run")

    def save(step, state):
        dcp.save(
            state, checkpoint_id=step, storage_writer=writer, planner=Cached()
        )

    save(1, {"w": rows(1)})
    try:
        save(1, {"w": rows(2), "v": rows(20)})  # There is such a step.
    except dcp.CheckpointException:
        save(3, {"w": rows(3), "v": rows(30)})
    writer.close()


def test_a_plan_that_changed_where_a_save_failed(tmp_path):
    run(tmp_path, 2, changed_where_it_fails, tmp_path)
    with ckptree.open(tmp_path / "run") as store:
        assert [info.step for info in store.steps()] == [1, 3]
        found = store[3].torch()
        whole = torch.arange(14.0).view(7, 2)
        assert torch.equal(found["w"], whole + 3)
        assert torch.equal(found["v"], whole + 30)


# ---- In the background ----


def staged(rank, folder):
    """By DCP's own stager, which copies on a thread of its own."""
    group = dist.new_group(backend="gloo")
    stager = DefaultStager(
        StagingOptions(
            use_pinned_memory=False,
            use_shared_memory=False,
            use_async_staging=True,
            use_non_blocking_copy=False,
        )
    )
    with StoreWriter(folder / "run") as writer:
        for step in (1, 2, 3):
            state = {"w": rows(step), "same": torch.full((3,), float(step))}
            saved = dcp.async_save(
                state,
                checkpoint_id=step,
                storage_writer=writer,
                process_group=group,
                async_stager=stager,
            )
            saved.staging_completion.result()
            state["w"].to_local().fill_(-1)
            state["same"].fill_(-1)
            saved.upload_completion.result()
    stager.close()


def test_the_stager_of_dcp_on_a_thread(tmp_path):
    run(tmp_path, 2, staged, tmp_path)
    with ckptree.open(tmp_path / "run") as store:
        for step in (1, 2, 3):
            found = store[step].torch()
            assert torch.equal(
                found["w"], torch.arange(14.0).view(7, 2) + step
            )
            assert found["same"].tolist() == [step] * 3


def in_a_process(rank, folder):
    writer = StoreWriter(folder / "run")
    for step in (1, 2):
        saved = dcp.async_save(
            {"w": rows(step), "step": step},
            checkpoint_id=step,
            storage_writer=writer,
            async_checkpointer_type=AsyncCheckpointerType.PROCESS,
        )
        saved.result()
    return writer.checkpoint_id


def test_the_process_executor(tmp_path):
    assert len(run(tmp_path, 2, in_a_process, tmp_path)) == 2
    with ckptree.open(tmp_path / "run") as store:
        assert [info.step for info in store.steps()] == [1, 2]
        assert torch.equal(
            store[2].torch()["w"], torch.arange(14.0).view(7, 2) + 2
        )


# ---- Values ----


def test_streams_of_bytes_come_back_as_such(tmp_path):
    """Trainers have put what torch.save() wrote into their states."""
    stream = io.BytesIO()
    torch.save([0.5, 0.25], stream)
    state = {"train_state": {"losses": stream, "step": 3}}
    with StoreWriter(tmp_path / "run") as writer:
        dcp.save(state, checkpoint_id=1, storage_writer=writer)
    state = {"train_state": {"losses": None, "step": 0}}
    with StoreReader(tmp_path / "run") as reader:
        dcp.load(state, storage_reader=reader)
    found = state["train_state"]["losses"]
    assert type(found) is io.BytesIO
    assert torch.load(found) == [0.5, 0.25]
