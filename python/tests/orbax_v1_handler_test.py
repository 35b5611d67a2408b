# SPDX-License-Identifier: Apache-2.0
"""Handlers of checkpointables: the same calls under Orbax and under ckptree."""

import contextlib
import json
import threading

import jax.numpy as jnp
import numpy as np
import pytest


@pytest.fixture
def ocp(ocp):
    """The second interface of each."""
    return ocp.v1


def context_with(ocp, registry):
    return ocp.Context(
        checkpointables_options=ocp.options.CheckpointablesOptions(
            registry=registry
        )
    )


@pytest.fixture
def training(ocp, tmp_path):
    made = []

    def make(path="run", **options):
        made.append(ocp.training.Checkpointer(tmp_path / path, **options))
        return made[-1]

    yield make
    for checkpointer in made:
        checkpointer.close()


def state(step):
    return {"w": jnp.full(3, step), "n": step}


# ---- V1-11: handlers ----


class Point:
    def __init__(self, x):
        self.x = x


def handler_of(ocp, events):
    class PointHandler(ocp.CheckpointableHandler):
        def is_handleable(self, checkpointable):
            return isinstance(checkpointable, Point)

        def is_abstract_handleable(self, abstract_checkpointable):
            return abstract_checkpointable is None

        async def save(self, directory, checkpointable):
            events.append("captured")
            text = json.dumps(checkpointable.x)

            async def write():
                path = await directory.await_creation()
                (path / "point.json").write_text(text)
                events.append("written")

            return write()

        async def load(self, directory, abstract_checkpointable=None):
            async def read():
                return Point(json.loads((directory / "point.json").read_text()))

            return read()

        async def metadata(self, directory):
            return "a point"

    return PointHandler


def test_a_handler_of_ones_own(ocp, tmp_path):
    events = []
    kind = handler_of(ocp, events)
    registry = ocp.handlers.local_registry().add(kind)
    objects = {"state": {"a": 1}, "point": Point(4)}
    with context_with(ocp, registry):
        ocp.save_checkpointables(tmp_path / "a", objects)
        assert events == ["captured", "written"]
        loaded = ocp.load_checkpointables(tmp_path / "a")
        assert loaded["point"].x == 4 and loaded["state"] == {"a": 1}
        found = ocp.checkpointables_metadata(tmp_path / "a").metadata
        assert found == {"state": {"a": 0}, "point": "a point"}
    with pytest.raises(KeyError):  # NoEntryError
        ocp.load_checkpointables(tmp_path / "a")
    assert ocp.load(tmp_path / "a") == {"a": 1}


def test_the_handler_that_was_added_last_is_asked_first(ocp, tmp_path):
    first, second = [], []
    registry = ocp.handlers.local_registry()
    registry.add(handler_of(ocp, first))
    other = handler_of(ocp, second)
    other.__qualname__ = "Other"
    registry.add(other)
    with context_with(ocp, registry):
        ocp.save_checkpointables(tmp_path / "a", {"point": Point(1)})
    assert (first, second) == ([], ["captured", "written"])


def test_a_handler_in_a_run(ocp, training):
    registry = ocp.handlers.local_registry().add(
        handler_of(ocp, []), checkpointable_name="point"
    )
    checkpointer = training(context=context_with(ocp, registry))
    checkpointer.save_checkpointables(1, {"state": state(1), "point": Point(2)})
    assert checkpointer.load_checkpointables(1)["point"].x == 2


def test_what_a_handler_raises(ocp, tmp_path):
    class Broken(handler_of(ocp, [])):
        async def save(self, directory, checkpointable):
            raise OSError("no pen")

    registry = ocp.handlers.local_registry().add(Broken)
    with context_with(ocp, registry), pytest.raises(OSError, match="no pen"):
        ocp.save_checkpointables(tmp_path / "a", {"point": Point(1)})
    assert not ocp.is_orbax_checkpoint(tmp_path / "a")


# ---- The second coroutine is the work of the background ----


def gated_handler(ocp, gate, started):
    """Writes its file when the gate opens."""

    class Gated(handler_of(ocp, [])):
        async def save(self, directory, checkpointable):
            text = json.dumps(checkpointable.x)

            async def write():
                path = await directory.await_creation()
                started.set()
                if not gate.wait(timeout=60):
                    raise TimeoutError("nobody opened the gate")
                (path / "point.json").write_text(text)

            return write()

    return Gated


@pytest.fixture
def gate():
    gate = threading.Event()
    yield gate
    gate.set()


def test_save_async_does_not_wait_for_the_work_of_a_handler(
    ocp, tmp_path, gate
):
    started = threading.Event()
    registry = ocp.handlers.local_registry().add(
        gated_handler(ocp, gate, started)
    )
    w = np.arange(5.0)
    point = Point(4)
    with context_with(ocp, registry):
        response = ocp.save_checkpointables_async(
            tmp_path / "a", {"state": {"w": w}, "point": point}
        )
        # Before the gate is open: these are the caller's again.
        w += 100
        point.x = 5
        assert started.wait(timeout=60)
        assert not ocp.is_orbax_checkpoint(tmp_path / "a")
        gate.set()
        response.result(timeout=60)
        loaded = ocp.load_checkpointables(tmp_path / "a")
    assert loaded["point"].x == 4
    assert loaded["state"]["w"].tolist() == [0, 1, 2, 3, 4]


