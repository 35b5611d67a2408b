# SPDX-License-Identifier: Apache-2.0
"""progress=: what is told, how often, on which thread, and what comes of what
it raises. The sizes are such that the engine works on other threads."""

import asyncio
import sys
import threading
import types

import ckptree
import numpy as np
import pytest
from ckptree import progress

# As large as reads in the background begin.
LARGE = np.arange(10 << 20, dtype="f4")  # 40 MiB
STATE = {"w": LARGE, "v": LARGE + 1, "lr": 0.5}
NBYTES = 2 * LARGE.nbytes + 8


class Mine(Exception):
    pass


class Told:
    """Keeps what it was told, and checks it."""

    def __init__(self, then=lambda: None):
        self.said = []
        self.threads = set()
        self.then = then

    def __call__(self, done, total):
        self.said.append((done, total))
        self.threads.add(threading.get_ident())
        self.then()

    def check(self, total=None):
        """It went up to the end, here."""
        assert self.threads == {threading.get_ident()}
        assert self.said == sorted(self.said)
        assert [done for done, of in self.said].count(self.said[-1][0]) == 1
        last = self.said[-1]
        assert last[0] == last[1] and (total is None or last[1] == total)


@pytest.fixture(autouse=True)
def each(monkeypatch):
    """Everything that there is to tell is told."""
    monkeypatch.setattr(progress.Meter, "INTERVAL", 0.0)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    with ckptree.Store(tmp_path_factory.mktemp("progress") / "s") as store:
        store.save(1, STATE).result(timeout=60)
        store.save(2, {"lr": 0.5, "n": 3}).result(timeout=60)
        yield store


def same(found):
    assert np.array_equal(np.asarray(found["w"]), STATE["w"])
    assert np.array_equal(np.asarray(found["v"]), STATE["v"])


@pytest.mark.parametrize("like", [None, STATE])
def test_a_restore_tells_its_bytes(saved, like):
    told = Told()
    same(saved.restore(1, like, progress=told))
    told.check(NBYTES)
    # On the way, not at the end alone.
    assert told.said[0][0] < NBYTES


def test_a_restore_of_part_tells_those(saved):
    told = Told()
    saved.restore(1, partial="w", progress=told)
    told.check(LARGE.nbytes)


def test_small_ones_tell_the_end(saved):
    told = Told()
    assert saved[2].restore(progress=told) == {"lr": 0.5, "n": 3}
    told.check(16)


def test_into_jax(saved):
    pytest.importorskip("jax")
    like = saved.restore(1, arrays="jax")
    for options in ({"arrays": "jax"}, {"like": like}):
        told = Told()
        same(saved.restore(1, progress=told, **options))
        told.check(NBYTES)


def test_into_torch(saved):
    pytest.importorskip("torch")
    told = Told()
    same(saved.restore(1, arrays="torch", progress=told))
    told.check(NBYTES)


def test_of_a_manager(tmp_path):
    told = Told()
    with ckptree.CheckpointManager(tmp_path / "s") as manager:
        manager.save(1, {"a": STATE, "b": {"n": 1}})
        same(manager.restore(items=["a"], progress=told)["a"])
    told.check(NBYTES)


def test_verify_tells_its_bytes(saved):
    told = Told()
    report = saved.verify(progress=told)
    assert report.ok
    told.check()
    assert told.said[-1][1] >= 2 * LARGE.nbytes


def test_collect_tells_its_saves(tmp_path):
    told = Told()
    with ckptree.Store(tmp_path / "s", collect=False) as store:
        for step in range(20):
            store.save(step, {"w": np.full(1 << 18, step)}).result(timeout=60)
        store.delete(*range(10))
        report = store.collect(progress=told)
        assert report.versions == 10
    # It may be over before anybody asks: the end is told in any case.
    assert told.said[-1][0] == told.said[-1][1]


def test_the_result_of_a_save_tells_its_bytes(tmp_path):
    told = Told()
    with ckptree.Store(tmp_path / "s") as store:
        handle = store.save(1, STATE)
        assert handle.result(timeout=60, progress=told) == 1
        assert handle.result(progress=told) == 1
    told_last = told.said[-1]
    assert told_last[0] == told_last[1]


@pytest.fixture
def held(tmp_path):
    """Of a store or a manager: two saves that hold on before their commit, and
    the call that waits for them."""
    commits, go_on = threading.Event(), threading.Event()

    def keep(steps):
        commits.set()
        assert go_on.wait(timeout=60)
        return [True for _ in steps]

    def store():
        opened = ckptree.Store(tmp_path / "s")
        opened.set_policy(ckptree.Custom(keep))
        return opened, opened.flush

    def manager():
        opened = ckptree.CheckpointManager(
            tmp_path / "s",
            preservation=ckptree.Custom(keep),
            max_saves_in_flight=2,
        )
        return opened, opened.wait_until_finished

    opened = []

    def begin(kind):
        saver, wait = {"store": store, "manager": manager}[kind]()
        opened.append(saver)
        saver.save(1, STATE)
        saver.save(2, {**STATE, "w": LARGE + 2})
        assert commits.wait(timeout=60)
        return wait, go_on

    yield begin
    go_on.set()
    for saver in opened:
        saver.close()


@pytest.mark.parametrize("kind", ["store", "manager"])
def test_a_wait_for_all_saves_tells_the_bytes_of_all(held, kind):
    wait, go_on = held(kind)
    told = Told(go_on.set)  # They go on when it is told the first time.
    wait(timeout=60, progress=told)
    told.check(2 * NBYTES)
    told = Told()
    wait(progress=told)  # There is none to wait for.
    assert told.said[-1][0] == told.said[-1][1]


