# SPDX-License-Identifier: Apache-2.0
"""A store: opening, the catalog, its bytes, its errors."""

import gc
import os
import subprocess
import sys
import threading
import weakref

import ckptree
import numpy as np
import pytest


def save(store, *steps, size=1000, **options):
    for step in steps:
        state = {"w": np.full(size, float(step))}
        store.save(step, state, **options).result(timeout=60)


def test_what_may_be_a_run_of_another_kind_is_not_begun_anew(tmp_path):
    (tmp_path / "step_100").mkdir()
    with pytest.raises(ValueError, match="step_100, as checkpoints of other"):
        ckptree.Store(tmp_path)
    assert os.listdir(tmp_path) == ["step_100"]


def test_opening(tmp_path):
    path = tmp_path / "s"
    with pytest.raises(FileNotFoundError, match=str(path)):
        ckptree.Store.open(path)
    with pytest.raises(ckptree.NotFoundError):
        ckptree.open(path)
    ckptree.Store.create(path).close()
    with pytest.raises(FileExistsError):
        ckptree.Store.create(path)
    ckptree.Store.open(str(path)).close()
    with pytest.raises(ValueError, match="mode"):
        ckptree.Store(path, mode="a")
    other = tmp_path / "other"
    other.mkdir()
    (other / "100").mkdir()
    with pytest.raises(ValueError, match="other has 100"):
        ckptree.Store(other)
    (other / "100").rmdir()
    (other / "file").write_text("x")
    ckptree.Store(other).close()
    assert (other / "file").read_text() == "x"


def test_a_second_writer_is_told_of_the_first(tmp_path, store):
    save(store, 1)
    code = """
import sys, ckptree
for kind in ckptree.Store, ckptree.CheckpointManager:
    try: kind(sys.argv[1])
    except ckptree.UnavailableError as error: print(error)
with ckptree.open(sys.argv[1]) as reader: print(reader.restore()["w"].size)
"""
    found = subprocess.run(
        [sys.executable, "-c", code, store.path], capture_output=True, text=True
    )
    assert found.stderr == ""
    *refusals, size = found.stdout.splitlines()
    assert len(refusals) == 2 and size == "1000"
    for refusal in refusals:
        assert store.path in refusal and f"pid {os.getpid()}" in refusal
        # What to do instead.
        assert "ckptree.open()" in refusal and "lock_wait=" in refusal


def test_waiting_for_another_writer(tmp_path):
    code = """
import sys, ckptree
store = ckptree.Store(sys.argv[1])
print("open", flush=True)
sys.stdin.read()
store.close()
"""
    other = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path / "s")],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )
    with other:
        assert other.stdout.readline() == "open\n"
        with pytest.raises(ckptree.UnavailableError, match=f"pid {other.pid}"):
            ckptree.Store(tmp_path / "s")
        other.stdin.close()
        ckptree.Store(tmp_path / "s", lock_wait=60).close()
    assert other.returncode == 0


def test_a_reader_beside_the_writer(store):
    save(store, 1)
    with ckptree.open(store.path) as reader:
        assert [s.step for s in reader.steps()] == [1]
        assert reader.info().following
        save(store, 2)
        reader.refresh()
        assert reader.restore()["w"][0] == 2
        for change in (
            lambda: reader.save(3, {}),
            lambda: reader.delete(1),
            lambda: reader.tag("t", 1),
        ):
            with pytest.raises(ckptree.StateError, match="read only"):
                change()


def test_what_a_store_says_of_itself(store):
    save(store, 1)
    about = store.info()
    assert about.directory == store.path and len(about.uuid) == 32
    assert about.format == ckptree._engine.FORMAT and not about.read_only
    assert about.warnings == []
    stats = store.counters()
    assert (stats.saves_committed, stats.saves_failed) == (1, 0)
    assert stats.bytes_hashed >= 8000


