# SPDX-License-Identifier: Apache-2.0
"""The end of the interpreter: whatever a program leaves open it ends, says
nothing, and all of the engine's objects are gone. With -X dev nanobind says
which are not."""

import os

import program
import pytest

BEGIN = """
import os, sys, threading, ckptree, numpy as np
path = sys.argv[1]
state = {str(i): np.full(1 << 18, i, "f4") for i in range(4)}
"""

LEFT = {
    "a store": "store = ckptree.Store(path)",
    "a save in flight": "handle = ckptree.Store(path).save(1, state)",
    "what is read": """
store = ckptree.Store(path)
store.save(1, state).result()
step = store[1]
leaf = step["0"]
view = leaf.view()
""",
    "a manager": """
manager = ckptree.CheckpointManager(path, max_to_keep=1)
for i in range(3):
    manager.save(i, state)
""",
    "a policy with a function": """
policy = ckptree.KeepIf(lambda step: True) | ckptree.Latest(2)
""",
    "a decision with a function": """
from ckptree import decisions
decision = decisions.SaveIf(lambda *steps: True)
""",
    "a store with a function": """
store = ckptree.Store(path)
store.set_policy(ckptree.Custom(lambda steps: [True for _ in steps]))
store.save(1, state)
""",
    "a manager that its functions know": """
class Trainer:
    def __init__(self):
        self.policy = ckptree.KeepIf(self.keep)
        self.manager = ckptree.CheckpointManager(
            path, preservation=self.policy, should_save_fn=self.due
        )
        self.manager.save(1, state)

    def keep(self, step):
        return True

    def due(self, step, latest):
        return True

trainer = Trainer()
""",
    "a cycle": """
things = [ckptree.Store(path)]
things += [things, things[0].save(1, state)]
del things
""",
    "an exit": "store = ckptree.Store(path)\nstore.save(1, state)\nsys.exit()",
    "a child": """
manager = ckptree.CheckpointManager(
    path, should_keep_fn=lambda step: True, max_to_keep=1
)
manager.save(1, state)
child = os.fork()
if child:
    assert os.waitpid(child, 0)[1] == 0
""",
    "an error that is kept": """
store = ckptree.Store(path)
store.save(1, state).result()
try:
    store.restore(1, {"other": 1})
except ValueError as error:
    kept = error
""",
}


@pytest.mark.parametrize("left", LEFT)
def test_what_is_left_open_is_gone(tmp_path, left):
    code = BEGIN + LEFT[left]
    told = {"PYTHONDEVMODE": "1", "PYTHONWARNINGS": "ignore"}
    done = program.run(code, tmp_path / "s", env={**os.environ, **told})
    assert (done.stderr, done.returncode) == ("", 0)


def test_a_daemon_thread_that_holds_a_store_says_nothing(tmp_path):
    """Python itself frees nothing of such a thread."""
    hold = """
def hold():
    store = ckptree.Store(path)
    handle = store.save(1, state)
    saved.set()
    threading.Event().wait()

saved = threading.Event()
threading.Thread(target=hold, daemon=True).start()
saved.wait()
"""
    done = program.run(BEGIN + hold, tmp_path / "s")
    assert (done.stderr, done.returncode) == ("", 0)


ASKED = ["len(store)", "store.steps()", "store.usage()", "store['latest']"]


@pytest.mark.parametrize("call", [*ASKED, "store.refresh()"])
def test_daemon_threads_in_the_midst_of_calls_end_nothing(tmp_path, call):
    """Python ends such a thread as it comes back for the lock: no part of the
    engine may take that for the end of the process."""
    ask = f"""
with ckptree.Store(path) as store:
    store.save(1, state).result()
store = ckptree.open(path)
begun = threading.Semaphore(0)

def ask():
    {call}
    begun.release()
    while True:
        try:
            {call}
        except ckptree.StateError:
            pass  # The end of the program closes it.

for _ in range(4):
    threading.Thread(target=ask, daemon=True).start()
for _ in range(4):
    begun.acquire()
sys.exit(3)
"""
    for turn in range(3):
        done = program.run(BEGIN + ask, tmp_path / f"s{turn}")
        assert (done.stderr, done.returncode) == ("", 3)
