# SPDX-License-Identifier: Apache-2.0
"""flax.training.checkpoints: Flax's guide, and what else the functions do,
under Flax and under ckptree."""

import importlib
from typing import Any

import ckptree
import flax
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import linen
from flax.training import train_state
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from no_room import no_room, too_large
from orbax_both import assert_same


@pytest.fixture(params=["flax", "ckptree"])
def both(request):
    """The module of checkpoints, and that of Orbax beside it."""
    if request.param == "flax":
        return (
            importlib.import_module("flax.training.checkpoints"),
            importlib.import_module("orbax.checkpoint"),
        )
    return (
        importlib.import_module("ckptree.flax.checkpoints"),
        importlib.import_module("ckptree.orbax"),
    )


@pytest.fixture
def checkpoints(both):
    return both[0]


@pytest.fixture
def ours(both):
    return both[0].__name__.startswith("ckptree")


def test_arrays_come_in_the_types_of_the_target(checkpoints, tmp_path):
    saved = {"half": jnp.arange(3) / 3, "np": np.arange(3), "n": 3}
    checkpoints.save_checkpoint(tmp_path / "x", saved, step=1)
    some = {"half": jnp.zeros(3, "bfloat16"), "np": np.zeros(3, "i4"), "n": 0}
    found = checkpoints.restore_checkpoint(tmp_path / "x", some)
    for name in ("half", "np"):
        assert type(found[name]) is type(some[name])
        expected = np.asarray(saved[name]).astype(some[name].dtype)
        assert found[name].dtype == expected.dtype
        assert (np.asarray(found[name]) == expected).all()
    # As they were saved, where none is of JAX.
    none = {name: np.zeros(np.shape(saved[name]), "f2") for name in saved}
    found = checkpoints.restore_checkpoint(tmp_path / "x", none)
    assert [found["half"].dtype, found["np"].dtype] == [np.float32, np.int64]


@pytest.fixture
def ckpt_dir(tmp_path, monkeypatch, ours):
    """Relative for ours, as the guide has it; Orbax refuses that by now."""
    monkeypatch.chdir(tmp_path)
    return (
        "tmp/flax-checkpointing"
        if ours
        else str(tmp_path / "flax-checkpointing")
    )


class Dense(linen.Module):
    @linen.compact
    def __call__(self, x):
        return linen.Dense(features=3)(x)


@pytest.fixture
def guide():
    """What the guide saves: a TrainState, a dict and a list."""
    x = jax.random.normal(jax.random.key(0), (5,))
    variables = Dense().init(jax.random.key(1), x)
    tx = optax.sgd(learning_rate=0.001)
    state = train_state.TrainState.create(
        apply_fn=Dense().apply, params=variables["params"], tx=tx
    )
    state = state.apply_gradients(
        grads=jax.tree.map(jnp.ones_like, state.params)
    )
    config = {"dimensions": np.array([5, 3]), "name": "dense"}
    return {"model": state, "config": config, "data": [x]}


def empty_like(tree):
    return {
        "model": jax.tree.map(np.zeros_like, tree["model"]),
        "config": {"dimensions": np.array([0, 0]), "name": ""},
        "data": [jnp.zeros_like(tree["data"][0])],
    }


def test_save_and_restore_as_a_dict(both, guide, ckpt_dir):  # SE-01, SE-04
    checkpoints, ocp = both
    path = checkpoints.save_checkpoint(
        ckpt_dir,
        guide,
        step=0,
        overwrite=False,
        keep=2,
        orbax_checkpointer=ocp.PyTreeCheckpointer(),
    )
    assert path == f"{ckpt_dir}/checkpoint_0"
    raw = checkpoints.restore_checkpoint(ckpt_dir, target=None)
    assert set(raw) == {"model", "config", "data"}
    assert raw["config"]["name"] == "dense"
    assert np.array_equal(raw["config"]["dimensions"], [5, 3])
    assert list(raw["data"]) == ["0"]
    assert np.array_equal(raw["data"]["0"], guide["data"][0])
    assert raw["model"]["step"] == 1
    assert raw["model"]["opt_state"] == {"0": None, "1": None}
    kernel = guide["model"].params["Dense_0"]["kernel"]
    assert np.array_equal(raw["model"]["params"]["Dense_0"]["kernel"], kernel)


