# SPDX-License-Identifier: Apache-2.0
"""Names of steps, waiting for new ones, and metadata: under Orbax and under
ckptree."""

import collections
import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest


@pytest.fixture
def run(ocp, tmp_path):
    """A directory with steps, and how they are called there."""

    def make(*steps, **options):
        path = tmp_path / "run"
        with ocp.CheckpointManager(
            path,
            options=ocp.CheckpointManagerOptions(
                enable_async_checkpointing=False, **options
            ),
        ) as manager:
            for step in steps:
                manager.save(
                    step,
                    args=ocp.args.StandardSave({"w": np.full(2, step)}),
                    force=True,
                )
        return path

    return make


# ---- Names of steps: ST ----


@pytest.mark.parametrize(
    "options, names",
    [
        ({}, ["23", "12345"]),
        ({"step_format_fixed_length": 4}, ["0023", "12345"]),
        ({"step_prefix": "step"}, ["step_23", "step_12345"]),
        (
            {"step_prefix": "step", "step_format_fixed_length": 4},
            ["step_0023", "step_12345"],
        ),
    ],
)
def test_names_that_a_format_builds(ocp, run, options, names):  # ST-01, OPT-08
    names_of = ocp.path.step.standard_name_format(**options)
    assert [names_of.build_name(step) for step in (23, 12345)] == names
    assert ocp.path.step.is_standard_name_format(names_of)
    path = run(23, 12345, **options)
    assert sorted(found.step for found in names_of.find_all(path)) == [
        23,
        12345,
    ]
    assert names_of.find_step(path, 23).path == path / names[0]


def test_a_manager_with_a_format_of_its_own(ocp, tmp_path):  # OPT-08
    names_of = ocp.path.step.standard_name_format(step_prefix="at")
    options = ocp.CheckpointManagerOptions(
        step_name_format=names_of, step_prefix="no"
    )
    with ocp.CheckpointManager(tmp_path / "run", options=options) as manager:
        manager.save(7, args=ocp.args.StandardSave({"w": np.ones(2)}))
        manager.wait_until_finished()
        found = manager.item_metadata(7)["w"]
    # What user code joins to the directory names the step.
    with ocp.StandardCheckpointer() as checkpointer:
        restored = checkpointer.restore(tmp_path / "run" / "at_7" / "default")
    assert np.array_equal(restored["w"], np.ones(2))
    assert found.directory == tmp_path / "run" / "at_7" / "default"


def test_steps_that_are_not_there(ocp, run, tmp_path):  # ST-02, ST-03
    names_of = ocp.path.step.standard_name_format()
    assert list(names_of.find_all(tmp_path / "nothing")) == []
    path = run(1)
    with pytest.raises(ValueError, match="No step path found"):
        names_of.find_step(path, 2)
    with pytest.raises(ValueError):
        names_of.find_step(tmp_path / "nothing", 1)


def test_a_name_to_write_and_others_to_read(ocp, run):  # ST-04
    step = ocp.path.step
    long = step.standard_name_format(step_format_fixed_length=4)
    short = step.standard_name_format()
    with pytest.raises(ValueError):
        step.composite_name_format(long, [short])
    both = step.composite_name_format(long, [long, short])
    assert both.build_name(5) == "0005"
    path = run(5, step_name_format=both)
    assert [found.step for found in both.find_all(path)] == [5]
    assert both.find_step(path, 5).step == 5
    with pytest.raises(ValueError):
        both.find_step(path, 6)


def test_one_host_that_looks(ocp, run):  # ST-05, OPT-12
    names_of = ocp.path.step.single_host_load_and_broadcast_name_format(
        ocp.path.step.standard_name_format()
    )
    path = run(3, single_host_load_and_broadcast=True)
    assert [found.step for found in names_of.find_all(path)] == [3]


def test_steps_of_a_directory(ocp, run):  # ST-06, ST-08, ST-09
    path = run(4, 20, 3)
    assert sorted(ocp.utils.checkpoint_steps(path)) == [3, 4, 20]
    paths = ocp.path.step.checkpoint_steps_paths(path)
    assert sorted(found.name for found in paths) == ["20", "3", "4"]
    found = ocp.path.step.standard_name_format().find_step(path, 4)
    assert found.commit_timestamp.tzinfo is not None
    assert ocp.path.step.is_path_finalized(path / "4")
    assert ocp.path.step.all_temporary_paths(path) == []


