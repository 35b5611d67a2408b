# SPDX-License-Identifier: Apache-2.0
"""training.Checkpointer: the same calls under Orbax and under ckptree."""

import importlib

import jax
import jax.numpy as jnp
import pytest

from orbax_both import assert_same


@pytest.fixture
def ocp(ocp):
    """The second interface of each."""
    return ocp.v1


@pytest.fixture
def training(ocp, tmp_path):
    made = []

    def make(path="run", **options):
        made.append(ocp.training.Checkpointer(tmp_path / path, **options))
        return made[-1]

    yield make
    for checkpointer in made:
        checkpointer.close()


def state(step):
    return {"w": jnp.full(3, step), "n": step}


def steps(checkpointer):
    return [found.step for found in checkpointer.checkpoints]


def test_every_step_is_saved_and_kept(training):  # V1-05
    checkpointer = training(custom_metadata={"run": 1})
    assert checkpointer.latest is None and list(checkpointer.checkpoints) == []
    assert [checkpointer.save(step, state(step)) for step in range(4)] == [
        True
    ] * 4
    assert steps(checkpointer) == [0, 1, 2, 3]
    assert checkpointer.root_metadata().custom_metadata == {"run": 1}
    assert checkpointer.directory.name == "run"
    checkpointer.close()
    again = training()
    assert steps(again) == [0, 1, 2, 3]
    assert again.root_metadata().custom_metadata == {"run": 1}


def test_policies_of_a_run(ocp, training):  # V1-05
    policies = ocp.training
    checkpointer = training(
        save_decision_policy=policies.save_decision_policies.FixedIntervalPolicy(
            2
        ),
        preservation_policy=policies.preservation_policies.LatestN(2),
    )
    saved = [checkpointer.save(step, state(step)) for step in range(7)]
    assert saved == [True, False] * 3 + [True]
    assert steps(checkpointer) == [4, 6]
    assert checkpointer.save_async(7, state(7)) is None
    assert not checkpointer.should_save(7) and checkpointer.should_save(8)
    assert not checkpointer.should_save(2)


def test_names_of_steps(ocp, training):  # V1-05
    names = ocp.path.step.standard_name_format(
        step_prefix="ck", step_format_fixed_length=4
    )
    checkpointer = training(step_name_format=names)
    checkpointer.save(3, state(3))
    assert checkpointer.latest.path.name == "ck_0003"
    assert_same(ocp.load(checkpointer.latest.path), state(3))


def test_a_step_that_is_there(ocp, training):  # V1-06
    checkpointer = training()
    errors = ocp.training.errors
    assert checkpointer.save(5, state(5))
    for force in (False, True):
        with pytest.raises(errors.StepAlreadyExistsError):
            checkpointer.save(5, state(6), force=force)
    assert issubclass(errors.StepAlreadyExistsError, FileExistsError)
    assert checkpointer.save(5, state(7), overwrite=True)
    assert_same(checkpointer.load(5), state(7))
    assert not checkpointer.save(3, state(3))
    assert checkpointer.save_async(3, state(3)) is None
    assert checkpointer.save(3, state(3), force=True)
    assert steps(checkpointer) == [3, 5]


def test_an_older_step_is_replaced(training, ours):  # V1-06
    checkpointer = training()
    for step in range(3):
        checkpointer.save(step, state(step))
    replaced = checkpointer.save(1, state(9), overwrite=True)
    if ours:  # Orbax deletes it, and saves nothing.
        assert replaced
        assert steps(checkpointer) == [0, 1, 2]
        assert_same(checkpointer.load(1), state(9))
    else:
        assert not replaced and steps(checkpointer) == [0, 2]


def test_a_failed_overwrite_keeps_the_step(training, ours):  # V1-06
    checkpointer = training()
    checkpointer.save(1, state(1))
    with pytest.raises(ValueError):
        checkpointer.save(1, {"a": object()}, overwrite=True)
    if ours:
        assert_same(checkpointer.load(1), state(1))