def test_plain_orbax_beside_it(both, guide, tmp_path):  # SE-02, SE-05
    _, ocp = both
    checkpointer = ocp.PyTreeCheckpointer()
    save_args = jax.tree.map(lambda _: ocp.SaveArgs(aggregate=True), guide)
    checkpointer.save(tmp_path / "single", guide, save_args=save_args)
    raw = checkpointer.restore(tmp_path / "single")
    assert type(raw["data"]) is list
    assert np.array_equal(raw["data"][0], guide["data"][0])
    assert raw["model"]["opt_state"] == [None, None]


def test_into_a_target(checkpoints, guide, ckpt_dir):  # SE-06
    checkpoints.save_checkpoint(ckpt_dir, guide, step=0)
    restored = checkpoints.restore_checkpoint(
        ckpt_dir, empty_like(guide), step=0
    )
    assert type(restored["model"]) is train_state.TrainState
    assert restored["model"].opt_state == (
        optax.EmptyState(),
        optax.EmptyState(),
    )
    assert restored["model"].tx is guide["model"].tx
    assert restored["model"].step == 1
    assert_same(
        jax.tree.map(np.asarray, restored["model"].params),
        jax.tree.map(np.asarray, guide["model"].params),
    )
    assert restored["config"]["name"] == "dense"
    assert type(restored["data"]) is list


class CustomState(train_state.TrainState):
    batch_stats: Any = None


@pytest.fixture
def custom(guide):
    return guide | {
        "model": CustomState.create(
            apply_fn=guide["model"].apply_fn,
            params=guide["model"].params,
            tx=guide["model"].tx,
            batch_stats=np.arange(10.0),
        )
    }


def test_a_target_with_another_field(
    checkpoints, ours, guide, custom, ckpt_dir
):
    # SE-07: Flax keeps the target's value without a word.
    checkpoints.save_checkpoint(ckpt_dir, guide, step=0)
    if ours:
        with pytest.raises(ValueError, match="model/batch_stats: missing"):
            checkpoints.restore_checkpoint(ckpt_dir, custom)
    else:
        kept = checkpoints.restore_checkpoint(ckpt_dir, custom)
        assert np.array_equal(kept["model"].batch_stats, np.arange(10.0))


def test_a_target_without_a_field(
    checkpoints, guide, custom, ckpt_dir
):  # SE-08
    checkpoints.save_checkpoint(ckpt_dir, guide, step=0, keep=2)
    checkpoints.save_checkpoint(
        ckpt_dir, custom, step=1, overwrite=True, keep=2
    )
    restored = checkpoints.restore_checkpoint(ckpt_dir, empty_like(guide))
    assert type(restored["model"]) is train_state.TrainState
    assert restored["model"].step == 0


def test_a_dict_that_was_changed(both, guide, custom, ckpt_dir):  # SE-09
    checkpoints, ocp = both
    checkpoints.save_checkpoint(ckpt_dir, guide, step=0)
    raw = checkpoints.restore_checkpoint(ckpt_dir, target=None, step=0)
    raw["model"]["batch_stats"] = np.arange(10.0)
    # Flax's guide has these the other way round; ours takes both.
    made = ocp.utils.deserialize_tree(raw, custom, keep_empty_nodes=True)
    assert type(made["model"]) is CustomState
    assert np.array_equal(made["model"].batch_stats, np.arange(10.0))
    assert made["model"].step == 1
    assert type(made["data"]) is list


def test_in_the_background(both, guide, ckpt_dir):  # SE-10
    checkpoints, ocp = both
    checkpointer = ocp.AsyncCheckpointer(
        ocp.PyTreeCheckpointHandler(), timeout_secs=50
    )
    checkpoints.save_checkpoint(
        ckpt_dir,
        guide,
        step=2,
        overwrite=True,
        keep=3,
        orbax_checkpointer=checkpointer,
    )
    checkpointer.wait_until_finished()
    restored = checkpoints.restore_checkpoint(
        ckpt_dir, empty_like(guide), step=2
    )
    assert np.array_equal(restored["data"][0], guide["data"][0])
    checkpointer.close()


