# SPDX-License-Identifier: Apache-2.0
"""Very many small arrays of JAX that are alike are restored as few, and nobody
can tell."""

import gc

import ckptree
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from ckptree.adapters import jax_alike
from jax.sharding import Mesh, NamedSharding, PartitionSpec

DTYPES = """bool int4 uint4 int8 int32 uint8 uint32 float16 bfloat16 float32
    complex64 float8_e4m3fn float8_e5m2""".split()
COUNT = 300  # Of each; no multiple of what is sent at once.


@pytest.fixture(autouse=True)
def few_are_many(monkeypatch):
    monkeypatch.setattr(jax_alike, "_ALIKE_AT_LEAST", COUNT)
    # Several reads for each shape.
    monkeypatch.setattr(jax_alike, "_BYTES_AT_ONCE", 4096)


@pytest.fixture
def groups(monkeypatch):
    """The sizes of those that are restored so."""
    found = []
    real = jax_alike.load

    def load(step, requests, group, arrays):
        found.append(len(group))
        real(step, requests, group, arrays)

    monkeypatch.setattr(jax_alike, "load", load)
    return found


def scalars(dtype, count=COUNT, place=None):
    return [
        jax.device_put(np.array(i % 2 + i // 100).astype(dtype), place)
        for i in range(count)
    ]


def rows(dtype, count=COUNT):
    numbers = np.arange(6 * count).reshape(count, 2, 3) % 7
    return [jax.device_put(row.astype(dtype)) for row in numbers]


def assert_same(a, b):
    assert (a.dtype, a.shape, a.weak_type) == (b.dtype, b.shape, b.weak_type)
    assert a.sharding == b.sharding and a.committed == b.committed
    assert np.asarray(a).tobytes() == np.asarray(b).tobytes()


def assert_restored(store, state, like=None):
    store.save(1, state, overwrite=True).result(timeout=60)
    restored = store.restore(1, like=state if like is None else like)
    kept, made = jax.tree.leaves(state), jax.tree.leaves(restored)
    assert len(kept) == len(made)
    for a, b in zip(kept, made):
        assert_same(a, b)
    return restored


@pytest.mark.parametrize("name", DTYPES)
def test_elements_of_every_type(store, groups, name):
    dtype = jnp.dtype(name)
    assert_restored(store, {"scalars": scalars(dtype), "rows": rows(dtype)})
    assert groups == [COUNT, COUNT]


def test_abstract_templates(store, groups):
    state = {"w": rows("f4"), "b": scalars("i4")}
    assert_restored(store, state, jax.eval_shape(lambda: state))
    assert groups == [COUNT, COUNT]


def test_places(store, groups):
    last = jax.devices()[-1]
    mesh = Mesh(np.array(jax.devices()), "a")
    spread = NamedSharding(mesh, PartitionSpec())
    state = {
        "anywhere": scalars("f4"),
        "last": scalars("f4", place=last),
        "spread": scalars("f4", place=spread),
    }
    restored = assert_restored(store, state)
    assert groups == [COUNT, COUNT]
    assert restored["last"][7].devices() == {last}
    assert len(restored["spread"][7].devices()) == 8
    moved = store.restore(1, like=state, sharding=spread)
    assert all(a.sharding == spread for a in jax.tree.leaves(moved))
    assert_same(moved["last"][5], state["spread"][5])


def test_others_are_beside_them(store, groups):
    weak = [jnp.asarray(float(i)) for i in range(COUNT)]
    assert weak[0].weak_type
    state = {
        "many": scalars("f4"),
        "few": rows("f4", COUNT - 1),
        "weak": weak,
        "empty": [jnp.zeros((0, 2)) for _ in range(COUNT)],
        "large": [jnp.full((64, 32), i, "i4") for i in range(8)],
    }
    restored = assert_restored(store, state | {"key": rows("u4", 2)})
    assert groups == [COUNT]
    # 2.0 and 3.0 are of other types for JAX where they are not weak.
    half = jnp.ones((), jnp.bfloat16)
    assert (half + restored["weak"][3]).dtype == jnp.bfloat16
    assert (half + restored["many"][3]).dtype == jnp.float32


def test_keys_are_no_arrays(store, groups):
    keys = list(jax.random.split(jax.random.key(3), COUNT))
    store.save(1, {"keys": keys}).result(timeout=60)
    restored = store.restore(1, like={"keys": keys})["keys"]
    assert groups == []
    assert all((a == b).all() for a, b in zip(keys, restored))


def test_other_types_are_converted_one_by_one(store, groups):
    store.save(1, {"w": scalars("f4")}).result(timeout=60)
    like = {"w": scalars("bfloat16")}
    restored = store.restore(1, like=like, cast=True)
    for a, b in zip(restored["w"], like["w"]):
        assert_same(a, b)
    assert groups == []


def test_each_can_be_donated(store, groups):
    state = {"w": rows("f4")}
    restored = assert_restored(store, state)
    add = jax.jit(lambda arrays: [x + 1 for x in arrays], donate_argnums=0)
    some, rest = restored["w"][:9], restored["w"][9:]
    expected = [np.asarray(a) + 1 for a in some]
    del restored
    gc.collect()
    for a, b in zip(add(some), expected):
        np.testing.assert_array_equal(a, b)
    for a, b in zip(rest, state["w"][9:]):
        np.testing.assert_array_equal(a, b)


def test_nothing_is_sent_in_passing(store, groups):
    state = {"w": rows("f4")}
    store.save(1, state).result(timeout=60)
    with jax.transfer_guard("disallow"):
        restored = store.restore(1, like=state)
    assert groups == [COUNT]
    for a, b in zip(restored["w"], state["w"]):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("enabled", [True, False])
def test_a_restore_leaves_the_collector_as_it_was(store, enabled):
    state = {"w": rows("f4")}
    store.save(1, state).result(timeout=60)
    try:
        (gc.enable if enabled else gc.disable)()
        store.restore(1, like=state)
        assert gc.isenabled() == enabled
        with pytest.raises(ckptree.MismatchError):
            store.restore(1, like={"v": rows("f4")})
        assert gc.isenabled() == enabled
    finally:
        gc.enable()
