# SPDX-License-Identifier: Apache-2.0
"""Processes: Ctrl-C, exit with a save in flight, memory, imports."""

import concurrent.futures
import gc
import os
import threading
import weakref

import ckptree
import numpy as np
import pytest
from program import run


def test_a_fork_waits_for_an_import_of_another_thread(tmp_path):
    code = """
import hashlib, importlib, importlib.abc, importlib.util, os, sys, threading
import ckptree
begun, go = threading.Event(), threading.Event()

class Slow(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name, path, target=None):
        if name == "ckptree.slow":
            return importlib.util.spec_from_loader(name, self)
    def exec_module(self, module):
        begun.set()
        go.wait()
        hashlib.sha256(bytes(1 << 28)).digest()  # Without the GIL.

sys.meta_path.insert(0, Slow())
threading.Thread(target=importlib.import_module, args=["ckptree.slow"]).start()
begun.wait()
os.register_at_fork(before=go.set)  # Called before those of the package.
child = os.fork()
if child == 0:
    importlib.import_module("ckptree.slow")
    os._exit(7)
print("child", os.WEXITSTATUS(os.waitpid(child, 0)[1]))
"""
    done = run(code, tmp_path / "s")
    assert done.stderr == ""
    assert done.stdout == "child 7\n"


def test_permissions_keep_a_store_to_its_owner(tmp_path):
    for permissions, expected in ((0o666, 0o644), (0o600, 0o600)):
        path = tmp_path / f"{permissions:o}"
        code = """
import os, sys, ckptree
os.umask(0o022)
with ckptree.Store(sys.argv[1], permissions=int(sys.argv[2])) as store:
    store.save(1, {"a": 1}).result(timeout=60)
"""
        assert run(code, path, permissions).stderr == ""
        files = [file for file in path.rglob("*") if file.is_file()]
        assert {file.stat().st_mode & 0o777 for file in files} == {expected}


@pytest.mark.parametrize("borrow", [True, False])
def test_the_exit_of_the_interpreter_finishes_saves(tmp_path, borrow):
    code = f"""
import sys, numpy as np, ckptree
store = ckptree.Store(sys.argv[1])
store.save(1, {{"w": np.full(1 << 23, 5.0)}}, borrow={borrow})
print(store.step_info(1) if 1 in store else "in flight")
"""
    done = run(code, tmp_path / "s")
    assert done.returncode == 0, done.stderr
    with ckptree.open(tmp_path / "s") as reader:
        assert (reader.restore(1)["w"] == 5).all()
        assert reader.verify().ok


def test_an_exit_by_an_exception_finishes_saves(tmp_path):
    code = """
import sys, numpy as np, ckptree
store = ckptree.Store(sys.argv[1])
store.save(1, {"w": np.full(1 << 22, 5.0)}, borrow=True)
raise SystemExit(3)
"""
    done = run(code, tmp_path / "s")
    assert done.returncode == 3, done.stderr
    with ckptree.open(tmp_path / "s") as reader:
        assert 1 in reader


# No file may grow beyond a mebibyte from then on.
FAILS = """
import atexit, resource, sys, numpy as np, ckptree
store = ckptree.Store(sys.argv[1])
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
array = np.random.default_rng(1).random(1 << 20)
"""
WAYS_OUT = {
    "the end": "",
    "an exit code": "sys.exit(3)",
    "no stderr": "sys.stderr = None",
    # Such a call comes after all that the package does at the exit.
    "a later word": """
from ckptree.closing import close_at_exit
atexit.unregister(close_at_exit)
atexit.register(lambda: print("late", file=sys.stderr, flush=True))
atexit.register(close_at_exit, ckptree.close_all)
""",
}


@pytest.mark.parametrize("way", WAYS_OUT)
def test_a_save_that_fails_in_the_exit_fails_the_process(tmp_path, way):
    code = FAILS + 'store.save(1, {"w": array})\n' + WAYS_OUT[way]
    done = run(code, tmp_path / "s")
    assert done.returncode == 120, done.stderr
    if way != "no stderr":
        assert "step 1" in done.stderr and "File too large" in done.stderr
    assert done.stderr.endswith("late\n") == (way == "a later word")


def test_a_save_whose_failure_was_met_fails_no_process(tmp_path):
    code = FAILS + """
try:
    store.save(1, {"w": array}).result()
except OSError:
    print("met")
"""
    done = run(code, tmp_path / "s")
    assert (done.returncode, done.stdout) == (0, "met\n"), done.stderr


