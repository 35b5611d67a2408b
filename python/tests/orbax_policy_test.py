# SPDX-License-Identifier: Apache-2.0
"""The recorded decisions, by the classes of Orbax and by those here; and
managers of both, side by side."""

import datetime
import json
import random
from pathlib import Path

import ckptree.orbax
import numpy as np
import orbax.checkpoint
import pytest

VECTORS = (
    Path(__file__).parent.parent.parent
    / "tests"
    / "core"
    / "policy_vectors.jsonl"
)
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)


def vectors(section, count):
    found = [json.loads(line) for line in VECTORS.read_text().splitlines()]
    found = [vector for vector in found if vector["section"] == section]
    assert len(found) == count
    return [pytest.param(vector, id=vector["id"]) for vector in found]


class Info:
    """A step, for either library."""

    def __init__(self, step, seconds, metrics=None):
        self.step = step
        self.time = EPOCH + datetime.timedelta(seconds=seconds)
        self.metrics = metrics


def preservation(ocp, given):
    module = ocp.checkpoint_managers
    kind = given["kind"]
    if kind == "LatestN":
        return module.LatestN(given["n"])
    if kind == "EveryNSteps":
        return module.EveryNSteps(
            interval_steps=given["n"],
            exact_interval=given.get("exact", True),
            max_to_keep=given.get("max_to_keep"),
        )
    if kind == "EveryNStepsClosest":
        return module.EveryNStepsClosest(
            interval_steps=given["n"], max_to_keep=given.get("max_to_keep")
        )
    if kind == "EveryNSeconds":
        return module.EveryNSeconds(given["secs"])
    if kind == "CustomSteps":
        return module.CustomSteps(given["steps"])
    if kind == "BestN":
        return module.BestN(
            get_metric_fn=lambda metrics: metrics,
            reverse=given.get("reverse", False),
            n=given["n"],
            keep_checkpoints_without_metrics=given.get("keep_wo", True),
        )
    assert kind == "Any"
    return module.AnyPreservationPolicy(
        [preservation(ocp, p) for p in given["of"]]
    )


def decision(ocp, given):
    module = ocp.checkpoint_managers
    kind = given["kind"]
    if kind == "Any":
        return module.AnySavePolicy([decision(ocp, p) for p in given["of"]])
    return {
        "FixedInterval": lambda: module.FixedIntervalPolicy(given["n"]),
        "SpecificSteps": lambda: module.SpecificStepsPolicy(given["steps"]),
        "Continuous": lambda: module.ContinuousCheckpointingPolicy(
            minimum_interval_secs=given["min"]
        ),
        "Preemption": module.PreemptionCheckpointingPolicy,
        "Initial": module.InitialSavePolicy,
    }[kind]()


def context_of_keeping(ocp):
    if ocp is orbax.checkpoint:
        managers = orbax.checkpoint._src.checkpoint_managers
        return managers.preservation_policy.PreservationContext()
    return ocp.checkpoint_managers.PreservationContext()


def info_of(vector, i, step, seconds):
    metric = vector["metrics"][i] if "metrics" in vector else None
    return Info(step, seconds, None if metric is None else float(metric))


@pytest.mark.parametrize("vector", vectors("A.1", 45))
def test_one_decision(ocp, ours, vector):
    def kept():
        infos = [
            info_of(vector, i, s, s) for i, s in enumerate(vector["steps"])
        ]
        policy = preservation(ocp, vector["policy"])
        found = policy.should_preserve(infos, context=context_of_keeping(ocp))
        return [i for i, keep in enumerate(found) if keep]

    if "error" in vector:
        with pytest.raises((TypeError, ValueError, ZeroDivisionError)):
            kept()
    elif ours and "decision" in vector:
        assert kept() in vector["accept"] and kept() != vector["kept_idx"]
    else:
        assert kept() == vector["kept_idx"]


@pytest.mark.parametrize("vector", vectors("A.2", 10))
def test_what_lives_after_each_save(ocp, vector):
    policy = preservation(ocp, vector["policy"])
    infos = []
    times = vector.get("times", vector["save"])
    for i, (step, time) in enumerate(zip(vector["save"], times)):
        infos.append(info_of(vector, i, step, time))
        found = policy.should_preserve(infos, context=context_of_keeping(ocp))
        infos = [info for info, keep in zip(infos, found) if keep]
        assert [info.step for info in infos] == vector["live_after"][i]


