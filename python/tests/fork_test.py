# SPDX-License-Identifier: Apache-2.0
"""Children that are forked off a process with stores."""

import ckptree
import numpy as np
from program import run


def test_a_forked_child_gets_errors_and_leaves_the_store_alone(tmp_path):
    code = """
import gc, os, sys, ckptree, numpy as np
store = ckptree.Store(sys.argv[1])
store.save(1, {"w": np.ones(1000)}).result(timeout=60)
step = store[1]
leaf = step["w"]
handle = store.save(2, {"w": np.zeros(1 << 20)}, borrow=True)
child = os.fork()
if child == 0:
    for call in (
        store.steps,
        step.restore,
        leaf.numpy,
        handle.result,
        handle.done,
        handle.staged,
        handle.progress,
        handle.cancel,
        lambda: handle.on_complete(print),
        store.flush,
        lambda: store.save(3, {"a": 1}),
        lambda: store[1],
        store.verify,
    ):
        try:
            call()
            print("no error")
        except ckptree.StateError as error:
            print("fork()" if "fork()" in str(error) else error)
    store.close()
    del step, leaf, handle, store
    gc.collect()
    # Beside the parent, which goes on writing.
    with ckptree.open(sys.argv[1]) as reader:
        print(reader.restore(1)["w"].sum())
    sys.exit(7)
print("child", os.WEXITSTATUS(os.waitpid(child, 0)[1]))
handle.result(timeout=60)
store.save(4, {"w": np.ones(3)}).result(timeout=60)
print(store.verify().ok)
store.close()
"""
    done = run(code, tmp_path / "s")
    assert done.stderr == ""
    expected = ["fork()"] * 13 + ["1000.0", "child 7", "True"]
    assert done.stdout.split("\n")[:-1] == expected


def test_a_forked_child_may_exit_normally(tmp_path):
    code = """
import multiprocessing, sys, ckptree
def work(): pass
store = ckptree.Store(sys.argv[1])
process = multiprocessing.get_context("fork").Process(target=work)
process.start(); process.join()
store.save(1, {"a": 1}).result()
store.close()
print(process.exitcode)
"""
    done = run(code, tmp_path / "s")
    assert (done.stdout, done.stderr) == ("0\n", "")


# Every thread of the engine has worked.
USED_AND_CLOSED = """
import multiprocessing, os, signal, sys, ckptree, numpy as np
with ckptree.Store(sys.argv[1]) as store:
    for step in range(1, 4):
        store.save(step, {"w": np.full(1 << 20, step)}).result(timeout=60)
    store.delete(1)
    store.collect()
    store.verify()

def waited(child):
    signal.alarm(60)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
"""


def test_children_forked_after_a_store_was_closed_exit(tmp_path):
    code = USED_AND_CLOSED + """
for _ in range(5):
    child = os.fork()
    if child == 0:
        signal.alarm(30)
        sys.exit(7)
    print(waited(child))
def work(i): return i * i
with multiprocessing.get_context("fork").Pool(2) as pool:
    print(pool.map(work, range(4)))
"""
    done = run(code, tmp_path / "s")
    assert done.stderr == ""
    assert done.stdout == "7\n" * 5 + "[0, 1, 4, 9]\n"


def test_a_child_forked_after_a_store_was_closed_reads_only(tmp_path):
    code = USED_AND_CLOSED + """
child = os.fork()
if child == 0:
    signal.alarm(60)
    for path in (sys.argv[1], sys.argv[1] + "-new"):
        try:
            ckptree.Store(path)
            print("no error")
        except ckptree.StateError as error:
            print("spawn" in str(error))
    with ckptree.open(sys.argv[1]) as reader:
        print(int(reader.restore(3)["w"].sum()) == 3 << 20)
    sys.exit(0)
print(waited(child))
"""
    done = run(code, tmp_path / "s")
    assert done.stderr == ""
    assert done.stdout == "True\nTrue\nTrue\n0\n"


def test_a_child_is_forked_while_a_thread_looks_for_a_module(tmp_path):
    """Python locks a module from before it looks for it on the disk."""
    code = """
import importlib, os, signal, sys, threading, ckptree
NAME = "ckptree.restoring.template"
looks, forked = threading.Event(), threading.Event()
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == NAME:
            looks.set()
            forked.wait(2)
sys.meta_path.insert(0, Finder())
with ckptree.Store(sys.argv[1]) as store:
    store.save(1, {"w": 1}).result(timeout=60)
thread = threading.Thread(target=importlib.import_module, args=[NAME])
assert NAME not in sys.modules
thread.start()
looks.wait()
pid = os.fork()
forked.set()
if pid == 0:
    signal.alarm(20)
    with ckptree.Store(sys.argv[1], mode="read") as store:
        os._exit(7 if store.restore(1) == {"w": 1} else 1)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
thread.join()
"""
    assert run(code, tmp_path / "run").stdout == "7\n"


def test_children_read_that_are_forked_while_others_open_and_read(tmp_path):
    """Locks that a thread of the parent has at the fork nobody opens in the
    child: of some hundred children one or two waited for ever."""
    code = """
import os, signal, sys, threading, ckptree, numpy as np
path, many = sys.argv[1], [np.full(300, i, "f4") for i in range(400)]
with ckptree.Store(path) as store:
    for step in range(3):
        state = {f"w{i}": array + step for i, array in enumerate(many)}
        store.save(step, state).result(timeout=60)
ended = False

def work():
    while not ended:
        with ckptree.Store(path, mode="read") as store:
            store.restore("latest")

def work_little():
    while not ended:  # Closes, half of the time.
        with ckptree.Store(path, mode="read") as store:
            store.restore(1, like={"w1": many[1]}, partial=True)

def child():
    with ckptree.Store(path, mode="read") as store:
        restored = store.restore("latest")
        good = all((restored[f"w{i}"] == i + 2).all() for i in range(400))
        return good and len(store.diff(0, 2).changes) == 400

works = [work, work, work_little, work_little]
threads = [threading.Thread(target=one) for one in works]
for thread in threads:
    thread.start()
codes = []
for _ in range(150):
    pid = os.fork()
    if pid == 0:
        signal.alarm(60)
        os._exit(7 if child() else 1)
    codes.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
ended = True
for thread in threads:
    thread.join()
print(len(codes), set(codes))
"""
    assert run(code, tmp_path / "run").stdout.split("\n")[-2] == "150 {7}"