# A program of its own: what else is imported here may swallow exceptions, in
# callbacks of the garbage collector for one.
INTERRUPTED = '''
import signal, subprocess, sys, threading, ckptree, numpy as np

# Another process has that one.
HOLD = """
import ckptree, sys
store = ckptree.Store(sys.argv[1])
print("held", flush=True)
sys.stdin.read()
store.close()
"""
held = sys.argv[1] + "-held"
holder = subprocess.Popen(
    [sys.executable, "-c", HOLD, held],
    stdin=subprocess.PIPE,
    stdout=subprocess.PIPE,
    start_new_session=True,
)
holder.stdout.readline()

# What was started in the background ignores it.
signal.signal(signal.SIGINT, signal.default_int_handler)

about_to_wait = threading.Event()

def interrupt():
    about_to_wait.wait()
    signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

threading.Thread(target=interrupt).start()
store = ckptree.Store(sys.argv[1])
array = np.random.default_rng(1).random(1 << 22)
step = 0
store.save(step, {{"w": array}}).result(timeout=60)
try:
    about_to_wait.set()
    while True:
        {wait}
except KeyboardInterrupt:
    print("interrupted")
store.flush()
store.save(step + 1, {{"w": array}}).result(timeout=60)
np.testing.assert_array_equal(store.restore(step + 1)["w"], array)
print(store.verify().ok)
store.close()
holder.communicate()
'''

WAITS = {
    "for a lock": "ckptree.Store(held, lock_wait=3600)",
    "for saves": """
        step += 1
        array += 1
        store.save(step, {"w": array}).result()
""",
    "for a verification": "store.verify()",
    "for a collection": "store.collect()",
    "for a restore": "store.restore()",
    "for a history": "store.history('w')",
    "for statistics": "store.history('w', 'l2')",
}


@pytest.mark.parametrize("name", WAITS)
def test_ctrl_c_interrupts_the_wait(tmp_path, name):
    done = run(INTERRUPTED.format(wait=WAITS[name].strip()), tmp_path / "s")
    assert (done.stdout, done.stderr) == ("interrupted\nTrue\n", "")


def test_other_threads_run_while_one_waits(store):
    """The GIL is not held: this thread gets on while another one saves."""
    array = np.ones(1 << 22)

    def save():
        for step in range(3):
            array[:] = step
            store.save(step, {"w": array}).result(timeout=60)
        return store.verify()

    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        saving = pool.submit(save)
        counted = 0
        while not saving.done():
            counted += 1
    assert saving.result().ok
    assert counted > 1000


def resident_bytes():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_two_hundred_saves_leak_nothing(tmp_path):
    array = np.zeros(1 << 17)  # 1 MiB
    alive = []

    with ckptree.Store(tmp_path / "s", staging_bytes=8 << 20) as store:

        def save(step):
            array[:] = step
            lent = np.full(1 << 15, step)
            alive.append(weakref.ref(lent))
            state = {"w": array, "lent": lent, "more": {"a": [step] * 20}}
            store.save(step, state).result(timeout=60)
            store.restore(step)
            if step >= 3:
                store.delete(step - 3)

        for step in range(40):
            save(step)
        store.collect()
        gc.collect()
        before = resident_bytes()
        for step in range(40, 240):
            save(step)
        store.collect()
        store.flush()
        gc.collect()
        grown = resident_bytes() - before
    gc.collect()
    assert [r for r in alive if r() is not None] == []
    # A save that kept its arrays would make 250 MiB of it.
    assert grown < 48 << 20, f"{grown >> 20} MiB more"


def test_stores_that_nobody_closed_say_so(tmp_path):
    with pytest.warns(ResourceWarning, match="not closed"):
        ckptree.Store(tmp_path / "s")
        gc.collect()
    ckptree.Store(tmp_path / "s").close()  # Its lock is gone.


def test_importing_is_light():
    heavy = {"difflib", "jax", "json", "numpy"}
    code = f"import sys, ckptree; print({heavy} & set(sys.modules))"
    assert run(code).stdout == "set()\n"


@pytest.mark.parametrize("before", ["enable", "disable"])
def test_importing_looks_for_no_garbage_and_leaves_the_collector(before):
    code = f"""
import gc
gc.{before}()
class Importing:
    def find_spec(self, name, path=None, target=None):
        if name.startswith("ckptree.") and name != "ckptree.garbage":
            seen.append(gc.isenabled())
import sys
seen = []
sys.meta_path.insert(0, Importing())
import ckptree
print(len(seen) > 10, any(seen), gc.isenabled())
"""
    done = run(code)
    expected = f"True False {before == 'enable'}\n"
    assert (done.stdout, done.stderr) == (expected, "")


def test_named_tuples_of_the_import_compile_no_annotations():
    code = """
import ckptree, typing
from ckptree import changes, records
made = [thing for module in (changes, records)
        for thing in vars(module).values()
        if isinstance(thing, type) and hasattr(thing, "_fields")]
print(len(made) > 20)
print({one.__name__ for one in made
       for hint in one.__annotations__.values()
       if isinstance(hint, (str, typing.ForwardRef))})
print(records.StepInfo.__annotations__["tags"])
print(typing.get_type_hints(records.VerifyReport.of)["return"].__name__)
"""
    done = run(code)
    assert (done.stdout.splitlines(), done.stderr) == (
        ["True", "set()", "list[str]", "VerifyReport"],
        "",
    )


