# SPDX-License-Identifier: Apache-2.0
"""What the engine says is in Python's logging: at the open, from the
background, in children and at the exit, and whatever a handler does."""

import logging
import os
import queue
import sys
import threading

import ckptree
import numpy as np
import pytest
from no_room import no_room, too_large
from program import run

MISSING = "journal/b-0000000001 is missing; its other copy is read"


def fail_in_the_background(store, step):
    """A save with borrow waits for no copy: the disk, however fast it fails,
    is never before the return of the call, which would then say so itself."""
    return store.save(step, {"w": too_large()}, borrow=True)


def lose_a_copy(folder):
    """The next one who opens the store warns."""
    (folder / "journal" / "b-0000000001").unlink()


@pytest.fixture
def damaged(tmp_path):
    with ckptree.Store(tmp_path / "s") as store:
        store.save(1, {"w": np.ones(3)}).result(timeout=60)
    lose_a_copy(tmp_path / "s")
    return tmp_path / "s"


class Told(logging.Handler):
    """Keeps the records, for whoever waits for one; and does something."""

    def __init__(self, then=lambda: None):
        super().__init__()
        self.records = queue.Queue()
        self.then = then

    def emit(self, record):
        self.records.put(record)
        self.then()

    def next(self):
        return self.records.get(timeout=60)


@pytest.fixture
def told():
    """Adds a handler, which is gone after the test."""
    logger = logging.getLogger("ckptree")
    added = []

    def add(*arguments):
        added.append(Told(*arguments))
        logger.addHandler(added[-1])
        return added[-1]

    yield add
    for handler in added:
        logger.removeHandler(handler)


def about(record):
    return (
        record.name,
        record.levelname,
        record.store,
        record.part,
        record.getMessage(),
    )


@pytest.mark.parametrize(
    "opened", [ckptree.Store, ckptree.open, ckptree.CheckpointManager]
)
def test_a_warning_of_the_open_is_there_when_it_returns(
    damaged, caplog, capfd, opened
):
    with opened(damaged):
        said = list(map(about, caplog.records))
    path = str(damaged)
    expected = ("ckptree", "WARNING", path, "open", f"store {path}: {MISSING}")
    assert said == [expected]
    assert capfd.readouterr().err == ""


def test_what_was_said_before_an_open_failed_is_there(damaged, caplog):
    with pytest.raises(ckptree.NotFoundError):
        ckptree.CheckpointManager(damaged, branch="none")
    (record,) = caplog.records
    assert record.getMessage() == f"store {damaged}: {MISSING}"


def test_a_save_that_fails_in_the_background_says_so(tmp_path, told, capfd):
    handler = told()
    store = ckptree.Store(tmp_path / "s")
    with no_room():
        fail_in_the_background(store, 1)
        record = handler.next()
    name, level, path, part, message = about(record)
    assert (name, level, path) == ("ckptree", "ERROR", store.path)
    assert part == "save"
    assert message.startswith(f"store {store.path}: step 1")
    with pytest.raises(OSError, match="step 1"):
        store.close()
    assert capfd.readouterr().err == ""


def test_a_handler_may_use_the_store(tmp_path, told):
    store = ckptree.Store(tmp_path / "s")
    found = []

    def use():
        found.append(store.save(7, {"n": 7}).result(timeout=60))
        try:
            store.flush(timeout=60)
        except OSError:
            found.append("failed")  # The one that this is about.
        found.append([info.step for info in store.steps()])

    handler = told(use)
    with no_room():
        handle = fail_in_the_background(store, 1)
        handler.next()
        with pytest.raises(OSError):
            handle.result(timeout=60)
    handler.acquire()  # It has returned.
    handler.release()
    assert found[0] == 7 and found[-1] == [7]
    store.close()


def test_a_handler_of_the_open_may_use_the_store(damaged, told):
    found = []

    def use():
        with ckptree.open(damaged) as reader:
            found.append(reader.restore(1)["w"].sum())

    told(use)
    with ckptree.Store(damaged) as store:
        store.save(2, {"n": 2}).result(timeout=60)
    assert found and set(found) == {3.0}


