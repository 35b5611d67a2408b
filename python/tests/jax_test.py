# SPDX-License-Identifier: Apache-2.0
"""States of JAX: every kind of array, on any mesh, bit by bit."""

import ckptree
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

MESHES = [(4, 2), (1, 8), (8, 1), (2, 2)]
SPECS = [("a", "b"), ("b", "a"), (None, "b"), (("a", "b"), None), (None, None)]
DTYPES = """bool int4 uint4 int8 int32 uint8 uint32 float16 bfloat16 float32
    complex64 float8_e4m3fn float8_e5m2 float8_e4m3b11fnuz""".split()


def sharding(mesh, spec=()):
    devices = np.array(jax.devices()[: mesh[0] * mesh[1]]).reshape(mesh)
    return NamedSharding(Mesh(devices, ("a", "b")), PartitionSpec(*spec))


def assert_same(a, b):
    assert isinstance(a, jax.Array)
    assert a.dtype == b.dtype and a.shape == b.shape
    assert np.asarray(a).tobytes() == np.asarray(b).tobytes()


def test_there_are_eight_devices():
    assert len(jax.devices()) == 8


@pytest.mark.parametrize("name", DTYPES)
def test_every_element_type_comes_back(round_trip, store, name):
    dtype = jnp.dtype(name)
    state = {
        "a": jnp.arange(24).reshape(4, 6).astype(dtype),
        "zero": jnp.zeros((0, 3), dtype),
        "one": jnp.ones((), dtype),
    }
    restored = round_trip(state, like=jax.eval_shape(lambda: state))
    for key in state:
        assert_same(restored[key], state[key])
    plain = store.restore()
    assert plain["a"].tobytes() == np.asarray(state["a"]).tobytes()
    assert type(plain["a"]) is np.ndarray
    assert_same(store["latest"]["a"].jax(), state["a"])


@pytest.mark.parametrize("saved_on", MESHES, ids=str)
@pytest.mark.parametrize("restored_on", MESHES, ids=str)
def test_every_mesh_fits_every_other(tmp_path, saved_on, restored_on):
    rng = np.random.default_rng(3)
    whole = rng.standard_normal((512, 192)).astype("f4")
    state = {
        f"w{i}": jax.device_put(whole + i, sharding(saved_on, spec))
        for i, spec in enumerate(SPECS)
    }
    with ckptree.Store(tmp_path / "s") as store:
        store.save(1, state).result(timeout=60)
        for first in range(len(SPECS)):
            like = {
                f"w{i}": jax.ShapeDtypeStruct(
                    whole.shape,
                    jnp.float32,
                    sharding=sharding(
                        restored_on, SPECS[(first + i) % len(SPECS)]
                    ),
                )
                for i in range(len(SPECS))
            }
            before = store.counters().bytes_read
            restored = store.restore(1, like)
            # Each byte once, for however many devices, of whatever chunks.
            read = store.counters().bytes_read - before
            assert read == whole.nbytes * len(SPECS)
            for i in range(len(SPECS)):
                assert restored[f"w{i}"].sharding == like[f"w{i}"].sharding
                assert_same(restored[f"w{i}"], whole + i)


def test_replicas_are_saved_once_and_read_once(store):
    array = jnp.arange(1 << 18, dtype=jnp.float32).reshape(512, 512)
    nbytes = array.nbytes
    everywhere = jax.device_put(array, sharding((4, 2)))
    store.save(1, {"w": everywhere}).result(timeout=60)
    assert store.step_info(1).logical_bytes == nbytes
    split = {"w": jax.device_put(array + 1, sharding((4, 2), ("a", None)))}
    store.save(2, split).result(timeout=60)
    assert store.step_info(2).logical_bytes == nbytes
    for step, spec in ((1, ()), (1, ("a", "b")), (2, ("a", None)), (2, ())):
        before = store.counters().bytes_read
        restored = store.restore(step, sharding=sharding((4, 2), spec))
        assert restored["w"].sharding.spec == PartitionSpec(*spec)
        assert store.counters().bytes_read - before <= 1.05 * nbytes
        assert_same(restored["w"], array + (step - 1))


