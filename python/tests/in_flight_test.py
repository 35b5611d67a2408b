# SPDX-License-Identifier: Apache-2.0
"""A step whose save is in flight: whatever names it waits, nothing else."""

import threading

import ckptree
import pytest

CALLS = {
    "tag": lambda store: store.tag("a", 2),
    "pin": lambda store: store.pin(2),
    "unpin": lambda store: store.unpin(2),
    "delete": lambda store: store.delete(1, 2),
    "fork": lambda store: store.fork("latest", "b"),
    "would_free": lambda store: store.would_free(2),
    "subtrees": lambda store: store.subtrees(2),
    "verify": lambda store: store.verify(steps=[2]),
    "step_info": lambda store: store.step_info(2),
    "in": lambda store: 2 in store,
    "best": lambda store: "best:loss:max" in store,
}


class Held:
    """A store whose save of step 2 waits for `go_on` in its commit."""

    def __init__(self, path):
        self.go_on, self.begun = threading.Event(), threading.Event()
        self.store = ckptree.Store(path)
        self.store.save(1, {"w": 1}).result()
        self.store.set_policy(ckptree.Custom(self._hold))
        self.saving = self.store.save(2, {"w": 2}, metrics={"loss": 1})
        assert self.begun.wait(timeout=60)

    def _hold(self, steps):
        self.begun.set()
        assert self.go_on.wait(timeout=60)
        return [True for _ in steps]


@pytest.fixture
def held(tmp_path):
    made = Held(tmp_path / "s")
    yield made
    made.go_on.set()
    made.store.close()


@pytest.mark.parametrize("name", list(CALLS))
def test_what_names_the_step_waits_for_it(held, name):
    wait_for = held.store._wait_for

    def waits(selector):
        held.go_on.set()
        wait_for(selector)

    held.store._wait_for = waits
    assert CALLS[name](held.store) is not False
    assert held.saving.done()


def test_other_steps_are_not_waited_for(held):
    store = held.store
    assert 1 in store and "latest" in store and 7 not in store
    assert "zzz" not in store and "@a" not in store and -1 not in store
    assert store.step_info(1).step == 1
    assert store.would_free(1).kept
    assert not held.saving.done()


def test_a_save_that_failed_is_no_step(held):
    again = held.store.save(2, {"w": 3})  # The first one has the number.
    held.go_on.set()
    assert 2 in held.store and 3 not in held.store
    with pytest.raises(ckptree.NotFoundError):
        held.store.tag("a", 3)
    with pytest.raises(ckptree.AlreadyExistsError):
        again.result()


def test_a_store_that_was_closed_says_so(tmp_path):
    store = ckptree.Store(tmp_path / "s")
    store.save(1, {"w": 1})
    store.close()
    for name, call in CALLS.items():
        with pytest.raises(ckptree.StateError, match="closed"):
            call(store)
