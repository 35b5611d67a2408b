# SPDX-License-Identifier: Apache-2.0
"""From Orbax to a store, a training that goes on there, and back."""

import jax
import jax.numpy as jnp
import ckptree
import ckptree.orbax as ours
import numpy as np
import orbax.checkpoint as theirs
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from orbax_both import assert_same


def placed():
    mesh = Mesh(np.array(jax.devices()).reshape(4, 2), ("x", "y"))
    return NamedSharding(mesh, PartitionSpec("x", "y"))


def state(step):
    return {
        "params": {
            "w": jax.device_put(
                jnp.arange(64.0).reshape(8, 8) + step, placed()
            ),
            "b": jnp.full(3, step, jnp.bfloat16),
        },
        "layers": [np.arange(4) * step, {"scale": np.float32(0.5)}],
        "step": step,
        "none": None,
        "name": "x",
    }


def save(ocp, manager, step):
    return manager.save(
        step,
        args=ocp.args.Composite(
            state=ocp.args.PyTreeSave(state(step)),
            config=ocp.args.JsonSave({"lr": 0.1, "layers": [1, 2]}),
        ),
        metrics={"loss": abs(step - 2.5)},
        custom_metadata={"step": step},
    )


def options(ocp):
    return ocp.CheckpointManagerOptions(
        max_to_keep=3,
        best_fn=lambda metrics: metrics["loss"],
        best_mode="min",
        enable_async_checkpointing=False,
    )


def look(manager):
    return manager.latest_step(), manager.best_step(), list(manager.all_steps())


@pytest.fixture
def written(tmp_path):
    """A manager's directory of Orbax's, with three steps that it kept."""
    path = tmp_path / "theirs"
    with theirs.CheckpointManager(
        path, options=options(theirs), metadata={"run": "a"}
    ) as manager:
        for step in range(5):
            save(theirs, manager, step)
        seen = look(manager)
    assert len(seen[2]) == 3
    return path, seen


def test_there_and_back(written, tmp_path):
    path, seen = written
    done = []
    steps = ours.import_checkpoint(
        path, tmp_path / "store", progress=lambda *now: done.append(now)
    )
    assert steps == seen[2] and done == [(1, 3), (2, 3), (3, 3)]
    # Again: what is there stays.
    assert ours.import_checkpoint(path, tmp_path / "store") == steps
    with ours.CheckpointManager(
        tmp_path / "store", options=options(ours)
    ) as manager:
        assert look(manager) == seen
        assert manager.metadata().custom_metadata == {"run": "a"}
        for step in steps:
            restored = manager.restore(step)
            assert_same(
                {k: v for k, v in restored.state.items() if k != "name"},
                {k: v for k, v in state(step).items() if k != "name"}
                | {"layers": [np.arange(4) * step, {"scale": 0.5}]},
            )
            assert restored.state["name"] == "x"
            assert restored.state["params"]["w"].sharding == placed()
            assert restored.config == {"lr": 0.1, "layers": [1, 2]}
            assert manager.metadata(step).custom_metadata == {"step": step}
            assert manager.metrics(step) == {"loss": abs(step - 2.5)}
        for step in (5, 6):
            save(ours, manager, step)
        after = look(manager)

    with theirs.CheckpointManager(path, options=options(theirs)) as manager:
        for step in (5, 6):
            save(theirs, manager, step)
        _, best, listed = look(manager)
    # The same as if it had stayed there, and the newest step.
    assert after == (6, best, [*listed, 6])

    assert ours.export_orbax(tmp_path / "store", tmp_path / "back") == after[2]
    with theirs.CheckpointManager(
        tmp_path / "back", options=options(theirs)
    ) as manager:
        assert look(manager) == after
        assert manager.metadata().custom_metadata == {"run": "a"}
        with ours.CheckpointManager(
            tmp_path / "store",
            options=ours.CheckpointManagerOptions(read_only=True),
        ) as mine:
            for step in after[2]:
                one, other = manager.restore(step), mine.restore(step)
                assert one.state.pop("name") == other.state.pop("name") == "x"
                scales = [
                    r.state["layers"].pop()["scale"] for r in (one, other)
                ]
                assert scales == [0.5, 0.5]
                assert_same(one.state, other.state)
                assert one.config == other.config
                assert manager.metrics(step) == mine.metrics(step)


def test_one_checkpoint(tmp_path):
    tree = {"w": jnp.arange(5), "n": 3}
    with theirs.StandardCheckpointer() as checkpointer:
        checkpointer.save(tmp_path / "theirs", tree)
    assert ours.import_checkpoint(tmp_path / "theirs", tmp_path / "store") == [
        0
    ]
    assert_same(ours.StandardCheckpointer().restore(tmp_path / "store"), tree)


def test_what_orbax_wrote_is_named(written, tmp_path):
    path, _ = written
    with pytest.raises(ValueError, match="import_checkpoint"):
        ours.CheckpointManager(path)
    with pytest.raises(ValueError, match="import_checkpoint"):
        ours.PyTreeCheckpointer().restore(path / "4" / "state")
    with pytest.raises(ValueError, match="already exists|import_checkpoint"):
        ours.PyTreeCheckpointer().save(path, {"a": 1}, force=True)


def test_two_managers_at_once(tmp_path):
    with ours.CheckpointManager(tmp_path / "run"):
        other = (
            "import sys, ckptree.orbax as ocp; "
            "ocp.CheckpointManager(sys.argv[1]).save("
            "0, args=ocp.args.StandardSave({'a': 1}))"
        )
        import subprocess
        import sys

        found = subprocess.run(
            [sys.executable, "-c", other, str(tmp_path / "run")],
            capture_output=True,
            text=True,
        )
        assert found.returncode == 1
        assert "UnavailableError" in found.stderr and "pid" in found.stderr


def test_wrong_places(tmp_path):
    with pytest.raises(FileNotFoundError):
        ours.import_checkpoint(tmp_path / "nothing", tmp_path / "store")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="no checkpoint"):
        ours.import_checkpoint(tmp_path / "empty", tmp_path / "store")
    with ckptree.Store(tmp_path / "some") as store:
        store.save(1, {"a": 1}).result()
    with pytest.raises(ValueError, match="not empty"):
        ours.export_orbax(tmp_path / "some", tmp_path / "some")
    ours.export_orbax(tmp_path / "some", tmp_path / "plain")
    with theirs.CheckpointManager(tmp_path / "plain") as manager:
        assert manager.restore(1)["a"] == 1


def test_from_a_shell(written, tmp_path, capfd):
    from ckptree.orbax.__main__ import main

    path, seen = written
    store = tmp_path / "store"
    assert main(["import", str(path), str(store), "--step", "4"]) == 0
    assert capfd.readouterr().out == f"{store}: 1 step\n"
    assert main(["export", str(store), str(tmp_path / "back")]) == 0
    assert main(["import", str(tmp_path / "nothing"), str(store)]) == 1
    assert "there is no directory" in capfd.readouterr().err
    with pytest.raises(SystemExit) as wrong:
        main(["import"])
    assert wrong.value.code == 2
    with theirs.CheckpointManager(tmp_path / "back") as manager:
        assert list(manager.all_steps()) == [4]
