# SPDX-License-Identifier: Apache-2.0
"""What programs rely on without thinking of it: under Orbax and under
ckptree."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

STATE = {"w": np.arange(3)}


# ---- Items ----


def test_items_with_names_of_methods(ocp, tmp_path):
    names = ["keys", "values", "items", "get", "self"]
    with ocp.CheckpointManager(tmp_path / "run") as manager:
        manager.save(
            0,
            args=ocp.args.Composite(
                **{
                    name: ocp.args.JsonSave({"is": name})
                    for name in names
                    if name != "self"
                }
            ),
        )
        manager.wait_until_finished()
        found = manager.restore(0)
        for name in names[:-1]:
            assert found[name] == {"is": name}
        assert sorted(found.keys()) == sorted(names[:-1])


def test_items_that_were_not_named(ocp, managed, tmp_path):
    manager = managed(item_names=("state", "config"))
    with pytest.raises(ValueError, match="sttae"):
        manager.save(
            0, args=ocp.args.Composite(sttae=ocp.args.StandardSave(STATE))
        )
    manager.wait_until_finished()
    assert list(manager.all_steps()) == []
    by_handler = managed(
        "other", item_handlers={"state": ocp.StandardCheckpointHandler()}
    )
    with pytest.raises(ValueError, match="stat"):
        by_handler.save(
            0, args=ocp.args.Composite(stat=ocp.args.StandardSave(STATE))
        )
    checkpointer = ocp.Checkpointer(ocp.CompositeCheckpointHandler("state"))
    with pytest.raises(ValueError, match="stat"):
        checkpointer.save(
            tmp_path / "x", ocp.args.Composite(stat=ocp.args.JsonSave(1))
        )


def test_nothing_in_place_of_arguments(ocp, managed):
    manager = managed()
    both = ocp.args.Composite(
        a=ocp.args.StandardSave(STATE), b=ocp.args.JsonSave(1)
    )
    manager.save(0, args=both)
    manager.wait_until_finished()
    found = manager.restore(0, args=ocp.args.Composite(b=None))
    assert dict(found.items()) == {"b": 1}
    # What has no arguments is not saved.
    one = ocp.args.Composite(a=ocp.args.StandardSave(STATE), b=None)
    assert manager.save(1, args=one)
    manager.wait_until_finished()
    assert manager.restore(1).b is None
    assert manager.restore(1).a["w"].tolist() == [0, 1, 2]
    fresh = managed()
    with pytest.raises(ValueError, match="Provided `None`"):
        fresh.restore(0, args=ocp.args.Composite(b=None))


def test_items_that_a_step_lacks(ocp, managed):
    manager = managed(
        item_handlers={
            "a": ocp.JsonCheckpointHandler(),
            "b": ocp.JsonCheckpointHandler(),
        }
    )
    manager.save(0, args=ocp.args.Composite(a=ocp.args.JsonSave(1)))
    manager.wait_until_finished()
    assert dict(manager.restore(0).items()) == {"a": 1}
    with pytest.raises(KeyError):
        manager.restore(0, args=ocp.args.Composite(b=ocp.args.JsonRestore()))


def test_kwargs_of_none(ocp, tmp_path):
    with ocp.CheckpointManager(
        tmp_path / "run",
        {"a": ocp.PyTreeCheckpointer(), "b": ocp.PyTreeCheckpointer()},
    ) as manager:
        manager.save(
            0, {"a": STATE, "b": STATE}, save_kwargs={"a": None, "b": {}}
        )
        manager.wait_until_finished()
        found = manager.restore(
            0, items={"a": None, "b": None}, restore_kwargs={"a": None}
        )
    assert found["b"]["w"].tolist() == [0, 1, 2]


# ---- Templates ----


@pytest.mark.parametrize("nothing", [None, {}, (), []])
def test_nothing_in_place_of_an_array(ocp, tmp_path, nothing):
    tree = {"a": np.ones(2), "b": np.ones(2), "n": {"c": np.ones(1)}}
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(tmp_path / "one", tree)
        checkpointer.wait_until_finished()
        like = {"a": np.zeros(2), "b": nothing, "n": {"c": nothing}}
        found = checkpointer.restore(tmp_path / "one", like)
        assert found["a"].tolist() == [1, 1]
        assert (found["b"], found["n"]) == (nothing, {"c": nothing})
        # In place of a container it is a mistake.
        with pytest.raises(ValueError):
            checkpointer.restore(tmp_path / "one", {**tree, "n": nothing})


@pytest.mark.parametrize("keep", [True, False])
def test_deserialize_where_the_target_has_nothing(ocp, keep):
    serialized = {"a": 1, "b": {"c": 2}, "d": [1, 2]}
    target = {"a": None, "b": None, "d": (None, 5)}
    made = ocp.utils.deserialize_tree(
        serialized, target, keep_empty_nodes=keep
    )
    if keep:
        assert made == {"a": 1, "b": {"c": 2}, "d": (1, 2)}
        with pytest.raises(KeyError, match="z"):
            ocp.utils.deserialize_tree(
                serialized, {**target, "z": None}, keep_empty_nodes=True
            )
    else:
        assert made == {"a": None, "b": None, "d": (None, 2)}


# ---- Options of a manager ----


def test_a_save_policy_is_the_sole_means(ocp, managed, save):
    policy = ocp.checkpoint_managers.FixedIntervalPolicy(2)
    manager = managed(
        save_decision_policy=policy,
        should_save_fn=lambda step, latest: True,
        save_interval_steps=3,
        save_on_steps=[1],
    )
    assert [step for step in range(6) if save(manager, step)] == [0, 2, 4]


def test_a_directory_that_is_not_made_yet(managed, save, tmp_path):
    manager = managed("new", create=False)
    assert not (tmp_path / "new").exists()
    assert list(manager.all_steps()) == [] and manager.latest_step() is None
    assert save(manager, 0)
    manager.wait_until_finished()
    assert list(manager.all_steps()) == [0]


@pytest.mark.parametrize("option", ["todelete_subdir", "todelete_full_path"])
def test_a_reader_takes_the_options_of_a_trainer(ocp, managed, option):
    given = {"read_only": True, "max_to_keep": 2, option: "trash"}
    options = ocp.CheckpointManagerOptions(**given)
    assert getattr(options, option) is None and options.max_to_keep is None
    assert list(managed("run", **given).all_steps()) == []


def test_metadata_that_a_reader_was_given(managed):
    reader = managed(read_only=True, metadata={"of": "reader"})
    assert reader.metadata().custom_metadata == {"of": "reader"}
    managed(metadata={"of": "trainer"}).close()
    again = managed(read_only=True, metadata={"of": "reader"})
    assert again.metadata().custom_metadata == {"of": "trainer"}
    # It is written once.
    other = managed(metadata={"of": "another"})
    assert other.metadata().custom_metadata == {"of": "trainer"}


def test_metrics_that_are_not_written(managed, save):
    manager = managed(
        prevent_write_metrics=True,
        best_fn=lambda metrics: metrics["loss"].value,
        best_mode="min",
    )

    class Number:
        def __init__(self, value):
            self.value = value

    for step, value in enumerate((3, 1, 2)):
        assert save(manager, step, metrics={"loss": Number(value)})
    manager.wait_until_finished()
    assert manager.best_step() == 1


def test_one_host_that_looks_says_so(ocp, managed):
    step = ocp.path.step
    plain = step.standard_name_format()
    once = step.single_host_load_and_broadcast_name_format(plain)
    assert (
        plain.single_host_load_and_broadcast,
        once.single_host_load_and_broadcast,
    ) == (False, True)
    managed(single_host_load_and_broadcast=True, step_name_format=once)
    for flag, wrong in ((True, plain), (False, once)):
        with pytest.raises(ValueError):
            managed(
                single_host_load_and_broadcast=flag, step_name_format=wrong
            )
    with pytest.raises(ValueError):
        both = step.composite_name_format(plain, [plain])
        step.single_host_load_and_broadcast_name_format(both)


def test_name_formats_have_a_type(ocp):
    class Mine(ocp.path.step.NameFormat[ocp.path.step.Metadata]):
        pass

    assert ocp.path.step.NameFormat in Mine.__mro__


# ---- Handlers and their arguments ----


def test_several_arguments_of_one_handler(ocp, tmp_path):
    class Handler(ocp.CheckpointHandler):
        def save(self, directory, args):
            (directory / "x").write_text(type(args).__name__)

        def restore(self, directory, args=None):
            return (directory / "x").read_text(), type(args).__name__

    def arguments(name, **which):
        cls = dataclasses.make_dataclass(
            name, ["item"], bases=(ocp.args.CheckpointArgs,)
        )
        return ocp.args.register_with_handler(Handler, **which)(cls)

    first = arguments("First", for_save=True)
    asks = arguments("Asks", for_restore=True)
    second = arguments("Second", for_save=True)
    also = arguments("Also", for_restore=True)
    # Of several the first is what others ask for.
    assert ocp.checkpoint_args.get_registered_args_cls(Handler) == (first, asks)
    with ocp.CheckpointManager(tmp_path / "run") as manager:
        manager.save(0, args=ocp.args.Composite(a=first(1), b=second(1)))
        manager.wait_until_finished()
        found = manager.restore(0, args=ocp.args.Composite(a=asks(1)))
        assert found.a == ("First", "Asks")
        found = manager.restore(0, args=ocp.args.Composite(b=asks(1)))
        assert found.b == ("Second", "Asks")
    with ocp.Checkpointer(Handler()) as checkpointer:
        checkpointer.save(tmp_path / "one", args=second(1))
        assert checkpointer.restore(tmp_path / "one", args=also(1)) == (
            "Second",
            "Also",
        )


def test_a_handler_that_needs_arguments(ocp):
    class Handler(ocp.CheckpointHandler):
        def __init__(self, needed):
            self.needed = needed

        def save(self, directory, args):
            pass

        def restore(self, directory, args=None):
            pass

    @ocp.args.register_with_handler(Handler, for_save=True, for_restore=True)
    @dataclasses.dataclass
    class Args(ocp.args.CheckpointArgs):
        item: object = None

    registry = ocp.handlers.DefaultCheckpointHandlerRegistry()
    with pytest.raises(ValueError, match="item|arguments"):
        registry.add("a", Args)
    made = Handler(1)
    registry.add("a", Args, made)
    assert registry.get("a", Args) is made


# ---- Trees and bytes ----


def test_trees_that_are_one_leaf(ocp):
    trees = ocp.transform_utils
    array = np.arange(2)
    assert trees.merge_trees(1, 2) == 2
    assert trees.intersect_trees(1, 2) == 2
    assert trees.intersect_trees({"a": 1}, 1) == {}
    assert trees.merge_trees() == {}
    assert trees.merge_trees({"a": 1}, {"b": 2}) == {"a": 1, "b": 2}
    assert trees.merge_trees(1, 2, target=0) == 2
    with pytest.raises(ValueError):
        trees.merge_trees(1, {"a": 2})
    assert trees.apply_transformations(1, {}, 2) == 1
    assert trees.apply_transformations(1, {}, 2, default_to_original=False) == 2
    assert trees.apply_transformations(array, {}, np.zeros(2)) is array
    rule = {"": trees.Transform(value_fn=lambda value: value + 1)}
    assert trees.apply_transformations(1, rule, 2) == 2


@pytest.mark.parametrize(
    "tree",
    [
        (1, 2),
        [1, (2.5, "x"), None],
        {"a": (), "b": {"c": True, "d": b"bytes", "e": 1j}},
        {"a": np.float32(2), "b": np.arange(3), "c": np.array(True)},
        jnp.arange(2),
        {"a": jnp.ones((2, 2), jnp.bfloat16)},
    ],
)
def test_bytes_of_msgpack(tree):
    import ckptree.orbax as ours
    import orbax.checkpoint as theirs

    ours, theirs = ours.msgpack_utils, theirs.msgpack_utils
    data = ours.msgpack_serialize(tree)
    assert data == theirs.msgpack_serialize(tree)
    found = ours.msgpack_restore(data)
    expected = theirs.msgpack_restore(data)
    assert jax.tree.structure(found) == jax.tree.structure(expected)
    for left, right in zip(jax.tree.leaves(found), jax.tree.leaves(expected)):
        assert type(left) is type(right)
        assert np.asarray(left).dtype == np.asarray(right).dtype
        assert np.array_equal(left, right)


def test_what_msgpack_cannot_write(ocp):
    for wrong in ({"a": {1: 2}}, {"a": object()}):
        with pytest.raises((ValueError, TypeError)):
            data = ocp.msgpack_utils.msgpack_serialize(wrong)
            ocp.msgpack_utils.msgpack_restore(data)


def test_msgpack_writes_what_it_reads():
    import ckptree.orbax as ours

    tools = ours.msgpack_utils
    big = np.array([[1, 2], [3, -4]], ">f4")
    tree = {"a": big, "b": big.astype(">i8")[0], "c": big.astype(">u2")[1, 0]}
    found = tools.msgpack_restore(tools.msgpack_serialize(tree))
    for name, value in tree.items():
        np.testing.assert_array_equal(found[name], value)
        assert found[name].dtype == value.dtype.newbyteorder("=")
    for wrong in (
        np.array(["a"]), np.array(["2026-01-01"], "M8[s]"), np.array([None]),
        np.str_("a"), np.zeros(1, "i4,f4"), np.longdouble(1)):
        with pytest.raises(ValueError, match="msgpack cannot write"):
            tools.msgpack_serialize({"a": wrong})
    deep: tuple = ()
    for _ in range(63):
        deep = (deep,)
    assert tools.msgpack_restore(tools.msgpack_serialize(deep)) == deep
    with pytest.raises(ValueError, match="deeper than 64"):
        tools.msgpack_serialize((deep,))
    dicts: dict = {}
    for _ in range(5000):
        dicts = {"a": dicts}
    with pytest.raises(ValueError, match="deep"):
        tools.msgpack_serialize(dicts)


def test_the_layout_of_a_context(ocp):
    import importlib

    v1 = importlib.import_module(f"{ocp.__name__}.experimental.v1")
    context = v1.Context()
    context.checkpoint_layout = v1.options.CheckpointLayout.AUTO
    assert context.checkpoint_layout is v1.options.CheckpointLayout.AUTO
    with context:
        with pytest.raises(RuntimeError):
            context.checkpoint_layout = v1.options.CheckpointLayout.ORBAX


def test_intervals_of_nothing():
    import ckptree.orbax as ours

    policies = ours.checkpoint_managers
    for made in (policies.EveryNSteps, policies.EveryNStepsClosest):
        for steps in (0, -3):
            with pytest.raises(ValueError, match=str(steps)):
                made(steps)
    with pytest.raises(ValueError):
        policies.FixedIntervalPolicy(0)
