# SPDX-License-Identifier: Apache-2.0
"""Arguments: what is of a wrong type or value is refused by its name, by every
public call."""

import importlib
import importlib.util
import inspect
import pathlib
from datetime import timedelta

import ckptree
import numpy as np
import pytest
from ckptree import decisions, policies

HAS_TORCH = importlib.util.find_spec("torch") is not None
HAS_JAX = importlib.util.find_spec("jax") is not None

# For each name: what is of a wrong type, and what can never be meant.
FLAG = ((None, "x", 1, 1.5, []), ())
TEXT = ((None, 1, 1.5, [], b"x"), ("\ud800",))
FUNCTION = ((1.5, "x", []), ())
COUNT = (("x", 1.5, [], True), (-1, 10**30))
POSITIVE = (("x", 1.5, [], True), (0, -1, 10**30))
NUMBER = (("x", 1.5, [], True), (10**30,))
SECONDS = (("x", [], "1.5"), (-1, float("nan"), 10**400))
SELECTOR = ((1.5, None, [], True), ("\ud800",))
ANYTHING = ((), ())

ROWS = {
    "after": ((3, "latest", None), ()),
    "age": ((3, "x", None), (timedelta(-1),)),
    "app": ((3, "x", []), ()),
    "arrays": ((3, None), ("x",)),
    "before": SELECTOR,
    "best_fn": FUNCTION,
    "best_metric": TEXT,
    "best_mode": ((3, []), ("most",)),
    "borrow": FLAG,
    "branch": TEXT,
    "broadcast": ((3, "gloo", False, []), ()),
    "bytes_per_second": COUNT,
    "callback": (*FUNCTION[:1], ()),
    "cast": ((None, 3, []), ("x",)),
    "chunk_bytes": (COUNT[0], (-1, 1, 10**30)),
    "classes": ((3, "x", [3], None), ()),
    "coding": ((3, []), ("x",)),
    "collect": FLAG,
    "collect_bytes_per_second": COUNT,
    "create": FLAG,
    "cuda": FLAG,
    "deadline": (SECONDS[0], (0, *SECONDS[1])),
    "decisions": ((1.5, "x", None), ()),
    "delete_later": FLAG,
    "depth": COUNT,
    "device": ANYTHING,
    "durable": ((3, None), ("x",)),
    "first": NUMBER,
    "force": FLAG,
    "format": ((3, []), ("zip",)),
    "function": (("x", None), ()),
    "glob": TEXT,
    "histograms": ((3, "x", [1], None), ()),
    "host": FLAG,
    "interval": POSITIVE,
    "item": TEXT,
    "items": (("w", 3, None, [3]), (["\ud800"],)),
    "job": (TEXT[0], ("", "a/b")),
    "keep_checkpoints_without_metrics": FLAG,
    "keep_period": POSITIVE,
    "keep_time_interval": (("x", []), (-1, float("nan"), 10**30)),
    "keys": ((3, "x", [1], None), ()),
    "last": NUMBER,
    "latest": ((3, "x", ("x",), (1, "x")), ()),
    "level": ((None, 1), ("x",)),
    "like": ANYTHING,
    "local_directory": ((3, []), ("s3://bucket/run",)),
    "lock_wait": SECONDS,
    "local_keep": ((3, ["latest(1)"]), ("newest",)),
    "max_saves_in_flight": POSITIVE,
    "max_shard_bytes": POSITIVE,
    "max_to_keep": COUNT,
    "metadata": (({1, 2}, object(), {1: 2, "1": 3}), (float("nan"),)),
    "metric": ((3, None), ()),
    "metrics": (
        (3, [], {"x": "1.5"}, {3: 1.5}, {"x": None}),
        ({"x": 2**53 + 1}, {"x": np.int64(2**62 + 1)}, {"\ud800": 1}),
    ),
    "min_dead_fraction": (("x", None, []), (-1, 2, float("nan"))),
    "minimum": ((3, "x"), (timedelta(-1),)),
    "mode": ((None, 3), ("x",)),
    "move": FLAG,
    "n": COUNT,
    "name": TEXT,
    "note": TEXT,
    "now": (("x", []), ()),
    "numpy": FLAG,
    "open_deadline": (SECONDS[0], (0, *SECONDS[1])),
    "overwrite": FLAG,
    "pack": FLAG,
    "partial": ((None, 3, [3]), ([], (), "\ud800", ["\ud800"])),
    "path": ((None, 3, []), ()),
    "per_rank": (("w", 3, None, [3]), (["a*/b"],)),
    "permissions": (COUNT[0], (-1, 0, 10**30)),
    "policy": ((3, ["latest(1)"]), ("\ud800",)),
    "preempted": FLAG,
    "preservation": ((3, ["latest(1)"]), ("newest",)),
    "progress": ((3, "x", []), ()),
    "python": FLAG,
    "rank": COUNT,
    "ranks": ((3, "x", (0, 1)), ()),
    "read_only": FLAG,
    "remote": TEXT,
    "remote_grace": SECONDS,
    "remote_timeout": SECONDS,
    "rename": ((3, ["a"], {3: "a"}, {"a": 3}), ({"a": "\ud800"},)),
    "save_decision": ((1.5, "x"), ()),
    "save_interval_steps": POSITIVE,
    "save_on_steps": ((3, "x", [1.5], None), ([10**30],)),
    "save_timeout": (SECONDS[0], (0, *SECONDS[1])),
    "saving_in_progress": FLAG,
    "seconds": SECONDS,
    "sharding": ANYTHING,
    "should_keep_fn": FUNCTION,
    "should_save_fn": FUNCTION,
    "size": ((None, 1.5, True), (-1, 0, 10**30, "x", "1 gb", "1.5GB", "")),
    "skip": (("w", 3, None, [3]), ()),
    "source": ((None, 3, "latest", {}), ()),
    "spaced": FLAG,
    "staging_bytes": COUNT,
    "staging_idle": SECONDS,
    "state": ANYTHING,
    "statistic": ((3, []), ("x",)),
    "statistics": FLAG,
    "step": SELECTOR,
    "steps": ((3, "latest", [1.5], None), ()),
    "store": ((None, 3, "x", {}), ()),
    "tagged": FLAG,
    "shared_folder": FLAG,
    "take_over": FLAG,
    "text": TEXT,
    "threads": (COUNT[0], (-1, 10**30)),
    "time": (("x", [], True), (float("nan"), 10**30, 10**400, 1e300)),
    "timeout": SECONDS,
    "unmeasured": ((None, 3), ("lose",)),
    "verify": FLAG,
    "watch_sigterm": FLAG,
    "world": POSITIVE,
}
# Where a name means something else.
NUMBERED = (("x", 1.5, None, True), (10**30,))
OF_CALLS = {
    ("dcp.StoreWriter", "store"): ((None, 3, []), ()),
    ("dcp.StoreReader", "store"): ((None, 3, []), ()),
    ("dcp.StoreReader", "cast"): FLAG,
    ("Store.save", "step"): NUMBERED,
    ("Store.delete", "steps"): SELECTOR,
    ("Store.would_free", "steps"): SELECTOR,
    ("Store.diff", "after"): SELECTOR,
    ("Manager.restore", "step"): ((1.5, [], True), ()),
    ("Logarithmic", "n"): POSITIVE,
    ("Every", "interval"): ((3, "x", None), ()),
    ("Manager.reached_preemption", "step"): (("x", 1.5, True), (10**30,)),
    ("EverySeconds", "seconds"): (SECONDS[0], (float("nan"), 10**30)),
    ("decisions.FixedInterval", "interval"): (POSITIVE[0], (0, 10**30)),
    ("SpecificSteps", "steps"): ((3, "x", [1.5], None), ([10**30],)),
    ("decisions.SpecificSteps", "steps"): ((3, "x", [1.5]), ([10**30],)),
    ("Policy.decide", "steps"): ((3, "x", [3], [("x",)], [(1, "x")]), ()),
    ("Policy.explain", "steps"): ((3, "x", [3], [(1, 0, {"x": "1"})]), ()),
    ("torch.save", "step"): NUMBERED,
    ("torch.import_checkpoint", "step"): ((1.5, "x", [], True), (-1, 10**30)),
    ("torch.export_checkpoint", "metadata"): ((3, {"a": 1}, {1: "a"}), ()),
    ("torch.load", "partial"): FLAG,
    ("Decision.decide", "step"): ((3, "x", ("x",), (1, 0, {}, 3)), ()),
} | {
    (f"Manager.{call}", "step"): NUMBERED
    for call in (
        "should_save save metrics item_metadata delete delete_after fork_from"
    ).split()
}
# Messages that call it otherwise: what is wrong is said by the engine.
SAID = {
    "interval": "every 0 steps",
    "permissions": "permissions",
    "size": "budget",
    "preservation": "newest",
}
STATE = {"w": np.zeros(2)}


