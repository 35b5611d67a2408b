# SPDX-License-Identifier: Apache-2.0
"""Trees: what is refused, what is converted, what comes back as what."""

import collections
import importlib
from typing import Any

import flax
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from orbax_both import assert_same

Point = collections.namedtuple("Point", "x y")


@flax.struct.dataclass
class State:
    step: int
    params: Any
    opt_state: Any = ()


@pytest.fixture
def round_trip(ocp, tmp_path):
    """Saves a tree by PyTreeCheckpointer; restores it."""

    def run(tree, *args, **options):
        path = tmp_path / f"tree{len(list(tmp_path.iterdir()))}"
        checkpointer = ocp.PyTreeCheckpointer()
        checkpointer.save(path, tree)
        return checkpointer.restore(path, *args, **options)

    return run


def test_containers_without_a_template(round_trip):  # RS-03
    restored = round_trip(
        {
            "tuple": (1, np.ones(2)),
            "list": [1, [2]],
            "named": Point(1, {"z": 2}),
            "none": None,
            "empty": {},
            "no_items": [],
            "state": State(1, {"w": np.zeros(2)}, (optax.EmptyState(),)),
            "text": "x",
        }
    )
    assert restored["tuple"][0] == 1 and type(restored["tuple"]) is list
    assert restored["list"] == [1, [2]]
    assert restored["named"] == {"x": 1, "y": {"z": 2}}
    assert restored["none"] is None
    assert restored["empty"] == {}
    assert restored["no_items"] == []
    assert restored["state"]["opt_state"] == [None]
    assert restored["state"]["step"] == 1
    assert restored["text"] == "x"


def test_an_empty_frozen_dict_is_a_dict(ocp, ours, round_trip, tmp_path):
    frozen = flax.core.FrozenDict
    tree = {
        "params": {"w": np.ones(2)},
        "batch_stats": frozen({}),
        "state": {"inner": [frozen({}), frozen({"a": 1})]},
        "opt_state": optax.EmptyState(),
    }
    wanted = {
        **tree,
        "batch_stats": {},
        "state": {"inner": [{}, {"a": 1}]},
        "opt_state": None,
    }
    assert_same(round_trip(tree), wanted)
    assert_same(round_trip(tree, item=tree), tree)
    ocp.v1.save(tmp_path / "v1", tree)
    assert_same(ocp.v1.load(tmp_path / "v1"), wanted)
    checkpoints = importlib.import_module(
        "ckptree.flax.checkpoints" if ours else "flax.training.checkpoints"
    )
    checkpoints.save_checkpoint(tmp_path / "flax", tree, step=1)
    found = checkpoints.restore_checkpoint(tmp_path / "flax", target=None)
    assert found["batch_stats"] == {} and found["params"]["w"].sum() == 2


@pytest.mark.parametrize("empty", [None, {}, []], ids=repr)
def test_a_leaf_where_there_is_nothing(round_trip, ours, empty):
    array = np.ones(2)
    tree, like = {"a": empty, "b": array}, {"a": array, "b": array}
    if not ours:
        assert round_trip(tree, item=like)["a"] == empty
        return
    with pytest.raises(ValueError) as raised:
        round_trip(tree, item=like)
    shown = "None" if empty is None else f"an empty {type(empty).__name__}"
    assert [(d.path, d.problem, d.found) for d in raised.value.differences] == [
        ("a", "kind", shown)
    ]
    partial = round_trip(tree, item=like, partial_restore=True)
    assert partial["a"].tolist() == [1, 1]


def test_kinds_of_leaves_without_a_template(round_trip):
    tree = {
        "int": 3,
        "float": 0.5,
        "np": np.arange(3, dtype="i2"),
        "jax": jnp.arange(3.0),
        "bf16": jnp.ones(2, jnp.bfloat16),
        "zero_d": np.array(2.0),
    }
    restored = round_trip(tree)
    assert_same(restored, tree)
    assert type(restored["int"]) is int and type(restored["float"]) is float


def test_a_template_gives_the_containers(ocp, round_trip):
    tree = {"a": (1, Point(np.ones(2), 3)), "s": State(1, {"w": jnp.ones(2)})}
    restored = round_trip(tree, item=tree)
    assert type(restored["a"]) is tuple
    assert type(restored["a"][1]) is Point
    assert type(restored["s"]) is State
    assert_same(
        restored["s"].params, {"w": np.ones(2, "f4")}
    ) if not isinstance(restored["s"].params["w"], jax.Array) else assert_same(
        restored["s"].params, {"w": jnp.ones(2)}
    )


@pytest.mark.parametrize(
    "template",
    [
        {"a": np.zeros(2)},
        {"a": np.zeros(2), "b": np.zeros(3), "c": np.zeros(1)},
        {"a": np.zeros(2), "x": np.zeros(3)},
    ],
)
def test_other_keys_are_refused(round_trip, template):  # RS-04
    with pytest.raises(ValueError):
        round_trip({"a": np.zeros(2), "b": np.zeros(3)}, item=template)