def test_several_objects_of_a_step(training):  # V1-06
    checkpointer = training()
    objects = {"state": state(1), "config": {"lr": 0.1}}
    assert checkpointer.save_checkpointables(1, objects)
    response = checkpointer.save_checkpointables_async(2, objects)
    assert response.result() is True
    assert checkpointer.load_checkpointables(1)["config"] == {"lr": 0.1}
    assert_same(checkpointer.load_checkpointables(2)["state"], state(1))
    assert checkpointer.load_checkpointables(2, {"config": None}) == {
        "config": {"lr": 0.1}
    }
    with pytest.raises(ValueError, match="reserved"):
        checkpointer.save_checkpointables(3, {"metrics": {"a": 1}})
    assert set(checkpointer.checkpointables_metadata(2).metadata) == set(
        objects
    )


def test_loading_of_a_run(ocp, training):  # V1-07
    checkpointer = training()
    errors = ocp.training.errors
    for load in (
        checkpointer.load,
        checkpointer.load_checkpointables,
        checkpointer.metadata,
    ):
        with pytest.raises(errors.StepNotFoundError):
            load()
    checkpointer.save(1, state(1))
    checkpointer.save(2, state(2))
    wanted = {"w": jax.ShapeDtypeStruct((3,), state(1)["w"].dtype), "n": int}
    assert_same(checkpointer.load(), state(2))
    assert_same(checkpointer.load(1), state(1))
    assert_same(checkpointer.load(1, wanted), state(1))
    assert_same(checkpointer.load(checkpointer.latest), state(2))
    assert_same(
        checkpointer.load(1, checkpointer.metadata(1).metadata), state(1)
    )
    with pytest.raises(errors.StepNotFoundError, match="9"):
        checkpointer.load(9)
    assert issubclass(errors.StepNotFoundError, FileNotFoundError)
    with pytest.raises(KeyError):
        checkpointer.load(1, checkpointable_name="other")
    with pytest.raises(KeyError):
        checkpointer.load_checkpointables(1, {"other": None})
    with pytest.raises((KeyError, ValueError)):
        checkpointer.load(1, {"w": wanted["w"]})
    with pytest.raises(NotImplementedError):
        checkpointer.load_async(1)


def test_what_a_run_says(ocp, training):  # V1-08
    checkpointer = training()
    for step in (2, 5):
        checkpointer.save(step, state(step), custom_metadata={"at": step})
    checkpointer.save(3, state(3), force=True)
    assert steps(checkpointer) == [2, 3, 5]
    assert checkpointer.latest.step == 5
    assert checkpointer.checkpoints[0].metadata is None
    found = checkpointer.metadata(2)
    assert isinstance(found, ocp.training.CheckpointMetadata)
    assert (found.step, found.custom_metadata) == (2, {"at": 2})
    assert found.metadata["w"].shape == (3,)
    assert found.init_timestamp <= found.commit_timestamp
    assert checkpointer.metadata().step == 5
    assert checkpointer.root_metadata().directory == checkpointer.directory
    checkpointer.wait()
    assert not checkpointer.is_saving_in_progress()


def test_a_reader_reloads(ocp, ours, tmp_path):  # V1-08
    with ocp.training.Checkpointer(tmp_path / "run") as checkpointer:
        checkpointer.save(1, state(1))
        checkpointer.reload()
        assert steps(checkpointer) == [1]
        if ours:
            assert_same(ocp.load(tmp_path / "run" / "1"), state(1))


def test_a_step_is_deleted(ocp, training):
    checkpointer = training()
    for step in range(3):
        checkpointer.save(step, state(step))
    assert checkpointer.delete(1)
    assert checkpointer.delete(checkpointer.latest)
    assert steps(checkpointer) == [0]
    assert not checkpointer.delete(1, missing_ok=True)
    with pytest.raises(ocp.training.errors.StepNotFoundError):
        checkpointer.delete(1)


