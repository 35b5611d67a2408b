# SPDX-License-Identifier: Apache-2.0
"""Views: arrays where they stand in the store's file, and who outlives whom."""

import gc
import itertools
import shutil
from pathlib import Path

import ckptree
import ml_dtypes
import numpy as np
import pytest
from program import run

# Larger than what a save puts beside its records, and several chunks.
BIG = np.arange(1 << 20, dtype=np.int32).reshape(1024, 1024)
LONG = np.arange(5 << 20, dtype=np.int32).reshape(-1, 1024)

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")


def mapped_files():
    """Tables of stores that this process has mapped, and how often."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    return [line for line in lines if ".sst" in line]


def address(array):
    return array.__array_interface__["data"][0]


def is_mapped(array):
    """Whether the memory of an array is that of a table."""
    for line in mapped_files():
        low, high = (int(x, 16) for x in line.split()[0].split("-"))
        if low <= address(array) and address(array) + array.nbytes <= high:
            return True
    return False


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    """Only read."""
    path = tmp_path_factory.mktemp("views") / "run"
    with ckptree.Store(path) as store:
        state = {"big": BIG, "long": LONG, "small": np.arange(3), "lr": 0.5}
        store.save(1, state).result(timeout=60)
    return path


@pytest.fixture
def own(path, tmp_path):
    """One that a test may change."""
    return shutil.copytree(path, tmp_path / "own")


def test_nothing_is_copied(path):
    with ckptree.open(path) as store:
        view = store[1]["big"].view()
        array = view.array
        assert view.zero_copy and len(view) == 1
        assert is_mapped(array) and address(array) % 64 == 0
        assert np.asarray(view) is array and np.asarray(view[0].array) is array
        assert (view.shape, view.dtype) == (BIG.shape, BIG.dtype)
        assert view.nbytes == BIG.nbytes and view.size == BIG.size
        np.testing.assert_array_equal(array, BIG)
        # A small one stands in a record, which no file has by itself.
        small = store[1]["small"].view()
        assert not small.zero_copy and not is_mapped(small.array)
        np.testing.assert_array_equal(small.array, np.arange(3))


def test_pieces_are_boxes_that_make_up_the_array(path):
    with ckptree.open(path) as store:
        view = store[1]["long"].view()
        assert len(view) == store[1]["long"].detail.chunk_count > 1
        assert view.zero_copy
        made = np.full(LONG.shape, -1, LONG.dtype)
        for index, array in view:
            assert is_mapped(array) and (made[index] == -1).all()
            np.testing.assert_array_equal(array, LONG[index])
            made[index] = array
        np.testing.assert_array_equal(made, LONG)
        for refused in (
            lambda: view.array,
            lambda: np.asarray(view, copy=False),
        ):
            with pytest.raises(ValueError, match=f"long .* {len(view)} pieces"):
                refused()
        whole = np.asarray(view)
        assert not is_mapped(whole)
        np.testing.assert_array_equal(whole, LONG)
        np.testing.assert_array_equal(np.array(view, "f8"), LONG.astype("f8"))


def test_a_view_converts_where_that_may_copy(path):
    with ckptree.open(path) as store:
        view = store[1]["big"].view()
        assert np.asarray(view, "f8").dtype == np.float64
        with pytest.raises(ValueError, match="copy"):
            np.asarray(view, "f8", copy=False)
        copied = np.array(view)
        assert copied.flags.writeable and not is_mapped(copied)
        copied[0, 0] = 7
        assert view.array[0, 0] == 0


def test_views_cannot_be_written_to(path):
    with ckptree.open(path) as store:
        views = [store[1][name].view() for name in ("big", "small")]
        views.append(store[1]["long"].view())
        for array in [p.array for view in views for p in view]:
            for one in (array, array[1:], array.reshape(-1)[::2]):
                with pytest.raises(ValueError, match="read-only"):
                    one[0] = 1
                with pytest.raises(ValueError):
                    one.flags.writeable = True


KINDS = {
    "bfloat16": np.arange(1 << 18).astype(ml_dtypes.bfloat16),
    "float8": np.arange(1 << 18).astype(ml_dtypes.float8_e4m3fn),
    "int4": (np.arange(1 << 18) % 8).astype(ml_dtypes.int4),
    "bool": np.arange(1 << 18) % 3 == 0,
    "complex": np.arange(1 << 18) * (1 - 2j),
    "swapped": np.arange(1 << 18, dtype=">i4"),
    "columns": np.asfortranarray(BIG[:512, :512]),
    "scalar": np.float32(2.5),
    "zero_d": np.array(3),
    "empty": np.zeros((0, 4), "f4"),
    "empty_columns": np.zeros((4, 0), "i2"),
}


def test_each_kind_of_array(store):
    store.save(1, KINDS).result(timeout=60)
    for name, saved in KINDS.items():
        view = store[1][name].view()
        assert view.dtype == saved.dtype.newbyteorder("="), name
        assert view.array.shape == view.shape == saved.shape
        assert view.array.dtype == view.dtype and view.array.dtype.isnative
        assert not view.array.flags.writeable
        assert view.array.tobytes() == saved.astype(view.dtype).tobytes()
        assert view.zero_copy == (saved.size > 1000), name


def test_shards_are_pieces(store):
    import jax
    from jax.sharding import NamedSharding, PartitionSpec

    mesh = jax.make_mesh((4, 2), ("a", "b"))
    sharding = NamedSharding(mesh, PartitionSpec("a", "b"))
    store.save(1, {"w": jax.device_put(BIG, sharding)}).result(timeout=60)
    view = store[1]["w"].view()
    assert len(view) == 8 and view.zero_copy
    starts = {tuple(s.start for s in index) for index, _ in view}
    assert starts == set(itertools.product(range(0, 1024, 256), (0, 512)))
    for index, array in view:
        np.testing.assert_array_equal(array, BIG[index])
    np.testing.assert_array_equal(view, BIG)


def test_what_is_no_array_is_refused_by_name(store):
    store.save(1, {"lr": 0.5, "name": "x", "w": BIG, "t": None}).result()
    for name in ("lr", "name"):
        with pytest.raises(TypeError, match=f"{name} is of .*value"):
            store[1][name].view()


def test_packed_elements_are_refused_by_name(store):
    store.save(1, {"w": np.arange(4)}).result()

    class Packed:
        kind, packed, dtype_name, shape = "array", True, "int4", (4,)
        name, dtype, tag = "packed/w", 0, ""

    leaf = ckptree.Leaf._of(store[1]._engine, Packed(), None)
    with pytest.raises(NotImplementedError, match="packed/w.*int4"):
        leaf.view()


def test_tied_leaves_have_one_memory(store):
    store.save(1, {"a": BIG, "b": BIG}).result(timeout=60)
    a, b = (store[1][name].view().array for name in "ab")
    assert address(a) == address(b)


def test_damage_is_found_before_anything_is_shown(own):
    part = LONG.reshape(-1)[2_000_000:2_001_000].tobytes()
    tables = {f: bytearray(f.read_bytes()) for f in (own / "db").glob("*.sst")}
    ((table, content),) = [t for t in tables.items() if part in t[1]]
    content[content.find(part)] ^= 1
    table.write_bytes(content)  # Nothing has it mapped.
    with ckptree.open(own) as store:
        with pytest.raises(ckptree.CorruptionError, match="long"):
            store[1]["long"].view()
        np.testing.assert_array_equal(store[1]["big"].view(), BIG)


# ---- Who outlives whom ----


def test_a_view_outlives_step_and_store(own):
    store = ckptree.Store(own)
    arrays = [store[1]["big"].view().array[1::2, 3:], store[1]["long"].view()]
    store.close()
    # Nothing holds the store any more: another writer may come.
    with ckptree.Store(own) as again:
        again.save(2, {"x": 1}).result(timeout=60)
    del store, again
    gc.collect()
    np.testing.assert_array_equal(arrays[0], BIG[1::2, 3:])
    np.testing.assert_array_equal(arrays[1], LONG)
    assert is_mapped(arrays[0])
    arrays.clear()
    gc.collect()
    assert mapped_files() == []


def test_a_view_does_not_keep_a_store_open(own):
    array = ckptree.Store(own)[1]["big"].view().array
    gc.collect()
    ckptree.CheckpointManager(own).close()  # Wants to be the first writer.
    np.testing.assert_array_equal(array, BIG)


def test_a_closed_store_gives_no_view(path):
    store = ckptree.open(path)
    leaf = store[1]["big"]
    view = leaf.view()
    store.close()
    with pytest.raises(ckptree.StateError, match="closed"):
        leaf.view()
    np.testing.assert_array_equal(view, BIG)


@pytest.mark.parametrize(
    "order",
    list(itertools.permutations(["array", "view", "step", "store"])),
    ids="-".join,
)
def test_they_go_in_any_order(path, order):
    store = ckptree.open(path)
    held = {"store": store, "step": store[1]}
    held["view"] = held["step"]["big"].view()
    held["array"] = held["view"].array[::3, 5:]
    rest = held["array"][7:9]
    del store
    for name in order:
        if name == "store":
            held[name].close()
        del held[name]
        gc.collect()
        np.testing.assert_array_equal(rest, BIG[::3, 5:][7:9])
        if "array" in held:
            np.testing.assert_array_equal(held["array"], BIG[::3, 5:])
        if "view" in held:
            np.testing.assert_array_equal(held["view"], BIG)
    del rest
    gc.collect()
    assert mapped_files() == []


def test_a_step_that_is_deleted_and_collected_stays_in_a_view(own):
    with ckptree.Store(own) as store:
        view = store[1]["big"].view()
        store.save(2, {"big": BIG + 1}).result(timeout=60)
        before = sum(f.stat().st_size for f in (own / "db").glob("*.sst"))
        store.delete(1)
        gc.collect()  # The step that was opened.
        report = store.collect(min_dead_fraction=0)
        after = sum(f.stat().st_size for f in (own / "db").glob("*.sst"))
        assert report.kept == [] and after < before - LONG.nbytes
        np.testing.assert_array_equal(view, BIG)
        assert any("(deleted)" in line for line in mapped_files())
        np.testing.assert_array_equal(store[2]["big"].view(), BIG + 1)
        assert store.verify().ok
    np.testing.assert_array_equal(view, BIG)


def test_a_store_that_is_removed_stays_in_a_view(own):
    with ckptree.open(own) as store:
        view = store[1]["big"].view()
    shutil.rmtree(own)
    np.testing.assert_array_equal(view, BIG)


def output_of(code, path):
    done = run(code, path)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.split()


def test_views_in_a_forked_child(own):
    code = """
