# SPDX-License-Identifier: Apache-2.0
"""CheckpointManager: the same calls under Orbax and under ckptree."""

import datetime
import json

import jax.numpy as jnp
import numpy as np
import pytest

from orbax_both import assert_same


def state(step):
    return {"w": np.full(3, step), "n": step}


@pytest.fixture
def managed(ocp, tmp_path):
    """Makes managers on one directory; closes them."""
    made = []

    def make(path="run", **options):
        arguments = {
            name: options.pop(name)
            for name in (
                "item_names",
                "item_handlers",
                "metadata",
                "handler_registry",
            )
            if name in options
        }
        manager = ocp.CheckpointManager(
            tmp_path / path,
            options=ocp.CheckpointManagerOptions(**options),
            **arguments,
        )
        made.append(manager)
        return manager

    yield make
    for manager in made:
        manager.close()


@pytest.fixture
def save(ocp):
    def run(manager, step, **options):
        return manager.save(
            step, args=ocp.args.StandardSave(state(step)), **options
        )

    return run


def steps(manager):
    manager.wait_until_finished()
    return list(manager.all_steps())


# ---- Saving: CM-14 to CM-18 ----


def test_the_folder_of_a_run_has_more_than_checkpoints(ocp, tmp_path):
    (tmp_path / "config.yaml").write_text("lr: 1")
    (tmp_path / "tensorboard").mkdir()
    (tmp_path / "events.out.tfevents.1700000000.host.1.0").write_text("x")
    with ocp.CheckpointManager(tmp_path) as manager:
        manager.save(1, args=ocp.args.StandardSave(state(1)))
    with ocp.CheckpointManager(tmp_path) as manager:
        assert list(manager.all_steps()) == [1]
    assert (tmp_path / "config.yaml").read_text() == "lr: 1"


def test_a_loop(managed, save):
    manager = managed(max_to_keep=2, save_interval_steps=2)
    assert [save(manager, step) for step in range(6)] == [True, False] * 3
    assert steps(manager) == [2, 4]
    assert manager.latest_step() == 4
    restored = manager.restore(4)
    assert_same(restored, state(4))
    assert not manager.should_save(4) and manager.should_save(6)
    assert not manager.should_save(2)


def test_a_step_that_is_there(ocp, managed, save):
    manager = managed()
    assert save(manager, 1)
    assert not save(manager, 1)
    with pytest.raises(ValueError, match="1"):
        save(manager, 1, force=True)
    manager.wait_until_finished()
    assert steps(manager) == [1]


def test_force_saves_older_steps_and_others(managed, save):
    manager = managed(save_interval_steps=10)
    assert save(manager, 10)
    assert not save(manager, 15)
    assert save(manager, 15, force=True)
    assert save(manager, 3, force=True)
    assert sorted(steps(manager)) == [3, 10, 15]


def test_arguments_that_are_refused(ocp, managed):
    manager = managed()
    with pytest.raises(ValueError):
        manager.save(0)
    with pytest.raises(ValueError):
        manager.save(0, ocp.args.StandardSave({"a": 1}))
    with pytest.raises(ValueError):
        manager.save(0, args={"a": 1})
    assert steps(manager) == []


def test_one_item_or_several(ocp, managed, save):  # CM-04
    manager = managed()
    save(manager, 0)
    with pytest.raises(ValueError, match="Composite"):
        manager.save(
            1, args=ocp.args.Composite(state=ocp.args.StandardSave({"a": 1}))
        )
    other = managed("other")
    other.save(
        0, args=ocp.args.Composite(state=ocp.args.StandardSave({"a": 1}))
    )
    with pytest.raises(ValueError, match="Composite"):
        save(other, 1)
    other.wait_until_finished()
    manager.wait_until_finished()


def test_arguments_of_the_constructor_that_conflict(ocp, tmp_path):  # CM-03
    names = ("a",)
    handler = ocp.StandardCheckpointHandler()
    registry = ocp.handlers.DefaultCheckpointHandlerRegistry()
    for wrong in (
        {"item_names": names, "item_handlers": handler},
        {"item_names": names, "handler_registry": registry},
        {"item_handlers": {"a": handler}, "handler_registry": registry},
        {"checkpointers": ocp.PyTreeCheckpointer(), "item_names": names},
    ):
        with pytest.raises(ValueError):
            ocp.CheckpointManager(tmp_path / "run", **wrong)


