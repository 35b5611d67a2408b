# SPDX-License-Identifier: Apache-2.0
"""Checkpointers, handlers and their arguments: under Orbax and under
ckptree."""

import dataclasses
import stat

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from orbax_both import assert_same


# ---- Checkpointers: CK ----


def test_a_checkpoint_that_is_there(ocp, tmp_path):  # CK-02, AT-10
    checkpointer = ocp.Checkpointer(ocp.StandardCheckpointHandler())
    checkpointer.save(tmp_path / "x", args=ocp.args.StandardSave({"a": 1}))
    with pytest.raises(ValueError, match="already exists"):
        checkpointer.save(tmp_path / "x", args=ocp.args.StandardSave({"a": 2}))
    assert checkpointer.restore(tmp_path / "x") == {"a": 1}
    checkpointer.save(
        tmp_path / "x", args=ocp.args.StandardSave({"a": 2}), force=True
    )
    assert checkpointer.restore(tmp_path / "x") == {"a": 2}


def test_no_checkpoint(ocp, ours, tmp_path):  # CK-03
    checkpointer = ocp.PyTreeCheckpointer()
    with pytest.raises(FileNotFoundError):
        checkpointer.restore(tmp_path / "x")
    if ours:  # Orbax describes what is not there.
        with pytest.raises(FileNotFoundError):
            checkpointer.metadata(tmp_path / "x")


def test_metadata_of_a_step(ocp, tmp_path):  # CK-04
    checkpointer = ocp.PyTreeCheckpointer()
    checkpointer.save(
        tmp_path / "x", {"w": np.zeros(3)}, custom_metadata={"a": 1}
    )
    found = checkpointer.metadata(tmp_path / "x")
    assert found.item_metadata.tree["w"].shape == (3,)
    assert found.custom_metadata == {"a": 1}
    assert found.commit_timestamp_nsecs >= found.init_timestamp_nsecs


def test_arguments_one_by_one(ocp, tmp_path):  # CK-05
    checkpointer = ocp.Checkpointer(ocp.PyTreeCheckpointHandler())
    tree = {"w": np.arange(3)}
    checkpointer.save(tmp_path / "x", tree, save_args={"w": ocp.SaveArgs()})
    assert_same(checkpointer.restore(tmp_path / "x"), tree)
    assert_same(checkpointer.restore(tmp_path / "x", item=tree), tree)
    assert_same(
        checkpointer.restore(tmp_path / "x", args=ocp.args.PyTreeRestore(tree)),
        tree,
    )


def test_in_the_background(ocp, tmp_path):  # CK-06
    called = []
    options = ocp.AsyncOptions(
        post_finalization_callback=lambda: called.append(1)
    )
    array = np.arange(1000)
    with ocp.AsyncCheckpointer(
        ocp.StandardCheckpointHandler(), async_options=options
    ) as checkpointer:
        checkpointer.save(
            tmp_path / "x", args=ocp.args.StandardSave({"w": array})
        )
        array[:] = -1
        # Waits for the one before.
        checkpointer.save(tmp_path / "y", args=ocp.args.StandardSave({"n": 1}))
        checkpointer.wait_until_finished()
        assert called == [1, 1]
        restored = checkpointer.restore(tmp_path / "x")
    assert np.array_equal(restored["w"], np.arange(1000))


def test_a_time_that_is_none(ocp):  # OPT-18
    with pytest.raises(ValueError):
        ocp.AsyncCheckpointer(ocp.StandardCheckpointHandler(), timeout_secs=-1)


def test_an_error_is_told_once(ocp, tmp_path):  # CK-07, SV-08
    checkpointer = ocp.AsyncCheckpointer(ocp.StandardCheckpointHandler())
    with pytest.raises(ValueError):
        checkpointer.save(
            tmp_path / "x", args=ocp.args.StandardSave({"a": "text"})
        )
    checkpointer.check_for_errors()
    checkpointer.close()


def test_standard_checkpointer(ocp, tmp_path):  # CK-09
    tree = {"w": jnp.arange(4.0), "n": 2}
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(tmp_path / "x", tree)
        checkpointer.wait_until_finished()
        assert_same(checkpointer.restore(tmp_path / "x", tree), tree)
        abstract = {"w": jax.ShapeDtypeStruct((2,), jnp.float32), "n": 0}
        with pytest.raises(ValueError):
            checkpointer.restore(tmp_path / "x", abstract)


def test_the_mode_of_a_directory(ocp, tmp_path):  # OPT-21
    checkpointer = ocp.Checkpointer(
        ocp.PyTreeCheckpointHandler(),
        file_options=ocp.options.FileOptions(path_permission_mode=0o750),
    )
    checkpointer.save(tmp_path / "x", {"a": 1})
    assert stat.S_IMODE((tmp_path / "x").stat().st_mode) == 0o750


