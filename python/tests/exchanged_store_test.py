# SPDX-License-Identifier: Apache-2.0
"""A reader at whose path another store, or an older copy of its own, stands by
now is told so, and shows nothing of that one."""

from __future__ import annotations

import os
import shutil

import numpy as np
import pytest

import ckptree


def make(path, steps):
    with ckptree.Store(path) as store:
        for step in steps:
            store.save(step, {"w": np.full(5000, step)}).result()


def point(link, to):
    link.unlink(missing_ok=True)
    os.symlink(to, link)


def test_a_link_that_leads_to_another_store(tmp_path):
    make(tmp_path / "a", range(1, 6))
    make(tmp_path / "b", range(1, 4))
    current = tmp_path / "current"
    point(current, tmp_path / "a")
    with ckptree.open(current) as reader, ckptree.open(tmp_path / "b") as b:
        point(current, tmp_path / "b")
        for _ in range(2):
            with pytest.raises(ckptree.StateError, match="another store") as e:
                reader.refresh()
            assert str(current) in str(e.value)
            assert b.info().uuid in str(e.value)
        point(current, tmp_path / "a")
        reader.refresh()
        assert [info.step for info in reader.steps()] == [1, 2, 3, 4, 5]
        assert (reader[5]["w"][:] == 5).all()


def test_an_older_copy_at_its_path(tmp_path):
    run = tmp_path / "run"
    make(run, [1, 2])
    shutil.copytree(run, tmp_path / "backup")
    make(run, [3])
    with ckptree.open(run) as reader:
        os.rename(run, tmp_path / "old")
        os.rename(tmp_path / "backup", run)
        with pytest.raises(ckptree.StateError, match="older copy"):
            reader.refresh()