class Bench:
    """Everything that has public calls, open, and what else each call is
    given."""

    def __init__(self, path):
        self.path = path
        self.store = ckptree.Store(path / "store")
        self.handle = self.store.save(1, STATE)
        self.handle.result()
        self.manager = ckptree.CheckpointManager(path / "managed")
        self.manager.save(1, STATE)
        self.manager.wait_until_finished()
        self.step = self.store[1]
        self.count = 0

    def close(self):
        self.store.close()
        self.manager.close()

    def calls(self):
        """(name, function, needed arguments) of every public call."""
        yield "open", ckptree.open, {"path": self.path / "store"}
        for name, thing in {
            "Store": self.store,
            "Manager": self.manager,
            "Step": self.step,
            "Leaf": self.step["w"],
            "SaveHandle": self.handle,
            "Policy": ckptree.Latest(1),
            "Decision": decisions.InitialSave(),
        }.items():
            for method, function in inspect.getmembers(
                type(thing), callable
            ):
                if method.startswith("_") or method in MAPPING:
                    continue
                bound = getattr(thing, method)
                needed = self.needed(bound)
                if "path" in needed:
                    needed["path"] = self.new
                if "after" in needed:
                    needed["after"] = self.step
                if method == "decide" and name == "Decision":
                    needed["step"] = policies.PolicyStep(1)
                yield f"{name}.{method}", bound, needed
        yield "Store", ckptree.Store, {"path": self.new}
        yield "Manager", ckptree.CheckpointManager, {"path": self.new}
        yield "Ranks", ckptree.Ranks, {"rank": 0, "world": 1}
        for name in policies.__all__:
            if name in ("Policy", "PolicyStep"):
                continue
            made = getattr(policies, name)
            yield name, made, self.needed(made)
        for name in decisions.__all__:
            if name == "Decision":
                continue
            made = getattr(decisions, name)
            yield f"decisions.{name}", made, self.needed(made)
        if HAS_JAX:
            orbax = importlib.import_module("ckptree.orbax")
            yield "RemoteOptions", orbax.RemoteOptions, {}
        if HAS_TORCH:
            torch = importlib.import_module("ckptree.torch")
            for name in ("save", "load", "resume"):
                call = getattr(torch, name)
                given = {**self.needed(call), "app": {"n": 1}}
                given |= {
                    key: self.store for key in given
                    if key in ("store", "source")
                }
                yield f"torch.{name}", call, given
            yield "torch.Rng", torch.Rng, {}
            for name in ("import_checkpoint", "export_checkpoint"):
                given = {"store": self.store, "path": self.new}
                if name == "export_checkpoint":
                    given = {"source": self.store, "path": self.new}
                yield f"torch.{name}", getattr(torch, name), given
            dcp = importlib.import_module("ckptree.torch.dcp")
            yield "dcp.StoreWriter", dcp.StoreWriter, {"store": self.new}
            yield "dcp.StoreReader", dcp.StoreReader, {"store": self.new}
            yield "dcp.describe", dcp.StoreWriter(self.new).describe, {}

    @property
    def new(self):
        return pathlib.Path(self.path / "new")

    def needed(self, function):
        given = {}
        for name, parameter in inspect.signature(function).parameters.items():
            if parameter.kind is parameter.VAR_POSITIONAL:
                continue
            if parameter.default is parameter.empty:
                given[name] = NEEDED.get(name)
        return given