def test_a_relative_path(ocp, ours, tmp_path, monkeypatch):  # CK-02
    monkeypatch.chdir(tmp_path)
    if ours:
        ocp.PyTreeCheckpointer().save("x", {"a": 1})
        assert ocp.PyTreeCheckpointer().restore("x") == {"a": 1}
    else:
        with pytest.raises(ValueError, match="absolute"):
            ocp.PyTreeCheckpointer().save("x", {"a": np.ones(2)})


# ---- Handlers and their arguments: HR ----


@pytest.fixture
def text(ocp):
    """A handler of text files, registered with its arguments."""

    class TextHandler(ocp.CheckpointHandler):
        closed = finalized = 0

        def save(self, directory, args):
            (directory / "text").write_text(args.item)

        def restore(self, directory, args=None):
            return (directory / "text").read_text()

        def finalize(self, directory):
            assert (directory / "text").exists()
            TextHandler.finalized += 1

        def close(self):
            TextHandler.closed += 1

    @ocp.args.register_with_handler(TextHandler, for_save=True)
    @dataclasses.dataclass
    class TextSave(ocp.args.CheckpointArgs):
        item: str

    @ocp.args.register_with_handler(TextHandler, for_restore=True)
    @dataclasses.dataclass
    class TextRestore(ocp.args.CheckpointArgs):
        pass

    return TextHandler, TextSave, TextRestore


def test_a_handler_by_a_checkpointer(ocp, text, tmp_path):  # HR-01, CK-01
    handler, save, restore = text
    with ocp.Checkpointer(handler()) as checkpointer:
        checkpointer.save(tmp_path / "x", args=save("one"))
        assert checkpointer.restore(tmp_path / "x", args=restore()) == "one"
        checkpointer.save(tmp_path / "y", "two")
        assert checkpointer.restore(tmp_path / "y") == "two"
    assert (handler.finalized, handler.closed) == (2, 1)


def test_arguments_and_their_handlers(ocp, text):  # HR-02
    handler, save, restore = text
    assert ocp.args.get_registered_handler_cls(save) is handler
    assert ocp.args.get_registered_handler_cls(restore()) is handler
    assert tuple(ocp.args.get_registered_args_cls(handler)) == (save, restore)
    assert ocp.args.has_registered_args(handler)

    class Derived(handler):
        pass

    assert not ocp.args.has_registered_args(Derived)
    with pytest.raises(ValueError):
        ocp.args.get_registered_args_cls(Derived)

    class Unknown(ocp.args.CheckpointArgs):
        pass

    with pytest.raises(ValueError):
        ocp.args.get_registered_handler_cls(Unknown)


def test_where_a_registry_looks(ocp):  # HR-03
    args = ocp.args
    registry = ocp.handlers.DefaultCheckpointHandlerRegistry()
    own, of_all = ocp.JsonCheckpointHandler(), ocp.JsonCheckpointHandler()
    registry.add("config", args.JsonSave, own)
    registry.add(None, args.JsonSave, of_all)
    assert registry.get("config", args.JsonSave) is own
    assert registry.get(None, args.JsonSave) is of_all
    assert registry.has("config", args.JsonSave)
    with pytest.raises(ValueError):
        registry.add("config", args.JsonSave, own)
    with pytest.raises(KeyError):
        registry.get("config", args.ArraySave)
    copied = ocp.handlers.DefaultCheckpointHandlerRegistry(registry)
    assert copied.get("config", args.JsonSave) is own


def test_the_handler_is_noted(ocp, ours, tmp_path):  # HR-04
    with ocp.CheckpointManager(tmp_path / "run") as manager:
        manager.save(
            0, args=ocp.args.Composite(config=ocp.args.JsonSave({"a": 1}))
        )
        manager.wait_until_finished()
        noted = manager.metadata(0).item_handlers["config"]
    assert noted.endswith(".JsonCheckpointHandler")
    assert noted.startswith("ckptree.orbax." if ours else "orbax.checkpoint.")


def test_names_of_items(ocp):  # HR-05
    made = ocp.args.Composite(b=1, a=2)
    assert made.a == made["a"] == 2 and set(made) == {"a", "b"}
    assert "c" not in made and made.get("c") is None
    with pytest.raises(KeyError):
        made.c
    with pytest.raises(KeyError):
        made["c"]
    with pytest.raises(ValueError):
        made.a = 3
    with pytest.raises(ValueError):
        ocp.args.Composite(__x=1)