PAIR = """
class {name}({base}):
    '''Two.'''

    x: int
    y: list[str] = []

    @property
    def twice(self):
        return 2 * self.x

    @staticmethod
    def of(x):
        return {name}(x)
"""


def test_named_tuples_are_as_those_of_typing():
    ours = PAIR.format(name="Ours", base="hints.NamedTuple")
    theirs = PAIR.format(name="Theirs", base="typing.NamedTuple")
    code = f"""
import pickle, typing
from ckptree import hints
{ours}{theirs}"""
    code += """
assert set(dir(Ours)) == set(dir(Theirs))
one = Ours.of(3)
print(one, one.twice, one == (3, []), pickle.loads(pickle.dumps(one)) == one)
for what in ("_fields", "_field_defaults", "__annotations__", "__doc__",
             "__mro__", "__module__", "__match_args__"):
    ours, theirs = getattr(Ours, what), getattr(Theirs, what)
    assert ours == theirs or what == "__mro__" and ours[1:] == theirs[1:], what
assert typing.get_type_hints(Ours) == typing.get_type_hints(Theirs)
for error in (lambda: Ours(), lambda: Ours(1, 2, 3), lambda: Ours(z=1)):
    try:
        error()
    except TypeError:
        continue
    print("no error")
"""
    done = run(code)
    assert (done.stdout, done.stderr) == (
        "Ours(x=3, y=[]) 6 True True\n",
        "",
    )


def test_policies_are_imported_when_one_is_named(tmp_path):
    code = """
import sys, ckptree
with ckptree.Store(sys.argv[1]) as store:
    store.set_policy("latest(3)")
    print("ckptree.policies" in sys.modules)
    try:
        store.set_policy(3)
    except TypeError as error:
        print(error)
    store.set_policy(ckptree.Latest(2))
    print(ckptree.Latest is ckptree.policies.Latest)
"""
    done = run(code, tmp_path / "s")
    assert (done.stdout.splitlines(), done.stderr) == (
        ["False", "policy is a policy or a str, not 3", "True"],
        "",
    )


def test_what_takes_long_to_import_waits_until_it_is_named():
    code = """
import sys
before = set(sys.modules)
import ckptree
late = ["inspect", "dataclasses", "logging", "subprocess", "html", "numpy",
        "typing", "re", "enum", "datetime",
        "ckptree.manager", "ckptree.decisions", "ckptree.policies"]
print([name for name in late if name in set(sys.modules) - before])
assert {"CheckpointManager", "Latest", "policies"} <= set(dir(ckptree))
assert set(ckptree.__all__) <= set(dir(ckptree))
from ckptree import CheckpointManager
print(CheckpointManager is ckptree.CheckpointManager)
print(CheckpointManager is ckptree.manager.CheckpointManager)
print(ckptree.decisions.__name__)
try:
    ckptree.CheckpointManagers
except AttributeError as error:
    print(error)
"""
    done = run(code)
    assert done.stderr == ""
    assert done.stdout.splitlines() == [
        "[]",
        "True",
        "True",
        "ckptree.decisions",
        "module 'ckptree' has no attribute 'CheckpointManagers'",
    ]


def test_reading_needs_no_framework(tmp_path):
    with ckptree.Store(tmp_path / "s") as store:
        store.save(1, {"w": np.ones(3)}).result(timeout=60)
    code = """
import sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("jax", "flax", "torch", "ml_dtypes"):
            raise ImportError(name)
sys.meta_path.insert(0, Refuse())
import ckptree
with ckptree.open(sys.argv[1]) as store:
    print(store.restore())
for name in ("adapters.jax", "flax", "adapters.torch", "torch"):
    try: __import__("ckptree." + name)
    except ImportError as error: print(error)
"""
    done = run(code, tmp_path / "s")
    assert done.stderr == ""
    assert "array([1., 1., 1.])" in done.stdout
    assert "pip install 'ckptree[jax]'" in done.stdout
    assert "pip install 'ckptree[flax]'" in done.stdout or "JAX" in done.stdout
    assert done.stdout.count("pip install 'ckptree[torch]'") == 2


def test_jax_needs_no_flax(tmp_path):
    code = """
import sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "flax":
            raise ImportError(name)
sys.meta_path.insert(0, Refuse())
import ckptree, jax.numpy as jnp
state = {"w": jnp.ones(3), "v": (jnp.zeros(2),)}
with ckptree.Store(sys.argv[1]) as store:
    store.save(1, state).result(timeout=60)
    print(store.restore(1, like=state)["w"])
"""
    done = run(code, tmp_path / "s", env={**os.environ, "JAX_PLATFORMS": "cpu"})
    assert (done.stdout, done.stderr) == ("[1. 1. 1.]\n", "")