@pytest.mark.parametrize("at_once, times", [(1 << 30, 1), (96 << 10, 4)])
def test_a_pass_takes_whole_arrays(store, monkeypatch, at_once, times):
    """Rows that were saved are read as columns: every box needs every chunk."""
    monkeypatch.setattr("ckptree.adapters.jax._BYTES_AT_ONCE_ON_CPU", 1)
    monkeypatch.setattr("ckptree.adapters.jax._BYTES_OF_ONE_ARRAY", at_once)
    whole = np.random.default_rng(3).random((512, 192), "f4")
    assert whole.nbytes == 4 * (96 << 10)
    rows, columns = sharding((8, 1), ("a",)), sharding((8, 1), (None, "a"))
    state = {name: jax.device_put(whole, rows) for name in "xyz"}
    store.save(1, state).result(timeout=60)
    before = store.counters().bytes_read
    restored = store.restore(1, sharding=columns)
    read = store.counters().bytes_read - before
    # An array beyond the limit is read in parts, as often as there are parts.
    assert read == times * 3 * whole.nbytes
    for name in state:
        assert_same(restored[name], whole)


def test_how_arrays_were_spread_is_noted(store):
    w = jnp.arange(64.0).reshape(8, 8)
    state = {
        "rows": jax.device_put(w, sharding((4, 2), (("a", "b"), None))),
        "again": {"w": jax.device_put(w, sharding((1, 8), (None, "b")))},
        "replicated": jax.device_put(w, sharding((4, 2))),
        "keys": jax.device_put(
            jax.random.split(jax.random.key(1), 8), sharding((8, 1), ("a",))
        ),
        "one": w,
        "host": np.ones(3),
    }
    store.save(1, state).result(timeout=60)
    assert store[1].shardings == {
        "again/w": ({"a": 1, "b": 8}, (None, "b")),
        "keys": ({"a": 8, "b": 1}, ("a",)),
        "replicated": ({"a": 4, "b": 2}, ()),
        "rows": ({"a": 4, "b": 2}, (("a", "b"), None)),
    }
    mesh, spec = store[1].shardings["rows"]
    assert list(mesh) == ["a", "b"] and PartitionSpec(*spec) == (
        state["rows"].sharding.spec
    )
    # On other devices it is the same array, and where there are none, too.
    moved = state | {"rows": jax.device_put(w, sharding((2, 2), ("b",)))}
    store.save(2, moved).result(timeout=60)
    assert store.diff(1, 2).changes == []
    assert store.step_info(2).new_bytes < 1000
    assert store[2].shardings["rows"] == ({"a": 2, "b": 2}, ("b",))
    np.testing.assert_array_equal(store.restore(2)["rows"], w)
    store.save(3, {"w": w}).result(timeout=60)
    assert store[3].shardings == {}


def test_a_note_of_shardings_has_a_limit(store):
    array = jax.device_put(jnp.ones(8), sharding((8, 1), ("a",)))
    names = [f"{i:04}" + "x" * 1000 for i in range(1200)]
    store.save(1, {"many": dict.fromkeys(names, array)}).result(timeout=60)
    assert store[1].shardings == {} and len(store[1]) == len(names)


def test_no_chunk_is_read_twice_for_its_boxes(store, monkeypatch):
    # Less than one of the arrays, as if they were large.
    monkeypatch.setattr("ckptree.adapters.jax._BYTES_AT_ONCE_ON_CPU", 1 << 16)
    array = jnp.arange(1 << 18, dtype=jnp.float32).reshape(512, 512)
    saved = {
        name: jax.device_put(array + i, sharding((4, 2), ("a", "b")))
        for i, name in enumerate("vw")
    }
    store.save(1, saved).result(timeout=60)
    for mesh in ((1, 8), (8, 1)):
        before = store.counters().bytes_read
        restored = store.restore(1, sharding=sharding(mesh, ("a", "b")))
        assert store.counters().bytes_read - before <= 1.05 * 2 * array.nbytes
        for name in saved:
            assert_same(restored[name], saved[name])


def test_a_sharding_for_all_or_by_name(store):
    state = {"a": jnp.ones((8, 8)), "n": [jnp.zeros((8,)), 3]}
    store.save(1, state).result(timeout=60)
    rows = sharding((8, 1), ("a",))
    one = store.restore(1, sharding=rows)
    assert one["a"].sharding == rows and one["n"][0].sharding == rows
    assert one["n"][1] == 3
    named = store.restore(1, like=state, sharding={"a": rows})
    assert named["a"].sharding == rows
    assert len(named["n"][0].sharding.device_set) == 1
    with pytest.raises(TypeError, match="sharding"):
        store.restore(1, sharding={"a": 3})
    uneven = sharding((8, 1), (None, "a"))
    with pytest.raises(ValueError, match="n/.0.: .*does not fit"):
        store.restore(1, sharding=uneven)