def test_partial_restore(ocp, tmp_path):  # RS-05
    checkpointer = ocp.Checkpointer(ocp.PyTreeCheckpointHandler())
    checkpointer.save(
        tmp_path / "x",
        args=ocp.args.PyTreeSave({"a": np.ones(2), "b": np.ones(3)}),
    )
    restored = checkpointer.restore(
        tmp_path / "x",
        args=ocp.args.PyTreeRestore(
            item={"a": np.zeros(2)}, partial_restore=True
        ),
    )
    assert_same(restored, {"a": np.ones(2)})


@pytest.mark.parametrize("tree", [{}, [], None])
def test_an_empty_item(ocp, tmp_path, tree):  # PT-02
    with pytest.raises(ValueError):
        ocp.PyTreeCheckpointer().save(tmp_path / "x", tree)
    assert not (tmp_path / "x").exists()


def test_an_unknown_leaf(ocp, tmp_path):  # PT-03
    with pytest.raises(ValueError, match="a"):
        ocp.PyTreeCheckpointer().save(tmp_path / "x", {"a": object()})
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize("tree", [{"a": "text"}, "text", None])
def test_what_standard_save_refuses(ocp, tmp_path, tree):  # SH-01
    checkpointer = ocp.Checkpointer(ocp.StandardCheckpointHandler())
    with pytest.raises(ValueError):
        checkpointer.save(tmp_path / "x", args=ocp.args.StandardSave(tree))


def test_save_args_convert(ocp, tmp_path):  # PT-06
    tree = {"a": np.arange(3.0), "b": np.arange(2)}
    save_args = {
        "a": ocp.SaveArgs(dtype=np.dtype("float16")),
        "b": ocp.SaveArgs(aggregate=True),
    }
    checkpointer = ocp.PyTreeCheckpointer()
    checkpointer.save(tmp_path / "x", tree, save_args=save_args)
    restored = checkpointer.restore(tmp_path / "x")
    assert_same(restored, {"a": np.arange(3, dtype="f2"), "b": np.arange(2)})


def test_restore_args(ocp, round_trip):  # RS-07
    tree = {"a": np.arange(3), "n": 3, "j": jnp.arange(2.0)}
    restored = round_trip(
        tree,
        restore_args={
            "a": ocp.RestoreArgs(dtype=np.dtype("float32")),
            "n": ocp.RestoreArgs(restore_type=float),
            "j": ocp.RestoreArgs(restore_type=np.ndarray),
        },
    )
    assert_same(
        restored,
        {
            "a": np.arange(3, dtype="f4"),
            "n": 3.0,
            "j": np.arange(2, dtype="f4"),
        },
    )


def test_array_restore_args_cut_and_fill(ocp, round_trip):  # RS-08, RS-09
    placed = jax.sharding.SingleDeviceSharding(jax.devices()[1])
    tree = {"a": jnp.arange(6.0).reshape(2, 3)}

    def args(shape, strict):
        return {
            "a": ocp.ArrayRestoreArgs(
                sharding=placed, global_shape=shape, strict=strict
            )
        }

    with pytest.raises(ValueError):
        round_trip(tree, restore_args=args((3, 2), True))
    restored = round_trip(tree, restore_args=args((3, 2), False))
    assert restored["a"].tolist() == [[0, 1], [3, 4], [0, 0]]
    assert restored["a"].sharding == placed


def test_shapes_of_a_template(ocp, tmp_path):
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(tmp_path / "x", {"a": jnp.ones((2, 3))})
        checkpointer.wait_until_finished()
        with pytest.raises(ValueError):
            checkpointer.restore(tmp_path / "x", {"a": jnp.zeros((3, 2))})


def test_random_keys(ocp, tmp_path):
    tree = {"key": jax.random.key(7), "raw": jax.random.PRNGKey(3)}
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(tmp_path / "x", tree)
        checkpointer.wait_until_finished()
        restored = checkpointer.restore(tmp_path / "x", tree)
    assert restored["key"].dtype == tree["key"].dtype
    assert jax.random.bits(restored["key"]) == jax.random.bits(tree["key"])
    assert np.array_equal(restored["raw"], tree["raw"])


# ---- Transforms: RS-13, RS-14 ----


def test_transforms(ocp, tmp_path):
    checkpointer = ocp.PyTreeCheckpointer()
    checkpointer.save(
        tmp_path / "x",
        {"old": {"w": np.arange(3)}, "same": np.ones(2), "gone": 1},
    )
    template = {"new": {"w": np.zeros(3, int)}, "same": np.zeros(2), "extra": 5}
    transforms = {
        r"new/(.*)": ocp.Transform(
            original_key=r"old/\1", value_fn=lambda v: v * 2
        ),
        "extra": ocp.Transform(use_fallback=True),
    }
    restored = checkpointer.restore(
        tmp_path / "x",
        item=template,
        restore_args=jax.tree.map(
            lambda leaf: ocp.RestoreArgs(restore_type=type(leaf)), template
        ),
        transforms=transforms,
    )
    assert np.array_equal(restored["new"]["w"], [0, 2, 4])
    assert np.array_equal(restored["same"], np.ones(2))
    assert restored["extra"] == 5 and set(restored) == {"new", "same", "extra"}


