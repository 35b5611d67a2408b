# SPDX-License-Identifier: Apache-2.0
"""Policies: the recorded decisions of Orbax's, and policies in a store."""

import _thread
import json
import threading
from datetime import datetime, timedelta, timezone
from pathlib import Path

import ckptree
import numpy as np
import program
import pytest
from ckptree import decisions, policies
from ckptree.closing import close_behind
from ckptree.policies import PolicyStep

VECTORS = (
    Path(__file__).parent.parent.parent
    / "tests"
    / "core"
    / "policy_vectors.jsonl"
)


def vectors(section, count):
    found = [json.loads(line) for line in VECTORS.read_text().splitlines()]
    found = [vector for vector in found if vector["section"] == section]
    assert len(found) == count
    return [pytest.param(vector, id=vector["id"]) for vector in found]


def policy_of(given):
    kind = given["kind"]
    if kind == "LatestN":
        return ckptree.Latest(given["n"])
    if kind == "EveryNSteps":
        spaced = not given.get("exact", True)
        return ckptree.EveryN(
            given["n"], spaced=spaced, last=given.get("max_to_keep")
        )
    if kind == "EveryNStepsClosest":
        return ckptree.Closest(given["n"], last=given.get("max_to_keep"))
    if kind == "EveryNSeconds":
        return ckptree.EverySeconds(given["secs"])
    if kind == "CustomSteps":
        return ckptree.SpecificSteps(given["steps"])
    if kind == "BestN":
        return ckptree.Best(
            "m",
            mode="min" if given.get("reverse") else "max",
            n=given["n"],
            unmeasured="keep" if given.get("keep_wo", True) else "drop",
        )
    assert kind == "Any"
    parts = [policy_of(part) for part in given["of"]]
    if not parts:
        # There is no way to write it with `|`.
        return policies.Policy(ckptree._engine.keep_any([]), "")
    whole = parts[0]
    for part in parts[1:]:
        whole = whole | part
    return whole


def decision_of(given):
    kind = given["kind"]
    if kind == "FixedInterval":
        return decisions.FixedInterval(given["n"])
    if kind == "SpecificSteps":
        return decisions.SpecificSteps(given["steps"])
    if kind == "Continuous":
        least = given["min"]
        return decisions.Continuous(
            None if least is None else timedelta(seconds=least)
        )
    if kind == "Any":
        return decisions.any_of(*map(decision_of, given["of"]))
    rules = {
        "Preemption": decisions.OnPreemption,
        "Initial": decisions.InitialSave,
    }
    return rules[kind]()


def step_of(vector, i, step, time):
    metric = vector["metrics"][i] if "metrics" in vector else None
    return PolicyStep(
        step, time, {} if metric is None else {"m": float(metric)}
    )


@pytest.mark.parametrize("vector", vectors("A.1", 45))
def test_one_decision(vector):
    if "error" in vector:
        with pytest.raises(ValueError):
            policy_of(vector["policy"])
        return
    policy = policy_of(vector["policy"])
    steps = [step_of(vector, i, s, s) for i, s in enumerate(vector["steps"])]
    kept = policy.decide(steps)
    mine = [i for i, keep in enumerate(kept) if keep]
    if "decision" in vector:
        assert mine in vector["accept"] and mine != vector["kept_idx"]
    else:
        assert mine == vector["kept_idx"]
    assert [why != [] for why in policy.explain(steps)] == kept
    assert policies.parse(str(policy)).decide(steps) == kept


@pytest.mark.parametrize("vector", vectors("A.2", 10))
def test_what_lives_after_each_save(vector):
    policy = policy_of(vector["policy"])
    steps = []
    times = vector.get("times", vector["save"])
    for i, (step, time) in enumerate(zip(vector["save"], times)):
        steps.append(step_of(vector, i, step, time))
        steps = [s for s, keep in zip(steps, policy.decide(steps)) if keep]
        assert [s.step for s in steps] == vector["live_after"][i]


@pytest.mark.parametrize("vector", vectors("A.3", 12))
def test_whether_to_save(vector):
    if "error" in vector:
        with pytest.raises(ValueError):
            decision_of(vector["policy"])
        return
    latest = PolicyStep(*vector["prev"][-1]) if vector["prev"] else None
    assert vector["save"] == decision_of(vector["policy"]).decide(
        PolicyStep(vector["step"], vector["time"]),
        latest,
        saving_in_progress=vector.get("busy", False),
        preempted=vector.get("preempt", False),
    )


