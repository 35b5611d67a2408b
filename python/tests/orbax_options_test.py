# SPDX-License-Identifier: Apache-2.0
"""Every option of Orbax's works, says once that it does nothing, or is
refused by its name. They are read from Orbax itself: a new one has no row."""

import dataclasses
import inspect
import tempfile
import warnings

import ckptree.orbax as ours
import numpy as np
import orbax.checkpoint as theirs
import pytest
from ckptree.orbax import _option_states
from ckptree.orbax._option_states import GROUP, REFUSED, STATES, WORKS

PLAIN = (
    "CheckpointManager",
    "CheckpointManagerOptions",
    "Checkpointer",
    "AsyncCheckpointer",
    "PyTreeCheckpointer",
    "StandardCheckpointer",
    "StandardCheckpointHandler",
    "PyTreeCheckpointHandler",
    "BasePyTreeCheckpointHandler",
    "JsonCheckpointHandler",
    "ProtoCheckpointHandler",
    "ArrayCheckpointHandler",
    "JaxRandomKeyCheckpointHandler",
    "NumpyRandomKeyCheckpointHandler",
    "CompositeCheckpointHandler",
    "CompositeOptions",
    "SaveArgs",
    "RestoreArgs",
    "ArrayRestoreArgs",
)
BELOW = {
    "options": (
        "AsyncOptions",
        "MultiprocessingOptions",
        "FileOptions",
        "AtomicityOptions",
        "MemoryLimitOptions",
    ),
    "args": (
        "StandardSave",
        "StandardRestore",
        "PyTreeSave",
        "PyTreeRestore",
    ),
    "type_handlers": (
        "ArrayHandler",
        "NumpyHandler",
        "ScalarHandler",
        "StringHandler",
    ),
    "checkpoint_utils": (
        "construct_restore_args",
        "wait_for_new_checkpoint",
        "checkpoints_iterator",
    ),
}


def groups(options, found=None):
    """The groups of options of v1, and those in them."""
    found = {} if found is None else found
    for value in vars(options).values():
        if isinstance(value, type) and dataclasses.is_dataclass(value):
            if value.__qualname__ not in found:
                found[value.__qualname__] = value
                groups(value, found)
    return found


def places(package):
    """Of either package, by the names of rows: what has options."""
    found = {name: getattr(package, name) for name in PLAIN}
    for module, names in BELOW.items():
        for name in names:
            found[name] = getattr(getattr(package, module), name)
    v1 = package.experimental.v1
    for name, group in groups(v1.options).items():
        if name not in ("AsyncOptions", "MultiprocessingOptions"):
            found.setdefault(f"v1 {name}", group)
    found["v1.Checkpointer"] = v1.training.Checkpointer
    for name in ("PyTreeHandler", "JsonHandler", "ProtoHandler"):
        found[f"v1 {name}"] = getattr(v1.handlers, name)
    return found


def parameters(of):
    return inspect.signature(of).parameters


def options():
    """Each option of Orbax's: the row's place, and its name."""
    return [
        (place, name)
        for place, of in places(theirs).items()
        for name in parameters(of)
    ]


@pytest.mark.parametrize("place, name", options())
def test_every_option_has_a_state(place, name):
    states = STATES[place.removeprefix("v1 ")]
    if (place, name) == ("StandardCheckpointer", "kwargs"):
        return  # Those of StandardCheckpointHandler.
    assert name in states, f"{place} has no row for {name}"
    assert name in parameters(places(ours)[place])


def values(name):
    """Other values than those that are the default."""
    made = {
        "atomicity_options": ours.options.AtomicityOptions(),
        "mode": ours.options.AtomicityMode.COMMIT_FILE,
        "shard_axes": (0,),
        "snapshot_dir": "somewhere",
        "temporary_path_class": ours.path.atomicity.CommitFileTemporaryPath,
    }
    return made.get(name, [True, False, 7])


def calls(place, of, name, value):
    """Makes or uses what has the option."""
    needed = {
        "Checkpointer": {"handler": ours.PyTreeCheckpointHandler()},
        "AsyncCheckpointer": {"handler": ours.PyTreeCheckpointHandler()},
        "PyTreeSave": {"item": {"w": np.ones(2)}},
        "construct_restore_args": {"target": {"w": np.ones(2)}},
    }.get(place, {})
    if place == "wait_for_new_checkpoint":
        with of("nowhere", timeout=0, seconds_to_sleep=0, **{name: value}):
            return
    if place == "checkpoints_iterator":
        list(of("nowhere", timeout=0, seconds_to_sleep=0, **{name: value}))
        return
    if place == "CheckpointManagerOptions" and name.startswith("enable_per"):
        needed = {
            "multiprocessing_options": ours.options.MultiprocessingOptions(
                primary_host=None
            )
        }
    made = of(**needed, **{name: value})
    uses(place, made)


