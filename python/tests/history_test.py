# SPDX-License-Identifier: Apache-2.0
"""history(), diff() and blame(): what became of leaves over the steps."""

import math

import ckptree
import numpy as np
import pandas
import pytest


@pytest.fixture
def run(store):
    """Steps 10 to 50. `frozen` never changes, `w` does at 20 and 40, and `tied`
    is the same array; `lr` at 30; `best` is None up to 30; `late` is there from
    40 on, `shape` grows at 50."""
    frozen = np.full(100, 1.0)
    for step in range(10, 51, 10):
        w = np.full(4, step // 20, "f4")
        state = {
            "params": {"w": w, "tied": w, "frozen": frozen},
            "lr": 0.5 if step < 30 else 0.25,
            "best": None if step <= 30 else step,
            "seed": 2**100,
            "shape": np.zeros(3 if step < 50 else 4),
        }
        if step >= 40:
            state["late"] = True
        store.save(step, state).result(timeout=60)
    return store


def spans(rows):
    return [(row.step, row.last_step, row.steps) for row in rows]


def test_a_row_for_each_value(run):
    rows = run.history("params/w")
    assert spans(rows) == [(10, 10, 1), (20, 30, 2), (40, 50, 2)]
    assert [row.max for row in rows] == [0, 1, 2] and rows[0].count == 4
    assert rows[0].dtype == "float32" and rows[0].shape == (4,)
    assert rows[0].nbytes == 16 and rows[0].value is None
    assert rows[0].begun_ns == run.step_info(10).begun_ns
    assert rows[1].digest == run[20]["params/w"].digest != rows[0].digest
    assert spans(run.history("params/frozen")) == [(10, 50, 5)]
    part = run.history("params/w", first=20, last=40)
    assert spans(part) == [(20, 30, 2), (40, 40, 1)]


def test_values_of_numbers_ties_and_none(run):
    lr = run.history("lr")
    assert [(row.kind, row.value) for row in lr] == [
        ("float", 0.5),
        ("float", 0.25),
    ]
    assert lr[0].l2 is None and lr[0].shape == () and lr[0].dtype == ""
    best = run.history("best")
    assert spans(best) == [(10, 30, 3), (40, 40, 1), (50, 50, 1)]
    assert [(row.kind, row.value) for row in best] == [
        ("none", None), ("int", 40), ("int", 50),
    ]
    (seed,) = run.history("seed")
    assert (seed.kind, seed.value, seed.l2) == ("int", 2**100, None)
    (late,) = run.history("late")
    assert (late.kind, late.value, late.step) == ("bool", True, 40)
    tied = run.history("params/tied")
    # Whichever of both is the array, the other has its value.
    assert spans(tied) == spans(run.history("params/w"))
    assert [row.max for row in tied] == [0, 1, 2] and tied[0].kind == "array"


def test_a_statistic_of_many_leaves(run):
    steps = [10, 20, 30, 40, 50]
    found = run.history("params/*", "max")
    assert set(found) == {"params/w", "params/tied", "params/frozen"}
    assert found["params/w"] == (steps, [0, 1, 1, 2, 2]) == found["params/tied"]
    xs, ys = run.history("params/frozen", "l2", last=20)["params/frozen"]
    assert xs == [10, 20] and ys == pytest.approx([10, 10])
    assert run.history("lr", "value")["lr"].values == [
        0.5,
        0.5,
        0.25,
        0.25,
        0.25,
    ]
    assert run.history("seed", "value")["seed"].values == [2**100] * 5
    assert run.history("best", "value", first=40)["best"] == (
        [40, 50],
        [40, 50],
    )
    # They match, and have no such statistic.
    assert run.history("lr", "l2") == {} == run.history("seed", "l2")
    assert run.history("params/w", "value") == {}
    with pytest.raises(ValueError, match="'norm': one of .*l2"):
        run.history("params/*", "norm")
    with pytest.raises(KeyError, match="params/ww"):
        run.history("params/ww", "l2")
    with pytest.raises(KeyError, match="lr"):
        run.history("lr", "value", first=60)


def test_a_history_of_a_metric_is_elsewhere(run):
    run.save(60, {"lr": 1.0}, metrics={"loss": 0.5}).result(timeout=60)
    where = r"it is a metric.*steps\(\)\[-1\]\.metrics\['loss'\]"
    for statistic in (None, "value"):
        with pytest.raises(KeyError, match=where):
            run.history("loss", statistic)
    assert run.steps()[-1].metrics["loss"] == 0.5


def test_a_history_that_is_none(run):
    with pytest.raises(KeyError, match="none .* has params/ww: .* params/w"):
        run.history("params/ww")
    with pytest.raises(KeyError, match="late"):
        run.history("late", last=30)
    with pytest.raises(ValueError, match="params is no leaf: .* of 2 leaves"):
        run.history("params")
    with pytest.raises(ValueError, match="'params/.*'.* without a statistic"):
        run.history("params/**")
    run.save(60, {"best": (1, 2)}).result(timeout=60)
    with pytest.raises(ValueError, match="best is no leaf"):
        run.history("best")
    for statistic in (None, "l2"):
        with pytest.raises(KeyError, match="no-branch"):
            run.history("lr", statistic, branch="no-branch")
        with pytest.raises(KeyError, match="lr"):
            run.history("lr", statistic, first=61)


def test_a_history_of_a_fork(run):
    run.fork(30, "try")
    state = {"params": {"w": np.full(4, 9, "f4")}, "lr": 7.0}
    run.save(35, state, branch="try").result(timeout=60)
    assert [(r.step, r.value) for r in run.history("lr", branch="try")][-1] == (
        35,
        7.0,
    )
    assert (
        run.history("params/w", "max", branch="try")["params/w"].values[-1] == 9
    )


def test_a_difference(run):
    report = run.diff(30, 50)
    assert (report.before, report.after) == ("30", "50")
    assert report.changed == ["params/tied", "params/w"]
    assert report.added == ["late"] and report.removed == []
    assert report.retyped == ["best", "shape"]
    assert report.same == 3  # lr, seed, frozen
    changes = {change.name: change for change in report.changes}
    assert changes["shape"].before == "float64[3]"
    assert changes["shape"].after == "float64[4]"
    assert (changes["shape"].nbytes_before, changes["shape"].nbytes_after) == (
        24,
        32,
    )
    assert (changes["best"].before, changes["best"].after) == ("none", "int")
    assert (changes["late"].before, changes["late"].after) == ("", "bool")
    assert changes["late"].nbytes_before is None
    for name in report.changed:
        change = changes[name]
        assert (change.mean_before, change.mean_after) == (1, 2)
        assert (change.l2_before, change.l2_after) == (2, 4)
    assert run.diff(50, 30).removed == ["late"]
    assert run.diff().after == "50" and run.diff().before == "40"
    assert run.diff("@first" if run.tag("first", 10) else 10, 10).changes == []


def test_a_difference_of_some_leaves(run):
    assert run.diff(10, 50, "params/**").changed == ["params/tied", "params/w"]
    assert run.diff(10, 20, "lr").changes == []
    assert run.diff(10, 20, "best").changes == []
    with pytest.raises(KeyError, match="step 10 or 20 matches 'paramz'"):
        run.diff(10, 20, "paramz")
    with pytest.raises(ValueError):
        run.diff(10, 20, "re:(")
    with pytest.raises(KeyError, match="60"):
        run.diff(10, 60)


def test_a_difference_of_two_stores(run, tmp_path):
    with ckptree.Store(tmp_path / "other") as other:
        other.save(1, run.restore(50)).result(timeout=60)
        assert run[50].diff(other[1]).changes == []
        assert other[1].diff(run[50]).changes == []
        assert run[10].diff(other[1], "lr").changed == ["lr"]
        gone = other[1]
    for steps in ((run[10], gone), (gone, run[10]), (gone, gone)):
        with pytest.raises(ckptree.StateError, match="closed"):
            steps[0].diff(steps[1])


def test_whom_to_blame(run):
    since = {row.name: (row.since_step, row.listed) for row in run.blame()}
    assert since == {
        "best": (50, True),
        "late": (40, True),
        "lr": (30, True),
        "params/frozen": (10, True),
        "params/tied": (40, True),
        "params/w": (40, True),
        "seed": (10, True),
        "shape": (50, True),
    }
    run.delete(40)
    (row,) = run.blame("latest", "params/w")
    assert (row.since_step, row.listed, row.dtype, row.nbytes) == (
        40, False, "float32", 16,
    )
    assert [row.name for row in run[10].blame("params/*")] == [
        "params/frozen", "params/tied", "params/w",
    ]
    (seed,) = run.blame(glob="seed")
    assert (seed.kind, seed.dtype, seed.shape) == ("int", "", ())
    assert run.blame(10, "best") == []
    with pytest.raises(KeyError, match="step 50 matches 'paramz'"):
        run.blame(glob="paramz")


def test_the_branch_of_whom_to_blame(store):
    store.save(1, {"a": 1, "b": 1}).result()
    store.fork(1, branch="side")
    store.save(2, {"a": 2, "b": 1}).result()
    store.save(2, {"a": 1, "b": 2}, branch="side").result()
    blamed = {row.name: row for row in store["side/2"].blame()}
    assert {
        name: (row.since_step, row.since_branch)
        for name, row in blamed.items()
    } == {"a": (1, ""), "b": (2, "side")}
    store.save(3, {"a": 1, "b": 2}, branch="side").result()
    store.delete("side/2")
    (row,) = store["side/3"].blame("b")
    assert (row.since_step, row.listed, row.since_branch) == (2, False, None)


def test_no_array_is_read(run):
    before = run.counters().bytes_read
    run.history("params/w")
    run.history("params/**", "l2")
    run.diff(10, 50)
    run.blame()
    assert run.counters().bytes_read == before


def test_pandas_takes_them_as_they_are(run):
    frame = pandas.DataFrame(run.history("params/w"))
    assert list(frame["step"]) == [10, 20, 40] and frame["l2"].dtype == float
    frame = pandas.DataFrame(run.history("lr"))
    assert list(frame["value"]) == [0.5, 0.25] and frame["l2"].isna().all()
    frame = pandas.DataFrame(run.diff(10, 50).changes).set_index("name")
    assert frame.loc["params/w", "change"] == "changed"
    assert math.isnan(frame.loc["late", "nbytes_before"])
    assert list(pandas.DataFrame(run.blame())["listed"]) == [True] * 8
    assert list(pandas.DataFrame(run[50].stats())["name"])[0] == "params/frozen"
    assert list(pandas.DataFrame(run.steps())["step"]) == [10, 20, 30, 40, 50]


def test_of_a_reader_and_of_a_manager(run, tmp_path):
    with ckptree.open(run.path) as reader:
        assert spans(reader.history("lr")) == spans(run.history("lr"))
        assert reader.diff(10, 50) == run.diff(10, 50)
        assert reader.blame() == run.blame()
    with ckptree.CheckpointManager(tmp_path / "managed") as manager:
        for step in (1, 2):
            manager.save(step, {"n": step}, force=True)
        manager.wait_until_finished()
        assert [row.value for row in manager.store.history("n")] == [1, 2]
        assert manager[2].blame()[0].since_step == 2


def test_values_that_are_no_plain_numbers(tmp_path):
    with ckptree.Store(tmp_path / "run") as store:
        for step in (1, 2):
            state = {
                "tag": f"v{step}",
                "long": "x" * 1000 + str(step),
                "z": complex(step, 1),
                "count": np.array(step, "int32"),
                "scalar": np.float32(step / 2),
                "w": np.full(2, step),
            }
            store.save(step, state).result()
        expected = {
            "tag": ["v1", "v2"],
            "long": [None, None],
            "z": [1 + 1j, 2 + 1j],
            "count": [1, 2],
            "scalar": [0.5, 1.0],
            "w": [None, None],
        }
        for name, values in expected.items():
            assert [row.value for row in store.history(name)] == values, name
        assert store.history("count", "value")["count"].values == [1, 2]
        assert store.history("*", "value").keys() == {"count", "scalar"}
