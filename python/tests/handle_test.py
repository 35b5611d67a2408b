# SPDX-License-Identifier: Apache-2.0
"""A save on its way: who is told of its end, and of its failure."""

import asyncio
import contextlib
import subprocess
import sys
import threading

import ckptree
import numpy as np
import pytest


class Told:
    """Calls of a callback; wait() is for the first."""

    def __init__(self):
        self.calls = []
        self.event = threading.Event()

    def __call__(self, handle):
        self.calls.append((handle, threading.current_thread()))
        self.event.set()

    def wait(self):
        assert self.event.wait(timeout=60)
        return self.calls


def begun_to_fail(tmp_path):
    """A store, the handle of a save that fails, of which nobody can know yet,
    and the gate that saves wait for."""
    # Or a save waited for the first one.
    store = ckptree.Store(tmp_path / "run", max_saves_in_flight=4)
    gate = Gate()
    store.set_policy(ckptree.Custom(gate))
    store.save(1, {"n": 1})
    assert gate.reached.wait(timeout=60)
    store.save(2, {"n": 2})
    return store, store.save(2, {"n": 3}), gate


def test_a_callback_is_called_once_with_the_handle(store):
    told, again = Told(), Told()
    handle = store.save(1, {"w": np.ones(1 << 20)}, borrow=True)
    handle.on_complete(told)
    ((seen, thread),) = told.wait()
    assert seen is handle and seen.done() and seen.result() == 1
    assert thread is not threading.main_thread()
    handle.on_complete(again)  # It is done already.
    ((seen, thread),) = again.wait()
    assert seen is handle and thread is not threading.main_thread()
    thread.join()
    assert len(told.calls) == len(again.calls) == 1
    with pytest.raises(TypeError, match="function"):
        handle.on_complete("print")


def test_a_callback_may_use_the_store(store):
    found = []
    told = Told()

    def callback(handle):
        found.append(store.restore(handle.step)["n"])
        store.save(handle.step + 1, {"n": 2}).on_complete(told)

    store.save(1, {"n": 1}).on_complete(callback)
    ((second, _),) = told.wait()
    assert found == [1] and second.step == 2


class Gate:
    """A policy that keeps all, and holds up its first save until opened."""

    def __init__(self):
        self.reached, self.opened = threading.Event(), threading.Event()

    def __call__(self, steps):
        self.reached.set()
        assert self.opened.wait(timeout=60)
        return [True for _ in steps]


def test_staged_is_a_question_that_does_not_wait(store):
    gate = Gate()
    store.set_policy(ckptree.Custom(gate))
    first = store.save(1, {"n": 1})
    assert gate.reached.wait(timeout=60)
    # Its memory is not read before the first save is done.
    second = store.save(2, {"w": np.ones(1 << 16)}, borrow=True)
    assert second.staged() is False
    with pytest.raises(TimeoutError):
        second.wait_staged(timeout=0)
    gate.opened.set()
    second.wait_staged(timeout=60)
    assert second.staged() is True
    assert second.result(timeout=60) == 2 and first.staged() is True


def test_who_asks_whether_it_is_staged_has_not_seen_its_failure(tmp_path):
    store, failed, gate = begun_to_fail(tmp_path)
    told = Told()
    failed.on_complete(told)
    gate.opened.set()
    told.wait()
    assert failed.staged() is True
    with pytest.raises(FileExistsError, match="step 2"):
        store.close()


def test_the_failure_of_a_dropped_handle_is_raised_by_the_next_save(tmp_path):
    store, failed, gate = begun_to_fail(tmp_path)
    behind_it = store.save(3, {"n": 4})
    gate.opened.set()
    behind_it.result(timeout=60)
    assert failed.done()
    del failed
    with pytest.raises(FileExistsError, match="step 2"):
        store.save(4, {"n": 5})
    store.save(4, {"n": 5})
    store.close()


def test_what_a_callback_raises_is_reported(store, monkeypatch):
    reported = []
    event = threading.Event()

    def hook(failure):
        reported.append((failure.exc_value, failure.thread.name))
        event.set()

    monkeypatch.setattr(threading, "excepthook", hook)
    told = Told()
    handle = store.save(1, {"n": 1})
    handle.on_complete(lambda handle: 1 // 0)
    handle.on_complete(told)
    assert event.wait(timeout=60)
    told.wait()  # The other one is called all the same.
    ((error, name),) = reported
    assert isinstance(error, ZeroDivisionError) and name == "ckptree step 1"
    store.save(2, {"n": 2}).result(timeout=60)


def test_the_exit_waits_for_callbacks(tmp_path):
    code = """
import sys, ckptree, numpy as np
store = ckptree.Store(sys.argv[1])
handle = store.save(1, {"w": np.ones(1 << 22)}, borrow=True)
handle.on_complete(lambda handle: print("saved", handle.result()))
"""
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "s")],
        capture_output=True, text=True, timeout=120,
    )
    assert (done.stdout, done.stderr) == ("saved 1\n", "")