def test_items_without_arguments(ocp, tmp_path):  # HR-06, CM-21
    with ocp.CheckpointManager(tmp_path / "run") as manager:
        with pytest.raises(ValueError):
            manager.save(0, args=ocp.args.Composite(a=None))
        manager.save(
            1, args=ocp.args.Composite(a=ocp.args.StandardSave({"x": 1}))
        )
        manager.wait_until_finished()
        assert manager.restore(1, args=ocp.args.Composite(a=None)).a == {"x": 1}
    with ocp.CheckpointManager(tmp_path / "run") as manager:
        with pytest.raises(ValueError, match="Provided `None`"):
            manager.restore(1, args=ocp.args.Composite(a=None))


def test_several_items_by_a_checkpointer(ocp, tmp_path):  # HR-06, HR-07
    checkpointer = ocp.Checkpointer(ocp.CompositeCheckpointHandler())
    checkpointer.save(
        tmp_path / "x",
        args=ocp.args.Composite(
            state=ocp.args.StandardSave({"w": np.ones(2)}),
            config=ocp.args.JsonSave({"a": 1}),
        ),
    )
    restored = checkpointer.restore(tmp_path / "x")
    assert set(restored) == {"state", "config"} and restored.config == {"a": 1}
    restored = checkpointer.restore(
        tmp_path / "x", args=ocp.args.Composite(config=ocp.args.JsonRestore())
    )
    assert set(restored) == {"config"}
    with pytest.raises(KeyError):
        checkpointer.restore(
            tmp_path / "x", args=ocp.args.Composite(none=ocp.args.JsonRestore())
        )
    assert set(checkpointer.metadata(tmp_path / "x").item_metadata) == {
        "state",
        "config",
    }


def test_a_handler_that_is_not_known_again(ocp, text, tmp_path):  # HR-07, CM-20
    handler, save, restore = text
    with ocp.CheckpointManager(tmp_path / "run") as manager:
        manager.save(0, args=ocp.args.Composite(note=save("x")))
    with ocp.CheckpointManager(
        tmp_path / "run", item_handlers={"note": handler()}
    ) as manager:
        assert manager.restore(0).note == "x"


# ---- Other items: OH ----


def test_json_that_cannot_be(ocp, tmp_path):  # OH-01
    checkpointer = ocp.Checkpointer(ocp.JsonCheckpointHandler())
    with pytest.raises(TypeError):
        checkpointer.save(
            tmp_path / "x", args=ocp.args.JsonSave({"a": object()})
        )
    checkpointer.save(tmp_path / "y", args=ocp.args.JsonSave({1: (2, 3)}))
    assert checkpointer.restore(tmp_path / "y") == {"1": [2, 3]}


def test_one_array(ocp, tmp_path):  # OH-02
    checkpointer = ocp.Checkpointer(ocp.ArrayCheckpointHandler())
    checkpointer.save(tmp_path / "x", args=ocp.args.ArraySave(np.arange(4)))
    args = ocp.args.ArrayRestore(restore_args=ocp.RestoreArgs(dtype=np.float32))
    restored = checkpointer.restore(tmp_path / "x", args=args)
    assert_same(restored, np.arange(4, dtype="f4"))
    with pytest.raises(TypeError, match="Unsupported type"):
        checkpointer.save(tmp_path / "y", args=ocp.args.ArraySave("text"))


def test_a_message(ocp, tmp_path):  # OH-03
    pytest.importorskip("google.protobuf")
    from google.protobuf import struct_pb2

    message = struct_pb2.Value(string_value="x")
    checkpointer = ocp.Checkpointer(
        ocp.ProtoCheckpointHandler(filename="v.pbtxt")
    )
    checkpointer.save(tmp_path / "x", args=ocp.args.ProtoSave(message))
    restored = checkpointer.restore(
        tmp_path / "x", args=ocp.args.ProtoRestore(struct_pb2.Value)
    )
    assert restored == message


@pytest.mark.parametrize("typed", [True, False])
def test_a_key_of_jax(ocp, ours, tmp_path, typed):  # OH-04
    key = (
        jax.random.key(3, impl="rbg" if ours and typed else None)
        if typed
        else (jax.random.PRNGKey(3))
    )
    checkpointer = ocp.Checkpointer(ocp.JaxRandomKeyCheckpointHandler())
    checkpointer.save(tmp_path / "x", args=ocp.args.JaxRandomKeySave(key))
    restored = checkpointer.restore(
        tmp_path / "x", args=ocp.args.JaxRandomKeyRestore()
    )
    assert restored.dtype == key.dtype
    assert jax.random.bits(restored) == jax.random.bits(key)
    with pytest.raises(TypeError):
        checkpointer.save(tmp_path / "y", args=ocp.args.JaxRandomKeySave(3))