def test_sharded_arrays(both, ckpt_dir):  # SE-11
    checkpoints, ocp = both
    mesh = Mesh(np.array(jax.devices()).reshape(4, 2), ("x", "y"))
    placed = NamedSharding(mesh, PartitionSpec("x", "y"))
    array = jax.device_put(
        jnp.arange(16, dtype=jnp.int32).reshape(8, 2), placed
    )
    checkpoints.save_checkpoint_multiprocess(
        ckpt_dir,
        {"model": array},
        step=3,
        overwrite=True,
        keep=4,
        orbax_checkpointer=ocp.PyTreeCheckpointer(),
    )
    target = {"model": jax.device_put(jnp.zeros((4, 2), jnp.int32), placed)}
    restored = checkpoints.restore_checkpoint(
        ckpt_dir, target, step=3, orbax_checkpointer=ocp.PyTreeCheckpointer()
    )
    assert restored["model"].shape == (8, 2)
    assert restored["model"].sharding.is_equivalent_to(placed, 2)
    assert np.array_equal(restored["model"], array)


# ---- FX rows ----


@pytest.mark.parametrize(
    "options, kept",
    [
        ({"keep": 1}, [9]),
        ({"keep": 3}, [7, 8, 9]),
        ({"keep": 2, "keep_every_n_steps": 3}, [1, 4, 7, 8, 9]),
    ],
)
def test_what_is_kept(checkpoints, ckpt_dir, options, kept):  # FX-06, FX-07
    for step in range(1, 10):
        checkpoints.save_checkpoint(ckpt_dir, {"a": step}, step, **options)
    assert checkpoints.available_steps(ckpt_dir) == kept
    assert checkpoints.latest_checkpoint(ckpt_dir) == f"{ckpt_dir}/checkpoint_9"


def test_a_step_that_is_there(checkpoints, ckpt_dir):  # FX-03, FX-05
    for step in (1, 2, 3):
        checkpoints.save_checkpoint(ckpt_dir, {"a": step}, step, keep=9)
    with pytest.raises(ValueError):
        checkpoints.save_checkpoint(ckpt_dir, {"a": 0}, 2, keep=9)
    checkpoints.save_checkpoint(ckpt_dir, {"a": 5}, 2, keep=9, overwrite=True)
    assert checkpoints.available_steps(ckpt_dir) == [1, 2]
    assert checkpoints.restore_checkpoint(ckpt_dir, {"a": 0})["a"] == 5


def test_what_is_not_there(checkpoints, ckpt_dir):  # FX-11
    target = {"a": 7}
    assert checkpoints.restore_checkpoint(ckpt_dir, target) is target
    assert checkpoints.latest_checkpoint(ckpt_dir) is None
    assert checkpoints.available_steps(ckpt_dir) == []
    checkpoints.save_checkpoint(ckpt_dir, {"a": 1}, 1)
    with pytest.raises(ValueError, match="Matching checkpoint not found"):
        checkpoints.restore_checkpoint(ckpt_dir, target, step=2)


def test_the_name_of_a_step(checkpoints, ckpt_dir):
    checkpoints.save_checkpoint(ckpt_dir, {"a": 1}, 1, keep=2)
    checkpoints.save_checkpoint(ckpt_dir, {"a": 2}, 2, keep=2)
    assert (
        checkpoints.restore_checkpoint(f"{ckpt_dir}/checkpoint_1", None)["a"]
        == 1
    )
    latest = checkpoints.latest_checkpoint(ckpt_dir)
    assert checkpoints.restore_checkpoint(latest, {"a": 0})["a"] == 2


def test_prefixes(checkpoints, ckpt_dir):
    checkpoints.save_checkpoint(ckpt_dir, {"a": 1}, 1, prefix="best_")
    checkpoints.save_checkpoint(ckpt_dir, {"a": 2}, 5)
    assert checkpoints.available_steps(ckpt_dir, prefix="best_") == [1]
    assert checkpoints.available_steps(ckpt_dir) == [5]
    assert (
        checkpoints.restore_checkpoint(ckpt_dir, None, prefix="best_")["a"] == 1
    )