@pytest.mark.parametrize("vector", vectors("A.3", 12))
def test_whether_to_save(ocp, vector):
    context = ocp.checkpoint_managers.DecisionContext(
        is_saving_in_progress=vector.get("busy", False),
        reached_preemption=vector.get("preempt", False),
        multiprocessing_options=ocp.options.MultiprocessingOptions(),
    )

    def saves():
        return decision(ocp, vector["policy"]).should_save(
            Info(vector["step"], vector["time"]),
            [Info(*before) for before in vector["prev"]],
            context=context,
        )

    if "error" in vector:
        with pytest.raises((TypeError, ValueError, ZeroDivisionError)):
            saves()
    else:
        assert saves() == vector["save"]


@pytest.mark.parametrize("vector", vectors("A.4", 6))
def test_whole_managers(ocp, ours, tmp_path, monkeypatch, vector):
    keep = vector["keep_policy"]
    options = ocp.CheckpointManagerOptions(
        preservation_policy=None if keep is None else preservation(ocp, keep),
        save_decision_policy=decision(ocp, vector["save_policy"]),
    )
    if ours and vector["id"] == "A4-007":  # It would keep nothing.
        with pytest.raises(ValueError, match="may keep nothing"):
            ocp.CheckpointManager(tmp_path / "run", options=options)
        return
    with ocp.CheckpointManager(tmp_path / "run", options=options) as manager:
        preempted = []
        monkeypatch.setattr(
            type(manager),
            "reached_preemption",
            lambda self, step: step in preempted,
        )
        for step, expected in zip(vector["calls"], vector["result"]):
            if step in vector.get("preempt", []):
                preempted.append(step)
            saved = manager.save(step, args=ocp.args.StandardSave({"w": step}))
            manager.wait_until_finished()
            assert [step, saved, list(manager.all_steps())] == expected


# ---- Side by side ----


class Sparse:
    """A policy of a user's own: one of three, and the last two."""

    def should_preserve(self, checkpoints, *, context):
        last = len(checkpoints) - 2
        return [c.step % 3 == 0 or i >= last for i, c in enumerate(checkpoints)]


def best(metrics):
    return metrics["loss"]


OPTIONS = {
    "the last": lambda ocp: {"max_to_keep": 3},
    "periods": lambda ocp: {"max_to_keep": 2, "keep_period": 10},
    "intervals": lambda ocp: {
        "save_interval_steps": 3,
        "save_on_steps": [4, 50],
        "max_to_keep": 5,
    },
    "the best": lambda ocp: {
        "max_to_keep": 4,
        "best_fn": best,
        "best_mode": "min",
        "keep_checkpoints_without_metrics": False,
    },
    "policies": lambda ocp: {
        "preservation_policy": ocp.checkpoint_managers.AnyPreservationPolicy(
            [
                ocp.checkpoint_managers.LatestN(2),
                ocp.checkpoint_managers.EveryNSteps(7, exact_interval=False),
                ocp.checkpoint_managers.BestN(
                    get_metric_fn=best, reverse=True, n=2
                ),
            ]
        )
    },
    "a policy of one's own": lambda ocp: {
        "preservation_policy": Sparse(),
        "should_save_fn": lambda step, latest: step % 2 == 0 or step == 7,
    },
}


def best_four(losses, newest_stays=False):
    """What a run lists after each step, by Orbax's rule: nothing leaves up to
    four of them, then all but the best four do."""
    lists, live = [], []
    for step in range(len(losses)):
        live.append(step)
        if len(live) > 4:
            measured = [s for s in live if losses[s] is not None]
            live = sorted(sorted(measured, key=lambda s: losses[s])[:4])
            if newest_stays and step not in live:
                live.append(step)
        lists.append(list(live))
    return lists


@pytest.mark.parametrize("name", OPTIONS)
def test_the_same_lists_after_each_of_100_saves(name, tmp_path):
    rng = random.Random(name)
    losses = [rng.choice([None, rng.random()]) for _ in range(100)]
    lists = {}
    for ocp in (orbax.checkpoint, ckptree.orbax):
        options = ocp.CheckpointManagerOptions(
            enable_async_checkpointing=False, **OPTIONS[name](ocp)
        )
        path = tmp_path / ocp.__name__
        lists[ocp.__name__] = found = []
        with ocp.CheckpointManager(path, options=options) as manager:
            for step, loss in enumerate(losses):
                saved = manager.save(
                    step,
                    args=ocp.args.StandardSave({"w": np.full(2, step)}),
                    metrics=None if loss is None else {"loss": loss},
                )
                found.append(
                    (
                        saved,
                        list(manager.all_steps()),
                        manager.latest_step(),
                        manager.best_step(),
                    )
                )
    one, other = lists.values()
    if name == "the best":  # Here the newest stays, too.
        assert [listed for _, listed, *_ in one] == best_four(losses)
        lists_of_ours = best_four(losses, newest_stays=True)
        one = [
            (saved, listed, step, best_step)
            for step, ((saved, *_, best_step), listed) in enumerate(
                zip(one, lists_of_ours)
            )
        ]
    assert one == other
    assert len({tuple(steps) for _, steps, _, _ in one}) > 10