def uses(place, made):
    """What has an option says it where it is used."""
    handler = ours.PyTreeCheckpointHandler()
    if place in ("FileOptions", "AtomicityOptions", "AsyncOptions"):
        if hasattr(made, "tell"):
            made.tell()
            return
        key = {
            "FileOptions": "file_options",
            "AtomicityOptions": "atomicity_options",
            "AsyncOptions": "async_options",
        }[place]
        ours.CheckpointManagerOptions(**{key: made})
    elif place == "MultiprocessingOptions":
        ours.Checkpointer(handler, multiprocessing_options=made)
    elif place == "MemoryLimitOptions":
        ours.PyTreeCheckpointHandler(memory_limit_options=made)
    elif place == "CompositeOptions":
        ours.CompositeCheckpointHandler(composite_options=made)
    elif place == "SaveArgs":
        item = {"w": np.ones(2)}
        handler.pack(ours.args.PyTreeSave(item, save_args={"w": made}))
    elif place == "PyTreeSave":
        handler.pack(made)
    elif place == "StandardRestore":
        with tempfile.TemporaryDirectory() as above:
            by = ours.Checkpointer(ours.StandardCheckpointHandler())
            by.save(f"{above}/one", {"a": 1})
            by.restore(f"{above}/one", args=made)
    elif place.startswith("v1 ") and not place.endswith("Handler"):
        made.tell()


def asked(states):
    """The options of that kind."""
    return [
        (place, name)
        for place, of in places(ours).items()
        for name in parameters(of)
        if states(STATES[place.removeprefix("v1 ")].get(name, WORKS))
    ]


def nothing(state):
    return state not in (WORKS, REFUSED, GROUP)


@pytest.mark.parametrize("place, name", asked(nothing))
def test_what_does_nothing_says_so_once(place, name, monkeypatch):
    monkeypatch.setattr(_option_states, "_told", set())
    of = places(ours)[place]
    wanted = values(name)
    for value in wanted if isinstance(wanted, list) else [wanted]:
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            calls(place, of, name, value)
        said = [w for w in seen if f": {name}=" in str(w.message)]
        if said:
            break
    assert len(said) == 1 and "does nothing: " in str(said[0].message)
    with warnings.catch_warnings(record=True) as again:
        warnings.simplefilter("always")
        calls(place, of, name, value)
    assert [w for w in again if f": {name}=" in str(w.message)] == []


def refused(state):
    return state is REFUSED


@pytest.mark.parametrize("place, name", asked(refused))
def test_what_is_refused_is_named(place, name, tmp_path):
    of = places(ours)[place]
    value = {
        "todelete_subdir": "trash",
        "todelete_full_path": "trash",
        "type_handler_registry": object(),
    }.get(name, True)
    with pytest.raises(NotImplementedError, match=name):
        if place == "PyTreeRestore":
            ours.PyTreeCheckpointer().save(tmp_path / "one", {"a": 1})
            ours.PyTreeCheckpointer().restore(
                tmp_path / "one", args=of(legacy_transform_fn=print)
            )
        elif place == "v1 DeletionOptions.GcsDeletionOptions":
            v1 = ours.experimental.v1
            deletion = v1.options.DeletionOptions(
                gcs_deletion_options=of(**{name: value})
            )
            v1.Context(deletion_options=deletion).check()
        else:
            calls(place, of, name, value)


@pytest.mark.parametrize(
    "given, named",
    [
        ({"primary_host": 3}, "primary_host: there is no process 3"),
        ({"active_processes": {0, 1}}, "active_processes: .* no process 1"),
        (
            {"primary_host": -1, "active_processes": {0}},
            "primary_host: there is no process -1",
        ),
    ],
)
def test_processes_that_are_not_there(given, named):
    options = ours.options.MultiprocessingOptions(**given)
    for of in (
        lambda: ours.PyTreeCheckpointHandler(multiprocessing_options=options),
        lambda: ours.StandardCheckpointer(multiprocessing_options=options),
        lambda: ours.CheckpointManagerOptions(multiprocessing_options=options),
        lambda: ours.v1.Context(multiprocessing_options=options).check(),
    ):
        with pytest.raises(ValueError, match=named):
            of()
    if "active_processes" not in given:
        with pytest.raises(ValueError, match=named):
            ours.PyTreeCheckpointer(**given)