# The files of a store must not grow beyond a mebibyte: saves fail.
FAILING = """
import resource, sys, threading, ckptree, numpy as np
store = ckptree.Store(sys.argv[1])
array = np.random.default_rng(1).random(1 << 20)
unlimited = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, unlimited[1]))
handle = store.save(1, {"w": array}, borrow=True)
ended = threading.Event()
handle.on_complete(lambda handle: ended.set())
ended.wait()
for thread in threading.enumerate():
    if not thread.daemon and thread is not threading.main_thread():
        thread.join()  # It has the handle.
resource.setrlimit(resource.RLIMIT_FSIZE, unlimited)
assert handle.done() and handle.progress().phase == "failed"
def raises(call):
    try:
        call()
        print("nothing")
    except OSError as error:
        print("step 1 was not saved" in str(error))
"""

TOLD_BY = {
    # Or the one after: the end of a save takes a moment longer than itself.
    "a later save": """
del handle
def save():
    for step in range(2, 100):
        store.save(step, {"n": step}).result()
raises(save)
""",
    "flush": "raises(store.flush)",
    "close": "raises(store.close)",
    "the handle": "raises(handle.result)",
    "a callback": """
ended.clear()
def ask(handle):
    raises(handle.result)
    ended.set()
handle.on_complete(ask)
ended.wait()
""",
}


@pytest.mark.parametrize("name", TOLD_BY)
def test_a_failure_that_nobody_saw_is_raised_once(tmp_path, name):
    code = FAILING + TOLD_BY[name] + "\nraises(store.close)"
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "s")],
        capture_output=True, text=True, timeout=120,
    )
    assert done.stdout == "True\nnothing\n", done.stderr
    # The engine's log has it, too.
    assert "Traceback" not in done.stderr


def test_a_cancelled_save_calls_back(store):
    told = Told()
    handle = store.save(1, {"w": np.ones(1 << 22)}, borrow=True)
    handle.cancel()
    handle.on_complete(told)
    told.wait()
    try:
        assert handle.result() == 1  # It was too late.
    except ckptree.CancelledError:
        assert 1 not in store


def test_a_save_can_be_awaited(store):
    async def train():
        return [await store.save(step, {"a": step}) for step in (4, 5)]

    assert asyncio.run(train()) == [4, 5]
    assert [s.step for s in store.steps()] == [4, 5]


@pytest.fixture
def failing(tmp_path):
    """A save that fails once its gate is opened, and its store."""
    store, failed, gate = begun_to_fail(tmp_path)
    yield store, failed, gate
    gate.opened.set()
    with contextlib.suppress(ckptree.Error):
        store.close()


def test_an_await_that_is_cancelled_leaves_the_failure_to_others(failing):
    store, handle, gate = failing

    waiting = []

    async def train():
        others = threading.enumerate()
        task = asyncio.ensure_future(asyncio.wait_for(handle, None))
        for _ in range(5):
            await asyncio.sleep(0)
        waiting.extend(t for t in threading.enumerate() if t not in others)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(train())  # Although the save goes on.
    assert not handle.done() and not gate.opened.is_set()
    (thread,) = waiting
    thread.join(timeout=60)
    assert not thread.is_alive()
    told = Told()
    handle.on_complete(told)
    gate.opened.set()
    told.wait()
    with pytest.raises(FileExistsError, match="step 2"):
        store.close()


def test_a_failure_of_a_handle_that_is_held_is_no_save_s(failing):
    store, handle, gate = failing
    told = Told()
    handle.on_complete(told)
    gate.opened.set()
    told.wait()
    assert handle.done()
    for step in (3, 4):
        store.save(step, {"n": step}).result(timeout=60)
    with pytest.raises(FileExistsError, match="step 2"):
        store.flush()
    store.close()


def test_a_failure_that_is_awaited_is_seen(failing):
    store, handle, gate = failing

    async def train():
        asyncio.get_running_loop().call_soon(gate.opened.set)
        with pytest.raises(FileExistsError, match="step 2"):
            await handle
        with pytest.raises(FileExistsError, match="step 2"):
            await handle  # It is over already.

    asyncio.run(train())
    store.close()
