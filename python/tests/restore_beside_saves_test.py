# SPDX-License-Identifier: Apache-2.0
"""A restore beside a thread that saves without end."""

import threading

import ckptree
import numpy as np


def test_a_restore_waits_for_no_save_that_is_begun_meanwhile(tmp_path):
    with ckptree.Store(tmp_path / "run") as store:
        done = threading.Event()

        def saves():
            for step in range(1, 100_000):
                if done.is_set():
                    return
                store.save(step, {"w": np.full(1 << 18, step)})

        thread = threading.Thread(target=saves)
        thread.start()
        try:
            while not store.steps():
                pass
            # The thread ends when this has come, and not before.
            found = store.restore("latest")["w"]
            assert found.min() == found.max() >= 1
        finally:
            done.set()
            thread.join()