def test_prefixes_that_are_alike(ckpt_dir):
    # Flax takes the file of a longer prefix for one of a shorter.
    from ckptree.flax import checkpoints

    for value, prefix in enumerate(["best_", "best", "best__", "_"]):
        name = checkpoints.save_checkpoint(
            ckpt_dir, {"a": value}, 1, prefix=prefix
        )
        assert name.rpartition("/")[2] == f"{prefix}1"
    for value, prefix in enumerate(["best_", "best", "best__", "_"]):
        found = checkpoints.restore_checkpoint(ckpt_dir, None, prefix=prefix)
        assert found["a"] == value


def test_other_lengths(checkpoints, ours, ckpt_dir):  # FX-12
    checkpoints.save_checkpoint(ckpt_dir, {"a": [1, 2, 3]}, 1)
    if ours:
        with pytest.raises(ValueError, match=r"a/2: unexpected"):
            checkpoints.restore_checkpoint(ckpt_dir, {"a": [0, 0]})
    else:  # Cut off without a word, by now.
        assert checkpoints.restore_checkpoint(ckpt_dir, {"a": [0, 0]}) == {
            "a": [1, 2]
        }


def test_none_in_the_target_stays(checkpoints, ckpt_dir):  # FX-13
    checkpoints.save_checkpoint(ckpt_dir, {"a": np.ones(2), "b": 1}, 1)
    restored = checkpoints.restore_checkpoint(ckpt_dir, {"a": None, "b": 0})
    assert restored == {"a": None, "b": 1}


def test_one_array_is_no_tree(checkpoints, ckpt_dir):  # FX-09
    with pytest.raises(ValueError):
        checkpoints.save_checkpoint(ckpt_dir, 5, 1)


def test_async_manager(checkpoints, ours, ckpt_dir):  # FX-16
    manager = checkpoints.AsyncManager()
    for step in (1, 2):
        checkpoints.save_checkpoint(
            ckpt_dir, {"a": step}, step, keep=2, async_manager=manager
        )
        if ours:  # Flax saves by Orbax at once.
            assert manager.save_future.result(60) is None
    manager.wait_previous_save()
    assert checkpoints.available_steps(ckpt_dir) == [1, 2]


def test_natural_sort(checkpoints):  # FX-15
    names = ["c_1e5", "c_1.0", "c_-1.0", "c_0.01", "c_10", "c_9", "c_0.001"]
    assert checkpoints.natural_sort(names) == [
        "c_-1.0",
        "c_0.001",
        "c_0.01",
        "c_1.0",
        "c_9",
        "c_10",
        "c_1e5",
    ]


def test_convert_pre_linen(checkpoints):  # FX-17
    params = {
        "Conv_0": {"kernel": 0},
        "Dense_1": {"kernel": 1},
        "Conv_2": {"Dense_3": {"w": 3}, "Dense_1": {"w": 2}},
        "other": 4,
    }
    converted = flax.core.unfreeze(checkpoints.convert_pre_linen(params))
    assert converted == {
        "Conv_0": {"kernel": 0},
        "Dense_0": {"kernel": 1},
        "Conv_1": {"Dense_0": {"w": 2}, "Dense_1": {"w": 3}},
        "other": 4,
    }
    assert (
        flax.core.unfreeze(checkpoints.convert_pre_linen(converted))
        == converted
    )


# ---- Names of checkpoints, and checkpointers that are given ----


@pytest.mark.parametrize("prefix", ["best_", "v2", "run-7_", "checkpoint_old_"])
def test_a_name_whatever_its_prefix(checkpoints, ckpt_dir, prefix):  # FX-11
    for step in (3, 21):
        saved = checkpoints.save_checkpoint(
            ckpt_dir, {"a": step}, step, prefix=prefix, keep=2
        )
        assert checkpoints.restore_checkpoint(saved, {"a": 0})["a"] == step
        latest = checkpoints.latest_checkpoint(ckpt_dir, prefix=prefix)
        assert latest == saved == f"{ckpt_dir}/{prefix}{step}"
    assert (
        checkpoints.restore_checkpoint(f"{ckpt_dir}/{prefix}3", None)["a"] == 3
    )


