# SPDX-License-Identifier: Apache-2.0
"""Where stores are: in directories of this machine, and nowhere else."""

import os
import pathlib
import re

import ckptree
import numpy as np
import pytest

URLS = (
    "gs://bucket/run",
    "s3://bucket/run",
    "S3://bucket/run",
    "hdfs://host/run",
    "my-files+v2.0://x/run",
    "file://host/run",
    "file://run",
)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The directory we are in; nothing may appear in it."""
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)
    yield folder
    assert list(folder.iterdir()) == []


class Remote:
    """A path of a library that has others than those of this machine."""

    def __init__(self, name):
        self.name = name

    def __fspath__(self):
        return self.name


OPENINGS = {
    "open": ckptree.open,
    "Store": ckptree.Store,
    "Store.open": ckptree.Store.open,
    "Store.create": ckptree.Store.create,
    "manager": ckptree.CheckpointManager,
    "reader": lambda path: ckptree.CheckpointManager(path, read_only=True),
}


@pytest.mark.parametrize("name", OPENINGS)
def test_no_url_becomes_a_folder(folder, name):
    for url in URLS:
        if name in ("open", "reader") and url.startswith("s3://"):
            continue  # It is read there.
        scheme = url.split("://")[0]
        for path in (url, Remote(url), os.fsencode(url)):
            with pytest.raises(
                ValueError, match=f"{re.escape(scheme)}.*this machine"
            ):
                OPENINGS[name](path)
    # pathlib has made one slash of two.
    for url in ("gs://bucket/run", "s3://bucket/run"):
        with pytest.raises(ValueError, match=f"^{url}: .*'{url[:2]}'"):
            OPENINGS[name](pathlib.Path(url))


@pytest.mark.parametrize("name", OPENINGS)
def test_an_address_without_slashes_is_no_folder(folder, name):
    for path, said in {
        "file:rel": "file:///runs/lm",
        "s3:bucket/run": "begins with s3://",
        "rados:pool": "begins with rados://",
        "s3:/bucket/run": "its remote",
        "S3://bucket/run": "lower case, s3://",
        "s4://bucket/run": "no scheme of an address: these are s3://",
    }.items():
        with pytest.raises(ckptree.InvalidArgumentError, match=said):
            OPENINGS[name](path)


TREE = {"w": np.ones(2)}


def orbax_entries():
    import ckptree.orbax as ocp
    from ckptree.orbax.experimental import v1

    steps = ocp.args
    return {
        "manager": ocp.CheckpointManager,
        "checkpointer": lambda path: ocp.StandardCheckpointer().save(
            path, TREE
        ),
        "restore": lambda path: ocp.StandardCheckpointer().restore(path),
        "metadata": lambda path: ocp.PyTreeCheckpointer().metadata(path),
        "asynchronous": lambda path: ocp.AsyncCheckpointer(
            ocp.StandardCheckpointHandler()
        ).save(path, args=steps.StandardSave(TREE)),
        "import from": lambda path: ocp.import_checkpoint(path, "here"),
        "import to": lambda path: ocp.import_checkpoint(".", path),
        "export from": lambda path: ocp.export_orbax(path, "here"),
        "export to": lambda path: ocp.export_orbax(".", path),
        "v1 save": lambda path: v1.save_pytree(path, TREE),
        "v1 load": lambda path: v1.load_pytree(path),
        "v1 training": v1.training.Checkpointer,
    }


def flax_entries():
    from ckptree.flax import checkpoints

    return {
        "save": lambda path: checkpoints.save_checkpoint(path, TREE, step=1),
        "restore": lambda path: checkpoints.restore_checkpoint(path, TREE),
        "latest": checkpoints.latest_checkpoint,
        "steps": checkpoints.available_steps,
    }


@pytest.mark.parametrize("entries", [orbax_entries, flax_entries])
def test_the_drop_ins_write_no_url_to_a_folder(folder, entries):
    for name, entry in entries().items():
        for path in ("gs://bucket/run", pathlib.Path("s3://bucket/run"),
                     Remote("my-files://x/run")):
            scheme = os.fspath(path).split(":")[0]
            with pytest.raises(ValueError, match=f"'{scheme}'"):
                entry(path)
                pytest.fail(f"{name} took {path}")
        with pytest.raises(ValueError, match="file:///runs/lm"):
            entry("file:rel")
            pytest.fail(f"{name} took file:rel")
        with pytest.raises(ValueError, match="^s4://b/x: 's4' is no scheme"):
            entry("s4://b/x")
            pytest.fail(f"{name} took s4://b/x")


def test_a_url_of_a_file_is_its_path(tmp_path):
    folder = tmp_path / "a b%41"
    url = "file://" + str(tmp_path) + "/a%20b%2541"
    with ckptree.Store(url) as store:
        store.save(1, {"n": 7}).result(timeout=60)
        assert store.path == str(folder)
    for path in (url, url.replace("file", "FILE", 1), pathlib.Path(url)):
        with ckptree.open(path) as store:
            assert store.restore(1) == {"n": 7}
    with ckptree.CheckpointManager(url) as manager:
        assert manager.path == str(folder) and manager.latest_step() == 1
    with ckptree.open(folder) as store:
        assert store.restore(1) == {"n": 7}
    assert [p.name for p in tmp_path.iterdir()] == ["a b%41"]


def test_a_tilde_is_not_made_a_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in OPENINGS:
        for path in ("~", "~/run", pathlib.Path("~/run")):
            with pytest.raises(ValueError, match=r"expanduser\(\)"):
                OPENINGS[name](path)
    assert list(tmp_path.iterdir()) == []
    with ckptree.Store(tmp_path / "~run") as store:  # A name.
        assert store.steps() == []


def test_names_that_only_look_like_urls_are_folders(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = [
        "./gs:/run",
        "a:b",
        "run:1/x",
        "://x",
        "1s3://x",
        "a b://c",
        "./s3:x",
        "az:x",
    ]
    for name in names:
        pathlib.Path(name).parent.mkdir(parents=True, exist_ok=True)
        with ckptree.Store(name) as store:
            store.save(1, {"name": name}).result(timeout=60)
    for name in names:
        with ckptree.open(tmp_path / name) as store:
            assert store.restore(1) == {"name": name}
