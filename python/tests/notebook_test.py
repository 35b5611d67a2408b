# SPDX-License-Identifier: Apache-2.0
"""Daily life in a notebook and beside it: what completes, pickles, resumes."""

import asyncio
import collections
import copy
import datetime
import multiprocessing
import pickle

import ckptree
import numpy as np
import pytest
from ckptree import policies


def state_of(step):
    return {"params": {"w": np.full(3, float(step))}, "lr": 0.5}


@pytest.fixture
def run(store):
    for step in (1, 2, 3):
        store.save(step, state_of(step), metrics={"loss": 1 / step}).result()
    store.tag("good", 2)
    return store


def test_keys_complete(run):
    assert run._ipython_key_completions_() == [
        *(1, 2, 3, "latest", "healthy", "@good")
    ]
    assert run[1]._ipython_key_completions_() == ["lr", "params/w"]


def test_named_tuples_of_a_step_pickle(store):
    pair = collections.namedtuple("pair", "a b")
    state = {"p": pair(1, pair([2], 3))}
    store.save(1, state).result()
    restored = store.restore(1)
    again = pickle.loads(pickle.dumps(restored))
    assert again == state and type(again["p"]) is type(restored["p"])
    assert again["p"].b.a == copy.deepcopy(restored)["p"].b.a == [2]


def read_elsewhere(pickled):
    step = pickle.loads(pickled)
    return step.step, step["params/w"].numpy().tolist()


def test_readers_pickle_by_their_path(run):
    with pytest.raises(TypeError, match="one process writes"):
        pickle.dumps(run)
    with ckptree.open(run.path) as reader:
        with pickle.loads(pickle.dumps(reader)) as again:
            assert list(again) == [1, 2, 3] and again is not reader
        pickled = pickle.dumps(reader["latest"])
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(read_elsewhere, (pickled,)) == (3, [3.0] * 3)


def test_leaves_of_readers_pickle_by_their_names(run):
    with pytest.raises(TypeError, match="one process writes"):
        pickle.dumps(run[1]["lr"])
    run.fork(2, "b")
    run.save(3, state_of(7), branch="b").result()
    with ckptree.open(run.path) as reader:
        leaves = [reader["b/latest"]["params/w"], *reader[1].values()]
        again = pickle.loads(pickle.dumps(leaves))
        assert [leaf.name for leaf in again] == ["params/w", "lr", "params/w"]
        assert again[0].numpy().tolist() == [7.0] * 3
        assert again[2].numpy().tolist() == [1.0] * 3
        del again


def test_with_takes_nothing_that_was_closed(tmp_path):
    store = ckptree.Store(tmp_path / "s")
    store.save(1, state_of(1))
    reader = ckptree.open(tmp_path / "s")
    manager = ckptree.CheckpointManager(tmp_path / "m")
    for opened in (store, reader, manager):
        opened.close()
        with pytest.raises(ckptree.StateError, match="closed: open it again"):
            with opened:
                raise AssertionError("it was entered")


@pytest.mark.parametrize(
    "text", ["latest(3) | every(1h)", "best(loss, min, 2) & healthy", "all"]
)
def test_policies_pickle_by_their_text(text):
    policy = policies.parse(text)
    assert pickle.loads(pickle.dumps(policy)) == policy


@pytest.mark.parametrize(
    "policy",
    [
        ckptree.KeepIf(bool),
        ckptree.Custom(list),
        ckptree.Latest(1) | ckptree.Best(len, "min"),
    ],
    ids=str,
)
def test_a_policy_with_a_function_does_not_pickle(policy):
    with pytest.raises(TypeError, match="has a function"):
        pickle.dumps(policy)


