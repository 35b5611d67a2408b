# SPDX-License-Identifier: Apache-2.0
"""Random keys that go from Orbax to a store, and back."""

import json

import ckptree
import ckptree.orbax as ours
import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as theirs
import pytest
from ckptree.orbax import _lending
from jax.sharding import Mesh, NamedSharding, PartitionSpec


def keys():
    return {
        "rng": jax.random.key(3),
        "list": [jax.random.split(jax.random.key(1, impl="rbg"), 3)],
        "of.dots": {"urbg": jax.random.key(9, impl="unsafe_rbg")},
        "of numbers": jax.random.PRNGKey(1),
        "w": jnp.arange(3.0),
    }


def spread():
    mesh = Mesh(np.array(jax.devices()), ("x",))
    split = jax.random.split(jax.random.key(1), 2 * len(jax.devices()))
    return jax.device_put(split, NamedSharding(mesh, PartitionSpec("x")))


def save(ocp, path, args):
    with ocp.CheckpointManager(path) as manager:
        manager.save(0, args=args)
        manager.wait_until_finished()
    return path


def assert_same_keys(found, wanted):
    assert jax.tree.structure(found) == jax.tree.structure(wanted)
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(wanted)):
        assert one.dtype == other.dtype and one.shape == other.shape
        assert one.sharding == other.sharding
        assert bool((one == other).all())


def leaves_of(path):
    """What the engine has of each."""
    with ckptree.open(path) as store:
        return {
            name: (leaf.tag, leaf.shape, leaf.digest)
            for name, leaf in store[0].items()
        }


# ---- Leaves of a tree ----


@pytest.mark.parametrize("kind", ["StandardSave", "PyTreeSave"])
def test_typed_keys_of_a_tree(tmp_path, kind):
    for name, ocp in (("old", theirs), ("direct", ours)):
        save(ocp, tmp_path / name, getattr(ocp.args, kind)(keys()))
    ours.import_checkpoint(tmp_path / "old", tmp_path / "new")
    found = leaves_of(tmp_path / "new")
    assert found == leaves_of(tmp_path / "direct")
    tags = {tag for tag, _, _ in found.values()}
    assert tags == {"", "prng:threefry2x32", "prng:rbg", "prng:unsafe_rbg"}
    with ours.CheckpointManager(tmp_path / "new") as manager:
        assert_same_keys(manager.restore(0), keys())
        like = jax.tree.map(jnp.zeros_like, {"w": keys()["w"]}) | {
            "rng": jax.random.key(0),
            "list": [jax.random.split(jax.random.key(0, impl="rbg"), 3)],
            "of.dots": {"urbg": jax.random.key(0, impl="unsafe_rbg")},
            "of numbers": jax.random.PRNGKey(0),
        }
        args = ours.args.StandardRestore(like)
        assert_same_keys(manager.restore(0, args=args), keys())
        other = ours.args.StandardRestore(
            like | {"of numbers": jax.random.key(0)}
        )
        with pytest.raises(ckptree.MismatchError, match="of numbers"):
            manager.restore(0, args=other)


def test_keys_that_were_spread(tmp_path):
    state = {"keys": spread(), "w": jnp.ones(2)}
    save(theirs, tmp_path / "old", theirs.args.StandardSave(state))
    ours.import_checkpoint(tmp_path / "old", tmp_path / "new")
    with ours.CheckpointManager(tmp_path / "new") as manager:
        assert_same_keys(manager.restore(0), state)


def test_keys_go_back_to_orbax(tmp_path):
    save(theirs, tmp_path / "old", theirs.args.StandardSave(keys()))
    ours.import_checkpoint(tmp_path / "old", tmp_path / "new")
    ours.export_orbax(tmp_path / "new", tmp_path / "back")
    with theirs.CheckpointManager(tmp_path / "back") as manager:
        args = theirs.args.StandardRestore()
        assert_same_keys(manager.restore(0, args=args), keys())