def test_this_process_among_others_is_alone(tmp_path):
    for given in ({"primary_host": None}, {"active_processes": {0}}):
        options = ours.options.MultiprocessingOptions(**given)
        handler = ours.PyTreeCheckpointHandler()
        with ours.Checkpointer(
            handler, multiprocessing_options=options
        ) as checkpointer:
            checkpointer.save(tmp_path / "one", {"a": 1}, force=True)
            assert checkpointer.restore(tmp_path / "one") == {"a": 1}


def test_defaults_say_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(_option_states, "_told", set())
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        with ours.CheckpointManager(tmp_path / "run") as manager:
            args = ours.args.PyTreeSave({"a": np.ones(2)})
            manager.save(0, args=args)
            manager.wait_until_finished()
            manager.restore(0, args=ours.args.PyTreeRestore())
        for name in PLAIN:
            of = getattr(ours, name)
            if "Handler" in name or name.endswith("TreeCheckpointer"):
                of()
        ours.StandardCheckpointer().close()
        v1 = ours.experimental.v1
        v1.save(tmp_path / "one", {"a": np.ones(2)})
        v1.load(tmp_path / "one")


@pytest.mark.parametrize(
    "place",
    [
        place
        for place, of in places(ours).items()
        if not any(
            p.kind is inspect.Parameter.VAR_KEYWORD
            for p in parameters(of).values()
        )
    ]
    + ["StandardCheckpointer"],
)
def test_a_typo_is_a_type_error(place):
    with pytest.raises(TypeError, match="unexpected keyword argument"):
        places(ours)[place](no_such_option=1)


def test_handlers_of_single_leaves_are_never_taken():
    class Mine(ours.type_handlers.ArrayHandler):
        pass

    with pytest.raises(NotImplementedError, match="Mine"):
        ours.type_handlers.create_type_handler_registry((np.ndarray, Mine()))
    with pytest.raises(NotImplementedError, match="Mine"):
        ours.type_handlers.register_type_handler(np.ndarray, Mine())
    # Orbax's own would never be called.
    registry = theirs.type_handlers.create_type_handler_registry()
    with pytest.raises(NotImplementedError, match="type_handler_registry"):
        ours.PyTreeCheckpointHandler(type_handler_registry=registry)


@pytest.mark.parametrize(
    "name, value",
    [
        ("parallel", False),
        ("gda_manager", object()),
        ("allow_partial_mpa_restoration", True),
    ],
)
def test_options_of_flax(tmp_path, monkeypatch, name, value):
    from ckptree.flax import checkpoints

    monkeypatch.setattr(_option_states, "_told", set())
    checkpoints.save_checkpoint(tmp_path, {"a": 1}, 1)
    with pytest.warns(UserWarning, match=f"{name}=.* does nothing"):
        found = checkpoints.restore_checkpoint(tmp_path, None, **{name: value})
    assert found == {"a": 1}
    if name == "gda_manager":
        with pytest.warns(UserWarning, match=f"{name}=.* does nothing"):
            checkpoints.save_checkpoint_multiprocess(
                tmp_path, {"a": 1}, 2, gda_manager=value
            )


def test_a_context_of_a_save_is_refused(tmp_path):
    with pytest.raises(NotImplementedError, match="save_context"):
        ours.PyTreeCheckpointer().save(
            tmp_path / "one", {"a": 1}, save_context=object()
        )


def test_nothing_is_passed_beside_arguments(tmp_path):
    """Orbax does not look at it."""
    path = tmp_path / "one"
    tree = ours.PyTreeCheckpointer()
    args = ours.args.PyTreeSave({"a": 1})
    with pytest.raises(TypeError, match="typo"):
        tree.save(path, args=args, typo=1)
    with pytest.raises(TypeError, match="typo"):
        tree.save(path, args, typo=1)
    with pytest.raises(TypeError, match="typo"):
        tree.save(path, {"a": 1}, typo=1)
    both = ours.Checkpointer(ours.CompositeCheckpointHandler())
    items = ours.args.Composite(a=args)
    for passed in ((items,), ()):
        named = {} if passed else {"args": items}
        with pytest.raises(TypeError, match="typo"):
            both.save(path, *passed, typo=1, **named)
    assert not path.exists()
    both.save(path, items)
    with pytest.raises(TypeError, match="typo"):
        both.restore(path, items, typo=1)
    with pytest.raises(TypeError, match="typo"):
        ours.CompositeCheckpointHandler().restore(path, typo=1)
    with pytest.raises(TypeError, match="typo"):
        ours.PyTreeCheckpointer().restore(path, typo=1)
