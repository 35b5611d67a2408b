# SPDX-License-Identifier: Apache-2.0
"""What Flax wrote: as files of msgpack, its legacy format, and as folders of
Orbax. Named where it is opened, and read by the import."""

import flax
import jax
import jax.numpy as jnp
import ckptree
import ckptree.orbax as ours
import ml_dtypes
import msgpack
import numpy as np
import optax
import orbax.checkpoint
import pytest
from flax import serialization
from flax.training import checkpoints as theirs
from flax.training import train_state

from ckptree.flax import checkpoints
from orbax_both import assert_same


def state(step):
    """A TrainState with moments, and what else a state dict may hold."""
    params = {
        "dense": {"kernel": jnp.arange(6.0).reshape(2, 3) + step},
        "half": jnp.full(3, step, jnp.bfloat16),
    }
    made = train_state.TrainState.create(
        apply_fn=None, params=params, tx=optax.adam(1e-3)
    )
    made = made.apply_gradients(grads=jax.tree.map(jnp.ones_like, params))
    return {
        "state": made.replace(step=step),
        "list": [np.arange(4, dtype=np.uint8), np.ones(2, np.float16)],
        "scalar": np.float32(0.5),
        "number": 3 * step,
        "complex": 1 + 2j,
        "name": "x",
    }


def fresh():
    return jax.tree.map(
        lambda leaf: (
            np.zeros_like(leaf) if hasattr(leaf, "shape") else type(leaf)()
        ),
        state(1),
    )


@pytest.fixture(params=["files", "folders"])
def format(request):
    """Flax's legacy files, and what it writes by Orbax."""
    before = flax.config.flax_use_orbax_checkpointing
    flax.config.update(
        "flax_use_orbax_checkpointing", request.param == "folders"
    )
    yield request.param
    flax.config.update("flax_use_orbax_checkpointing", before)


def saved(format, step):
    """Without what Flax does not restore into a target by Orbax."""
    tree = state(step)
    if format == "folders":
        del tree["complex"], tree["name"], tree["scalar"]
    return tree


@pytest.fixture
def written(format, tmp_path):
    """A directory with three steps, and the best beside them."""
    path = tmp_path / "theirs"
    for step in (1, 2, 10):
        theirs.save_checkpoint(path, saved(format, step), step, keep=3)
    theirs.save_checkpoint(path, saved(format, 2), 2, prefix="best_")
    kind = path.joinpath("checkpoint_10").is_dir()
    assert kind == (format == "folders")
    return path


def everything(path):
    """Each path below, and the bytes of files."""
    return {
        child.relative_to(path): child.read_bytes() if child.is_file() else None
        for child in path.rglob("*")
    }


def test_what_flax_wrote_is_named(written):  # FX-11, FX-14, FX-18
    before = everything(written)
    target = fresh()
    for call in (
        lambda: checkpoints.restore_checkpoint(written, target),
        lambda: checkpoints.restore_checkpoint(written, None, step=2),
        lambda: checkpoints.restore_checkpoint(
            written / "checkpoint_10", target
        ),
        lambda: checkpoints.restore_checkpoint(written / "best_2", target),
        lambda: checkpoints.latest_checkpoint(written),
        lambda: checkpoints.latest_checkpoint(written, prefix="best_"),
        lambda: checkpoints.available_steps(written),
        lambda: checkpoints.save_checkpoint(written, {"a": 1}, 11),
    ):
        with pytest.raises(
            ValueError, match=r"ckptree\.orbax import .* NEW_PATH"
        ):
            call()
    assert everything(written) == before  # Nothing was made.


def test_another_prefix_is_not_concerned(written):
    assert checkpoints.available_steps(written, prefix="other_") == []
    checkpoints.save_checkpoint(written, {"a": 1}, 1, prefix="other_")
    assert checkpoints.available_steps(written, prefix="other_") == [1]