def test_names_that_two_prefixes_have(checkpoints, ckpt_dir):
    checkpoints.save_checkpoint(ckpt_dir, {"a": 1}, 23, "v", keep=9)
    checkpoints.save_checkpoint(ckpt_dir, {"a": 2}, 4, "v2", keep=9)
    assert checkpoints.restore_checkpoint(f"{ckpt_dir}/v23", {"a": 0})["a"] == 1
    assert checkpoints.restore_checkpoint(f"{ckpt_dir}/v24", {"a": 0})["a"] == 2


@pytest.fixture
def noted(both):
    """An asynchronous checkpointer, and when it was waited for."""
    _, ocp = both
    waited = []

    class Noted(ocp.AsyncCheckpointer):
        def wait_until_finished(self):
            waited.append(True)
            super().wait_until_finished()

    checkpointer = Noted(ocp.PyTreeCheckpointHandler())
    yield checkpointer, waited
    checkpointer.close()


def test_a_restore_waits_for_its_checkpointer(
    checkpoints, ckpt_dir, noted
):  # FX-11
    checkpointer, waited = noted
    target = {"a": np.zeros(1 << 20)}
    for step in (1, 2, 3):
        checkpoints.save_checkpoint(
            ckpt_dir,
            {"a": np.full(1 << 20, float(step))},
            step,
            keep=3,
            orbax_checkpointer=checkpointer,
        )
        waited.clear()
        restored = checkpoints.restore_checkpoint(
            ckpt_dir, target, orbax_checkpointer=checkpointer
        )
        assert waited  # Before it looked for steps.
        assert restored["a"][0] == step


def test_an_overwrite_that_fails(checkpoints, ours, ckpt_dir):  # FX-05
    for step in (1, 2, 3):
        checkpoints.save_checkpoint(
            ckpt_dir, {"a": np.full(9, step)}, step, keep=9
        )
    with no_room(), pytest.raises(Exception):
        checkpoints.save_checkpoint(
            ckpt_dir, {"a": too_large()}, 1, keep=9, overwrite=True
        )
    if ours:  # Orbax has removed the step that it was to replace.
        assert checkpoints.available_steps(ckpt_dir) == [1, 2, 3]
        assert (
            checkpoints.restore_checkpoint(ckpt_dir, None, step=1)["a"][0] == 1
        )
    assert checkpoints.restore_checkpoint(ckpt_dir, None)["a"][0] == 3


def test_an_overwrite_in_the_background(both, ours, ckpt_dir):  # FX-05
    checkpoints, ocp = both
    if not ours:
        pytest.skip("Flax removes the folder that is being written")
    for step in range(1, 6):
        checkpoints.save_checkpoint(ckpt_dir, {"a": step}, step, keep=9)
    checkpointer = ocp.AsyncCheckpointer(ocp.PyTreeCheckpointHandler())
    checkpoints.save_checkpoint(
        ckpt_dir,
        {"a": 30},
        3,
        keep=2,
        overwrite=True,
        orbax_checkpointer=checkpointer,
    )
    checkpointer.close()
    assert checkpoints.available_steps(ckpt_dir) == [2, 3]
    assert checkpoints.restore_checkpoint(ckpt_dir, None)["a"] == 30
    # From now on as if nothing had been replaced.
    checkpoints.save_checkpoint(ckpt_dir, {"a": 4}, 4, keep=2)
    assert checkpoints.available_steps(ckpt_dir) == [3, 4]
    with ckptree.open(f"{ckpt_dir}/checkpoint") as store:
        assert store.policy().text == "latest(2)"


