# SPDX-License-Identifier: Apache-2.0
"""States of NNX in an export: real Orbax restores them into the templates that
it would restore its own into."""

import ckptree
import ckptree.orbax as ours
import numpy as np
import orbax.checkpoint as theirs
import pytest

nnx = pytest.importorskip("flax.nnx")

import flax
import jax
import ml_dtypes
import optax


class Model(nnx.Module):
    def __init__(self, seed):
        rngs = nnx.Rngs(seed)
        as_list = getattr(nnx, "List", list)
        self.layers = as_list([nnx.Linear(3, 3, rngs=rngs) for _ in range(2)])
        self.norm = nnx.BatchNorm(3, rngs=rngs)


def moments_of(model):
    return nnx.state(nnx.Optimizer(model, optax.adam(0.1), wrt=nnx.Param))


def same(found, wanted):
    jax.tree.map(np.testing.assert_array_equal, found, wanted)


def exported(tmp_path, args):
    """A step that our manager saved, as a manager of Orbax has it."""
    with ours.CheckpointManager(tmp_path / "ours") as manager:
        manager.save(0, args=args)
    ours.export_orbax(tmp_path / "ours", tmp_path / "theirs")
    return theirs.CheckpointManager(tmp_path / "theirs")


def test_states_come_back_into_states(tmp_path):
    saved, other = Model(0), Model(1)
    state, moments = nnx.state(saved), moments_of(saved)
    args = ours.args.Composite(
        model=ours.args.StandardSave(state),
        moments=ours.args.PyTreeSave(moments),
    )
    asked = theirs.args.Composite(
        model=theirs.args.StandardRestore(nnx.state(other)),
        moments=theirs.args.PyTreeRestore(moments_of(other)),
    )
    with exported(tmp_path, args) as manager:
        found = manager.restore(0, args=asked)
    for name, wanted in (("model", state), ("moments", moments)):
        assert isinstance(found[name], nnx.State)
        same(nnx.to_pure_dict(found[name]), nnx.to_pure_dict(wanted))


def test_it_is_what_orbax_writes_itself(tmp_path):
    state = nnx.state(Model(0))
    tree = {
        "model": state,
        "plain": {"kernel": np.arange(3.0)},
        "pure": nnx.to_pure_dict(state),
        "step": 5,
    }
    with theirs.CheckpointManager(tmp_path / "direct") as manager:
        manager.save(0, args=theirs.args.PyTreeSave(tree))
        manager.wait_until_finished()
        wanted = manager.restore(0, args=theirs.args.PyTreeRestore())
    assert list(wanted["model"]["norm"]["bias"]) == ["value"]
    with exported(tmp_path, ours.args.PyTreeSave(tree)) as manager:
        found = manager.restore(0, args=theirs.args.PyTreeRestore())
    assert jax.tree.structure(found) == jax.tree.structure(wanted)
    same(found, wanted)


def test_leaves_of_a_state_that_are_no_variables(tmp_path):
    state = nnx.State({"v": nnx.Variable(np.ones(2)), "w": np.arange(2.0)})
    with exported(tmp_path, ours.args.PyTreeSave([state])) as manager:
        found = manager.restore(0, args=theirs.args.PyTreeRestore())
    same(found, [{"v": {"value": np.ones(2)}, "w": np.arange(2.0)}])


def test_back_and_forth(tmp_path):
    """An import of the export fits our templates, and is exported alike."""
    state = nnx.state(Model(0))
    with exported(tmp_path, ours.args.StandardSave(state)) as manager:
        first = manager.restore(0, args=theirs.args.StandardRestore())
    ours.import_checkpoint(tmp_path / "theirs", tmp_path / "again")
    with ours.CheckpointManager(tmp_path / "again") as manager:
        like = ours.args.StandardRestore(nnx.state(Model(1)))
        found = manager.restore(0, args=like)
        same(nnx.to_pure_dict(found), nnx.to_pure_dict(state))
    ours.export_orbax(tmp_path / "again", tmp_path / "back")
    with theirs.CheckpointManager(tmp_path / "back") as manager:
        same(manager.restore(0, args=theirs.args.StandardRestore()), first)


def exported_by_a_store(tmp_path, state):
    """As exported(), of a step that ckptree.Store saved."""
    with ckptree.Store(tmp_path / "s") as store:
        store.save(0, state).result(timeout=60)
    ours.export_orbax(tmp_path / "s", tmp_path / "theirs")
    return theirs.CheckpointManager(tmp_path / "theirs")