def test_resuming_or_beginning(tmp_path):
    fresh = {"params": {"w": np.zeros(3)}, "lr": 1.0}
    with ckptree.Store(tmp_path / "s") as store:
        state, step = store.restore_or(fresh)
        assert state is fresh and step is None
        store.save(7, state_of(7)).result()
        state, step = store.restore_or(fresh)
        assert step == 7 and state["lr"] == 0.5
        assert state["params"]["w"].tolist() == [7, 7, 7]
        assert fresh["params"]["w"].tolist() == [0, 0, 0]
        state, step = store.restore_or(fresh, "@none")
        assert state is fresh and step is None
        store.fork(7, "colder")
        state, step = store.restore_or(fresh, "colder/latest")
        assert step == 7 and state["lr"] == 0.5
        assert store.restore_or(fresh, "colder/latest~1") == (fresh, None)
        for asked in (store.restore, store.step_info):
            with pytest.raises(KeyError, match=r"from step 7: restore\(7\)"):
                asked("colder/latest")
        store.save(8, fresh, branch="colder").result()
        store.fork("colder/8", "again")
        with pytest.raises(KeyError, match=r"restore\('colder/8'\)"):
            store.restore("again/latest")
        for selector in ("hotter/latest", "hotter/7"):
            with pytest.raises(KeyError, match="no branch 'hotter'"):
                store.restore_or(fresh, selector)
        # What is there and does not fit is no reason to begin again.
        with pytest.raises(ckptree.MismatchError):
            store.restore_or({"other": 1})


def test_tables_become_frames_with_times(run):
    pandas = pytest.importorskip("pandas")
    frame = run.steps().to_pandas()
    assert frame["step"].tolist() == [1, 2, 3]
    assert not [name for name in frame.columns if name.endswith("_ns")]
    now = pandas.Timestamp.now(tz=datetime.timezone.utc)
    assert (now - frame["committed"]).max() < pandas.Timedelta(hours=1)


def test_a_statistic_becomes_a_frame_of_columns(store):
    pandas = pytest.importorskip("pandas")
    for step in (1, 2, 3):
        state = {"a": 0.5 * step, "n": step, "big": 2**100, "on": step > 1}
        if step != 2:
            state |= {"late": step, "flag": True}
        store.save(step, state).result(timeout=60)
    curves = store.history("*", "value")
    frame = curves.to_pandas()
    # As pandas itself puts columns of other steps together.
    wanted = pandas.DataFrame(
        {k: pandas.Series(v, index=s) for k, (s, v) in curves.items()}
    )
    wanted.index.name = "step"
    pandas.testing.assert_frame_equal(frame, wanted)
    assert frame["late"].isna().tolist() == [False, True, False]


def test_very_many_leaves_become_a_frame_at_once(monkeypatch):
    """Without an object of pandas for each of them, which takes long."""
    pandas = pytest.importorskip("pandas")
    from ckptree.changes import Curves, Series

    made = []
    real = pandas.Series.__init__
    monkeypatch.setattr(
        pandas.Series,
        "__init__",
        lambda self, *args, **more: made.append(0) or real(self, *args, **more),
    )
    some = {
        f"{i}": Series([1, 2, 3][i % 2 :], [0.5] * (3 - i % 2))
        for i in range(20_000)
    }
    frame = Curves(some).to_pandas()
    assert frame.shape == (3, 20_000) and len(made) < 10
    assert frame.isna().sum().sum() == 10_000


def test_a_warning_points_at_the_caller(run):
    torch = pytest.importorskip("torch")
    saved = {"a": {"b": 1, "t": torch.ones(1)}, "t": torch.ones(1)}
    run.save(9, saved).result()
    like = {"a": {}, "t": torch.ones(1)}
    for restore in (run[9].restore, lambda **o: run.restore(9, **o)):
        with pytest.warns(UserWarning, match="left out") as said:
            restore(like=like, partial=True)
        assert said[0].filename == __file__


def test_a_step_that_lost_leaves_says_so(run):
    # As a recovery of a damaged store leaves it.
    note = "[recovered: 2 of 3 leaves lost] warm"
    run.save(4, {"lr": 0.5}, note=note).result()
    for restore in (
        lambda: run.restore(4),
        lambda: run[4].restore(like={"lr": 0.0, "w": 1}, partial=True),
    ):
        with pytest.warns(UserWarning, match="step 4 lost 2 of its 3") as said:
            assert restore()["lr"] == 0.5
        assert said[0].filename == __file__


def test_restoring_beside_an_event_loop(run):
    async def main():
        restored = asyncio.ensure_future(run.restore_async(2, like=state_of(0)))
        ticks = 0
        while not restored.done():
            ticks += 1
            await asyncio.sleep(0)
        return ticks, await restored

    ticks, state = asyncio.run(main())
    assert ticks > 0 and state["params"]["w"].tolist() == [2, 2, 2]
