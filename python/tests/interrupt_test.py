# SPDX-License-Identifier: Apache-2.0
"""Ctrl-C in the middle of a call, not between two: it ends the call, and the
store is as good as before.

A program of its own each: what else is imported here may swallow exceptions, in
callbacks of the garbage collector for one. The signal is sent when the main
thread is in the call of that name, where something holds it up that only the
end of the program's `finally` lets go of, or in the middle of what it tells.
"""


import ckptree
import program
import pytest

BEGIN = """
import os, signal, sys, threading, ckptree, numpy as np

# What was started in the background ignores it.
signal.signal(signal.SIGINT, signal.default_int_handler)
main = threading.main_thread().ident
commits, go_on = threading.Event(), threading.Event()

def hold(steps):
    commits.set()
    go_on.wait()
    return [True for _ in steps]

def interrupt(name):
    # Once the main thread is there.
    def run():
        while sys._current_frames()[main].f_code.co_name != name:
            pass
        signal.pthread_kill(main, signal.SIGINT)
    threading.Thread(target=run).start()

def tell(done, total):
    told.append((done, total))
    if 0 < done < total:
        signal.raise_signal(signal.SIGINT)

told = []
array = np.arange(1 << 20, dtype="f4")
path = sys.argv[1]
"""

STORE = """
store = ckptree.Store(path, max_saves_in_flight=1)
"""

HELD = STORE + """
store.set_policy(ckptree.Custom(hold))
handle = store.save(1, {"w": array})
commits.wait()
"""

MANAGER = """
manager = ckptree.CheckpointManager(path, preservation=ckptree.Custom(hold))
store = manager.store
manager.save(1, {"w": array})
commits.wait()
"""

# Many blocks for the one thread there is; and all that it tells is told.
LARGE = """
from ckptree import progress
progress.Meter.INTERVAL = 0
store = ckptree.Store(path, threads=1)
large = {str(i): np.full(4 << 20, i, "f4") for i in range(32)}
store.save(1, large).result()
"""

END = """
except KeyboardInterrupt:
    print("interrupted")
finally:
    go_on.set()
if sys.argv[2:]:
    print("in the middle", told[-1][0] < told[-1][1])
store.flush()
store.save(50, {"w": array}).result()
print(np.array_equal(store.restore(50)["w"], array), store.verify().ok)
print([info.step for info in store.steps()])
ckptree.close_all()
"""

# What is done before, where the main thread is then, and the call.
HELD_UP = {
    "save, for room": (HELD, "save", "store.save(2, {'w': array})"),
    "flush": (HELD, "follow", "store.flush()"),
    "flush, shown": (HELD, "follow", "store.flush(progress=tell)"),
    "result": (HELD, "follow", "handle.result()"),
    "result, shown": (HELD, "follow", "handle.result(progress=tell)"),
    "close": (HELD, "release", "store.close()"),
    "manager.save": (MANAGER, "save", "manager.save(2, {'w': array})"),
    "manager.wait_until_finished": (
        MANAGER, "follow", "manager.wait_until_finished()",
    ),
    "manager.restore": (MANAGER, "_open", "manager.restore()"),
    "manager.delete_after": (
        MANAGER, "delete_after", "manager.delete_after(1)",
    ),
    "manager.fork_from": (MANAGER, "fork_from", "manager.fork_from(1, 'b')"),
    "manager.close": (MANAGER, "_close", "manager.close()"),
}
# What stops in the middle of one step.
TOLD = {
    "restore": "store.restore(1, progress=tell)",
    "restore like": "store.restore(1, large, progress=tell)",
    "verify": "store.verify(steps=[1], progress=tell)",
    "verify all": "store.verify('deep', progress=tell)",
}


def run(code, path, *more):
    return program.run(code, path, *more, timeout=60)


@pytest.mark.parametrize("name", HELD_UP)
def test_a_call_that_waits(tmp_path, name):
    before, function, call = HELD_UP[name]
    code = BEGIN + before + f"try:\n    interrupt({function!r})\n    {call}"
    done = run(code + END, tmp_path / "s")
    said = ["interrupted", "True True", "[1, 50]"]
    assert (done.stderr, done.stdout.splitlines()) == ("", said)


# What waits for the commit that is on its way, and how it is seen.
CHANGES = {
    "delete": ("store.delete(0)", "list(store) == [1]"),
    "tag": ("store.tag('a', 0)", "store.tags() != []"),
    "untag": ("store.untag('b')", "store.tags() == []"),
    "pin": ("store.pin(0)", "store.step_info(0).pinned"),
    "unpin": ("store.unpin(0)", "not store.step_info(0).pinned"),
    "fork": ("store.fork(0, 'b')", "len(store.branches()) == 2"),
    "drop_branch": ("store.drop_branch('c')", "len(store.branches()) == 1"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_that_waits_for_a_commit(tmp_path, name):
    change, made = CHANGES[name]
    before = {
        "untag": "store.tag('b', 0)",
        "unpin": "store.pin(0)",
        "drop_branch": "store.fork(0, 'c')",
    }
    code = BEGIN + STORE + "store.save(0, {'w': array}).result()\n"
    code += before.get(name, "") + HELD.removeprefix(STORE) + f"""
try:
    interrupt({name!r})
    {change}
except KeyboardInterrupt:
    print("interrupted", go_on.is_set())
go_on.set()
handle.result()
try:
    {change}
except (KeyError, FileExistsError):
    pass  # It had been begun, and was made when the commit had ended.
print({made}, store.verify().ok)
store.close()
"""
    done = run(code, tmp_path / "s")
    said = "interrupted False\nTrue True\n"
    assert (done.stderr, done.stdout) == ("", said)


DELETED = """
try:
    interrupt("release")
    del store
    print("went on")
except KeyboardInterrupt:
    print("interrupted")
print(handle.done(), threading.active_count() > 1)
go_on.set()
with ckptree.Store(path) as store:
    print([info.step for info in store.steps()], handle.result())
"""


def test_a_store_that_nobody_holds_any_more(tmp_path):
    done = run(BEGIN + HELD + DELETED, tmp_path / "s")
    said = ["interrupted", "False True", "[1] 1"]
    assert (done.stderr, done.stdout.splitlines()) == ("", said)


def test_the_exit_waits_for_such_a_store(tmp_path):
    code = BEGIN + HELD + DELETED.partition("go_on")[0] + "go_on.set()\n"
    done = run(code, tmp_path / "s")
    assert (done.stderr, done.returncode) == ("", 0)
    with ckptree.open(tmp_path / "s") as reader:
        assert list(reader) == [1]


@pytest.mark.parametrize("name", TOLD)
def test_a_call_that_reads(tmp_path, name):
    code = BEGIN + LARGE + f"try:\n    {TOLD[name]}"
    done = run(code + END, tmp_path / "s", "told")
    said = ["interrupted", "in the middle True", "True True", "[1, 50]"]
    assert (done.stderr, done.stdout.splitlines()) == ("", said)