def test_what_a_store_saved_comes_back_into_states(tmp_path):
    saved, other = Model(0), Model(1)
    optimizer = nnx.Optimizer(saved, optax.adam(0.1), wrt=nnx.Param)
    # As a module, below other keys, and as a state.
    whole = {"model": saved, "rest": {"my opt": [optimizer], "lr": 0.5}}
    whole["again"] = nnx.state(saved)
    moments = {"my opt": [moments_of(other)], "lr": 0.0}
    asked = theirs.args.Composite(
        model=theirs.args.StandardRestore(nnx.state(other)),
        again=theirs.args.PyTreeRestore(nnx.state(other)),
        rest=theirs.args.StandardRestore(moments),
    )
    with exported_by_a_store(tmp_path, whole) as manager:
        found = manager.restore(0, args=asked)
    for name in ("model", "again"):
        same(nnx.to_pure_dict(found[name]), nnx.to_pure_dict(nnx.state(saved)))
    (restored,) = found["rest"]["my opt"]
    wanted = moments_of(saved)
    same(nnx.to_pure_dict(restored), nnx.to_pure_dict(wanted))
    assert found["rest"]["lr"] == 0.5


def test_an_empty_frozen_dict_is_exported_as_a_dict(tmp_path):
    inner = {"w": np.arange(2.0), "stats": flax.core.FrozenDict({})}
    with exported_by_a_store(tmp_path, {"state": inner}) as manager:
        asked = theirs.args.Composite(state=theirs.args.PyTreeRestore())
        found = manager.restore(0, args=asked)["state"]
    assert found["stats"] == {} and found["w"].tolist() == [0, 1]


def test_a_state_that_is_the_whole_step(tmp_path):
    state = nnx.state(Model(0))
    state["plain"] = {"w": np.arange(2.0)}
    with exported_by_a_store(tmp_path, state) as manager:
        asked = {name: theirs.args.PyTreeRestore() for name in state}
        found = manager.restore(0, args=theirs.args.Composite(**asked))
    same(found["plain"], {"w": np.arange(2.0)})
    (kernel,) = found["layers"]["0"]["kernel"].items()
    assert kernel[0] == "value"
    same(kernel[1], nnx.to_pure_dict(state)["layers"][0]["kernel"])


# ---- What Orbax does not save ----


def with_steps(path, *states):
    with ckptree.Store(path) as store:
        for step, state in enumerate(states, 1):
            store.save(step, state).result(timeout=60)
    return path


def restored_by_orbax(path, step):
    items = [child.name for child in (path / str(step)).iterdir()]
    with theirs.CheckpointManager(path) as manager:
        asked = {
            name: theirs.args.PyTreeRestore()
            for name in items
            if (path / str(step) / name / "_METADATA").exists()
        }
        return dict(manager.restore(step, args=theirs.args.Composite(**asked)))