class Mine(Exception):
    pass


def test_a_handler_may_wait_for_another_thread_that_opens_it(damaged, told):
    found = []

    def open_too():
        with ckptree.Store(damaged) as store:
            found.append(list(store))

    def then():
        thread = threading.Thread(target=open_too)
        thread.start()
        thread.join(timeout=60)

    handler = told(then)
    with ckptree.Store(damaged):
        assert MISSING in handler.next().message
    assert found[:1] == [[1]]


def test_what_a_handler_raises_stops_nothing(damaged, told, monkeypatch):
    reported = []
    monkeypatch.setattr(
        sys, "excepthook", lambda kind, *rest: reported.append(kind)
    )

    def fail():
        raise Mine

    handler = told(fail)
    with ckptree.Store(damaged) as store:
        assert store.restore(1)["w"].sum() == 3
        assert reported == [Mine]
        handler.next()
        with no_room():
            fail_in_the_background(store, 2)
            handler.next()  # From the other thread.
        with pytest.raises(OSError):
            store.flush()
    assert set(reported) == {Mine} and len(reported) >= 2


def test_a_handler_that_ends_the_program_ends_the_open(damaged, told):
    def leave():
        raise SystemExit(3)

    handler = told(leave)
    with pytest.raises(SystemExit):
        ckptree.Store(damaged)
    handler.then = lambda: None
    ckptree.Store(damaged).close()  # It was closed.


def test_infos_are_for_who_asks(tmp_path, told):
    handler = told()
    logger = logging.getLogger("ckptree")

    def drop_the_policy(path):
        with ckptree.CheckpointManager(path, max_to_keep=5) as manager:
            manager.save(1, {"n": 1})
        with ckptree.CheckpointManager(path) as manager:
            manager.save(2, {"n": 2})

    drop_the_policy(tmp_path / "a")
    assert handler.records.empty()
    logger.setLevel(logging.INFO)
    try:
        drop_the_policy(tmp_path / "b")
        record = handler.next()
        while record.part != "policy":
            record = handler.next()
    finally:
        logger.setLevel(logging.NOTSET)
    assert record.levelname == "INFO"
    assert "the policy 'latest(5)'" in record.getMessage()


def test_a_creation_says_nothing(tmp_path, caplog):
    with caplog.at_level(logging.INFO, logger="ckptree"):
        ckptree.Store(tmp_path / "new").close()
        ckptree.CheckpointManager(tmp_path / "managed").close()
    assert [record.getMessage() for record in caplog.records] == []


def test_a_level_of_its_own_silences_it(damaged, caplog):
    with caplog.at_level(logging.CRITICAL, logger="ckptree"):
        ckptree.Store(damaged).close()
    assert caplog.records == []


def test_without_configuration_warnings_go_to_standard_error(damaged):
    code = "import sys, ckptree; ckptree.Store(sys.argv[1]).close()"
    done = run(code, damaged)
    assert done.stderr == f"store {damaged}: {MISSING}\n"
    assert done.returncode == 0


# What fails while the interpreter exits, and whoever is not listening.
AT_EXIT = """
import logging, resource, sys, threading, ckptree, numpy as np
logging.basicConfig(stream=sys.stdout, format="%(levelname)s %(message)s")
store = ckptree.Store(sys.argv[1])
soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, hard))
store.save(1, {"w": np.random.default_rng(1).random(1 << 20)}, borrow=True)
"""


def test_at_the_exit_nothing_is_lost(tmp_path):
    done = run(AT_EXIT, tmp_path / "s")
    assert done.returncode == 120, done.stderr
    lines = done.stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["ERROR"]
    assert f"store {tmp_path / 's'}: step 1" in lines[0]