@pytest.mark.parametrize("what", ["scalar", "array", "key", "keys"])
def test_a_sharding_of_more_axes_than_a_leaf_has(store, what):
    leaf, spec = {
        "scalar": (jnp.float32(1), ("a",)),
        "array": (jnp.ones(8), ("a", "b")),
        "key": (jax.random.key(1), ("a",)),
        "keys": (jax.random.split(jax.random.key(1), 8), ("a", "b")),
    }[what]
    store.save(1, {"w": jnp.ones((8, 8)), "n": [leaf]}).result(timeout=60)
    spread = sharding((4, 2), spec)
    message = rf"^n/\[0\]: .*more axes \({len(spec)}\) than the leaf "
    with pytest.raises(ValueError, match=message):
        store.restore(1, sharding=spread)
    with pytest.raises(ValueError, match=message):
        store[1]["n/[0]"].jax(spread)
    # As the message advises.
    places = {"w": spread, "n": [sharding((4, 2))]}
    found = store.restore(1, sharding=places)
    assert found["w"].sharding == spread
    assert bool((found["n"][0] == leaf).all())


def test_a_sharding_of_keys_that_does_not_divide_them(store):
    keys = jax.random.split(jax.random.key(1), 7)
    store.save(1, {"k": keys}).result(timeout=60)
    with pytest.raises(ValueError, match="^k: .*does not fit shape .7,.: "):
        store.restore(1, sharding=sharding((8, 1), ("a",)))


def test_donated_memory_never_changes_under_a_save(tmp_path):
    """The step function reuses its argument's memory, while saves that lag
    behind still read it."""
    step_function = jax.jit(lambda w: w * 3 + 1, donate_argnums=0)
    expected = np.arange(1 << 20, dtype=np.uint32)
    # The first array of a state and the others are taken in two ways.
    v, w = jnp.asarray(expected), jnp.asarray(expected + np.uint32(1))
    handles = []
    with ckptree.Store(tmp_path / "s") as store:
        for step in range(30):
            handles.append((store.save(step, {"v": v, "w": w}), expected))
            v, w = step_function(v), step_function(w)
            expected = expected * np.uint32(3) + np.uint32(1)
        for step, (handle, there) in enumerate(handles):
            handle.result(timeout=120)
            restored = store.restore(step)
            np.testing.assert_array_equal(restored["v"], there)
            np.testing.assert_array_equal(
                restored["w"], there + np.uint32(3**step % 2**32)
            )


def test_donated_shards_never_change_under_a_save(store):
    spread = sharding((4, 2), ("a", "b"))
    step_function = jax.jit(
        lambda w: w * 3 + 1, donate_argnums=0, out_shardings=spread
    )
    expected = np.arange(1 << 20, dtype=np.uint32).reshape(1024, 1024)
    w = jax.device_put(expected, spread)
    for step in range(10):
        store.save(step, {"w": w})
        w = step_function(w)
    store.flush()
    for step in range(10):
        np.testing.assert_array_equal(store.restore(step)["w"], expected)
        expected = expected * np.uint32(3) + np.uint32(1)


def test_an_array_that_is_deleted_after_the_save_was_saved(store):
    v, w = jnp.arange(1 << 20), jnp.arange(1 << 20)
    handle = store.save(1, {"v": v, "w": w})
    v.delete()
    w.delete()
    handle.result(timeout=60)
    np.testing.assert_array_equal(store.restore(1)["v"], np.arange(1 << 20))
    np.testing.assert_array_equal(store.restore(1)["w"], np.arange(1 << 20))


