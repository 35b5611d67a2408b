# SPDX-License-Identifier: Apache-2.0
"""A save of PyTorch's Distributed Checkpoint that was begun and not finished:
how it ends, and what waits for it."""

import pickle
import signal

import ckptree
import pytest

torch = pytest.importorskip(
    "torch", reason="PyTorch could not be installed: see requirements_torch.txt"
)

import torch.distributed.checkpoint as dcp
from ckptree.torch.dcp import StoreWriter
from torch.distributed.checkpoint.default_planner import DefaultSavePlanner

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")


def attempt(writer, step):
    """As far as DCP comes where a rank raises then."""
    writer.reset(step)
    writer.set_up_storage_writer(True)
    (plan,) = writer.prepare_global_plan([dcp.SavePlan([])])
    return plan


def test_an_attempt_ends_where_its_store_is_closed(tmp_path):
    store = ckptree.Store(tmp_path / "run")
    writer = StoreWriter(store)
    attempt(writer, 1)
    store.close()  # Does not wait for the deadline.
    with pytest.raises(ckptree.StateError):
        attempt(writer, 2)


def test_ctrl_c_ends_the_wait_for_another_attempt(tmp_path):
    def interrupt(*_):
        raise KeyboardInterrupt

    with ckptree.Store(tmp_path / "run") as store:
        first = StoreWriter(store)
        attempt(first, 1)
        before = signal.signal(signal.SIGALRM, interrupt)
        signal.setitimer(signal.ITIMER_REAL, 0.3)
        try:
            with pytest.raises(KeyboardInterrupt):
                attempt(StoreWriter(store), 2)
        finally:
            signal.signal(signal.SIGALRM, before)
        first.close()
        assert store.save(3, {"w": torch.ones(2)}).result(timeout=60) == 3
        assert [step.step for step in store.steps()] == [3]


def test_an_attempt_ends_at_its_deadline(tmp_path):
    with ckptree.Store(tmp_path / "run") as store:
        writer = StoreWriter(store, deadline=0.2)
        plan = attempt(writer, 1)
        # It has its turn when the attempt is over.
        store.save(2, {"w": torch.ones(2)}).result(timeout=60)
        # The part is refused, as its attempt is over: the writer knows why.
        with pytest.raises(
            ckptree.WaitTimeoutError, match="not committed within"
        ) as raised:
            part = writer.write_data(plan, DefaultSavePlanner()).value()
            writer.finish(dcp.Metadata({}), [part])
        assert isinstance(raised.value.__context__, ckptree.StateError)
        writer.close()
        assert [step.step for step in store.steps()] == [2]


def test_a_writer_is_pickled_by_its_path_alone(tmp_path):
    with StoreWriter(tmp_path / "run") as writer:
        dcp.save({"x": 1}, checkpoint_id=1, storage_writer=writer)
        other = pickle.loads(pickle.dumps(writer))
    with other:
        dcp.save({"x": 2}, checkpoint_id=2, storage_writer=other)
    with ckptree.Store(tmp_path / "run") as store:
        with pytest.raises(TypeError, match="path of the store"):
            pickle.dumps(StoreWriter(store))
