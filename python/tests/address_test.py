# SPDX-License-Identifier: Apache-2.0
"""Addresses as people write them: those of one place are one store, and what
none can be is refused by name."""

import logging
import pathlib

import ckptree
import ckptree.orbax as ocp
import numpy as np
import pytest
from ckptree.flax import checkpoints
from ckptree.paths import place_to_read, plain_address


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


def state(step):
    return {"w": np.full(70_000, step, "f4")}


def same(found, step):
    return (found["w"] == step).all()


@pytest.mark.parametrize("name", ["far", "a b", "\u00fcbung", "100%", "%zz"])
def test_slashes_that_name_nothing_do_nothing(
    tmp_path, cache, caplog, name
):
    address = f"file://{tmp_path}/{name}"
    caplog.set_level(logging.WARNING, "ckptree")
    for step, given in enumerate(
        (f"{address}/", address, f"file:///{tmp_path}//{name}//")
    ):
        with ckptree.Store(tmp_path / "run", remote=given) as store:
            assert store.info().remote == address
            # The same one, and no other option.
            with ckptree.Store(tmp_path / "run", remote=address):
                store.save(step, state(step))
    # Nothing is told of an address that had been another one.
    assert not caplog.records
    for given in (f"{address}//", f"file:///{tmp_path}//{name}"):
        with ckptree.open(given) as store:
            assert store.path == address
            assert list(store) == [0, 1, 2]
            assert same(store.restore(1), 1)
    # By one mirror.
    assert len(list((cache / "ckptree").glob("*/*"))) == 1


def test_steps_that_left_a_disk_are_found_by_another_text(tmp_path):
    address = f"file://{tmp_path}/far"
    options = {"local_keep": "latest(1)"}
    large = np.random.default_rng(1).integers(0, 255, 3 << 20, "u1")
    with ckptree.Store(
        tmp_path / "run", remote=f"{address}/", **options
    ) as store:
        store.save(1, {"w": large})
        store.save(2, state(2))
    with ckptree.Store(tmp_path / "run", remote=address, **options) as store:
        assert store.info().far_nbytes > 0
        assert (store.restore(1)["w"] == large).all()


def test_a_url_of_pathlib_is_read(tmp_path):
    folder = tmp_path / "a b \u00fc"
    ckptree.Store(tmp_path / "run", remote=f"file://{folder}").close()
    assert place_to_read(folder.as_uri()) == f"file://{folder}"
    with ckptree.open(folder.as_uri()) as store:
        assert store.path == f"file://{folder}"
    # What would be made under another name is not.
    with pytest.raises(ckptree.InvalidArgumentError, match="escape.*letter"):
        ckptree.Store(tmp_path / "b", remote=folder.as_uri())
    assert not (tmp_path / "b").exists()
    assert sorted(path.name for path in tmp_path.glob("a*")) == [folder.name]


@pytest.mark.parametrize(
    "address",
    [
        "s3://bucket/a b",
        "s3://bucket/\u00fcbung",
        "s3://bucket/50%",
        "s3://bucket/a%20b",
        "s3://bucket//run",
        "s3://bucket/a//b",
        "s3://bucket/.run",
        "s3:///run",
        "rados://pool/a b",
        "file://relative/run",
    ],
)
def test_what_no_address_can_be_is_refused(tmp_path, address):
    with pytest.raises(ValueError):
        ckptree.Store(tmp_path / "run", remote=address)
    with pytest.raises(ValueError):
        ckptree.open(address)
    assert not (tmp_path / "run").exists()


def test_drop_ins_take_them_alike(tmp_path, cache):
    address = f"file://{tmp_path}/far"
    here = ocp.RemoteOptions()
    for step, given in enumerate((address, f"{address}//")):
        with ocp.CheckpointManager(given, remote_options=here) as manager:
            args = ocp.args.StandardSave(state(step))
            assert manager.save(step, args=args)
            manager.wait_until_finished()
            assert manager.all_steps() == list(range(step + 1))
    assert len(list((cache / "ckptree").glob("run-*"))) == 1
    found = ocp.StandardCheckpointer().restore(f"file:///{tmp_path}//far/1/")
    assert same(found, 1)
    (tmp_path / "flax").mkdir()
    below = checkpoints.directory.folder("/", "checkpoint_").name
    ckptree.Store(
        tmp_path / "seed", remote=f"file://{tmp_path}/flax/{below}"
    ).close()
    for step, slash in enumerate(("", "//")):
        run = f"file://{tmp_path}{slash}/flax{slash}"
        checkpoints.save_checkpoint(run, state(step), step, keep=2)
    assert checkpoints.available_steps(f"file://{tmp_path}/flax") == [0, 1]


def test_one_text_of_each():
    for given, plain in {
        "s3://bucket/run/": "s3://bucket/run",
        "s3://bucket//run": "s3://bucket//run",  # Which the engine refuses.
        "file:///": "file:///",
        "file:////a//b/": "file:///a/b",
        "": "",
    }.items():
        assert plain_address(given) == plain
        assert plain_address(plain) == plain
    assert place_to_read(pathlib.Path("/runs/lm")) == "/runs/lm"
