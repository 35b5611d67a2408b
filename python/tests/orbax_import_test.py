# SPDX-License-Identifier: Apache-2.0
"""What an import from Orbax keeps: the times of steps, all metrics, what was
moved before an interruption; and that it looks at what it wrote."""

import datetime
import json

import ckptree
import ckptree.orbax as ours
import numpy as np
import orbax.checkpoint as theirs
import pytest
from ckptree.orbax.__main__ import main


def saved(path, steps, metrics=None):
    with theirs.CheckpointManager(
        path,
        options=theirs.CheckpointManagerOptions(
            enable_async_checkpointing=False,
            best_fn=None if metrics is None else lambda m: m["m00"],
        ),
    ) as manager:
        for step in steps:
            manager.save(
                step,
                args=theirs.args.StandardSave({"w": np.full(3, step)}),
                metrics=metrics,
            )
    return path


def aged(path, step, days):
    """A step of Orbax's that was saved so many days ago."""
    about = path / str(step) / "_CHECKPOINT_METADATA"
    found = json.loads(about.read_text())
    found["commit_timestamp_nsecs"] -= days * 86_400 * 10**9
    about.write_text(json.dumps(found))
    return found["commit_timestamp_nsecs"] / 1e9


@pytest.fixture
def old(tmp_path):
    """Steps of three, two and one days ago, and of now."""
    path = saved(tmp_path / "theirs", range(4))
    return path, [aged(path, step, 3 - step) for step in range(4)]


def test_steps_keep_their_times(old, tmp_path):
    path, times = old
    ours.import_checkpoint(path, tmp_path / "store")
    with ckptree.open(tmp_path / "store") as store:
        found = [info.begun_ns / 1e9 for info in store.steps()]
    assert found == pytest.approx(times, abs=1e-5)
    # A policy by time keeps what it would have kept there.
    options = ours.CheckpointManagerOptions(
        preservation_policy=ours.checkpoint_managers.LatestDuration(
            datetime.timedelta(days=1.5)
        )
    )
    with ours.CheckpointManager(tmp_path / "store", options=options) as manager:
        manager.save(4, args=ours.args.StandardSave({"w": np.full(3, 4)}))
        manager.wait_until_finished()
        assert manager.all_steps() == [2, 3, 4]


def test_times_go_back_to_orbax(old, tmp_path):
    path, times = old
    ours.import_checkpoint(path, tmp_path / "store")
    ours.export_orbax(tmp_path / "store", tmp_path / "back")
    names = theirs.path.step.standard_name_format()
    found = {
        step.step: step.commit_timestamp.timestamp()
        for step in names.find_all(tmp_path / "back")
    }
    assert [found[step] for step in range(4)] == pytest.approx(times, abs=1e-5)
    with theirs.CheckpointManager(tmp_path / "back") as manager:
        assert sorted(manager.all_steps()) == [0, 1, 2, 3]
        assert manager.restore(3)["w"].tolist() == [3, 3, 3]


def test_more_metrics_than_a_store_orders_by(tmp_path):
    metrics = {f"m{i:02}": float(i) for i in range(40)} | {"text": "a"}
    path = saved(tmp_path / "theirs", [0, 1], metrics)
    ours.import_checkpoint(path, tmp_path / "store")
    with ours.CheckpointManager(tmp_path / "store") as manager:
        assert manager.metrics(1) == metrics
    with ckptree.open(tmp_path / "store") as store:
        assert len(store.step_info(1).metrics) == 16


class Stopped(Exception):
    pass


def test_an_import_that_was_interrupted_goes_on(tmp_path):
    path = saved(tmp_path / "theirs", range(5))
    seen = []

    def stop(done, of):
        seen.append((done, of))
        if done == 2:
            raise Stopped

    with pytest.raises(Stopped):
        ours.import_checkpoint(path, tmp_path / "store", progress=stop)
    with ckptree.open(tmp_path / "store") as store:
        before = {info.step: info.begun_ns for info in store.steps()}
        versions = [info.committed_ns for info in store.steps()]
    assert list(before) == [0, 1] and seen == [(1, 5), (2, 5)]
    steps = ours.import_checkpoint(path, tmp_path / "store")
    assert steps == [0, 1, 2, 3, 4]
    with ckptree.open(tmp_path / "store") as store:
        assert [info.step for info in store.steps()] == steps
        # Those that were there were not written again.
        assert [info.committed_ns for info in store.steps()][:2] == versions
        for step in steps:
            assert store.restore(step)["default"]["w"].tolist() == [step] * 3


def test_what_was_written_is_read_again(tmp_path, monkeypatch):
    path = saved(tmp_path / "theirs", [0])
    looked = []
    verify = ckptree.Store.verify

    def look(store, level="full", steps=()):
        steps = list(steps)
        looked.append((level, steps))
        report = verify(store, level, steps)
        assert report.chunks or report.leaves
        return report

    monkeypatch.setattr(ckptree.Store, "verify", look)
    ours.import_checkpoint(path, tmp_path / "store")
    assert looked == [("full", [0])]
    ours.import_checkpoint(path, tmp_path / "fast", verify=False)
    assert looked == [("full", [0])]

    def damaged(store, level="full", steps=()):
        finding = ckptree.records.Finding(
            **{name: None for name in ckptree.records.Finding._fields}
        )._replace(severity="error")
        return verify(store, level, steps)._replace(findings=[finding])

    monkeypatch.setattr(ckptree.Store, "verify", damaged)
    with pytest.raises(ckptree.errors.CorruptionError, match="step 0"):
        ours.import_checkpoint(path, tmp_path / "bad")


