# SPDX-License-Identifier: Apache-2.0
"""Memory of large arrays that went is kept for those that come next, for a
while, and is the system's whenever it wants it."""

import gc
import os
import re
import time

import ckptree
import numpy as np
import pytest
from ckptree import _engine

MIB = 1 << 20
IDLE = 10.0


@pytest.fixture(autouse=True)
def nothing_kept():
    gc.collect()
    dropped()
    yield
    gc.collect()
    dropped()


def dropped():
    """All that is kept goes, as if it had not been used for a while."""
    _engine.keep_memory(0)
    end = time.monotonic() + 60
    while _engine.kept_memory() > 0:
        assert time.monotonic() < end
        os.sched_yield()
    _engine.keep_memory(IDLE)


def address(array):
    return array.__array_interface__["data"][0]


def lazy_free():
    """Bytes of the process that the system may take at any time."""
    with open("/proc/self/smaps_rollup") as file:
        return int(re.search(r"LazyFree: +(\d+) kB", file.read())[1]) << 10


def test_the_next_array_has_the_memory_of_the_one_that_went():
    array = _engine.array_memory(8 * MIB)
    array[:] = 7
    place = address(array)
    view = array[5:9]
    del array
    assert _engine.kept_memory() == 0  # The view needs it.
    del view
    assert _engine.kept_memory() == 8 * MIB
    again = _engine.array_memory(8 * MIB - 100)
    assert address(again) == place
    assert again.size == 8 * MIB - 100
    assert _engine.kept_memory() == 0


def test_memory_that_is_too_large_or_too_small_stays_for_others():
    array = _engine.array_memory(8 * MIB)
    place = address(array)
    del array
    smaller = _engine.array_memory(7 * MIB - 4096)
    larger = _engine.array_memory(8 * MIB + 1)
    assert place not in (address(smaller), address(larger))
    assert _engine.kept_memory() == 8 * MIB
    seven = _engine.array_memory(7 * MIB)
    assert address(seven) == place


def test_of_two_the_smaller_one_that_is_enough_is_taken():
    large, small = _engine.array_memory(10 * MIB), _engine.array_memory(9 * MIB)
    place = address(small)
    del large, small
    assert address(_engine.array_memory(9 * MIB - 1)) == place


def test_small_arrays_are_not_kept():
    array = _engine.array_memory(MIB - 1)
    del array
    assert _engine.kept_memory() == 0


def test_what_is_kept_is_the_systems_when_it_wants_it():
    array = _engine.array_memory(64 * MIB)
    array[:] = 1
    before = lazy_free()
    del array
    # A few pages are still on their way to the list of those.
    assert 63 * MIB < lazy_free() - before <= 64 * MIB
    again = _engine.array_memory(64 * MIB)
    again[:] = 2  # It is the program's again.
    assert lazy_free() - before < MIB
    assert (again == 2).all()


def test_what_is_not_used_goes():
    array = _engine.array_memory(4 * MIB)
    del array
    assert _engine.kept_memory() == 4 * MIB
    dropped()
    assert _engine.kept_memory() == 0
    # And once more: the thread that does it ended with nothing to do.
    array = _engine.array_memory(4 * MIB)
    del array
    dropped()
    assert _engine.kept_memory() == 0


def test_more_than_a_quarter_of_the_machine_is_not_kept():
    page = os.sysconf("SC_PAGE_SIZE")
    limit = os.sysconf("SC_PHYS_PAGES") // 4 * page
    pieces = [_engine.array_memory(limit // 4) for _ in range(6)]
    places = [address(piece) for piece in pieces]
    while pieces:
        del pieces[0]
        assert _engine.kept_memory() <= limit
    assert _engine.kept_memory() > limit // 2
    # The oldest went.
    newest = [_engine.array_memory(limit // 4) for _ in range(3)]
    assert {address(piece) for piece in newest} <= set(places[2:])
    del newest
    dropped()
    one = _engine.array_memory(limit + page)
    del one
    assert _engine.kept_memory() == 0


def test_a_child_has_arrays_of_its_own():
    kept = _engine.array_memory(4 * MIB)
    place = address(kept)
    del kept
    held = _engine.array_memory(2 * MIB)
    held[:] = 3
    child = os.fork()
    if child == 0:
        code = 1
        try:
            new = _engine.array_memory(4 * MIB)
            new[:] = 9
            good = address(new) != place and (held == 3).all()
            del new, held
            code = 0 if good and _engine.kept_memory() == 0 else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert (held == 3).all()
    assert _engine.kept_memory() == 4 * MIB
    assert address(_engine.array_memory(4 * MIB)) == place


@pytest.fixture
def states():
    random = np.random.default_rng(5)
    sizes = {"a": MIB, "b": MIB // 2, "c": MIB + 3}
    return [
        {
            name: random.random(size, dtype=np.float32)
            for name, size in sizes.items()
        }
        for _ in range(3)
    ]


def saved(path, states):
    store = ckptree.Store(path)
    for step, state in enumerate(states):
        store.save(step, state).result()
    return store


def test_steps_are_looked_at_one_by_one_in_the_same_memory(tmp_path, states):
    turns = []
    with saved(tmp_path / "store", states) as store:
        for step in [0, 1, 2, 1, 0]:
            found = store.restore(step)
            for name, array in states[step].items():
                np.testing.assert_array_equal(found[name], array)
            turns.append({address(array) for array in found.values()})
            del found
            gc.collect()
    assert len(turns[0]) == 3
    assert all(turn == turns[0] for turn in turns)


def test_arrays_of_jax_have_what_was_saved(tmp_path, states):
    import jax

    like = {
        name: jax.ShapeDtypeStruct(array.shape, array.dtype)
        for name, array in states[0].items()
    }
    with saved(tmp_path / "store", states) as store:
        held = store.restore(2, like=like)
        for step in [0, 1, 2, 1, 0]:
            found = store.restore(step, like=like)
            for name, array in states[step].items():
                np.testing.assert_array_equal(np.asarray(found[name]), array)
            del found
            gc.collect()
        assert _engine.kept_memory() > 0
        for name, array in states[2].items():
            np.testing.assert_array_equal(np.asarray(held[name]), array)