def test_selectors(store):
    for step, loss in ((1, 0.5), (2, 0.1), (3, 0.9)):
        save(store, step, metrics={"loss": loss})
    store.tag("good", 1)
    for selector, step in {
        "latest": 3, "latest~1": 2, "best:loss:min": 2, "best:loss:max": 3,
        "@good": 1, 2: 2, "2": 2, np.int64(3): 3,
    }.items():
        assert store[selector].step == step
        assert store.step_info(selector).step == step
        assert selector in store
    assert store[store.steps()[0]].step == 1
    assert 9 not in store and "@no" not in store
    for missing in (9, "@no", "best:accuracy:max", "latest~7", "fork/1"):
        with pytest.raises(KeyError):
            store[missing]
    with pytest.raises(ValueError, match="newest"):
        store["newest"]
    with pytest.raises(TypeError, match="step is an int"):
        store[1.0]


def test_steps_tags_and_pins(store):
    save(store, 2, 1, metrics={"loss": 0.25}, note="hello")
    first = store.steps()[0]
    assert (first.step, first.metrics, first.note) == (
        1,
        {"loss": 0.25},
        "hello",
    )
    assert first.committed_ns >= first.begun_ns > 1.6e18
    store.tag("a", 1)
    with pytest.raises(FileExistsError):
        store.tag("a", 2)
    store.tag("a", 2, move=True)
    assert [(t.name, t.step) for t in store.tags()] == [("a", 2)]
    store.untag("a")
    with pytest.raises(KeyError):
        store.untag("a")
    store.pin(1)
    assert store.step_info(1).pinned
    with pytest.raises(ckptree.StateError, match="pinned"):
        store.delete(1)
    store.unpin(1)
    store.tag("kept", 2)
    with pytest.raises(ckptree.StateError, match="step 2 is tagged 'kept'"):
        store.delete(1, 2)
    assert [info.step for info in store.steps()] == [1, 2]
    store.delete(1, 2, tagged=True)
    assert store.steps() == [] and store.tags() == []
    with pytest.raises(KeyError):
        store.delete(1)


def test_a_step_is_overwritten_only_when_asked(store):
    save(store, 1)
    with pytest.raises(FileExistsError, match="step 1"):
        store.save(1, {"w": 2})
    store.save(1, {"w": 2}, overwrite=True).result(timeout=60)
    assert store.restore(1) == {"w": 2}


def test_later_steps_are_deleted_with_a_save_that_asks_for_it(store):
    store.set_policy(ckptree.Latest(3))
    save(store, 1, 2, 3)
    store.pin(3)
    with pytest.raises(ckptree.StateError, match="step 3 is pinned"):
        store.save(2, {"w": 5}, overwrite=True, delete_later=True).result(
            timeout=60
        )
    assert [s.step for s in store.steps()] == [1, 2, 3]
    store.unpin(3)
    store.save(2, {"w": 5}, overwrite=True, delete_later=True).result(
        timeout=60
    )
    assert [s.step for s in store.steps()] == [1, 2]
    assert store.restore("latest") == {"w": 5}


def test_forks(store):
    save(store, 1, 2)
    store.fork(1, "try")
    save(store, 5, branch="try")
    assert [s.step for s in store.steps("try")] == [5]
    assert store.step_info("try/latest").base == store.step_info(1).version
    assert store[store.steps("try")[0]].restore()["w"][0] == 5
    assert [(n.name, n.origin_step, n.steps) for n in store.branches()] == [
        ("", 0, 2), ("try", 1, 1),
    ]
    store.drop_branch("try")
    with pytest.raises(KeyError):
        store.steps("try")


def test_what_steps_cost_and_what_is_freed(tmp_path):
    with ckptree.Store(tmp_path / "s", collect=False) as store:
        save(store, 1, 2, 3, size=100000)
        usage = store.usage()
        assert [s.unique_bytes >= 800000 for s in usage.steps] == [True] * 3
        free = store.would_free(1, 2)
        assert free.nbytes >= 1600000 and free.kept == []
        store.delete(1, 2)
        assert store.usage().pending_bytes == free.nbytes
        assert store.usage().pending_stored_bytes == free.stored_bytes
        report = store.collect(min_dead_fraction=0)
        assert (report.versions, report.bytes_freed) == (2, free.nbytes)
        assert report.kept == [] and report.damaged == []
        assert store.usage().pending_bytes == 0
        (below,) = store.subtrees()
        assert below.name == "w"
        # The step's record of it goes as well, and is no value.
        assert below.unique_value_bytes == below.logical_bytes
        assert below.unique_bytes > below.unique_value_bytes
        with pytest.raises(ValueError):
            store.collect(min_dead_fraction=2)