@pytest.mark.parametrize("vector", vectors("A.4", 6))
def test_whole_managers(vector, tmp_path):
    keep = vector["keep_policy"]
    options = {
        "preservation": None if keep is None else policy_of(keep),
        "save_decision": decision_of(vector["save_policy"]),
    }
    if vector["id"] == "A4-007":  # latest(0): would keep nothing.
        with pytest.raises(
            ckptree.InvalidArgumentError, match="may keep nothing"
        ):
            ckptree.CheckpointManager(tmp_path / "s", **options)
        return
    with ckptree.CheckpointManager(tmp_path / "s", **options) as manager:
        for step, expected in zip(vector["calls"], vector["result"]):
            if step in vector.get("preempt", []):
                manager.request_preemption()
            saved = manager.save(step, {"w": step})
            manager.wait_until_finished(timeout=60)
            assert [step, saved, manager.all_steps()] == expected


def is_even(step):
    return step.step % 2 == 0


def every_second(steps):
    return [i % 2 == 0 for i in range(len(steps))]


def score(metrics):
    return metrics.get("loss")


TEXTS = {
    "all": ckptree.All(),
    "latest(3)": ckptree.Latest(3),
    "every(1000)": ckptree.EveryN(1000),
    "every(10, spaced, last=2)": ckptree.EveryN(10, spaced=True, last=2),
    "every(10s)": ckptree.EverySeconds(10),
    "every(1h30m)": ckptree.Every(timedelta(minutes=90)),
    "closest(5, last=1)": ckptree.Closest(5, last=1),
    "within(24h)": ckptree.Within(timedelta(days=1)),
    "best(loss, min, 1)": ckptree.Best("loss", "min"),
    "best(a, max, all, unmeasured=drop)": ckptree.Best(
        "a", mode="max", n=None, unmeasured="drop"
    ),
    "best(score(), min, 2)": ckptree.Best(score, "min", n=2),
    "healthy(1)": ckptree.Healthy(),
    "log(4)": ckptree.Logarithmic(4),
    "budget(20GB)": ckptree.Budget("20GB"),
    "steps(1, 5)": ckptree.SpecificSteps([1, 5]),
    "keep_if(is_even)": ckptree.KeepIf(is_even),
    "custom(every_second)": ckptree.Custom(every_second),
    "latest(1) | every(2) | best(loss, min, 1) & healthy": ckptree.Latest(1)
    | ckptree.EveryN(2)
    | ckptree.Best("loss", "min") & ckptree.Healthy(),
    "(latest(1) | every(2)) & healthy": (ckptree.Latest(1) | ckptree.EveryN(2))
    & ckptree.Healthy(),
}


@pytest.mark.parametrize("text", TEXTS)
def test_text_repr_and_equality(text):
    policy = TEXTS[text]
    assert str(policy) == text
    names = {**vars(policies), **globals()}
    assert eval(repr(policy), names) == policy
    again = policies.parse(text)
    assert again == policy and hash(again) == hash(policy)
    assert eval(repr(again), names) == policy
    assert policy != ckptree.Latest(77)


@pytest.mark.parametrize(
    "make",
    [
        lambda: ckptree.Latest(-1),
        lambda: ckptree.EveryN(0),
        lambda: ckptree.Best("loss", "least"),
        lambda: ckptree.Best("loss", "min", unmeasured="lose"),
        lambda: ckptree.Budget("20GB) | latest(1"),
        lambda: ckptree.Budget("much"),
        lambda: policies.parse("newest(3)"),
        lambda: decisions.FixedInterval(0),
    ],
)
def test_what_makes_no_sense_is_refused(make):
    with pytest.raises(ValueError):
        make()


def test_wrong_types_are_named():
    with pytest.raises(TypeError, match="timedelta"):
        ckptree.Every(3)
    with pytest.raises(TypeError, match="function"):
        ckptree.KeepIf(3)
    with pytest.raises(TypeError, match="policy"):
        ckptree.Latest(1) | 3


def test_times_and_health():
    now = datetime(2026, 1, 2, tzinfo=timezone.utc)
    steps = [
        PolicyStep(i, now - timedelta(hours=30 - 10 * i)) for i in range(3)
    ]
    within = ckptree.Within(timedelta(hours=24))
    assert within.decide(steps, now=now) == [False, True, True]
    assert within.decide(steps) == [True, True, True]
    sick = [PolicyStep(1), PolicyStep(2, healthy=False)]
    assert ckptree.Healthy().decide(sick) == [True, False]
    with pytest.raises(NotImplementedError):
        ckptree.Budget(1).decide(steps)