@pytest.mark.parametrize("kind", ["store", "manager"])
def test_what_it_raises_ends_the_wait_for_all(held, kind):
    def stop():
        raise Mine

    wait, go_on = held(kind)
    with pytest.raises(Mine):
        wait(progress=Told(stop))
    with pytest.raises(TimeoutError):
        wait(timeout=0.1, progress=Told())
    go_on.set()
    wait(timeout=60)  # They went on.


def test_what_it_raises_ends_the_wait_for_a_save(tmp_path):
    commits, go_on = threading.Event(), threading.Event()

    def keep(steps):
        commits.set()
        assert go_on.wait(timeout=60)
        return [True for _ in steps]

    def stop():
        raise Mine

    with ckptree.Store(tmp_path / "s") as store:
        store.set_policy(ckptree.Custom(keep))
        handle = store.save(1, {"w": LARGE})
        assert commits.wait(timeout=60)
        with pytest.raises(Mine):
            handle.result(progress=Told(stop))
        with pytest.raises(TimeoutError):
            handle.result(timeout=0.1, progress=Told())
        go_on.set()
        assert handle.result(timeout=60) == 1  # It went on.


@pytest.mark.parametrize(
    "call",
    [
        lambda store, told: store.restore(1, progress=told),
        lambda store, told: store[1].restore(STATE, progress=told),
        lambda store, told: store.verify(progress=told),
        lambda store, told: store.collect(progress=told),
        lambda store, told: asyncio.run(
            store.restore_async(1, progress=told)
        ),
    ],
)
def test_what_it_raises_stops_the_call(saved, call):
    def stop():
        raise Mine

    with pytest.raises(Mine):
        call(saved, Told(stop))
    same(saved.restore(1))  # And all is as it was.
    assert saved.verify().ok


def test_a_task_that_is_cancelled_stops_reading(saved):
    ended = threading.Event()
    told = []

    async def main():
        loop = asyncio.get_running_loop()
        begun = asyncio.Event()

        def tell(done, total):
            told.append(done)
            loop.call_soon_threadsafe(begun.set)

        task = asyncio.create_task(saved.restore_async(1, progress=tell))
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        ended.set()

    asyncio.run(main())
    assert ended.is_set() and told


def test_a_restore_in_the_background_tells(saved):
    told = Told()
    same(asyncio.run(saved.restore_async(1, progress=told)))
    assert told.said[-1] == (NBYTES, NBYTES)
    assert threading.get_ident() not in told.threads


def test_at_most_ten_times_a_second(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(
        progress, "time", types.SimpleNamespace(monotonic=lambda: now[0])
    )
    monkeypatch.setattr(progress.Meter, "INTERVAL", 0.1)
    said = []
    with progress.showing(lambda *at: said.append(at), "x") as meter:
        for done in range(100):
            now[0] = done / 100
            meter(done, 100)
    assert len(said) == 11 and said[-1] == (100, 100)
    assert said == sorted(said)


# ---- A bar ----


class Bar:
    """In the place of tqdm's."""

    made = []

    def __init__(self, total, desc, unit, unit_scale):
        self.total, self.desc, self.n, self.closed = total, desc, 0, False
        self.made.append(self)

    def update(self, more):
        self.n += more

    def close(self):
        self.closed = True


@pytest.fixture
def bars(monkeypatch):
    module = types.ModuleType("tqdm.auto")
    module.tqdm = Bar
    monkeypatch.setitem(sys.modules, "tqdm", types.ModuleType("tqdm"))
    monkeypatch.setitem(sys.modules, "tqdm.auto", module)
    monkeypatch.setattr(Bar, "made", [])
    return Bar.made


def test_true_is_a_bar(saved, bars):
    saved.restore(1, progress=True)
    saved.verify(progress=True)
    saved.save(9, {"w": LARGE}).result(progress=True)
    asyncio.run(saved.restore_async(1, progress=True))
    names = ["restore", "verify", "step 9", "restore"]
    assert [bar.desc for bar in bars] == names
    assert all(bar.closed and bar.n == bar.total for bar in bars)
    assert bars[0].total == NBYTES
    saved.delete(9)


def test_false_and_none_are_nothing(saved, bars):
    same(saved.restore(1, progress=False))
    same(saved.restore(1, progress=None))
    assert bars == []


def test_a_bar_is_closed_where_the_call_fails(saved, bars, monkeypatch):
    def update(self, more):
        raise Mine

    monkeypatch.setattr(Bar, "update", update)
    with pytest.raises(Mine):
        saved.restore(1, progress=True)
    assert [bar.closed for bar in bars] == [True]


@pytest.mark.parametrize(
    "call",
    [
        lambda store: store.restore(1, progress=True),
        lambda store: store[1].restore(progress=True),
        lambda store: asyncio.run(store.restore_async(1, progress=True)),
        lambda store: store.verify(progress=True),
        lambda store: store.collect(progress=True),
        lambda store: store.save(3, {"n": 1}).result(progress=True),
    ],
)
def test_without_tqdm_that_is_said_at_the_call(saved, monkeypatch, call):
    monkeypatch.setitem(sys.modules, "tqdm", None)
    monkeypatch.setitem(sys.modules, "tqdm.auto", None)
    before = saved.counters().bytes_read
    with pytest.raises(ImportError, match="pip install tqdm, or pass"):
        call(saved)
    assert saved.counters().bytes_read == before
    saved.flush()
    if 3 in saved:
        saved.delete(3)