def test_a_run_goes_on_beside_the_work_of_a_handler(ocp, training, gate):
    registry = ocp.handlers.local_registry().add(
        gated_handler(ocp, gate, threading.Event()),
        checkpointable_name="point",
    )
    checkpointer = training(context=context_with(ocp, registry))
    response = checkpointer.save_checkpointables_async(
        1, {"state": state(1), "point": Point(2)}
    )
    assert checkpointer.is_saving_in_progress()
    gate.set()
    assert response.result(timeout=60)
    checkpointer.save_checkpointables(2, {"state": state(2), "point": Point(3)})
    found = checkpointer.load_checkpointables(1)
    assert found["point"].x == 2 and found["state"]["n"] == 1
    assert checkpointer.load_checkpointables(2)["point"].x == 3


def test_what_the_work_of_a_handler_raises_comes_with_the_result(ocp, tmp_path):
    class Broken(handler_of(ocp, [])):
        async def save(self, directory, checkpointable):
            async def write():
                raise OSError("no ink")

            return write()

    registry = ocp.handlers.local_registry().add(
        Broken, checkpointable_name="point"
    )
    with context_with(ocp, registry):
        response = ocp.save_checkpointables_async(
            tmp_path / "a", {"point": Point(1)}
        )
        with pytest.raises(OSError, match="no ink"):
            response.result(timeout=60)
        assert not ocp.is_orbax_checkpoint(tmp_path / "a")
    checkpointer = ocp.training.Checkpointer(
        tmp_path / "run", context=context_with(ocp, registry)
    )
    response = checkpointer.save_checkpointables_async(1, {"point": Point(1)})
    with pytest.raises(OSError, match="no ink"):
        response.result(timeout=60)
    assert checkpointer.latest is None
    with contextlib.suppress(OSError):  # Orbax raises it once more.
        checkpointer.close()


def test_json_by_its_handler(ocp, tmp_path):
    registry = ocp.handlers.local_registry().add(
        ocp.handlers.JsonHandler, checkpointable_name="config"
    )
    config = {"a": [1, None, "x"], "b": {}}
    with context_with(ocp, registry):
        ocp.save_checkpointables(tmp_path / "a", {"config": config})
        assert ocp.load_checkpointables(tmp_path / "a") == {"config": config}
        with pytest.raises((KeyError, TypeError)):
            ocp.save_checkpointables(
                tmp_path / "b", {"config": {"a": np.ones(2)}}
            )


def test_registries(ocp):
    handlers = ocp.handlers
    kind = handler_of(ocp, [])
    registry = handlers.local_registry().add(kind, checkpointable_name="a")
    assert registry.has("a") and registry.get("a") is kind
    assert not registry.has("b")
    with pytest.raises(KeyError):
        registry.get("b")
    with pytest.raises(ValueError):
        registry.add(handlers.JsonHandler, checkpointable_name="a")
    with pytest.raises(ValueError):
        handlers.local_registry().add(kind).add(kind)
    with pytest.raises(ValueError):
        handlers.local_registry().add(kind())
    assert not handlers.local_registry(
        include_global_registry=False
    ).get_all_entries()


class Counter:
    """Saves and loads itself."""

    def __init__(self, count=0):
        self.count = count

    async def save(self, directory):
        async def write():
            path = await directory.await_creation()
            (path / "count").write_text(str(self.count))

        return write()

    async def load(self, directory):
        async def read():
            self.count = int((directory / "count").read_text())

        return read()


def test_an_object_that_saves_itself(ocp, tmp_path):
    ocp.save_checkpointables(tmp_path / "a", {"counter": Counter(3)})
    counter = Counter()
    loaded = ocp.load_checkpointables(tmp_path / "a", {"counter": counter})
    assert loaded["counter"] is counter and counter.count == 3
    with pytest.raises(ValueError, match="StatefulCheckpointable"):
        ocp.load_checkpointables(tmp_path / "a")


def test_a_loop_that_runs_may_save(ocp, ours, tmp_path):
    import asyncio

    async def main():
        ocp.save_checkpointables(tmp_path / "a", {"counter": Counter(3)})
        counter = Counter()
        ocp.load_checkpointables(tmp_path / "a", {"counter": counter})
        return counter.count

    if ours:
        assert asyncio.run(main()) == 3


def test_a_subclass_of_the_handler_of_trees(ocp, tmp_path):
    """What it saved by its base class is a tree for that, too."""

    class Tenfold(ocp.handlers.PyTreeHandler):
        async def save(self, directory, checkpointable):
            tenfold = {key: value * 10 for key, value in checkpointable.items()}
            return await super().save(directory, tenfold)

        async def metadata(self, directory):
            return sorted(await super().metadata(directory))

    registry = ocp.handlers.local_registry().add(
        Tenfold, checkpointable_name="tree"
    )
    with context_with(ocp, registry):
        ocp.save_checkpointables(
            tmp_path / "a", {"tree": {"w": np.arange(3), "n": 1}}
        )
        loaded = ocp.load_checkpointables(tmp_path / "a")["tree"]
        assert loaded["w"].tolist() == [0, 10, 20] and loaded["n"] == 10
        found = ocp.checkpointables_metadata(tmp_path / "a").metadata
        assert found == {"tree": ["n", "w"]}
    plain = ocp.handlers.local_registry().add(
        ocp.handlers.PyTreeHandler, checkpointable_name="tree"
    )
    with context_with(ocp, plain):
        loaded = ocp.load_checkpointables(tmp_path / "a")["tree"]
        assert loaded["w"].tolist() == [0, 10, 20]