W = np.arange(2.0)
GOOD = {"params": {"w": W, "none": None, "d": {}, "l": [[], ()]}}
REFUSED = {
    "an empty item": ({"batch_stats": {}}, "batch_stats", "is empty"),
    "None": ({"opt": None}, "opt", "is empty"),
    "no elements": ({"z": np.zeros((0, 3))}, "z", "has no elements"),
    "no keys": (
        {"z": {"k": jax.random.split(jax.random.key(1))[:0]}},
        "z/k",
        "has no elements",
    ),
    "bytes": ({"b": {"text": b"x"}}, "b/text", "is bytes"),
    "complex": ({"c": [1j]}, r"c/\[0\]", "is complex"),
    "int": ({"i": {"n": 2**64}}, "i/n", "more than 64 bits"),
    "elements": ({"u": {"w": W.astype(ml_dtypes.uint4)}}, "u/w", "is uint4"),
    "metrics": ({"metrics": {"w": W}}, "metrics", "metrics of a step"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_it_is_told_before_anything_is_written(tmp_path, what):
    state, key, why = REFUSED[what]
    source = with_steps(tmp_path / "s", GOOD, {**GOOD, **state})
    message = f"^step 2: `{key}` .*{why}.*--skip"
    (tmp_path / "there").mkdir()
    for out in (tmp_path / "not" / "there", tmp_path / "there"):
        with pytest.raises(ValueError, match=message):
            ours.export_orbax(source, out)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["s", "there"]
    assert not any((tmp_path / "there").iterdir())
    with pytest.warns(UserWarning, match=rf"^left out of step 2: `{key}` "):
        ours.export_orbax(source, tmp_path / "there", skip=True)
    # Inside an item Orbax has empty containers.
    assert "d" in restored_by_orbax(tmp_path / "there", 1)["params"]
    found = restored_by_orbax(tmp_path / "there", 2)
    same(found.pop("params")["w"], W)
    assert not found


def test_what_is_left_out_of_a_tree(tmp_path):
    layers = [np.zeros((0, 2)), W, {"b": b"x", "w": W}]
    state = {"layers": layers, "big": 2**64 - 1, "flag": np.bool_(True)}
    source = with_steps(tmp_path / "s", state, GOOD, state)
    with pytest.warns(UserWarning) as told:
        ours.export_orbax(source, tmp_path / "o", skip=True)
    assert [str(one.message).split(" ", 6)[:6] for one in told] == [
        ["left", "out", "of", "2", "steps,", "1"]
    ] * 2
    assert [one.filename for one in told] == [__file__] * 2
    found = restored_by_orbax(tmp_path / "o", 1)
    same(found["layers"], [None, W, {"w": W}])
    assert found["big"] == 2**64 - 1 and found["flag"]


def test_a_step_of_which_nothing_is_left(tmp_path):
    source = with_steps(tmp_path / "s", GOOD, {"z": {"z": np.zeros(0)}})
    with pytest.raises(ValueError, match="step 2: it has nothing"):
        ours.export_orbax(source, tmp_path / "o", skip=True)
    assert not (tmp_path / "o").exists()
    assert ours.export_orbax(source, tmp_path / "o", steps=[1]) == [1]


def test_a_key_as_an_item_of_another_implementation(tmp_path):
    args = ours.args.Composite(
        rng=ours.args.JaxRandomKeySave(jax.random.key(1, impl="rbg")),
        model=ours.args.StandardSave({"w": W}),
    )
    with ours.CheckpointManager(tmp_path / "s") as manager:
        manager.save(0, args=args)
    with pytest.raises(ValueError, match="step 0: `rng` is a key of 'rbg'"):
        ours.export_orbax(tmp_path / "s", tmp_path / "o")
    with jax.default_prng_impl("rbg"):
        ours.export_orbax(tmp_path / "s", tmp_path / "o")
        asked = theirs.args.Composite(rng=theirs.args.JaxRandomKeyRestore())
        with theirs.CheckpointManager(tmp_path / "o") as manager:
            found = manager.restore(0, args=asked)["rng"]
    assert found == jax.random.key(1, impl="rbg")


def test_an_export_that_fails_leaves_the_folder_as_it_was(tmp_path):
    source = with_steps(tmp_path / "s", GOOD, GOOD)

    def stop(done, of):
        raise KeyboardInterrupt

    (tmp_path / "there").mkdir()
    for out in (tmp_path / "not" / "there", tmp_path / "there"):
        with pytest.raises(KeyboardInterrupt):
            ours.export_orbax(source, out, progress=stop)
        assert sorted(p.name for p in tmp_path.iterdir()) == ["s", "there"]
        assert not any((tmp_path / "there").iterdir())
    assert ours.export_orbax(source, tmp_path / "there") == [1, 2]


def test_an_export_that_fails_leaves_what_others_put_there(tmp_path):
    source = with_steps(tmp_path / "s", GOOD, GOOD)
    out = tmp_path / "o"

    def stop(done, of):
        (out / "others").mkdir(exist_ok=True)
        (out / "others" / "notes").write_text("mine")
        (out / "config.yaml").write_text("mine")
        if done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ours.export_orbax(source, out, progress=stop)
    assert sorted(p.name for p in out.iterdir()) == ["config.yaml", "others"]
    assert (out / "others" / "notes").read_text() == "mine"


def test_skip_of_the_program(tmp_path, capfd):
    from ckptree.orbax.__main__ import main

    source = with_steps(tmp_path / "s", {**GOOD, "batch_stats": {}})
    export = ["export", str(source), str(tmp_path / "o")]
    assert main(export) == 1
    assert "step 1: `batch_stats` is empty" in capfd.readouterr().err
    assert main([*export, "--skip"]) == 0
    said = capfd.readouterr().err
    assert "orbax: left out of step 1: `batch_stats` is empty" in said
    assert "UserWarning" not in said