import gc, os, sys, ckptree
store = ckptree.Store(sys.argv[1])
leaf = store[1]["big"]
view = leaf.view()
array = view.array[1:]
child = os.fork()
if child == 0:
    print(array.sum(dtype=int), view.array[0].sum())
    try:
        leaf.view()
    except ckptree.StateError as error:
        print("fork()" in str(error))
    store.close()
    del view, store, leaf
    gc.collect()
    print(array[-1, -1])
    del array
    gc.collect()
    sys.exit(7)
print("child", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
store.close()
print(array.sum(dtype=int))
"""
    total = int(BIG[1:].sum(dtype=int))
    assert output_of(code, own) == [
        str(total),
        str(BIG[0].sum()),
        "True",
        str(BIG[-1, -1]),
        "child",
        "7",
        str(total),
    ]


@pytest.mark.parametrize("close", ["store.close()", "pass"])
@pytest.mark.parametrize(
    "hold",
    [
        "builtins.held = view.array[2:]",
        "held = [view]; held.append(held)",
        "atexit.register(lambda: print(int(view.array[0, 5])))",
        "class Late:\n    def __del__(self, view=view, print=print):\n"
        "        print(int(view.array[0, 5]))\nlate = Late()",
    ],
)
def test_views_at_the_exit_of_the_interpreter(path, hold, close):
    code = f"""
import atexit, builtins, sys, ckptree
store = ckptree.open(sys.argv[1])
view = store[1]["big"].view()
{hold}
{close}
"""
    quiet = "import warnings; warnings.simplefilter('ignore')\n"
    printed = output_of(quiet + code, path)
    assert printed == (["5"] if "print" in hold else [])


def test_views_beside_threads_that_close(path):
    code = """
import sys, threading, ckptree
errors = []
def work():
    try:
        for _ in range(20):
            store = ckptree.open(sys.argv[1])
            closer = threading.Thread(target=store.close)
            array = None
            try:
                leaf = store[1]["big"]
                closer.start()
                array = leaf.view().array
            except ckptree.StateError:
                pass
            closer.join()
            assert array is None or array[1023, 1023] == 1048575
    except BaseException as error:
        errors.append(error)
threads = [threading.Thread(target=work) for _ in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(errors)
"""
    assert output_of(code, path) == ["[]"]
