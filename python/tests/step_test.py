# SPDX-License-Identifier: Apache-2.0
"""Reading a step: names, records, slices."""

import random

import ckptree
import numpy as np
import pytest


@pytest.fixture
def step(store):
    state = {
        "params": {
            "w": np.arange(2000 * 600, dtype="f4").reshape(2000, 600),
            "b": np.array([1.0, np.nan, np.inf, 0.0]),
        },
        "lr": 0.1,
        "name": "run",
        "layers": [np.zeros(2), None],
        "seed": 2**100,
        "one": np.float32(1),
    }
    store.save(
        3, state, metrics={"loss": 0.5}, note="first", metadata={"seed": [1]}
    ).result(timeout=60)
    return store[3]


NAMES = ["layers/[0]", "lr", "name", "one", "params/b", "params/w", "seed"]
PARAMS = ["params/b", "params/w"]


def test_a_step_is_a_mapping_of_leaves(step):
    assert list(step) == NAMES and len(step) == 7
    assert "lr" in step and "params" not in step and 3 not in step
    assert {k: v.name for k, v in step.items()} == {n: n for n in NAMES}
    assert step.get("no") is None
    with pytest.raises(KeyError, match="params/w"):
        step["params/ww"]
    with pytest.raises(KeyError, match="name is text that UTF-8 can hold"):
        step["\ud800"]
    with pytest.raises(KeyError, match="params/b.*partial='params/\\*\\*'"):
        step["params"]
    assert set(step.restore(partial="params/**")["params"]) == {"w", "b"}
    with pytest.raises(KeyError, match=r"leaf 'layers/0'; did .*'layers/\[0\]"):
        step["layers/0"]
    with pytest.raises(KeyError, match=r"leaf ''.*whole state; restore\(3\)"):
        step[""]
    with pytest.raises(KeyError, match="is of kind none, not a leaf"):
        step["layers/[1]"]
    with pytest.raises(TypeError, match="names"):
        step[3]


def test_statistics_without_a_finite_element(store):
    state = {"empty": np.zeros((0, 3)), "nan": np.array([np.nan, np.inf])}
    store.save(1, state).result(timeout=60)
    for row in store[1].stats():
        assert (row.min, row.max, row.l2) == (np.inf, -np.inf, 0)
        assert np.isnan([row.mean, row.std]).all()


def test_what_a_step_says_of_itself(step):
    assert (step.step, step.metrics) == (3, {"loss": 0.5})
    assert repr(step) == "<Step 3: 7 leaves>"
    assert step.info.leaf_count == 7 and step.info.note == "first"
    assert step.info.nan_count == 1 and step.info.inf_count == 1
    assert step.metadata.custom == {"seed": [1]}
    assert step.metadata.lineage["pid"].isdigit()
    assert set(step.metadata.items) == {
        "layers", "lr", "name", "one", "params", "seed",
    }


def test_what_a_leaf_says_without_reading(store, step):
    before = store.counters().bytes_read
    leaf = step["params/w"]
    assert (leaf.kind, leaf.shape, leaf.ndim) == ("array", (2000, 600), 2)
    assert (leaf.size, leaf.nbytes) == (1200000, 4800000)
    assert leaf.dtype == np.float32 and leaf.since_step == 3
    assert len(leaf.digest) == 32 and leaf.detail.chunk_count > 1
    assert leaf.stats.max == 1200000 - 1 and leaf.stats.count == 1200000
    assert step["lr"].dtype is None and step["lr"].stats is None
    bad = step["params/b"].stats
    assert (bad.nan, bad.inf, bad.zero, bad.mean) == (1, 1, 1, 0.5)
    assert store.counters().bytes_read == before


def test_leaves_and_their_statistics_by_glob(step):
    assert [leaf.name for leaf in step.leaves("params/*")] == PARAMS
    assert [leaf.name for leaf in step.leaves("re:^l")] == NAMES[:2]
    rows = step.stats("params/**")
    assert [row.name for row in rows] == PARAMS
    assert rows[0].nan == 1 and rows[1].l2 > 0
    assert rows[1]._fields[:3] == ("name", "dtype", "shape")
    with pytest.raises(ValueError):
        step.leaves("re:(")


def test_values(step):
    assert step["lr"].value() == 0.1 and step["name"].value() == "run"
    assert step["params/b"].value().shape == (4,)
    assert np.asarray(step["params/b"], dtype="f4").dtype == np.float32
    assert step["seed"].value() == 2**100
    assert type(step["one"].value()) is np.float32
    with pytest.raises(TypeError, match="lr is of kind float"):
        step["lr"].numpy()
    with pytest.raises(TypeError, match="name is of kind str"):
        step["name"][0]