def test_at_the_exit_nothing_is_lost_whoever_imports_logging_first(tmp_path):
    """The function of atexit that closes the handlers is called after ours."""
    before = "import logging, resource, sys, threading, ckptree, numpy as np"
    after = "import resource, sys, threading, ckptree, numpy as np, logging"
    config = 'logging.basicConfig(stream=sys.stdout, format="%(levelname)s %(me'
    for name, imports in (("before", before), ("after", after)):
        code = AT_EXIT.replace(before, imports)
        at = code.index(config)
        code = (
            code[:at]
            + f"logging.basicConfig(filename={str(tmp_path / name)!r}, "
            + 'filemode="w", format="%(levelname)s")\n'
            + code[code.index("\n", at) + 1 :]
        )
        done = run(code, tmp_path / f"store-{name}")
        assert done.returncode == 120, done.stderr
        assert (tmp_path / name).read_text() == "ERROR\n", name


def test_no_thread_of_ours_imports_logging(tmp_path):
    """Where Ctrl-C met an import of the main thread, one that imports beside
    it may wait for ever."""
    code = """
import builtins, sys, threading, ckptree
real, who = builtins.__import__, []

def noting(name, *args, **kwargs):
    if name == "logging" and name not in sys.modules:
        who.append(threading.current_thread().name)
    return real(name, *args, **kwargs)

builtins.__import__ = noting
with ckptree.Store(sys.argv[1]) as store:
    store.save(1, {"n": 1}).result(timeout=60)
    store.flush()
print(who)
"""
    done = run(code, tmp_path / "s")
    assert (done.stdout, done.stderr) == ("['MainThread']\n", "")


def test_a_reader_of_this_disk_needs_no_logging(tmp_path):
    """It is a tenth of the time of a program that reads one leaf."""
    with ckptree.Store(tmp_path / "s") as store:
        store.save(1, {"w": np.ones(3)}).result(timeout=60)
    code = """
import sys, threading, ckptree
with ckptree.Store(sys.argv[1], mode="read") as store:
    shape = store["latest"]["w"].shape
    print(shape, "logging" in sys.modules, threading.active_count())
with ckptree.Store(sys.argv[1]):
    print("logging" in sys.modules, threading.active_count())
"""
    done = run(code, tmp_path / "s")
    assert (done.stdout, done.stderr) == ("(3,) False 1\nTrue 2\n", "")


@pytest.mark.parametrize("name", ["before", "after"])
def test_a_reader_that_opens_the_store_says_what_is_wrong(
    damaged, tmp_path, name
):
    order = {
        "before": "import logging, sys, ckptree",
        "after": "import sys, ckptree, logging",
    }
    code = order[name] + """
logging.basicConfig(filename=sys.argv[2], format="%(message)s")
with ckptree.Store(sys.argv[1], mode="read"):
    with open(sys.argv[2]) as file:
        print(file.read(), end="")
"""
    done = run(code, damaged, tmp_path / name)
    assert done.stdout == f"store {damaged}: {MISSING}\n"
    assert done.stderr == ""


# The open of a store that has lost its journal has two messages; a handler ends
# it at the first.
ENDS = """
import logging, os, sys, threading, ckptree
from ckptree import _engine
from ckptree.options import OPEN

class Ends(logging.Handler):
    def emit(self, record):
        os.write(1, b"said ")  # At once: a thread may be beside it.
        if not ended:
            ended.append(True)
            raise SystemExit

def ends(call, *arguments):
    try:
        call(*arguments)
    except SystemExit:
        os.write(1, b"ended ")

ended = []
logging.getLogger("ckptree").addHandler(Ends())
"""


@pytest.fixture
def lost(damaged):
    for file in (damaged / "journal").glob("[ab]-*"):
        file.unlink()
    return damaged


def test_a_message_that_is_left_starts_the_thread_that_logs(lost):
    code = ENDS + """
ends(ckptree.open, sys.argv[1])
os.write(1, b"%d " % threading.active_count())
"""
    done = run(code, lost)
    # The thread may be before the end of the call or behind it.
    lines = sorted(done.stdout.split())
    assert (lines, done.stderr) == (["2", "ended", "said", "said"], "")