def test_arrays_of_every_make_stand_side_by_side(round_trip):
    state = {
        "a": jnp.arange(4.0),
        "b": jax.device_put(jnp.arange(8.0), sharding((4, 2), ("a",))),
        "c": jnp.arange(4, dtype=jnp.bfloat16),
        "d": jnp.arange(6).reshape(2, 3).T,
        "e": np.float32(2),
        "f": np.arange(3),
        "g": jax.random.key(1),
        "h": jnp.arange(4.0),
    }
    restored = round_trip(state, like=state)
    for name in "abcdh":
        assert_same(restored[name], state[name])
    assert restored["e"] == 2 and type(restored["e"]) is np.float32
    np.testing.assert_array_equal(restored["f"], state["f"])
    assert restored["g"] == state["g"]


def test_what_has_no_bytes_is_refused_by_path(store):
    gone = jnp.ones(3)
    gone.delete()
    for others in ({}, {"v": jnp.ones(3)}):
        with pytest.raises(ValueError, match="^p/w: the array was deleted"):
            store.save(1, {"p": {**others, "w": gone}})
    with pytest.raises(TypeError, match="^w: .*traced"):
        jax.jit(lambda w: store.save(1, {"w": w}))(jnp.ones(3))
    with pytest.raises(TypeError, match="^w: "):
        store.save(1, {"w": jax.ShapeDtypeStruct((3,), jnp.float32)})
    assert store.steps() == []


@pytest.mark.parametrize("impl", ["threefry2x32", "rbg", "unsafe_rbg"])
def test_keys_go_on(round_trip, impl):
    key = jax.random.key(5, impl=impl)
    state = {"one": key, "many": jax.random.split(key, (2, 3))}
    like = jax.eval_shape(lambda: state)
    for template in (state, like):
        restored = round_trip(state, like=template)
        for name in state:
            assert restored[name].dtype == state[name].dtype
            np.testing.assert_array_equal(
                jax.random.key_data(restored[name]),
                jax.random.key_data(state[name]),
            )
    draws = jax.random.normal(restored["one"], (4,))
    np.testing.assert_array_equal(draws, jax.random.normal(key, (4,)))


def test_keys_are_not_arrays(store):
    store.save(1, {"k": jax.random.key(1)}).result(timeout=60)
    with pytest.raises(ckptree.MismatchError, match="k: kind differs"):
        store.restore(1, {"k": jnp.zeros(2, jnp.uint32)})
    with pytest.raises(ckptree.MismatchError, match="k: kind differs"):
        store.restore(1, {"k": jax.random.key(1, impl="rbg")})


def test_a_mismatch_lists_every_path(store):
    state = {"a": jnp.ones((2, 3)), "b": jnp.ones(3), "c": jnp.ones(1)}
    store.save(1, state).result(timeout=60)
    like = {
        "a": jnp.ones((3, 2)),
        "b": jnp.ones(3, jnp.bfloat16),
        "d": jnp.ones(1),
    }
    with pytest.raises(ckptree.MismatchError) as error:
        store.restore(1, like)
    assert [(d.path, d.problem) for d in error.value.differences] == [
        ("a", "shape"), ("b", "dtype"), ("d", "missing"), ("c", "unexpected"),
    ]
    cast = store.restore(1, {"b": like["b"]}, cast=True, partial=True)
    assert_same(cast["b"], jnp.ones(3, jnp.bfloat16))


def test_partial_does_not_invent_values(store):
    store.save(1, {"a": jnp.ones(2)}).result(timeout=60)
    mine = jnp.full(3, 7.0)
    restored = store.restore(1, {"a": jnp.zeros(2), "b": mine}, partial=True)
    assert restored["b"] is mine
    like = {"a": jnp.zeros(2), "b": jax.ShapeDtypeStruct((3,), jnp.float32)}
    with pytest.raises(ckptree.MismatchError, match="b: .*no value to keep"):
        store.restore(1, like, partial=True)


def test_64_bits_are_not_cut_silently(store):
    store.save(1, {"w": np.arange(3)}).result(timeout=60)
    with pytest.raises(ValueError, match="^w: .*jax_enable_x64"):
        store.restore(1, sharding=sharding((4, 2)))
    with pytest.raises(ValueError, match="^w: "):
        store[1]["w"].jax()