def test_paths_of_steps_and_items(ocp):
    directory = ocp.path.step.get_save_directory
    assert str(directory(7, "run")) == "run/7"
    assert (
        str(directory(7, "run", "state", step_prefix="step"))
        == "run/step_7/state"
    )
    assert str(directory(7, "run", step_format_fixed_length=3)) == "run/007"
    assert (
        str(directory(7, "run", "x", override_directory="other")) == "other/x"
    )


def test_a_step_that_is_an_array(ocp, tmp_path):  # ST-10
    with ocp.CheckpointManager(tmp_path / "run") as manager:
        assert manager.save(jnp.array(4), args=ocp.args.StandardSave({"n": 1}))
        manager.wait_until_finished()
        assert list(manager.all_steps()) == [4]
        assert manager.restore(jnp.array(4)) == {"n": 1}


# ---- Waiting for new steps: CU ----


def test_the_latest_step_that_is_waited_for(ocp, run):  # CU-01
    wait = ocp.checkpoint_utils.wait_for_new_checkpoint
    path = run(1, 5, 3)
    with wait(path, seconds_to_sleep=0, timeout=5) as step:
        assert step == 5
    with wait(path, until_step=4, seconds_to_sleep=0, timeout=5) as step:
        assert step == 5
    with wait(path, until_step=6, seconds_to_sleep=0, timeout=0) as step:
        assert step == -1


def test_nothing_to_wait_for(ocp, tmp_path):  # CU-01
    asked = []

    def enough():
        asked.append(1)
        return len(asked) == 2

    with ocp.checkpoint_utils.wait_for_new_checkpoint(
        tmp_path / "nothing", seconds_to_sleep=0, timeout=0, timeout_fn=enough
    ) as step:
        assert step == -1
    assert len(asked) == 2


def test_steps_as_they_come(ocp, run):  # CU-03
    path = run(1, 2)
    seen = []
    for step in ocp.checkpoint_utils.checkpoints_iterator(
        path, seconds_to_sleep=0, timeout=0
    ):
        seen.append(step)
        if step == 2:
            # Two more: the first of them is never seen.
            run(3, 4)
    assert seen == [2, 4]


def test_a_step_that_comes_later(ocp, run, tmp_path):  # CU-01
    saver = threading.Thread(target=run, args=(9,))
    with ocp.checkpoint_utils.wait_for_new_checkpoint(
        tmp_path / "other", seconds_to_sleep=0, timeout=0
    ) as step:
        assert step == -1
    saver.start()
    with ocp.checkpoint_utils.wait_for_new_checkpoint(
        tmp_path / "run", until_step=9, seconds_to_sleep=0, timeout=60
    ) as step:
        assert step == 9
    saver.join()


# ---- Metadata and loggers: MD ----


def test_abstract_arrays_of_metadata(ocp, tmp_path):
    checkpointer = ocp.StandardCheckpointer()
    checkpointer.save(tmp_path / "x", {"w": jnp.ones(2)})
    checkpointer.wait_until_finished()
    found = checkpointer.metadata(tmp_path / "x").item_metadata.tree["w"]
    abstract = jax.ShapeDtypeStruct(
        found.shape, found.dtype, sharding=found.sharding.to_jax_sharding()
    )
    assert abstract.sharding == jnp.ones(2).sharding
    restored = checkpointer.restore(tmp_path / "x", {"w": abstract})["w"]
    assert restored.sharding == abstract.sharding and (restored == 1).all()


def test_metadata_as_a_template(ocp, tmp_path):  # MD-01
    tree = {"w": np.arange(6.0).reshape(2, 3), "n": 3, "s": "x", "e": {}}
    checkpointer = ocp.PyTreeCheckpointer()
    checkpointer.save(tmp_path / "x", tree)
    found = checkpointer.metadata(tmp_path / "x").item_metadata
    value = ocp.metadata.value
    assert type(found["w"]) is value.ArrayMetadata
    assert (found["w"].shape, found["w"].dtype) == ((2, 3), np.float64)
    assert found["w"].name == "w" and found["w"].sharding is None
    assert type(found["n"]) is value.ScalarMetadata
    assert type(found["s"]) is value.StringMetadata
    assert found["e"] == {}
    restored = checkpointer.restore(tmp_path / "x", item=found)
    assert np.array_equal(restored["w"], tree["w"])
    assert restored["n"] == 3 and restored["s"] == "x"