def test_verify_finds_damage_and_names_it(tmp_path):
    with ckptree.Store(tmp_path / "s") as store:
        save(store, 1, size=1 << 20)
        assert store.verify().ok and store.verify("quick").chunks == 0
        assert store.verify("deep", [1]).steps == 1
        with pytest.raises(ValueError, match="level"):
            store.verify("some")
    tables = sorted(
        (tmp_path / "s").rglob("*.sst"), key=lambda p: p.stat().st_size
    )
    with open(tables[-1], "r+b") as file:
        file.seek(1 << 20)
        file.write(b"damage")
    with ckptree.Store(tmp_path / "s") as store:
        report = store.verify()
        assert not report.ok
        assert any("w" == f.leaf and f.steps == ["1"] for f in report.findings)
        with pytest.raises(ckptree.CorruptionError, match="step 1"):
            store.restore(1)


def test_after_close_everything_is_refused(tmp_path):
    store = ckptree.Store(tmp_path / "s")
    handle = store.save(1, {"w": np.ones(4)})
    step = store[handle.result(timeout=60)]
    leaf = step["w"]
    store.close()
    store.close()
    assert store.closed and "closed" in repr(store)
    for call in (
        store.steps, step.restore, leaf.numpy, store.info, store.flush,
        lambda: store.save(2, {}), lambda: store[1], lambda: list(step),
    ):
        with pytest.raises(ckptree.StateError, match="closed"):
            call()
    assert handle.done() and handle.result() == 1


def test_saves_run_beside_python(store):
    handle = store.save(1, {"w": np.ones(1 << 20)}, borrow=True)
    assert handle.progress().step == 1
    handle.wait_staged(timeout=60)
    assert handle.result(timeout=60) == 1
    assert handle.done() and handle.progress().phase == "done"
    with pytest.raises(ValueError, match="timeout"):
        handle.result(timeout=-1)
    with pytest.raises(ValueError, match="timeout"):
        handle.result(timeout=float("nan"))