NEEDED = {
    "interval": 1,
    "policy": "latest(1)",
    "steps": [],
    "state": STATE,
    "step": 1,
    "name": "w",
    "branch": "b",
    "mode": "min",
    "metric": "loss",
}
# Of Mapping, which Python makes.
MAPPING = ("get", "items", "keys", "values")


@pytest.fixture(scope="module")
def bench(tmp_path_factory):
    made = Bench(tmp_path_factory.mktemp("arguments"))
    yield made
    made.close()


def give(function, needed, name, value):
    """Calls it with one argument that is wrong."""
    parameter = inspect.signature(function).parameters[name]
    if parameter.kind is parameter.VAR_POSITIONAL:
        return function(value)
    rest = {k: v for k, v in needed.items() if k != name}
    extra = {"statistic": {"name": "w"}, "timeout": {}}.get(name, {})
    return function(**{**rest, **extra, name: value})


def test_every_public_call_refuses_what_is_wrong_by_its_name(bench):
    faults = []
    asked = 0
    for call, function, needed in bench.calls():
        for name in inspect.signature(function).parameters:
            types, values = OF_CALLS.get((call, name)) or ROWS[name]
            for kind, wrong in [(TypeError, t) for t in types] + [
                (ValueError, v) for v in values
            ]:
                asked += 1
                try:
                    give(function, needed, name, wrong)
                    faults.append(f"{call}({name}={wrong!r}) was taken")
                except kind as error:
                    said = str(error)
                    known = name in said or SAID.get(name, name) in said
                    if not known or "incompatible" in said:
                        faults.append(f"{call}({name}={wrong!r}): {said}")
                except Exception as error:
                    faults.append(f"{call}({name}={wrong!r}): {error!r}")
    assert not faults, "\n".join(faults)
    assert asked > 700
    assert not bench.new.exists()