def test_states_of_optax_come_back(round_trip, store):
    params = {"w": jnp.ones((3, 2)), "b": jnp.zeros(2)}
    chain = optax.chain(
        optax.clip_by_global_norm(1.0),
        optax.adamw(optax.cosine_decay_schedule(1e-3, 100)),
        optax.masked(optax.trace(0.9), {"w": True, "b": False}),
    )
    state = chain.init(params)
    for _ in range(3):
        _, state = chain.update(
            jax.tree.map(jnp.ones_like, params), state, params
        )
    like = jax.eval_shape(chain.init, params)
    restored = round_trip({"opt": state}, like={"opt": like})["opt"]
    assert jax.tree.structure(restored) == jax.tree.structure(state)
    jax.tree.map(assert_same, restored, state)
    plain = store.restore()["opt"]
    assert plain[1][0].mu["w"].shape == (3, 2) and plain[1][0].count == 3


@jax.tree_util.register_pytree_with_keys_class
class Pair:
    def __init__(self, first, second):
        self.first, self.second = first, second

    def tree_flatten_with_keys(self):
        keys = map(jax.tree_util.GetAttrKey, ("first", "second"))
        return tuple(zip(keys, (self.first, self.second))), None

    @classmethod
    def tree_unflatten(cls, _, children):
        return cls(*children)


@jax.tree_util.register_pytree_node_class
class Box:
    def __init__(self, *content):
        self.content = content

    def tree_flatten(self):
        return self.content, None

    @classmethod
    def tree_unflatten(cls, _, children):
        return cls(*children)


def test_weak_scalars_stay_weak(round_trip):
    state = {
        "rate": jnp.asarray(0.1),
        "count": jnp.asarray(3),
        "w": jnp.ones(()),
    }
    assert state["rate"].weak_type
    for like in (state, jax.eval_shape(lambda: state)):
        restored = round_trip(state, like=like)
        for name, value in state.items():
            assert_same(restored[name], value)
            assert restored[name].weak_type == like[name].weak_type
    # In half precision it stays: a strong float32 would win.
    half = jnp.ones((), jnp.bfloat16) * restored["rate"]
    assert half.dtype == jnp.bfloat16


def test_pytrees_of_ones_own_come_back(round_trip, store):
    state = {"p": Pair(jnp.ones(2), [jnp.zeros(1)]), "b": Box(1, jnp.ones(3))}
    restored = round_trip(state, like=state)
    assert type(restored["p"]) is Pair and type(restored["b"]) is Box
    jax.tree.map(np.testing.assert_array_equal, restored, state)
    assert list(store["latest"]) == [
        "b/<0>",
        "b/<1>",
        "p/.first",
        "p/.second/[0]",
    ]
    assert set(store.restore()["p"]) == {"first", "second"}
    assert store.restore()["b"][0] == 1


def test_unchanged_arrays_cost_nothing(store):
    frozen = jnp.asarray(np.random.default_rng(0).random((512, 512), "f4"))
    for step in range(3):
        state = {"frozen": frozen, "w": jnp.full(10, step)}
        store.save(step, state).result(timeout=60)
    assert store.step_info(2).new_bytes < 1000 < store.step_info(0).new_bytes


def test_the_exit_with_a_save_of_jax_in_flight(tmp_path):
    import subprocess
    import sys

    code = """
import sys, ckptree
store = ckptree.Store(sys.argv[1])
import jax.numpy as jnp
store.save(1, {"w": jnp.full(1 << 23, 5.0)})
"""
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "s")],
        capture_output=True, text=True, timeout=120,
    )
    assert done.returncode == 0, done.stderr
    with ckptree.open(tmp_path / "s") as reader:
        assert (reader.restore(1)["w"] == 5).all()


@pytest.mark.parametrize("templated", [False, True])
def test_a_sharding_is_of_something_there_is(store, templated):
    state = {"a": {"w": np.arange(8.0), "b": np.ones(8)}, "c": np.ones(8)}
    store.save(1, state).result()
    options = {"like": state} if templated else {"arrays": "jax"}
    mesh = jax.make_mesh((8,), ("x",))
    split = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("x"))
    with jax.enable_x64(True):
        # One for a whole subtree, as jax.device_put() takes it.
        found = store.restore(1, sharding={"a": split}, **options)
        assert found["a"]["w"].sharding == found["a"]["b"].sharding == split
        assert found["a"]["w"].tolist() == list(range(8))
        assert len(getattr(found["c"], "devices", lambda: "1")()) == 1
        with pytest.raises(ValueError, match="sharding=.*'a/kernel'"):
            store.restore(1, sharding={"a": {"kernel": split}}, **options)