def test_a_close_in_a_function_of_the_policy_lets_go_of_nothing(tmp_path):
    ocp, refused = ckptree.orbax, []

    def best(metrics):
        if ckptree._engine.in_function() and not refused:
            with pytest.raises(ckptree.StateError, match="closes no store"):
                manager.close()
            refused.append(True)
        return metrics["m"]

    options = ocp.CheckpointManagerOptions(max_to_keep=2, best_fn=best)
    manager = ocp.CheckpointManager(tmp_path / "run", options=options)
    for step in range(4):
        args = ocp.args.StandardSave({"a": np.arange(step)})
        manager.save(step, args=args, metrics={"m": float(step)})
    manager.wait_until_finished()
    assert refused and manager.all_steps() == [2, 3]
    manager.close()
    ckptree.Store(tmp_path / "run").close()


# ---- Saves that fail, beside others of their number ----


class NoLeaf:
    pass


@pytest.fixture
def best_two(tmp_path):
    """A manager that keeps the best two, and a store beside it."""
    ocp = ckptree.orbax
    options = ocp.CheckpointManagerOptions(
        max_to_keep=2, best_fn=lambda metrics: metrics["m"]
    )
    store = ckptree.Store(tmp_path / "run")
    manager = ocp.CheckpointManager(tmp_path / "run", options=options)
    for step, m in enumerate([5.0, 4.0]):
        save_with(manager, step, {"m": m})
    manager.wait_until_finished()
    yield manager, store
    manager.close()
    store.close()


def save_with(manager, step, metrics, array=np.arange(5)):
    args = ckptree.orbax.args.StandardSave({"a": array})
    manager.save(step, args=args, metrics=metrics)


def test_metrics_of_a_save_that_did_not_begin_are_not_those_of_the_step(
    best_two,
):
    manager, store = best_two
    with pytest.raises(ValueError, match="no leaf"):
        save_with(manager, 2, {"m": 100.0}, NoLeaf())
    store.save(2, {"default": {"a": np.arange(5)}}, metrics={"m": 4.5})
    store.flush()
    save_with(manager, 3, {"m": 6.0})
    manager.wait_until_finished()
    assert list(manager.all_steps()) == [0, 3]
    assert manager.best_step() == 3


@pytest.mark.parametrize("then", ["manager", "store"])
def test_nor_are_those_of_a_save_that_fails_later(best_two, then):
    manager, store = best_two
    large = np.arange(8 << 20)

    def pack():
        return {"default": ckptree.orbax._items.Item({"a": large}, {})}

    for _ in range(20):  # Until the pin came before the commit.
        manager._begin(1, pack, {"m": 100.0}, None, overwrite=True)
        store._engine.pin("1")  # store.pin() waits for the save.
        try:
            manager.wait_until_finished()
        except ckptree.StateError:
            break
        store.unpin(1)
        manager._begin(1, pack, {"m": 4.0}, None, overwrite=True)
        manager.wait_until_finished()
    else:
        pytest.fail("no save failed")
    store.unpin(1)
    if then == "manager":
        save_with(manager, 3, {"m": 6.0})
        manager.wait_until_finished()
    else:
        state = {"default": {"a": np.arange(5)}}
        store.save(3, state, metrics={"m": 6.0}).result(timeout=60)
    assert list(manager.all_steps()) == [0, 3]
    assert manager.best_step() == 3


def test_a_step_keeps_its_metrics_where_an_overwrite_fails(best_two):
    manager, store = best_two
    metrics = {"m": 9.0, "more": {"x": 1}}
    save_with(manager, 2, metrics)
    manager.wait_until_finished()

    def pack():
        return {"default": ckptree.orbax._items.Item(NoLeaf(), {})}

    with pytest.raises(ValueError, match="no leaf"):
        manager._begin(2, pack, {"m": 0.0}, None, overwrite=True)
    assert manager._metrics.given(2) == metrics
    state = {"default": {"a": np.arange(5)}}
    store.save(3, state, metrics={"m": 6.0}).result(timeout=60)
    assert list(manager.all_steps()) == [2, 3]