def test_names_of_arrays_in_lists_and_fields(ocp, tmp_path):  # MD-01
    Pair = collections.namedtuple("Pair", "left right")
    tree = {"l": [Pair(np.ones(1), {7: {"x/y": np.ones(2)}})], "a.b": 1}
    checkpointer = ocp.PyTreeCheckpointer()
    checkpointer.save(tmp_path / "x", tree)
    found = checkpointer.metadata(tmp_path / "x").item_metadata.tree
    leaves = jax.tree.leaves(found, is_leaf=lambda leaf: hasattr(leaf, "name"))
    assert sorted(leaf.name for leaf in leaves) == [
        "a.b", "l.0.left", "l.0.right.7.x/y",
    ]


@pytest.mark.parametrize("single", [True, False])
def test_metrics_are_an_item_of_metadata(ocp, tmp_path, single):  # CM-07
    options = ocp.CheckpointManagerOptions(best_fn=lambda m: m["loss"])
    args = ocp.args.StandardSave({"w": np.ones(2)})
    if not single:
        args = ocp.args.Composite(state=args)
    with ocp.CheckpointManager(tmp_path / "run", options=options) as manager:
        for step, metrics in ((1, {"loss": 1.0}), (2, None)):
            manager.save(step, args=args, metrics=metrics)
        manager.wait_until_finished()
        found, without = manager.metadata(1), manager.metadata(2)
        name = "default" if single else "state"
        assert set(found.item_handlers) == {name, "metrics"}
        assert "JsonCheckpointHandler" in found.item_handlers["metrics"]
        assert set(without.item_handlers) == {name}
        assert found.metrics == {"loss": 1.0}
        if not single:
            item = manager.item_metadata(1)
            assert set(item.keys()) == {"state", "metrics"}
            assert item["metrics"] is None
            assert set(manager.item_metadata(2).keys()) == {"state"}


def test_custom_metadata(ocp, tmp_path):  # MD-04, PT-01
    checkpointer = ocp.Checkpointer(ocp.PyTreeCheckpointHandler())
    args = ocp.args.PyTreeSave({"a": 1}, custom_metadata={"of": "the tree"})
    checkpointer.save(
        tmp_path / "x", args=args, custom_metadata={"of": "the step"}
    )
    found = checkpointer.metadata(tmp_path / "x")
    assert found.custom_metadata == {"of": "the step"}
    assert found.item_metadata.custom_metadata == {"of": "the tree"}
    with pytest.raises(TypeError):
        wrong = ocp.args.PyTreeSave({"a": 1}, custom_metadata={"of": object()})
        checkpointer.save(tmp_path / "y", args=wrong)
    with pytest.raises(ValueError):
        checkpointer.save(tmp_path / "z", {"a": 1}, custom_metadata=[1])


def test_metadata_is_no_tree_to_save(ocp, tmp_path):  # PT-01
    checkpointer = ocp.PyTreeCheckpointer()
    checkpointer.save(tmp_path / "x", {"a": 1})
    found = checkpointer.metadata(tmp_path / "x").item_metadata
    with pytest.raises(ValueError, match="Cannot save TreeMetadata"):
        checkpointer.save(tmp_path / "y", found)


def test_entries_of_loggers(ocp, tmp_path):  # MD-05, SV-11
    class Notes(ocp.logging.AbstractLogger):
        def __init__(self):
            self.entries = []

        def log_entry(self, entry):
            self.entries.append(entry)

    notes = Notes()
    with ocp.CheckpointManager(tmp_path / "run", logger=notes) as manager:
        manager.save(3, args=ocp.args.StandardSave({"a": 1}))
        manager.wait_until_finished()
        manager.restore(3)
    saved, restored = (
        next(e for e in notes.entries if e.get("event_type") == kind)
        for kind in ("save", "restore")
    )
    assert saved["step"] == restored["step"] == 3
    assert saved["directory"] == restored["directory"] == str(tmp_path / "run")
    assert saved["synchronous"] is False