@pytest.mark.parametrize("legacy", [True, False])
def test_a_state_of_numpys_random_numbers(ocp, tmp_path, legacy):  # OH-05
    np.random.seed(5)
    given = np.random.get_state(legacy=legacy)
    expected = np.random.rand()
    checkpointer = ocp.Checkpointer(ocp.NumpyRandomKeyCheckpointHandler())
    checkpointer.save(tmp_path / "x", args=ocp.args.NumpyRandomKeySave(given))
    restored = checkpointer.restore(
        tmp_path / "x", args=ocp.args.NumpyRandomKeyRestore()
    )
    assert type(restored) is type(given)
    np.random.set_state(restored)
    assert np.random.rand() == expected


# ---- Managers' options that have no other test: OPT ----


@pytest.mark.parametrize("active", [{0}])
def test_create_by_some_processes(ocp, tmp_path, active):  # OPT-09
    processes = ocp.options.MultiprocessingOptions(active_processes=active)
    with pytest.raises(NotImplementedError):
        options = ocp.CheckpointManagerOptions(
            multiprocessing_options=processes
        )
        ocp.CheckpointManager(tmp_path / "run", options=options)


def test_a_callback_when_a_step_is_durable(ocp, tmp_path):  # OPT-18
    called = []
    options = ocp.CheckpointManagerOptions(
        async_options=ocp.AsyncOptions(
            post_finalization_callback=lambda: called.append(1)
        )
    )
    with ocp.CheckpointManager(tmp_path / "run", options=options) as manager:
        for step in range(3):
            manager.save(step, args=ocp.args.StandardSave({"a": step}))
    assert called == [1, 1, 1]


def test_the_directory_is_made_or_not(ocp, tmp_path):  # OPT-09
    with ocp.CheckpointManager(tmp_path / "a" / "run") as manager:
        assert manager.directory.is_dir()
    ocp.PyTreeCheckpointer().save(tmp_path / "b" / "c" / "x", {"a": 1})
    options = ocp.CheckpointManagerOptions(create=False)
    with ocp.CheckpointManager(tmp_path / "d", options=options) as manager:
        assert not (tmp_path / "d").exists() and manager.latest_step() is None
    (tmp_path / "e").mkdir()
    with ocp.CheckpointManager(tmp_path / "e", options=options) as manager:
        assert manager.save(0, args=ocp.args.StandardSave({"a": 1}))


def test_an_interval_of_nothing(ocp, tmp_path):  # OPT-01
    options = ocp.CheckpointManagerOptions(save_interval_steps=0)
    with pytest.raises((ValueError, ZeroDivisionError)):
        with ocp.CheckpointManager(
            tmp_path / "run", options=options
        ) as manager:
            manager.should_save(1)


def test_decisions_need_not_see_saves(ocp, tmp_path):  # OPT-27, CM-14
    seen = []

    class Policy:
        def should_save(self, step, previous_steps, *, context):
            seen.append(
                (context.is_saving_in_progress, context.reached_preemption)
            )
            return True

    options = ocp.CheckpointManagerOptions(
        save_decision_policy=Policy(),
        enable_should_save_is_saving_in_progress_check=False,
    )
    with ocp.CheckpointManager(tmp_path / "run", options=options) as manager:
        for step in range(3):
            manager.save(
                step, args=ocp.args.StandardSave({"w": np.ones(1 << 16)})
            )
    assert seen == [(False, False)] * 3


@pytest.mark.parametrize(
    "options",
    [
        {"enable_background_delete": True, "num_deletion_threads": 2},
        {"cleanup_tmp_directories": True},
        {"lightweight_initialize": True},
        {"save_root_metadata": False},
        {"prevent_write_metrics": True},
        {"enable_should_save_is_saving_in_progress_check": False},
    ],
)
def test_options_that_change_no_result(ocp, tmp_path, options):
    made = ocp.CheckpointManagerOptions(max_to_keep=2, **options)
    with ocp.CheckpointManager(
        tmp_path / "run", options=made, metadata={"a": 1}
    ) as manager:
        for step in range(4):
            manager.save(step, args=ocp.args.StandardSave({"n": step}))
        manager.wait_until_finished()
        assert list(manager.all_steps()) == [2, 3]
        assert manager.restore(3) == {"n": 3}
    with ocp.CheckpointManager(tmp_path / "run", options=made) as manager:
        assert list(manager.all_steps()) == [2, 3]
        kept = options.get("save_root_metadata", True)
        assert manager.metadata().custom_metadata == ({"a": 1} if kept else {})
