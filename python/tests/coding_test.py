# SPDX-License-Identifier: Apache-2.0
"""Stores whose arrays are coded: the same values in fewer bytes."""

import numpy as np
import pytest

import ckptree


def weights(seed):
    random = np.random.default_rng(seed)
    return {"w": random.normal(0, 0.02, (1024, 1024)).astype(np.float32)}


def test_gives_the_same_in_fewer_bytes(tmp_path):
    with ckptree.Store(tmp_path / "run", coding="planes") as store:
        store.save(1, weights(1)).result()
        usage = store.usage()
        assert usage.living_stored_bytes < 0.87 * usage.living_bytes
        one = usage.steps[0]
        assert one.unique_stored_bytes < 0.87 * one.unique_bytes
        freed = store.would_free(1)
        assert freed.stored_bytes < 0.87 * freed.nbytes
        assert store.counters().bytes_coded >= 4 << 20
        np.testing.assert_array_equal(store.restore(1)["w"], weights(1)["w"])
        np.testing.assert_array_equal(
            store[1]["w"][700, 3:9], weights(1)["w"][700, 3:9]
        )
        assert store.verify(level="deep").ok
    with ckptree.Store(tmp_path / "run", mode="read") as store:
        np.testing.assert_array_equal(store.restore(1)["w"], weights(1)["w"])


def test_packs_what_is_there(tmp_path):
    with ckptree.Store(tmp_path / "run") as store:
        for step in (1, 2, 3):
            store.save(step, weights(step)).result()
        assert store.counters().bytes_coded == 0
        assert store.collect().files_packed == 0
        assert store.collect(pack=True).files_packed >= 2
        assert store.collect(pack=True).files_packed == 0
        for step in (1, 2, 3):
            np.testing.assert_array_equal(
                store.restore(step)["w"], weights(step)["w"]
            )
        assert store.verify(level="deep").ok


def test_refuses_what_it_does_not_know(tmp_path):
    with pytest.raises(TypeError, match="coding"):
        ckptree.Store(tmp_path / "run", coding=1)
    with pytest.raises(ValueError, match="coding"):
        ckptree.Store(tmp_path / "run", coding="zstd")


def test_a_store_with_a_remote_codes_by_itself(tmp_path):
    far = {"remote": f"file://{tmp_path}/far", "durable": "remote"}
    with ckptree.Store(tmp_path / "far run", **far) as store:
        store.save(1, weights(1)).result()
        assert store.counters().bytes_coded >= 4 << 20
        # What it does anyway is no other option.
        ckptree.Store(tmp_path / "far run", coding="planes", **far).close()
        with pytest.raises(ckptree.StateError, match="coding=planes, not none"):
            ckptree.Store(tmp_path / "far run", coding="none", **far)
    with ckptree.Store(tmp_path / "again", **far) as store:
        np.testing.assert_array_equal(store.restore(1)["w"], weights(1)["w"])


def test_it_is_left_out_where_that_is_said(tmp_path):
    with ckptree.Store(
        tmp_path / "run", remote=f"file://{tmp_path}/far", coding="none"
    ) as store:
        store.save(1, weights(1)).result()
        assert store.counters().bytes_coded == 0
    with ckptree.Store(tmp_path / "alone") as store:
        store.save(1, weights(1)).result()
        assert store.counters().bytes_coded == 0
        ckptree.Store(tmp_path / "alone", coding="none").close()