@pytest.mark.parametrize(
    "wrong",
    [
        {"best_mode": "best"},
        {"max_to_keep": -1},
        {"todelete_subdir": "a", "todelete_full_path": "b"},
        {"enable_per_process_directory_creation": True},
    ],
)
def test_options_that_are_refused(ocp, wrong):
    with pytest.raises(ValueError):
        ocp.CheckpointManagerOptions(**wrong)


def test_a_callback_without_a_background(ocp, managed):  # OPT-18
    background = ocp.AsyncOptions(post_finalization_callback=lambda: None)
    with pytest.raises(ValueError, match="post_finalization_callback"):
        managed(enable_async_checkpointing=False, async_options=background)


@pytest.mark.parametrize(
    "wrong",
    [{"max_to_keep": 2}, {"keep_period": 5}],
)
def test_a_policy_and_its_older_options(ocp, managed, wrong):  # OPT-25
    with pytest.raises(ValueError):
        managed(preservation_policy=ocp.checkpoint_managers.LatestN(1), **wrong)


# ---- Keeping ----


@pytest.mark.parametrize(
    "options, kept",
    [
        ({"max_to_keep": 1, "keep_period": 4}, [0, 4, 8, 9]),
        ({"max_to_keep": None, "keep_period": 4}, list(range(10))),
        (
            {
                "max_to_keep": 2,
                "keep_time_interval": datetime.timedelta(days=1),
            },
            [0, 8, 9],
        ),
        (
            {"save_interval_steps": 3, "save_on_steps": [4, 5]},
            [0, 3, 4, 5, 6, 9],
        ),
        ({"should_save_fn": lambda step, latest: step in (2, 5)}, [2, 5]),
    ],
)
def test_options_of_policies(managed, save, options, kept):
    manager = managed(**options)
    for step in range(10):
        save(manager, step)
    assert steps(manager) == kept


def test_nothing_to_keep(ours, managed, save):
    if ours:
        with pytest.raises(ValueError, match="may keep nothing"):
            managed(max_to_keep=0)
        return
    manager = managed(max_to_keep=0)
    save(manager, 1)
    assert steps(manager) == []


def test_the_newest_stays(ours, managed, save):
    manager = managed(
        max_to_keep=2, best_fn=lambda m: m["loss"], best_mode="min"
    )
    for step, loss in enumerate([5, 3, 4, 9]):
        save(manager, step, metrics={"loss": loss})
        manager.wait_until_finished()
        if ours:
            assert steps(manager)[-1] == step
    assert steps(manager) == ([1, 2, 3] if ours else [1, 2])
    assert manager.best_step() == 1


def test_the_best(managed, save):
    manager = managed(
        max_to_keep=2, best_fn=lambda m: m["loss"], best_mode="min"
    )
    for step, loss in enumerate([5, 3, 4, 1, 2]):
        save(manager, step, metrics={"loss": loss, "note": "x"})
    assert steps(manager) == [3, 4]
    assert manager.best_step() == 3
    assert manager.metrics(3) == {"loss": 1, "note": "x"}
    again = managed(
        max_to_keep=2,
        best_fn=lambda m: m["loss"],
        best_mode="min",
        read_only=True,
    )
    assert again.best_step() == 3


def test_the_best_after_it_was_opened_again(managed, save):
    first = managed(
        max_to_keep=2, best_fn=lambda m: m["a"]["loss"], best_mode="min"
    )
    for step, loss in enumerate([5.0, 3.0, 4.0]):
        save(first, step, metrics={"a": {"loss": loss}})
    assert steps(first) == [1, 2]
    first.close()
    second = managed(
        max_to_keep=2, best_fn=lambda m: m["a"]["loss"], best_mode="min"
    )
    assert second.best_step() == 1
    save(second, 3, metrics={"a": {"loss": 1.0}})
    assert steps(second) == [1, 3]
    assert second.best_step() == 3


def test_a_policy_of_the_users_own(ocp, managed, save):
    class Odd:
        def should_preserve(self, checkpoints, *, context):
            return [c.step % 2 == 1 for c in checkpoints]

    policy = ocp.checkpoint_managers.AnyPreservationPolicy(
        [Odd(), ocp.checkpoint_managers.LatestN(1)]
    )
    manager = managed(preservation_policy=policy)
    for step in range(6):
        save(manager, step)
    assert steps(manager) == [1, 3, 5]