# ---- NNX: of a variable Orbax makes a dict with `value` ----


def test_a_state_of_nnx_that_orbax_saved(tmp_path):
    nnx = pytest.importorskip("flax.nnx")
    import jax
    import optax

    def model(seed):
        return nnx.Linear(3, 2, rngs=nnx.Rngs(seed))

    saved = model(0)
    state = nnx.state(saved)
    moments = nnx.state(nnx.Optimizer(saved, optax.adam(0.1), wrt=nnx.Param))
    with theirs.CheckpointManager(tmp_path / "old") as manager:
        manager.save(
            0,
            args=theirs.args.Composite(
                model=theirs.args.StandardSave(state),
                moments=theirs.args.PyTreeSave(moments),
            ),
        )
    ours.import_checkpoint(tmp_path / "old", tmp_path / "new")
    other = nnx.state(model(1))
    asked = ours.args.Composite(
        model=ours.args.StandardRestore(other),
        moments=ours.args.PyTreeRestore(moments),
    )
    with ours.CheckpointManager(tmp_path / "new") as manager:
        found = manager.restore(0, args=asked)
        for name, wanted in (("model", state), ("moments", moments)):
            assert isinstance(found[name], nnx.State)
            jax.tree.map(
                np.testing.assert_array_equal,
                nnx.to_pure_dict(found[name]),
                nnx.to_pure_dict(wanted),
            )
        # What is no variable is compared as ever.
        for wrong in (
            nnx.to_pure_dict(other),
            nnx.state(nnx.Conv(3, 2, (1,), rngs=nnx.Rngs(0))),
        ):
            with pytest.raises(ValueError, match="kernel"):
                args = ours.args.StandardRestore(wrong)
                manager.restore(0, args=ours.args.Composite(model=args))


# ---- An import that fails ----


def test_no_store_is_left_where_nothing_was_imported(tmp_path):
    path = saved(tmp_path / "theirs", [3, 4])
    about = path / "3" / "default" / "_METADATA"
    about.rename(path / "away")  # No handler that is known wrote that.
    (tmp_path / "empty").mkdir()
    for one in (path, path / "3"):
        for steps in (None, [3]):
            for store in (tmp_path / "new" / "store", tmp_path / "empty"):
                with pytest.raises(NotImplementedError, match="3/default"):
                    ours.import_checkpoint(one, store, steps=steps)
                assert not (tmp_path / "new").exists()
                assert not any((tmp_path / "empty").iterdir())
    # What was there, or was imported, stays.
    (path / "away").rename(about)
    (path / "4" / "default" / "_METADATA").unlink()
    store = tmp_path / "new" / "store"
    for _ in range(2):
        with pytest.raises(NotImplementedError, match="4/default"):
            ours.import_checkpoint(path, store)
        with ckptree.open(store) as found:
            assert list(found) == [3]


# ---- A folder of checkpoints that are no steps ----


@pytest.fixture
def several(tmp_path):
    with theirs.StandardCheckpointer() as checkpointer:
        for number, name in enumerate(("best", "last", "s2")):
            checkpointer.save(
                tmp_path / "mini" / name, {"w": np.full(3, number)}
            )
            checkpointer.wait_until_finished()
    return tmp_path / "mini"


def test_checkpoints_with_other_names_are_not_left_out(
    several, tmp_path, capsys
):
    store = tmp_path / "store"
    said = "holds best, last, s2, and no step by its name is best, last: "
    with pytest.raises(ValueError, match=f"{said}.*{several}/best.*--step N"):
        ours.import_checkpoint(several, store)
    assert main(["import", str(several), str(store)]) == 1
    assert said in capsys.readouterr().err and not store.exists()
    # What is asked for by its number is taken, as of Flax.
    assert ours.import_checkpoint(several, tmp_path / "two", steps=[2]) == [2]
    for number, name in ((7, "best"), (8, "last")):
        ours.import_checkpoint(several / name, store, steps=[number])
    with ckptree.open(store) as found:
        assert found.restore(8)["default"]["w"].tolist() == [1, 1, 1]
    # None of them is a step.
    (several / "s2").rename(tmp_path / "s2")
    for steps in (None, [2]):
        with pytest.raises(ValueError, match="holds best, last, and no step"):
            ours.import_checkpoint(several, tmp_path / "none", steps=steps)


def test_a_checkpoint_beside_the_steps_of_a_manager(several, tmp_path):
    path = saved(tmp_path / "theirs", range(2))
    (several / "s2").rename(path / "s2")
    with pytest.raises(ValueError, match="holds 0, 1, s2, and no .* is s2: "):
        ours.import_checkpoint(path, tmp_path / "store")
    assert ours.import_checkpoint(path, tmp_path / "store", steps=[0, 1])
    # What a save that was killed has left is no checkpoint.
    (path / "s2").rename(path / "s2.orbax-checkpoint-tmp-3")
    assert ours.import_checkpoint(path, tmp_path / "all") == [0, 1]
