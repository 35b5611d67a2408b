# SPDX-License-Identifier: Apache-2.0
"""export_checkpoint(overwrite=True) where the name is one of a link, a pipe or
a device: links stay, and what is no file is not replaced."""

import os
import stat

import ckptree
import pytest

torch = pytest.importorskip(
    "torch", reason="PyTorch could not be installed: see requirements_torch.txt"
)
from ckptree.torch import export_checkpoint, import_checkpoint
from ckptree.torch.__main__ import main

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")

# The name, and what export_checkpoint() needs for it.
FORMATS = {
    "torch": ("m.pt", {}),
    "safetensors": ("m.safetensors", {}),
    "sharded": ("m", {"format": "safetensors"}),
    "dcp": ("m", {"format": "dcp"}),
}


@pytest.fixture
def exported(tmp_path):
    """Exports one of two steps to a name in a folder of its own."""
    for format in FORMATS.values():
        if format[0] != "m.pt":
            pytest.importorskip("safetensors")
    (tmp_path / "out").mkdir()
    with ckptree.Store(tmp_path / "store") as store:
        store.save(1, {"w": torch.ones(2)}).result()
        store.save(2, {"w": torch.full((2,), 2.0)}).result()

        def export(format, step, name=None, **more):
            usual, options = FORMATS[format]
            path = tmp_path / "out" / (name or usual)
            export_checkpoint(store, path, step=step, **options, **more)
            return path

        def found(path):
            import_checkpoint(store, path, step=9, overwrite=True)
            return store[9].torch()["w"].tolist()

        export.found = found
        yield export


@pytest.mark.parametrize("format", FORMATS)
def test_a_link_stays_and_what_it_leads_to_is_replaced(
    exported, tmp_path, format
):
    usual = FORMATS[format][0]
    there = exported(format, 1, f"there-{usual}")
    link = tmp_path / "out" / usual
    link.symlink_to(there)
    with pytest.raises(ckptree.AlreadyExistsError, match="overwrite=True"):
        exported(format, 2)
    exported(format, 2, overwrite=True)
    assert link.is_symlink() and os.readlink(link) == str(there)
    assert exported.found(there) == [2, 2]
    assert sorted(os.listdir(tmp_path / "out")) == sorted([usual, there.name])


@pytest.mark.parametrize("format", FORMATS)
def test_a_link_that_leads_nowhere_yet(exported, tmp_path, format):
    usual = FORMATS[format][0]
    there, link = tmp_path / "out" / f"new-{usual}", tmp_path / "out" / usual
    link.symlink_to(there)
    with pytest.raises(ckptree.AlreadyExistsError, match="overwrite=True"):
        exported(format, 2)
    exported(format, 2, overwrite=True)
    assert link.is_symlink() and exported.found(there) == [2, 2]
    assert sorted(os.listdir(tmp_path / "out")) == sorted([usual, there.name])
    link.unlink()
    link.symlink_to(tmp_path / "none" / usual)
    with pytest.raises(FileNotFoundError, match="no folder"):
        exported(format, 2, overwrite=True)


def test_a_link_to_an_empty_folder(exported, tmp_path):
    (tmp_path / "out" / "empty").mkdir()
    (tmp_path / "out" / "m").symlink_to("empty")
    exported("dcp", 2)
    assert exported.found(tmp_path / "out" / "empty") == [2, 2]
    assert sorted(os.listdir(tmp_path / "out")) == ["empty", "m"]


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("by_link", [False, True])
def test_a_pipe_is_not_replaced(exported, tmp_path, format, by_link):
    usual = FORMATS[format][0]
    pipe = tmp_path / "out" / ("pipe" if by_link else usual)
    os.mkfifo(pipe)
    if by_link:
        (tmp_path / "out" / usual).symlink_to(pipe)
    before = sorted(os.listdir(tmp_path / "out"))
    for more in ({}, {"overwrite": True}):
        with pytest.raises(ValueError, match="neither a file nor a folder"):
            exported(format, 2, **more)
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    assert sorted(os.listdir(tmp_path / "out")) == before


def test_a_pipe_that_came_while_the_file_was_written(
    exported, tmp_path, monkeypatch
):
    path, real = tmp_path / "out" / "m.pt", torch.save

    def save(*args):
        os.mkfifo(path)
        return real(*args)

    monkeypatch.setattr(torch, "save", save)
    with pytest.raises(ValueError, match="neither a file nor a folder"):
        exported("torch", 2, overwrite=True)
    assert stat.S_ISFIFO(path.stat().st_mode)
    assert os.listdir(tmp_path / "out") == ["m.pt"]


def test_a_shell_is_told_of_a_pipe(exported, tmp_path, capsys):
    pipe = tmp_path / "out" / "m.pt"
    os.mkfifo(pipe)
    store = str(tmp_path / "store")
    assert main(["export", store, str(pipe), "--step=2", "--overwrite"]) == 1
    assert "neither a file nor a folder" in capsys.readouterr().err
    assert stat.S_ISFIFO(pipe.stat().st_mode)