def test_metrics_are_always_kept(training, tmp_path):  # V1-09
    checkpointer = training()
    checkpointer.save(1, state(1), metrics={"loss": 0.5})
    checkpointer.save(2, state(2), metrics=[1, 2])
    checkpointer.save(3, state(3))
    assert checkpointer.metadata(1).metrics == {"loss": 0.5}
    assert checkpointer.metadata(2).metrics == [1, 2]
    assert checkpointer.metadata(3).metrics is None
    assert set(checkpointer.load_checkpointables(1)) == {"state"}
    checkpointer.close()
    assert training().metadata(1).metrics == {"loss": 0.5}


def test_the_best_are_kept(ocp, ours, training):  # V1-09
    best = ocp.training.preservation_policies.BestN(
        n=2, get_metric_fn=lambda metrics: metrics["loss"], reverse=True
    )
    checkpointer = training(preservation_policy=best)
    for step, loss in enumerate((3.0, 1.0, 2.0, 5.0)):
        checkpointer.save(step, state(step), metrics={"loss": loss})
    assert steps(checkpointer) == ([1, 2, 3] if ours else [1, 2])


# ---- V1-10: AsyncResponse ----


def test_a_step_in_the_background(ocp, training):
    checkpointer = training()
    responses = [
        checkpointer.save_async(step, state(step), force=True)
        for step in range(3)
    ]
    assert [response.result(timeout=60) for response in responses] == [True] * 3
    assert_same(checkpointer.load(1), state(1))


def test_a_step_that_is_left_out_is_none(training):
    checkpointer = training()
    saved = [checkpointer.save_async(step, state(step)) for step in range(9)]
    expected = [
        step for step, response in enumerate(saved) if response is not None
    ]
    assert expected[0] == 0
    checkpointer.wait()
    assert steps(checkpointer) == expected


def test_a_callback_when_a_step_is_durable(ocp, training):
    called = []
    context = ocp.Context()
    context.asynchronous.post_finalization_callback = lambda: called.append(1)
    checkpointer = training(context=context)
    checkpointer.save(1, state(1))
    checkpointer.save_async(2, state(2))
    checkpointer.close()
    assert called == [1, 1]


# ---- V1-14: the first interface's checkpoints ----


@pytest.fixture
def first(ocp):
    """The first interface of the same package."""
    return importlib.import_module(
        ocp.__name__.removesuffix(".experimental.v1")
    )


def test_a_checkpoint_of_the_first_interface_loads(ocp, first, tmp_path):
    with first.StandardCheckpointer() as checkpointer:
        checkpointer.save(tmp_path / "a", {"a": jnp.ones(2), "n": 1})
    assert ocp.is_orbax_checkpoint(tmp_path / "a")
    assert_same(ocp.load(tmp_path / "a"), {"a": jnp.ones(2), "n": 1})
    assert ocp.metadata(tmp_path / "a").metadata["a"].shape == (2,)


def test_a_run_of_the_first_interface_loads(ocp, first, tmp_path):
    args = first.args
    with first.CheckpointManager(tmp_path / "run") as manager:
        manager.save(
            1,
            args=args.Composite(
                params=args.StandardSave({"a": jnp.ones(2)}),
                config=args.JsonSave({"q": [1]}),
            ),
        )
        manager.wait_until_finished()
    found = ocp.load_checkpointables(tmp_path / "run" / "1")
    assert_same(found["params"], {"a": jnp.ones(2)})
    assert found["config"] == {"q": [1]}
    assert_same(ocp.load(tmp_path / "run" / "1"), {"a": jnp.ones(2)})
    with ocp.training.Checkpointer(tmp_path / "run") as checkpointer:
        assert checkpointer.load_checkpointables()["config"] == {"q": [1]}
        assert checkpointer.save(2, state(2))


def test_the_first_interface_restores_a_run_of_the_second(tmp_path):
    import ckptree.orbax as first
    import ckptree.orbax.experimental.v1 as ocp

    with ocp.training.Checkpointer(tmp_path / "run") as checkpointer:
        checkpointer.save(1, state(1), metrics={"loss": 2.0})
    with first.CheckpointManager(tmp_path / "run") as manager:
        assert_same(manager.restore(1)["state"], state(1))
        assert manager.metrics(1) == {"loss": 2.0}