def test_import_of_a_directory(format, written, tmp_path):  # FX-18
    new = tmp_path / "new"
    done = []
    steps = ours.import_checkpoint(
        written, new, progress=lambda *now: done.append(now)
    )
    assert steps == [2, 1, 2, 10]  # Of "best_", then of "checkpoint_".
    assert done == [(i, 4) for i in range(1, 5)]
    assert checkpoints.available_steps(new) == [1, 2, 10]
    assert checkpoints.available_steps(new, prefix="best_") == [2]
    for step in (1, 2, 10):
        target = {k: v for k, v in fresh().items() if k in saved(format, step)}
        mine = checkpoints.restore_checkpoint(new, target, step=step)
        other = theirs.restore_checkpoint(written, target, step=step)
        for tree in (mine, other):
            assert tree.pop("name", "x") == "x"
        assert_same(
            jax.tree.map(np.asarray, mine), jax.tree.map(np.asarray, other)
        )
        kernel = mine["state"].params["dense"]["kernel"]
        assert np.array_equal(
            kernel, state(step)["state"].params["dense"]["kernel"]
        )
        assert mine["state"].params["half"].dtype == ml_dtypes.bfloat16
        assert type(mine["state"].opt_state[0]) is optax.ScaleByAdamState
    # The training goes on.
    checkpoints.save_checkpoint(new, state(11), 11, keep=2)
    assert checkpoints.available_steps(new) == [10, 11]


def test_import_without_a_target(format, written, tmp_path):
    ours.import_checkpoint(written, tmp_path / "new", steps=[10])
    mine = checkpoints.restore_checkpoint(tmp_path / "new", None)
    other = theirs.restore_checkpoint(written, None)
    assert mine.get("name") == other.get("name")
    assert mine["number"] == other["number"] == 30
    flat = flax.traverse_util.flatten_dict(mine["state"]["params"])
    for key, value in flax.traverse_util.flatten_dict(
        other["state"]["params"]
    ).items():
        assert np.array_equal(flat[key], np.asarray(value))
    assert np.array_equal(mine["list"]["0"], np.arange(4))
    with pytest.raises(FileNotFoundError, match="no step 3"):
        ours.import_checkpoint(written, tmp_path / "other", steps=[3])


def test_one_file(tmp_path):
    path = tmp_path / "checkpoint_7"
    path.write_bytes(serialization.to_bytes(state(7)))
    assert ours.import_checkpoint(path, tmp_path / "new") == [0]
    restored = checkpoints.restore_checkpoint(tmp_path / "new", fresh())
    assert restored["number"] == 21 and restored["complex"] == 1 + 2j
    raw = ours.PyTreeCheckpointer().restore(tmp_path / "new")
    assert raw["state"]["step"] == 7


def test_arrays_in_parts(tmp_path, monkeypatch):
    monkeypatch.setattr(serialization, "MAX_CHUNK_SIZE", 64)
    tree = {
        "large": np.arange(120, dtype=np.float32).reshape(4, 5, 6),
        "deep": {"large": np.arange(33, dtype=np.int64), "small": np.ones(2)},
    }
    data = serialization.to_bytes(tree)
    assert b"__msgpack_chunked_array__" in data
    (tmp_path / "checkpoint_1").write_bytes(data)
    ours.import_checkpoint(tmp_path / "checkpoint_1", tmp_path / "new")
    assert_same(ours.PyTreeCheckpointer().restore(tmp_path / "new"), tree)