def test_many_threads_use_one_store(store):
    failures = []

    def work(first):
        try:
            for step in range(first, first + 5):
                save(store, step)
                assert store.restore(step)["w"][0] == step
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(n,)) for n in (0, 10, 20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == [] and len(store.steps()) == 15


READ_ONLY = """
import ckptree, errno, sys
for make in (ckptree.Store, ckptree.Store.open, ckptree.CheckpointManager):
    try:
        make(sys.argv[1])
    except ckptree.PermissionDeniedError as error:
        known = isinstance(error, PermissionError)
        print(known and error.errno == errno.EROFS, error)
with ckptree.open(sys.argv[1]) as reader:
    print(reader.restore(1))
"""


def test_what_is_mounted_read_only_can_be_read(tmp_path):
    with ckptree.Store(tmp_path / "s") as store:
        store.save(1, {"n": 1}).result(timeout=60)
    mounted = (
        'mount --bind "$1" "$1" && mount -o remount,ro,bind "$1" && shift && '
        'exec "$@"'
    )
    command = ["unshare", "-m", "sh", "-c", mounted, "sh", tmp_path]
    try:
        possible = subprocess.run([*command, "true"]).returncode == 0
    except OSError:
        possible = False
    if not possible:
        pytest.skip("mounting something read-only is for root alone")
    done = subprocess.run(
        [*command, sys.executable, "-c", READ_ONLY, tmp_path / "s"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stderr == ""
    *refused, read = done.stdout.splitlines()
    assert len(refused) == 3 and read == "{'n': 1}"
    for said in refused:
        assert said.startswith("True ") and "Read-only file system" in said
        assert said.endswith("is read with ckptree.open()")


def test_a_delete_names_steps(store):
    store.save(1, {"n": 1}).result(timeout=60)
    with pytest.raises(ValueError, match="no steps"):
        store.delete()
    assert list(store) == [1]


def test_every_status_has_its_exception():
    expected = {
        1: ckptree.CancelledError, 2: OSError, 3: ValueError, 4: TimeoutError,
        5: KeyError, 6: FileExistsError, 7: PermissionError, 8: OSError,
        9: ckptree.StateError, 10: ckptree.AbortedError,
        12: NotImplementedError, 13: RuntimeError,
        14: ckptree.UnavailableError, 15: ckptree.CorruptionError,
    }
    for code, kind in expected.items():
        error = ckptree.errors.from_status(code, "what happened")
        assert isinstance(error, kind) and isinstance(error, ckptree.Error)
        assert "what happened" in str(error)


def test_a_store_is_a_collection_of_steps(tmp_path):
    # With the folders above it, where it is to be made.
    path = tmp_path / "project" / "runs" / "lm"
    with pytest.raises(ValueError, match="chunk_bytes"):
        ckptree.Store(path, chunk_bytes=1)
    with pytest.raises(FileNotFoundError):
        ckptree.Store.open(path)
    assert os.listdir(tmp_path) == []
    with ckptree.Store(path) as store:
        assert store and len(store) == 0 and list(store) == []
        save(store, 3, 1, 2)
        assert len(store) == 3 and list(store) == [1, 2, 3]
        assert 2 in store and 5 not in store and -1 not in store
        assert "latest" in store and "@none" not in store
        with pytest.raises(ValueError, match="'latest' is the last one"):
            store[-1]
    path = tmp_path / "other" / "lm"
    with ckptree.CheckpointManager(path) as manager:
        assert manager and len(manager) == 0 and 5 not in manager
        manager.save(5, {"w": 1})
        manager.wait_until_finished()
        assert 5 in manager and 6 not in manager and "latest" in manager
        assert list(manager) == [5] and len(manager) == 1


def test_a_leaf_alone_is_no_state(store):
    for leaf in (np.ones(2), 1, 0.5, "x"):
        with pytest.raises(TypeError, match="a state is a dict"):
            store.save(1, leaf)


def test_a_subtree_alone(store):
    state = {"params": {"w": np.arange(3), "b": [1, 2]}, "lr": 0.5}
    store.save(1, state).result()
    for partial in ("params", ["params/b", "params/w"], "params/**"):
        found = store.restore(1, partial=partial)
        assert list(found) == ["params"]
        assert found["params"]["w"].tolist() == [0, 1, 2]
        assert found["params"]["b"] == [1, 2]
    assert store["latest"].restore(partial="lr") == {"lr": 0.5}
    with pytest.raises(KeyError, match="'opt'"):
        store.restore(1, partial="opt")
    with pytest.raises(ValueError, match="like="):
        store.restore(1, partial=True)


def test_one_process_has_one_engine(tmp_path):
    path = tmp_path / "s"
    (tmp_path / "link").symlink_to(path)
    first = ckptree.Store(path)
    save(first, 1)
    with ckptree.Store(tmp_path / "link") as second:
        assert list(second) == [1]
        save(second, 2)
    assert second.closed and not first.closed
    second.close()
    for call in (
        second.steps,
        second.restore,
        lambda: second.save(9, {"w": 1}),
        lambda: second.history("w"),
        lambda: second.history("w", "mean"),
        lambda: second["latest"],
    ):
        with pytest.raises(ckptree.StateError, match="closed"):
            call()
    save(first, 3)  # Whoever is left goes on.
    assert list(first) == [1, 2, 3]
    # A cell that runs again: the old object goes when the new one is there.
    with pytest.warns(ResourceWarning):
        first = ckptree.Store(path)
    save(first, 4)
    with pytest.raises(FileExistsError):
        ckptree.Store.create(path)
    with pytest.raises(ckptree.StateError, match="threads=0, not 2"):
        ckptree.Store(path, threads=2)
    first.close()
    with ckptree.CheckpointManager(path) as manager:
        with ckptree.Store(path) as beside:
            save(beside, 5)
        assert manager.all_steps() == [1, 2, 3, 4, 5]
        beside = ckptree.Store(path)
    assert manager.closed and list(beside) == [1, 2, 3, 4, 5]
    beside.close()
    code = "import ckptree, sys; ckptree.Store(sys.argv[1]).close()"
    subprocess.run([sys.executable, "-c", code, path], check=True)


def test_closing_all(tmp_path):
    stores = [ckptree.Store(tmp_path / name) for name in "ab"]
    managers = [ckptree.CheckpointManager(tmp_path / "m")]
    held = managers[0].save(1, {"w": 1})
    ckptree.close_all()
    assert held and all(one.closed for one in stores + managers)
    with ckptree.CheckpointManager(tmp_path / "m") as manager:
        assert manager.all_steps() == [1]


def test_many_threads_open_one_store(tmp_path):
    barrier = threading.Barrier(8)
    failed = []

    def run(step):
        try:
            barrier.wait(timeout=60)
            with ckptree.Store(tmp_path / "s") as store:
                save(store, step)
        except Exception as error:
            failed.append(error)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert not failed
    with ckptree.open(tmp_path / "s") as store:
        assert list(store) == list(range(8))


def test_saves_that_nobody_waits_for_are_two_at_most(store):
    in_flight = []
    for step in range(30):
        store.save(step, {"w": np.full(100_000, float(step))})
        in_flight.append(store.counters().saves_in_flight)
    assert max(in_flight) <= 2
    store.flush()
    assert len(store) == 30
    assert store.restore(29)["w"][-1] == 29


def test_a_restore_sees_what_was_to_be_saved_before(store):
    for step in range(30):
        state = {"w": np.full(100_000, float(step))}
        store.save(step, state, metrics={"loss": -step})
        if step % 3 == 0:
            assert store.restore()["w"][-1] == step
        elif step % 3 == 1:
            assert store["best:loss:min"].step == step
        else:
            assert store.restore_or(state, step)[1] == step
    store.save(29, {"w": np.full(100_000, 0.5)}, overwrite=True)
    assert store.restore(29)["w"][0] == 0.5
    with pytest.raises(ckptree.NotFoundError):
        store[30]


def test_a_restore_waits_for_no_other_step(tmp_path):
    go_on, held, seen = threading.Event(), threading.Event(), []

    def hold(steps):
        # It would wait for itself.
        with pytest.raises(ckptree.StateError, match="function of a policy"):
            seen.append(store["latest"].step)
        held.set()
        assert go_on.wait(timeout=60)
        return [True for _ in steps]

    with ckptree.Store(tmp_path / "s") as store:
        store.save(1, {"w": 1}).result()
        store.set_policy(ckptree.Custom(hold))
        saving = store.save(2, {"w": 2})
        assert held.wait(timeout=60)
        assert store.restore(1) == {"w": 1}
        assert list(store) == [1]
        assert not saving.done()
        go_on.set()
        assert store.restore("latest") == {"w": 2}
    assert not seen


def test_a_restore_leaves_a_failure_to_who_asks_for_it(store):
    go_on, held = threading.Event(), threading.Event()

    def hold(steps):
        held.set()
        assert go_on.wait(timeout=60)
        return [True for _ in steps]

    store.set_policy(ckptree.Custom(hold))
    first = store.save(1, {"w": 1})
    assert held.wait(timeout=60)
    again = store.save(1, {"w": 2})  # The first one will have the number.
    go_on.set()
    assert store.restore("latest") == {"w": 1}
    with pytest.raises(ckptree.AlreadyExistsError):
        again.result()
    assert first.result() == 1


def test_saves_that_nobody_waits_for_hold_the_memory_of_two(tmp_path):
    go_on, two = threading.Event(), threading.Event()
    held = threading.Event()
    alive = []

    def hold(steps):
        held.set()
        assert go_on.wait(timeout=60)
        return [True for _ in steps]

    def save_all(store):
        for step in range(8):
            array = np.full(1 << 20, float(step))
            alive.append(weakref.ref(array))
            store.save(step, {"w": array})
            if step == 1:
                two.set()

    with ckptree.Store(tmp_path / "s") as store:
        store.set_policy(ckptree.Custom(hold))
        saving = threading.Thread(target=save_all, args=(store,))
        saving.start()
        assert two.wait(timeout=60)
        # The first is held up where it commits, and needs its memory no more:
        # the third waits.
        assert held.wait(timeout=60)
        counters = store.counters()
        assert counters.saves_in_flight == 2
        assert counters.staging_bytes_in_use <= 2 * 8 << 20
        assert len([array for array in alive if array() is not None]) <= 3
        go_on.set()
        saving.join(timeout=60)
        store.flush()
        for step in range(8):
            assert (store.restore(step)["w"] == step).all()
    gc.collect()
    assert [array for array in alive if array() is not None] == []