def test_at_the_exit_a_message_that_is_left_is_not_lost(lost):
    code = ENDS + """
store = _engine.open(sys.argv[1], mode="read", **OPEN)
ends(_engine.deliver_opened)
os.write(1, b"%d " % threading.active_count())
"""
    done = run(code, lost)
    assert (done.stdout, done.stderr) == ("said ended 1 said ", "")


def test_a_handler_that_uses_the_store_at_the_exit(tmp_path):
    code = AT_EXIT + """
class Asks(logging.Handler):
    def emit(self, record):
        try:
            store.steps()
        except ckptree.StateError:
            pass
        print("asked", record.levelname)
logging.getLogger("ckptree").addHandler(Asks())
"""
    done = run(code, tmp_path / "s")
    assert done.returncode == 120, done.stderr
    assert "asked ERROR" in done.stdout


def test_a_forked_child_has_its_own(damaged):
    code = """
import logging, os, sys, ckptree
logging.basicConfig(stream=sys.stdout, format="%(process)d %(message)s")
path = sys.argv[1]
store = ckptree.Store(path + "-other")
store.save(1, {"a": 1}).result()
child = os.fork()
if child == 0:
    ckptree.open(path).close()
    print("child", flush=True)
    sys.exit(7)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
ckptree.Store(path).close()
store.close()
"""
    done = run(code, damaged)
    assert done.stderr == ""
    lines = done.stdout.splitlines()
    assert [line.partition(" ")[2] or line for line in lines] == [
        f"store {damaged}: {MISSING}",
        "child",
        "7",
        f"store {damaged}: {MISSING}",
    ]
    assert len({line.split()[0] for line in (lines[0], lines[3])}) == 2


def test_a_child_logs_what_happens_in_the_background(tmp_path):
    """The thread that delivers is not there after fork(): it starts anew."""
    code = """
import os, sys, ckptree
from ckptree import logs
ckptree.Store(sys.argv[1]).close()
parent = logs._thread
child = os.fork()
if child == 0:
    assert logs._thread is None
    logs._start()  # As a store at an address does.
    assert logs._thread is not parent and logs._thread.is_alive()
    sys.exit(7)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    done = run(code, tmp_path / "s")
    assert (done.stdout, done.stderr) == ("7\n", "")


def test_names_that_are_no_unicode(tmp_path, told, monkeypatch):
    # pytest would send it on as text.
    monkeypatch.setattr(logging.getLogger("ckptree"), "propagate", False)
    handler = told()
    path = os.fsdecode(os.fsencode(tmp_path) + b"/\xff")
    with ckptree.Store(path) as store:
        store.save(1, {"w": 1}).result(timeout=60)
    os.unlink(os.path.join(path, "journal", "b-0000000001"))
    ckptree.Store(path).close()
    assert handler.next().store == path


def test_a_handler_that_stands_still_takes_no_memory(tmp_path, told):
    """Of more than a thousand messages the latest are dropped, and counted."""
    go_on, saved = threading.Event(), threading.Event()
    saves = 1500

    def refuse(steps):
        raise Mine

    with ckptree.Store(tmp_path / "s", collect=False) as store:
        store.set_policy(ckptree.Custom(refuse))
        handler = told(lambda: go_on.wait(timeout=60))
        for step in range(saves):
            handle = store.save(1, {"n": step}, overwrite=True)
        handle.on_complete(lambda handle: saved.set())
        assert saved.wait(timeout=60)
        go_on.set()
        store.flush()
    said = []
    while not said or said[-1].part != "log":
        said.append(handler.next())
    assert {record.part for record in said[:-1]} == {"policy"}
    dropped = int(said[-1].getMessage().split(": ")[1].split()[0])
    assert "messages were dropped" in said[-1].getMessage()
    assert len(said) - 1 + dropped == saves and dropped > 400
