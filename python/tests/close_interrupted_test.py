# SPDX-License-Identifier: Apache-2.0
"""Ctrl-C at every call that close() makes, and close() beside readers."""

import gc
import sys
import threading

import ckptree
import numpy as np
import pytest

PACKAGE = ckptree.__path__[0]


def interrupted_at(place, act):
    """Whether `act` made so many calls of the package's own: it is interrupted
    at the call of that number."""
    left = place

    def at(frame, event, arg):
        nonlocal left
        if event == "call" and frame.f_code.co_filename.startswith(PACKAGE):
            left -= 1
            if left < 0:
                sys.setprofile(None)
                raise KeyboardInterrupt

    sys.setprofile(at)
    try:
        act()
        return False
    except KeyboardInterrupt:
        return True
    finally:
        sys.setprofile(None)


@pytest.mark.parametrize("kind", [ckptree.Store, ckptree.CheckpointManager])
@pytest.mark.parametrize("again", ["closed again", "dropped"])
@pytest.mark.filterwarnings("ignore:.*was not closed:ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_who_else_holds_the_store_goes_on(tmp_path, kind, again):
    other = ckptree.Store(tmp_path / "run")
    step = places = 0
    while True:
        held = kind(tmp_path / "run")
        stopped = interrupted_at(places, held.close)
        if again == "closed again":
            held.close()
            assert held.closed
        del held
        gc.collect()
        step += 1
        other.save(step, {"w": np.full(3, step)}).result(timeout=60)
        assert list(other) == list(range(1, step + 1))
        assert (other.restore(step)["w"] == step).all()
        if not stopped:
            break
        places += 1
    assert places > 5
    other.close()
    with ckptree.open(tmp_path / "run") as reader:
        assert len(reader) == step


def test_readers_beside_close_get_the_package_s_own_error(tmp_path):
    keep = ckptree.Store(tmp_path / "run")
    keep.save(1, {"w": np.ones(3)}).result(timeout=60)
    current, wrong, closed = [keep], [], []
    ended = threading.Event()

    def read():
        while not ended.is_set():
            store = current[0]
            try:
                store.restore("latest")
                store["latest"]
            except ckptree.StateError as error:
                closed.append(error)
            except Exception as error:
                wrong.append(error)

    threads = [threading.Thread(target=read) for _ in range(3)]
    for thread in threads:
        thread.start()
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for _ in range(1500):
            old, current[0] = current[0], ckptree.Store(tmp_path / "run")
            if old is not keep:
                old.close()
    finally:
        sys.setswitchinterval(before)
        ended.set()
        for thread in threads:
            thread.join()
    current[0].close()
    assert wrong == [] and closed
    keep.close()