def test_a_function_raises_with_its_own_type():
    class Odd(Exception):
        pass

    def fail(*_):
        raise Odd("no idea")

    for policy in (
        ckptree.KeepIf(fail),
        ckptree.Custom(fail),
        ckptree.Best(fail, "min"),
    ):
        with pytest.raises(Odd, match="no idea"):
            policy.decide([PolicyStep(1), PolicyStep(2)])
    with pytest.raises(Odd):
        decisions.SaveIf(fail).decide(PolicyStep(1))
    with pytest.raises(ckptree.Error, match="2 steps"):
        ckptree.Custom(lambda steps: [True]).decide(
            [PolicyStep(1), PolicyStep(2)]
        )
    with pytest.raises(TypeError):
        ckptree.Best(lambda metrics: "high", "max").decide(
            [PolicyStep(1), PolicyStep(2)]
        )


@pytest.mark.parametrize("answer", [None, "no", [], {}, float("nan")])
def test_what_a_function_gives_is_true_or_false(tmp_path, answer):
    steps = [PolicyStep(1), PolicyStep(2)]
    for policy in (
        ckptree.KeepIf(lambda step: answer),
        ckptree.Custom(lambda steps: [answer] * len(steps)),
    ):
        with pytest.raises(TypeError, match="True or False"):
            policy.decide(steps)
    with pytest.raises(TypeError, match="True or False"):
        decisions.SaveIf(lambda *_: answer).decide(PolicyStep(1))
    for true in (True, 1, np.True_, np.int64(3), np.array(True)):
        kept = ckptree.KeepIf(lambda step: true).decide(steps)
        assert kept == [True, True]
    # Nothing goes for want of an answer.
    with ckptree.Store(tmp_path / "s") as store:
        for step in range(4):
            store.save(step, {"w": np.full(10, step)}).result()
        store.set_policy(ckptree.KeepIf(lambda step: answer))
        with pytest.raises(TypeError, match="True or False"):
            store.apply_policy()
        assert [info.step for info in store.steps()] == [0, 1, 2, 3]


def save(store, *steps, **options):
    for step in steps:
        store.save(step, {"w": np.full(1000, step)}, **options).result(
            timeout=60
        )


def numbers(store):
    return [info.step for info in store.steps()]


def test_a_store_keeps_what_its_policy_says(store):
    assert store.policy().text == "" and store.policy().problem == ""
    save(store, 1, 2, 3, 4)
    store.tag("good", 1)
    report = store.preview_policy("latest(1)")
    assert [(v.step, v.kept, v.why) for v in report.steps] == [
        (1, True, ["tag good"]),
        (2, False, []),
        (3, False, []),
        (4, True, ["latest(1)"]),
    ]
    assert report.policy == "latest(1)" and report.freed.nbytes > 0
    store.set_policy(ckptree.Latest(2))
    assert store.policy().text == "latest(2)"
    assert not store.policy().from_program
    assert numbers(store) == [1, 2, 3, 4]
    assert store.apply_policy() == [2] and numbers(store) == [1, 3, 4]
    save(store, 5)
    assert numbers(store) == [1, 4, 5]
    store.fork(5, "try")
    store.set_policy("latest(1)", branch="try")
    save(store, 6, 7, branch="try")
    assert [info.step for info in store.steps("try")] == [7]
    assert store.policy().text == "latest(2)"
    with pytest.raises(TypeError, match="policy"):
        store.set_policy(3)


def test_functions_judge_on_the_thread_that_saves(store):
    store.set_policy(ckptree.KeepIf(is_even) | ckptree.Latest(1))
    for step in range(5):
        save(store, step)
    assert numbers(store) == [0, 2, 4]

    def fail(step):
        raise LookupError(f"step {step.step}")

    store.set_policy(ckptree.KeepIf(fail))
    save(store, 5)  # Nothing is removed by what cannot be applied.
    assert numbers(store) == [0, 2, 4, 5]
    with pytest.raises(LookupError, match="step 0"):
        store.preview_policy()