def test_an_overwrite_of_what_is_held(tmp_path):
    from ckptree.flax import checkpoints

    for step in (1, 2, 3):
        checkpoints.save_checkpoint(tmp_path, {"a": step}, step, keep=9)
    with ckptree.Store(tmp_path / "checkpoint") as store:
        store.tag("good", 3)
    with pytest.raises(ckptree.StateError, match="step 3"):
        checkpoints.save_checkpoint(
            tmp_path, {"a": 0}, 1, keep=9, overwrite=True
        )
    assert checkpoints.available_steps(tmp_path) == [1, 2, 3]


def test_an_older_step_that_keep_would_remove_at_once(tmp_path):
    from ckptree.flax import checkpoints

    for step in (5, 6):
        checkpoints.save_checkpoint(tmp_path, {"a": step}, step, keep=2)
    with pytest.raises(ckptree.StateError, match="step 3 was not saved"):
        checkpoints.save_checkpoint(tmp_path, {"a": 3}, 3, keep=2)
    assert checkpoints.available_steps(tmp_path) == [5, 6]
    checkpoints.save_checkpoint(tmp_path, {"a": 3}, 3, keep=2, overwrite=True)
    assert checkpoints.available_steps(tmp_path) == [3]


def test_a_handler_of_the_users_own(both, ours, ckpt_dir):  # HR-01
    checkpoints, ocp = both
    kinds = [ocp.AsyncCheckpointer]
    if ours:  # In Orbax its save() does not call async_save().
        kinds.append(ocp.Checkpointer)

    class Tenfold(ocp.PyTreeCheckpointHandler):
        async def async_save(self, directory, item=None, args=None):
            tree = {key: value * 10 for key, value in args.item.items()}
            args = ocp.args.PyTreeSave(tree)
            return await super().async_save(directory, args=args)

        def restore(self, directory, item=None, *more, args=None, **others):
            made = super().restore(directory, args=args)
            return {key: value / 4 for key, value in made.items()}

    @ocp.args.register_with_handler(Tenfold, for_save=True)
    class Save(ocp.args.PyTreeSave):
        pass

    @ocp.args.register_with_handler(Tenfold, for_restore=True)
    class Restore(ocp.args.PyTreeRestore):
        pass

    for kind in kinds:
        checkpointer = kind(Tenfold())
        step = len(checkpoints.available_steps(ckpt_dir))
        tree = {"a": np.arange(3.0)}
        checkpoints.save_checkpoint(
            ckpt_dir, tree, step, keep=9, orbax_checkpointer=checkpointer
        )
        checkpointer.close()
        raw = checkpoints.restore_checkpoint(ckpt_dir, None, step=step)
        assert raw["a"].tolist() == [0, 10, 20]
        for target in (None, tree):
            restored = checkpoints.restore_checkpoint(
                ckpt_dir, target, step=step, orbax_checkpointer=checkpointer
            )
            assert restored["a"].tolist() == [0, 2.5, 5]


KILLED = """
import os, sys, numpy as np
import ckptree.orbax as ocp
from ckptree.flax import checkpoints
checkpointer = ocp.AsyncCheckpointer(ocp.PyTreeCheckpointHandler())
checkpoints.save_checkpoint(
    sys.argv[1], {"a": np.random.default_rng(1).random(1 << 22)}, 1, keep=9,
    overwrite=True, orbax_checkpointer=checkpointer)
os._exit(9)
"""


def test_an_overwrite_that_is_killed(tmp_path):  # FX-05
    import subprocess
    import sys

    from ckptree.flax import checkpoints

    for step in (1, 2, 3):
        checkpoints.save_checkpoint(
            tmp_path, {"a": np.full(9, step)}, step, keep=9
        )
    ended = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)])
    assert ended.returncode == 9
    raw = checkpoints.restore_checkpoint(tmp_path, None)
    if len(raw["a"]) == 1 << 22:  # It was too late.
        assert checkpoints.available_steps(tmp_path) == [1]
    else:
        assert checkpoints.available_steps(tmp_path) == [1, 2, 3]
        assert raw["a"].tolist() == [3] * 9
    # And the directory goes on.
    checkpoints.save_checkpoint(tmp_path, {"a": np.zeros(1)}, 4, keep=1)
    assert checkpoints.available_steps(tmp_path) == [4]