def test_a_decision_of_the_users_own(ocp, managed, save):
    seen = []

    class Doubling:
        def should_save(self, step, previous_steps, *, context):
            seen.append((step.step, [p.step for p in previous_steps]))
            return (
                not previous_steps or step.step >= 2 * previous_steps[-1].step
            )

    manager = managed(save_decision_policy=Doubling())
    assert [s for s in range(1, 10) if save(manager, s)] == [1, 2, 4, 8]
    assert seen[-1] == (9, [1, 2, 4, 8])


# ---- Reading ----


def test_what_is_not_there(managed, save):  # CM-19, CM-22, CM-23
    manager = managed()
    assert manager.latest_step() is None and list(manager.all_steps()) == []
    assert manager.best_step() is None
    with pytest.raises(FileNotFoundError):
        manager.restore(None)
    save(manager, 3)
    manager.wait_until_finished()
    with pytest.raises(FileNotFoundError):
        manager.restore(4)
    with pytest.raises(FileNotFoundError):
        manager.delete(4)
    with pytest.raises(ValueError):
        manager.item_metadata(None)
    manager.delete(3)
    assert steps(manager) == []


def test_items_that_are_not_there(ocp, managed):
    manager = managed()
    manager.save(0, args=ocp.args.Composite(a=ocp.args.StandardSave({"x": 1})))
    manager.wait_until_finished()
    with pytest.raises(KeyError, match="b"):
        manager.restore(
            0, args=ocp.args.Composite(b=ocp.args.StandardRestore())
        )


def test_without_arguments_after_it_was_opened_again(ocp, managed):  # CM-20
    first = managed()
    first.save(
        0,
        args=ocp.args.Composite(
            state=ocp.args.StandardSave(state(0)),
            config=ocp.args.JsonSave({"a": 1}),
        ),
    )
    first.wait_until_finished()
    first.close()
    restored = managed().restore(0)
    assert_same(restored["state"], state(0))
    assert restored.config == {"a": 1}


@pytest.mark.parametrize("again", [False, True])
def test_without_arguments_the_metrics_come_along(ocp, managed, again):
    options = {"best_fn": lambda metrics: metrics["loss"]}
    manager = managed(**options)
    items = ocp.args.Composite(config=ocp.args.JsonSave({"a": 1}))
    manager.save(0, args=items, metrics={"loss": 0.5, "more": [1]})
    manager.wait_until_finished()
    if again:
        manager.close()
        manager = managed(**options)
    for asked in (None, ocp.args.Composite()):
        found = manager.restore(0, args=asked)
        assert set(found) == {"config", "metrics"}
        assert found.metrics == {"loss": 0.5, "more": [1]}
    assert found.config == {"a": 1}


def test_items_added_later(ocp, managed):
    manager = managed()
    manager.save(0, args=ocp.args.Composite(a=ocp.args.StandardSave({"x": 1})))
    manager.save(
        1,
        args=ocp.args.Composite(
            a=ocp.args.StandardSave({"x": 2}), b=ocp.args.JsonSave({"y": 3})
        ),
    )
    manager.wait_until_finished()
    assert set(manager.restore(0)) == {"a"}
    assert set(manager.restore(1)) == {"a", "b"}


def test_read_only(managed, save):  # OPT-16
    writer = managed()
    save(writer, 1)
    writer.wait_until_finished()
    reader = managed(read_only=True)
    assert list(reader.all_steps()) == [1]
    assert not save(reader, 2) and not reader.should_save(2)
    reader.delete(1)
    save(writer, 2)
    writer.wait_until_finished()
    assert list(reader.all_steps()) == [1]
    reader.reload()
    assert list(reader.all_steps()) == [1, 2]
    assert_same(reader.restore(2), state(2))


def test_metadata(ocp, managed, save):  # CM-07, CM-25
    manager = managed(metadata={"run": 1})
    save(manager, 0, custom_metadata={"who": "me"})
    manager.wait_until_finished()
    assert manager.metadata().custom_metadata == {"run": 1}
    found = manager.metadata(0)
    assert found.custom_metadata == {"who": "me"}
    assert found.commit_timestamp_nsecs > found.init_timestamp_nsecs > 0
    assert found.item_metadata["w"].shape == (3,)
    manager.close()
    again = managed(metadata={"run": 2})
    assert again.metadata().custom_metadata == {"run": 1}


def test_synchronous(managed, save):
    manager = managed(enable_async_checkpointing=False)
    save(manager, 0)
    assert not manager.is_saving_in_progress()
    assert list(manager.all_steps()) == [0]