def test_a_key_of_an_implementation_that_is_not_here(tmp_path):
    state = {"a": {"rng": jax.random.key(3)}}
    path = save(theirs, tmp_path / "old", theirs.args.StandardSave(state))
    (about,) = path.glob("0/default/array_metadatas/process_*")
    about.write_text(about.read_text().replace("threefry2x32", "of_my_own"))
    with pytest.raises(ValueError, match="a/rng.*'of_my_own'"):
        ours.import_checkpoint(path, tmp_path / "new")
    for damage in ("{", json.dumps({"array_metadatas": [1]})):
        about.write_text(damage)
        with pytest.raises(ValueError, match="process_0 is not what Orbax"):
            ours.import_checkpoint(path, tmp_path / "new")


def test_the_command_gets_their_numbers(tmp_path):
    path = save(theirs, tmp_path / "old", theirs.args.StandardSave(keys()))
    lent, others = _lending.find(path / "0")
    assert others == 0
    read = {part.name: part for part in lent}
    assert read["default/rng"].shape == (2,)
    numbers = jax.random.key_data(keys()["rng"])
    assert read["default/rng"].read() == np.asarray(numbers).tobytes()


# ---- Items of a key each ----


def items(ocp):
    np.random.seed(3)
    return ocp.args.Composite(
        typed=ocp.args.JaxRandomKeySave(jax.random.key(1)),
        batch=ocp.args.JaxRandomKeySave(jax.random.split(jax.random.key(2))),
        numbers=ocp.args.JaxRandomKeySave(jax.random.PRNGKey(1)),
        legacy=ocp.args.NumpyRandomKeySave(np.random.get_state()),
        state=ocp.args.NumpyRandomKeySave(np.random.get_state(legacy=False)),
        model=ocp.args.StandardSave({"w": jnp.arange(3.0)}),
    )


def assert_items_come_back(ocp, path):
    np.random.seed(3)
    asked = ocp.args.Composite(
        **dict.fromkeys(
            ("typed", "batch", "numbers"), ocp.args.JaxRandomKeyRestore()
        ),
        **dict.fromkeys(("legacy", "state"), ocp.args.NumpyRandomKeyRestore()),
    )
    with ocp.CheckpointManager(path) as manager:
        found = manager.restore(0, args=asked)
    wanted = {
        "typed": jax.random.key(1),
        "batch": jax.random.split(jax.random.key(2)),
        "numbers": jax.random.PRNGKey(1),
    }
    assert_same_keys({name: found[name] for name in wanted}, wanted)
    for name, state in (
        ("legacy", np.random.get_state()),
        ("state", np.random.get_state(legacy=False)),
    ):
        assert type(found[name]) is type(state)
        np.testing.assert_equal(found[name], state)
        np.random.set_state(found[name])


def test_items_of_random_keys_go_both_ways(tmp_path):
    for name, ocp in (("old", theirs), ("direct", ours)):
        save(ocp, tmp_path / name, items(ocp))
    ours.import_checkpoint(tmp_path / "old", tmp_path / "new")
    assert_items_come_back(ours, tmp_path / "new")
    assert leaves_of(tmp_path / "new") == leaves_of(tmp_path / "direct")
    for name in ("new", "direct"):
        ours.export_orbax(tmp_path / name, tmp_path / f"of {name}")
        assert_items_come_back(theirs, tmp_path / f"of {name}")


def test_an_item_of_another_default(tmp_path):
    """Orbax keeps the numbers of such an item, and not whose they are."""
    with jax.default_prng_impl("rbg"):
        args = theirs.args.JaxRandomKeySave(jax.random.key(1))
        args = theirs.args.Composite(rng=args)
        save(theirs, tmp_path / "old", args)
        ours.import_checkpoint(tmp_path / "old", tmp_path / "new")
    assert leaves_of(tmp_path / "new")["rng"][0] == "prng:rbg"
    with pytest.raises(ValueError, match="rng.*set jax_default_prng_impl"):
        ours.import_checkpoint(tmp_path / "old", tmp_path / "other")