def test_a_message_says_what_it_is(store):
    with pytest.raises(TypeError) as error:
        ckptree.CheckpointManager(store.path, max_to_keep="x")
    assert str(error.value) == "max_to_keep is an int or None, not 'x'"
    with pytest.raises(ValueError) as error:
        ckptree.Store(store.path, max_saves_in_flight=10**30)
    most = 2**31 - 1
    said = f"max_saves_in_flight is at most {most}, not an int of 100 bits"
    assert str(error.value) == said
    with pytest.raises(TypeError) as error:
        store.verify(steps="latest")
    assert str(error.value) == "steps is a list of steps, not 'latest'"


@pytest.mark.parametrize(
    "call, said",
    [
        (lambda s: s.save(1, STATE, metric={"loss": 1}), "did you mean 'met"),
        (lambda s: s.restore(1, casts=True), "did you mean 'cast'"),
        (lambda s: s[1].restore(lik=STATE), "did you mean 'like'"),
        (lambda s: ckptree.Store(s.path, thread=3), "did you mean 'threads'"),
        (
            lambda s: ckptree.CheckpointManager(s.path, max_to_kep=3),
            "did you mean 'max_to_keep'",
        ),
        (
            lambda s: s.save(1, STATE, xyz=1),
            r"^Store.save\(\) has no option 'xyz': it has .*, metrics, ",
        ),
        # What it has from a base is its own to users.
        (
            lambda s: s.verify(steps=[1], levels="deep"),
            r"^Store.verify\(\) has no option 'levels': did you mean 'level'",
        ),
        (
            lambda s: ckptree.Latest(count=3),
            r"^Latest\(\) has no option 'count': it has n$",
        ),
    ],
)
def test_an_option_that_is_misspelt_is_named(store, call, said):
    store.save(1, STATE).result()
    with pytest.raises(TypeError, match=said):
        call(store)


def test_ints_that_a_float_holds_are_metrics(store):
    given = {"a": 2**53, "b": -(2**70), "c": np.int64(3), "d": True}
    store.save(1, STATE, metrics=given).result()
    assert store.step_info(1).metrics == given


def test_too_many_metrics_are_counted(store):
    with pytest.raises(ValueError, match="at most 16 metrics, and 'm16'"):
        store.save(1, STATE, metrics={f"m{i:02}": i for i in range(17)})


def test_a_size_may_have_a_blank(store):
    assert ckptree.Budget("16 GiB") == ckptree.Budget("16GiB")
    with pytest.raises(ValueError) as error:
        ckptree.Budget("1 gigabyte")
    units = "B, kB, KB, MB, GB, TB, KiB, MiB, GiB, TiB"
    what = f"bytes, or a text of a number and one of {units}"
    assert str(error.value) == f"size is {what}, not '1 gigabyte'"


def test_numbers_of_numpy_are_taken(tmp_path):
    with ckptree.CheckpointManager(
        tmp_path / "s",
        max_to_keep=np.int64(2),
        save_interval_steps=np.uint8(2),
        save_on_steps=np.arange(2),
        watch_sigterm=np.bool_(False),
        save_timeout=np.float32(60),
        keep_time_interval=timedelta(days=1),
    ) as manager:
        metrics = {"loss": np.float32(0.5), "nan": np.array(np.nan)}
        assert manager.save(np.int32(4), STATE, metrics=metrics)
        manager.wait_until_finished(np.float64(60))
        assert manager.metrics(np.array(4))["loss"] == 0.5
        assert np.isnan(manager.metrics(4)["nan"])
        assert manager.store.steps()[0].step == 4


def test_a_call_without_a_kind_is_refused_at_once():
    from ckptree.arguments import checked

    with pytest.raises(KeyError, match="unheard"):

        @checked()
        def call(unheard):
            pass


def test_what_names_no_step_is_in_no_store(tmp_path):
    with ckptree.CheckpointManager(tmp_path / "lm") as manager:
        manager.save(5, {"w": 1}, metrics={"loss": 1.0})
        manager.wait_until_finished()
        with ckptree.open(tmp_path / "lm") as store:
            for steps in (store, manager):
                for there in (5, np.int64(5), "5", "latest", "best:loss:min"):
                    assert there in steps
                others = "zzz", "latest~x", "best:loss", "", "-1", "5.0", "a/5"
                for other in (*others, "\ud800", "9" * 30, -1, 10**30):
                    assert other not in steps, other
            with pytest.raises(ValueError, match="'zzz' names no step"):
                store["zzz"]
            meant = "did you mean 'latest~2'"
            with pytest.raises(ValueError, match=f"'lastest~2'.*; {meant}"):
                store.restore("lastest~2")
            with pytest.raises(TypeError, match=r"delete\(1, 2\).*\(\*steps"):
                store.delete([1, 2])
            for wrong in (None, 5.0, b"5", True):
                with pytest.raises(TypeError, match="a step is an int or a"):
                    wrong in store