def test_apply_transformations(ocp):
    original = {"a": 1, "b": {"c": 2, "d": 3}}
    new = {"x": 0, "b": {"c": 0}, "kept": 9}
    transforms = {
        "x": ocp.Transform(original_key="a"),
        "kept": ocp.Transform(use_fallback=True),
    }
    assert ocp.apply_transformations(original, transforms, new) == {
        "x": 1,
        "b": {"c": 2},
        "kept": 9,
    }
    with pytest.raises(ValueError, match="missing"):
        ocp.apply_transformations(
            original, {"x": ocp.Transform(original_key="missing")}, {"x": 0}
        )


def test_of_several_transforms_the_last_counts(ocp):
    """As Orbax has it: in the order of their keys, whatever the dict's."""
    transforms = {
        "a1": ocp.Transform(original_key="a"),
        "a.*": ocp.Transform(original_key="f"),
    }
    for rules in (transforms, dict(reversed(transforms.items()))):
        made = ocp.apply_transformations({"a": 1, "f": 2}, rules, {"a1": 0})
        assert made == {"a1": 1}
    kept = {"a.*": ocp.Transform(original_key="f")}
    kept["a1"] = ocp.Transform(use_fallback=True)
    made = ocp.apply_transformations({"a": 1, "f": 2}, kept, {"a1": 0})
    assert made == {"a1": 2}


def test_a_function_of_several_values_takes_restore_args(ocp, tmp_path):
    checkpointer = ocp.PyTreeCheckpointer()
    checkpointer.save(tmp_path / "x", {"a": np.zeros(3), "b": np.ones(3)})
    args = ocp.RestoreArgs(restore_type=np.ndarray)
    seen = []

    def twice(key, tree, given):
        seen.append((key, given.restore_type))
        return tree["b"] * 2

    restored = checkpointer.restore(
        tmp_path / "x",
        item={"z": 0},
        restore_args={"z": args},
        transforms={
            "z": ocp.RestoreTransform(
                multi_value_fn=twice, multi_value_fn_input_args={"b": args}
            )
        },
    )
    assert np.array_equal(restored["z"], [2, 2, 2])
    assert seen == [("z", np.ndarray)]
    # Of trees in memory there are none.
    assert ocp.apply_transformations(
        {"a": 1},
        {"z": ocp.Transform(multi_value_fn=lambda key, tree: tree["a"] + 1)},
        {"z": 0},
    ) == {"z": 2}


def test_transforms_that_exclude_each_other(ocp):
    for wrong in (
        {"original_key": "a", "use_fallback": True},
        {"value_fn": abs, "use_fallback": True},
        {"original_key": "a", "multi_value_fn": lambda key, tree: 1},
    ):
        with pytest.raises((ValueError, AssertionError)):
            ocp.Transform(**wrong)


def test_merge_and_intersect(ocp):
    assert ocp.merge_trees(
        {"a": 1, "b": {"c": 2}}, {"b": {"c": 3, "d": 4}}
    ) == {
        "a": 1,
        "b": {"c": 3, "d": 4},
    }
    assert ocp.transform_utils.intersect_trees(
        {"a": 1, "b": {"c": 2}}, {"b": {"c": 3, "d": 4}}
    ) == {"b": {"c": 3}}
    # What is masked out replaces nothing.
    assert ocp.merge_trees(
        {"a": 1, "b": {"x": 2}}, {"a": None, "b": {}}
    ) == {"a": 1, "b": {"x": 2}}
    assert ocp.transform_utils.intersect_trees({"a": {}}, {"a": {}}) == {}


@pytest.mark.parametrize("keep", [True, False])
def test_trees_as_dicts(ocp, keep):
    tree = {
        "a": (1, [2, {}]),
        "p": Point(3, None),
        "e": optax.EmptyState(),
        "l": [],
    }
    assert ocp.tree.to_flat_dict({"a": {"b": [1, 2]}}, sep=".") == {
        "a.b.0": 1,
        "a.b.1": 2,
    }
    assert ocp.tree.from_flat_dict({("a", "b"): 1, ("c",): 2}) == {
        "a": {"b": 1},
        "c": 2,
    }
    serialized = ocp.tree.serialize_tree(tree, keep_empty_nodes=keep)
    if keep:
        assert serialized == {
            "a": [1, [2, {}]],
            "p": {"x": 3, "y": None},
            "e": optax.EmptyState(),
            "l": [],
        }
    else:
        assert serialized == {"a": [1, [2]], "p": {"x": 3}}