CALLS = {
    "tag": lambda store: store.tag("x", 1),
    "untag": lambda store: store.untag("there"),
    "pin": lambda store: store.pin(1),
    "delete": lambda store: store.delete(1),
    "fork": lambda store: store.fork(1, "try"),
    "collect": lambda store: store.collect(),
    "usage": lambda store: store.usage(),
    "verify": lambda store: store.verify(),
    "restore": lambda store: store.restore("latest"),
    "close": lambda store: store.close(),
}


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("ask", ["save", "apply", "preview"])
def test_a_function_that_calls_its_store_is_told_so(store, call, ask):
    save(store, 1)
    store.tag("there", 1)
    raised = []

    def asks(step):
        try:
            CALLS[call](store)
        except ckptree.StateError as error:
            raised.append(error)
        return True

    store.set_policy(ckptree.KeepIf(asks))
    if ask == "save":
        store.save(2, {"w": np.ones(3)}).result(timeout=30)
    elif ask == "apply":
        store.apply_policy()
    else:
        store.preview_policy()
    assert raised and not store.closed
    assert [tag.name for tag in store.tags()] == ["there"]
    assert numbers(store) == ([1, 2] if ask == "save" else [1])


def test_a_store_that_goes_in_a_function_is_closed_behind_it(tmp_path):
    """Python's collector may run there, and the last reference go."""
    done = program.run(
        """
import gc, sys, warnings, ckptree, numpy as np
warnings.simplefilter("ignore")
gc.disable()

def collects(step):
    gc.collect()
    return True

store = ckptree.Store(sys.argv[1])
store.set_policy(ckptree.KeepIf(collects))
handle = store.save(1, {"w": np.ones(3)})
cycle = [store]
cycle.append(cycle)
del store, cycle
print(handle.result(timeout=60))
""",
        tmp_path / "s",
    )
    assert (done.returncode, done.stdout) == (0, "1\n"), done.stderr
    with ckptree.open(tmp_path / "s") as store:
        assert numbers(store) == [1]


def test_who_closes_behind_is_waited_for_at_the_exit():
    """Threads of the engine are daemons to Python, and would hand that on."""
    goes, begun, kinds = threading.Event(), threading.Event(), []

    def close():
        kinds.append(threading.current_thread().daemon)
        begun.set()
        goes.wait()

    _thread.start_new_thread(close_behind, (close,))
    assert begun.wait(timeout=60)
    goes.set()
    assert kinds == [False]


def test_another_program_lacks_the_function(tmp_path):
    with ckptree.Store(tmp_path / "s") as store:
        store.set_policy(ckptree.KeepIf(is_even))
    with ckptree.Store(tmp_path / "s") as store:
        assert "is_even" in store.policy().problem
        save(store, 1, 3)
        assert numbers(store) == [1, 3]
        with pytest.raises(ckptree.StateError, match="is_even"):
            store.preview_policy()


def test_healthy_selects(store):
    store.save(1, {"w": np.ones(3)}).result(timeout=60)
    store.save(2, {"w": np.array([1, np.nan])}).result(timeout=60)
    assert store["healthy"].step == 1


def test_health_that_is_not_known_is_not_healthy(tmp_path):
    path = tmp_path / "s"
    with ckptree.Store(path) as store:
        store.save(1, {"w": np.ones(5)}).result(timeout=60)
    with ckptree.Store(path, statistics=False) as store:
        store.save(2, {"w": np.full(5, np.nan)}).result(timeout=60)
        assert store["healthy"].step == 1
        assert [store.step_info(n).healthy for n in (1, 2)] == [True, False]
        assert store.step_info(2).unknown_leaves == 1
        assert len(store[2].stats()) == 0
        for ask in store.set_policy, store.preview_policy:
            with pytest.raises(ValueError, match="statistics off"):
                ask(ckptree.Latest(2) | ckptree.Healthy())
    # The leaf is unchanged, and is known with the first save that looks.
    with ckptree.Store(path) as store:
        store.save(3, {"w": np.full(5, np.nan)}).result(timeout=60)
        assert store.step_info(3).unknown_leaves == 0
        assert store.step_info(3).nan_count == 5
        assert store["healthy"].step == 1
        store.delete(1)
        with pytest.raises(KeyError, match="statistics were not recorded"):
            store["healthy"]
        store.set_policy(ckptree.Healthy())


def test_a_manager_without_statistics_refuses_a_policy_of_health(tmp_path):
    with pytest.raises(ValueError, match="preservation .*statistics"):
        ckptree.CheckpointManager(
            tmp_path / "m", statistics=False, preservation="healthy(1)"
        )


def test_metadata_of_the_run(store):
    assert store.metadata() is None
    store.set_metadata({"lr": 0.5, "by": ["me"]})
    assert store.metadata() == {"lr": 0.5, "by": ["me"]}
    store.set_metadata(None)
    assert store.metadata() is None
    with pytest.raises(TypeError, match="json"):
        store.set_metadata({1, 2})
