# SPDX-License-Identifier: Apache-2.0
"""Who keeps a store open: whoever can still read of it."""

import gc
import subprocess
import sys
import warnings
import weakref

import ckptree
import numpy as np
import pytest

W = np.arange(12.0).reshape(4, 3)

# Stores that nobody closes say so; that is not what is tested here.
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "run"
    with ckptree.Store(path) as store:
        state = {"w": W, "tied": W, "lr": 0.5, "layers": [W + 1, "name"]}
        store.save(7, state, metrics={"loss": 2.0}).result(timeout=60)
    return path


@pytest.fixture(params=["reader", "writer", "manager", "store of a manager"])
def opened(request, path):
    """Opens the store; nothing else holds what it returns."""
    return {
        "reader": lambda: ckptree.open(path),
        "writer": lambda: ckptree.Store(path),
        "manager": lambda: ckptree.CheckpointManager(path),
        "store of a manager": lambda: ckptree.CheckpointManager(path).store,
    }[request.param]


def read_each(step):
    gc.collect()
    assert step.info.step == 7 and step.metrics == {"loss": 2.0}
    assert {name: leaf.kind for name, leaf in step.items()}["lr"] == "float"
    np.testing.assert_array_equal(step.restore()["layers"][0], W + 1)
    assert step.metadata.items["layers"] == "tree"
    assert step.stats("w")[0].max == 11
    assert step.diff(step).changed == [] and step.blame("w")[0].since_step == 7


def test_a_step_keeps_its_store_open(opened):
    np.testing.assert_array_equal(opened()["latest"]["w"][:], W)
    read_each(opened()[7])


def test_a_leaf_keeps_its_store_open(opened):
    step = opened()["latest"]
    leaf, tied = step["w"], step["tied"]
    del step
    gc.collect()
    for one in (leaf, tied):
        np.testing.assert_array_equal(one[1:3, ::2], W[1:3, ::2])
        np.testing.assert_array_equal(one, W)
        assert one.stats.max == 11 and one.since_step == 7


def test_a_leaf_of_a_list_keeps_its_store_open(opened):
    listed = opened()["latest"].leaves("layers/**")
    gc.collect()
    assert listed[1].value() == "name"
    np.testing.assert_array_equal(listed[0].numpy(), W + 1)


def test_views_of_a_step_keep_its_store_open(opened):
    items = opened()[7].items()
    gc.collect()
    assert len(items) == 5
    each = iter(items)
    del items
    gc.collect()
    name, leaf = next(each)
    assert name == "layers/[0]"
    np.testing.assert_array_equal(leaf, W + 1)


def test_a_handle_outlives_its_store(tmp_path):
    handle = ckptree.Store(tmp_path / "new").save(1, {"w": W})
    gc.collect()
    assert handle.result(timeout=60) == 1 and handle.done()
    with ckptree.Store(tmp_path / "new") as store:  # Nobody has it any more.
        np.testing.assert_array_equal(store.restore(1)["w"], W)


def held_by(path):
    """Whether another process finds that this one writes it."""
    code = "import ckptree, sys; ckptree.Store(sys.argv[1]).close()"
    found = subprocess.run(
        [sys.executable, "-c", code, path], capture_output=True, text=True
    )
    held = f"UnavailableError: {path}" in found.stderr
    assert held or found.returncode == 0, found.stderr
    return held


def test_a_store_closes_with_its_last_leaf(path):
    store = ckptree.Store(path)
    gone = weakref.ref(store)
    leaf = store["latest"]["w"]
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        del store
        gc.collect()
        assert gone() is not None and said == []
        assert held_by(path)
        del leaf
        gc.collect()
        texts = [str(warning.message) for warning in said]
        said.clear()  # They hold what they are about.
        gc.collect()
    assert gone() is None and not held_by(path)
    assert len(texts) == 1 and "was not closed" in texts[0]
    ckptree.Store(path).close()


def test_who_closes_a_store_closes_it_for_all(path):
    store = ckptree.open(path)
    step = store[7]
    leaf = step["w"]
    store.close()
    for read in (step.restore, leaf.numpy, lambda: step["lr"]):
        with pytest.raises(ckptree.StateError, match="closed"):
            read()