def test_a_leaf_is_as_long_as_its_array(store, step):
    assert len(step["params/w"]) == 2000 and len(step["params/b"]) == 4
    for name, why in (("one", "no dimensions"), ("lr", "not an array")):
        assert step[name]  # There, whatever it is.
        with pytest.raises(TypeError, match=f"{name} .*{why}"):
            len(step[name])
    store.save(4, {"none": np.zeros((0, 3))}).result(timeout=60)
    assert len(store[4]["none"]) == 0 and store[4]["none"]


def test_slices_are_those_of_numpy(step):
    leaf = step["params/w"]
    whole = leaf.numpy()
    random.seed(11)

    def part(dim):
        choice = random.randrange(4)
        if choice == 0:
            return random.randrange(-dim, dim)
        bounds = [random.choice([None, random.randrange(-dim - 5, dim + 5)])
                  for _ in range(2)]
        steps = [None, 1, 2, 7, -1, -3]
        return slice(*bounds, random.choice(steps))

    for _ in range(200):
        # Both fit either axis, wherever the dots come to stand.
        index = [part(600), part(600)][: random.randrange(3)]
        for extra in (..., None):
            if random.random() < 0.3:
                index.insert(random.randrange(len(index) + 1), extra)
        expected = whole[tuple(index)]
        found = leaf[tuple(index)]
        assert found.shape == expected.shape, index
        np.testing.assert_array_equal(found, expected, err_msg=str(index))


def test_a_slice_reads_only_the_chunks_it_touches(store, step):
    leaf = step["params/w"]
    rows = leaf.detail.chunk_shape[0]
    before = store.counters().bytes_read
    leaf[rows // 2, :3]
    once = store.counters().bytes_read - before
    assert 0 < once <= rows * 600 * 4
    before = store.counters().bytes_read
    leaf[5:5]
    assert store.counters().bytes_read == before


@pytest.mark.parametrize(
    "index, error",
    [
        (2000, IndexError),
        ((0, 0, 0), IndexError),
        ((..., ...), IndexError),
        ([1, 2], TypeError),
        (np.zeros(2000, bool), TypeError),
        (True, TypeError),
        (1.0, TypeError),
    ],
    ids=str,
)
def test_other_indices_are_refused_by_name(step, index, error):
    with pytest.raises(error, match="^params/w: "):
        step["params/w"][index]


def test_a_deleted_step_that_is_open_stays_readable(store, step):
    store.save(4, {"a": 1}).result(timeout=60)
    store.delete(3)
    assert 3 not in store
    assert step["params/w"][1999, 599] == 1200000 - 1


class _Counting:
    """A step of the engine that counts how often records are asked for."""

    def __init__(self, step):
        self._step = step
        self.asked = []

    def details(self, leaves):
        self.asked.append(len(leaves))
        return self._step.details(leaves)

    def __getattr__(self, name):
        return getattr(self._step, name)


def test_records_of_many_leaves_are_read_at_once_and_not_before(tmp_path):
    with ckptree.Store(tmp_path / "run") as store:
        store.save(1, {f"w{i}": np.full(3, i) for i in range(20)}).result()
        step = store[1]
        step._engine = counting = _Counting(step._engine)
        leaves = step.leaves()
        names = [(leaf.name, leaf.dtype, leaf.shape) for leaf in leaves]
        assert len(names) == 20 and counting.asked == []
        assert [leaf.stats.max for leaf in reversed(leaves)] == [
            float(leaf.name[1:]) for leaf in reversed(leaves)
        ]
        assert counting.asked == [20]
        assert [leaf.detail for leaf in leaves] == [
            step[leaf.name].detail for leaf in leaves
        ]
        assert counting.asked == [20] + 20 * [1]


def test_a_leaf_is_gone_through_as_numpy_does_it(tmp_path):
    rows, wide = np.arange(6.0).reshape(3, 2), np.zeros((0, 4))
    with ckptree.Store(tmp_path / "run") as store:
        state = {"rows": rows, "wide": wide, "one": np.float32(2), "n": 5}
        store.save(1, state | {"scalar": np.array(3.0)}).result(timeout=60)
        step = store[1]
        assert [row.tolist() for row in step["rows"]] == rows.tolist()
        assert list(step["wide"]) == []
        for name in ("one", "scalar", "n"):
            with pytest.raises(TypeError, match=name):
                list(step[name])


def test_a_key_that_needs_quotes_is_advised(tmp_path):
    with ckptree.Store(tmp_path / "run") as store:
        keys = {"w": 1, "w<b>": 2, "a b": 3}
        store.save(1, {"params": keys}).result(timeout=60)
        step = store[1]
        for key in ("w<b>", "a b"):
            with pytest.raises(KeyError, match="did you mean") as raised:
                step[f"params/{key}"]
            assert f"'params/\"{key}\"'" in str(raised.value)
            assert step[f'params/"{key}"'].value() == keys[key]
            assert f"params/{key}" not in step
        with pytest.raises(KeyError, match="no leaf 'x y'"):
            step["x y"]
        with pytest.raises(ValueError, match="'params/a b'"):
            store.history("params/a b")