def test_a_damaged_file(tmp_path):
    data = serialization.to_bytes({"a": np.arange(100), "b": {"c": 1}})
    file = tmp_path / "checkpoint_1"
    for cut in (1, 10, len(data) // 2, len(data) - 1):
        file.write_bytes(data[:cut])
        with pytest.raises(
            ValueError, match="checkpoint_1 is no whole checkpoint"
        ):
            ours.import_checkpoint(file, tmp_path / "new")
        assert not (tmp_path / "new").exists()
    lacking = {"a": {"__msgpack_chunked_array__": True, "shape": {"0": 1}}}
    unknown = {"a": msgpack.ExtType(9, b"?")}
    for tree in (lacking, unknown):
        file.write_bytes(msgpack.packb(tree))
        with pytest.raises(
            ValueError, match="checkpoint_1 is no whole checkpoint"
        ):
            ours.import_checkpoint(file, tmp_path / "new")
    file.write_bytes(msgpack.packb({"a": "//GDAPlaceholder:a"}))
    with pytest.raises(
        NotImplementedError, match="checkpoint_1: a was saved by"
    ):
        ours.import_checkpoint(file, tmp_path / "new")


def test_what_lies_too_deep_is_refused(tmp_path):
    file = tmp_path / "checkpoint_1"
    data = msgpack.packb(1)
    for _ in range(3000):
        # A tuple of one value, as Flax writes it.
        data = msgpack.packb(msgpack.ExtType(4, b"\x91" + data))
    dicts = b"\x81\xa1a" * 900 + b"\x01"
    for deep, said in ((data, "tuples lie .* deeper than 64"), (dicts, "deep")):
        file.write_bytes(b"\x81\xa1a" + deep)
        with pytest.raises(ValueError, match=f"checkpoint_1 is no.*{said}"):
            ours.import_checkpoint(file, tmp_path / "new")
        assert not (tmp_path / "new").exists()


def test_files_that_are_no_checkpoints(tmp_path):
    path = tmp_path / "run"
    path.mkdir()
    (path / "checkpoint").write_text('model_checkpoint_path: "model.1"')
    (path / "events.out.0").write_bytes(b"\x18\0\0\0")
    (path / "logs2026" / "more").mkdir(parents=True)
    assert checkpoints.available_steps(path) == []
    with pytest.raises(ValueError, match="holds no checkpoint"):
        ours.import_checkpoint(path, tmp_path / "new")


def test_steps_that_a_store_cannot_have(tmp_path):
    file = tmp_path / "run" / "checkpoint_0.5"
    file.parent.mkdir()
    file.write_bytes(serialization.to_bytes({"a": 1}))
    with pytest.raises(ValueError, match="checkpoint_0.5: steps of a store"):
        ours.import_checkpoint(file.parent, tmp_path / "new")


def test_steps_of_a_manager_by_any_name(tmp_path):
    options = orbax.checkpoint.CheckpointManagerOptions(
        step_prefix="model", step_format_fixed_length=4
    )
    path = tmp_path / "theirs"
    with orbax.checkpoint.CheckpointManager(path, options=options) as manager:
        for step in (3, 12):
            tree = orbax.checkpoint.args.StandardSave({"a": np.full(2, step)})
            manager.save(step, args=tree)
    assert (path / "model_0012").is_dir()
    assert ours.import_checkpoint(path, tmp_path / "new") == [3, 12]
    with ckptree.open(tmp_path / "new") as store:
        assert store.restore(12)["default"]["a"].tolist() == [12, 12]


def test_checkpoints_that_a_loop_named(tmp_path):
    checkpointer = orbax.checkpoint.PyTreeCheckpointer()
    for step in (1, 2):
        checkpointer.save(tmp_path / "theirs" / str(step), {"a": step})
    assert ours.import_checkpoint(tmp_path / "theirs", tmp_path / "new") == [
        1,
        2,
    ]
    assert ours.PyTreeCheckpointer().restore(tmp_path / "new" / "1") == {"a": 1}


def test_a_checkpointer_names_a_file_of_flax(tmp_path):
    path = tmp_path / "checkpoint_1"
    path.write_bytes(serialization.to_bytes({"a": 1}))
    with pytest.raises(ValueError, match=r"ckptree\.orbax import"):
        ours.PyTreeCheckpointer().restore(path)