def test_arrays_may_change_after_save(ocp, managed):  # PT-07
    manager = managed()
    array = np.arange(1000)
    manager.save(0, args=ocp.args.StandardSave({"w": array}))
    array[:] = -1
    manager.wait_until_finished()
    assert np.array_equal(manager.restore(0)["w"], np.arange(1000))


def test_the_way_before_args(ocp, tmp_path):  # SE-03
    tree = {"w": np.ones(2), "n": 1}
    manager = ocp.CheckpointManager(
        tmp_path / "run",
        ocp.PyTreeCheckpointer(),
        ocp.CheckpointManagerOptions(max_to_keep=2),
    )
    save_args = {"w": ocp.SaveArgs(aggregate=True), "n": ocp.SaveArgs()}
    for step in range(3):
        assert manager.save(step, tree, save_kwargs={"save_args": save_args})
    assert list(manager.all_steps()) == [1, 2]
    assert_same(manager.restore(2), tree)
    assert_same(manager.restore(2, items=tree), tree)
    manager.close()


# ---- Handlers of the user's own ----


@pytest.fixture
def words(ocp):
    """A handler that writes a file, and its arguments."""

    class WordsHandler(ocp.CheckpointHandler):
        def save(self, directory, args):
            (directory / "words.txt").write_text(" ".join(args.item))

        def restore(self, directory, args=None):
            return (directory / "words.txt").read_text().split(" ")

        def metadata(self, directory):
            return None

    import dataclasses

    @ocp.args.register_with_handler(WordsHandler, for_save=True)
    @dataclasses.dataclass
    class WordsSave(ocp.args.CheckpointArgs):
        item: list

    @ocp.args.register_with_handler(WordsHandler, for_restore=True)
    @dataclasses.dataclass
    class WordsRestore(ocp.args.CheckpointArgs):
        item: list | None = None

    return WordsHandler, WordsSave, WordsRestore


def test_a_handler_of_the_users_own(ocp, managed, words):
    _, words_save, words_restore = words
    manager = managed()
    for step in range(2):
        manager.save(
            step,
            args=ocp.args.Composite(
                words=words_save(["a", str(step)]),
                state=ocp.args.StandardSave(state(step)),
            ),
        )
    manager.wait_until_finished()
    restored = manager.restore(
        1, args=ocp.args.Composite(words=words_restore())
    )
    assert restored.words == ["a", "1"]


def test_a_registry(ocp, managed, words):
    handler, words_save, words_restore = words
    registry = ocp.handlers.DefaultCheckpointHandlerRegistry()
    made = handler()
    registry.add("words", words_save, made)
    registry.add("words", words_restore, made)
    with pytest.raises(ValueError):
        registry.add("words", words_save, made)
    with pytest.raises(KeyError):
        registry.get("other", words_save)
    manager = managed(handler_registry=registry)
    manager.save(0, args=ocp.args.Composite(words=words_save(["x"])))
    manager.wait_until_finished()
    assert manager.restore(0).words == ["x"]


def test_another_handler_for_an_item(ocp, managed):  # HR-08
    manager = managed()
    manager.save(0, args=ocp.args.Composite(a=ocp.args.PyTreeSave({"x": 1})))
    manager.wait_until_finished()
    with pytest.raises(
        ValueError, match="does not match with any registered handler"
    ):
        manager.restore(
            0, args=ocp.args.Composite(a=ocp.args.StandardRestore())
        )


def test_documents_arrays_and_keys(ocp, managed):  # OH-01 to OH-05
    import jax

    np.random.seed(3)
    key = jax.random.PRNGKey(5)
    manager = managed()
    manager.save(
        0,
        args=ocp.args.Composite(
            json=ocp.args.JsonSave({"t": (1, 2), "n": None}),
            array=ocp.args.ArraySave(jnp.arange(4)),
            number=ocp.args.ArraySave(7),
            key=ocp.args.JaxRandomKeySave(key),
            random=ocp.args.NumpyRandomKeySave(np.random.get_state()),
        ),
    )
    expected = np.random.rand()
    manager.wait_until_finished()
    restored = manager.restore(0)
    assert json.dumps(restored.json) == '{"t": [1, 2], "n": null}'
    assert np.array_equal(restored.array, np.arange(4))
    assert restored.number == 7
    assert np.array_equal(restored.key, key)
    np.random.set_state(restored.random)
    assert np.random.rand() == expected
