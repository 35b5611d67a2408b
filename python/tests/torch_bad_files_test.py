# SPDX-License-Identifier: Apache-2.0
"""Files and folders of other formats that are cut, lie, or would execute code;
and calls that cannot be meant: refused by name, and nothing is left."""

import io
import json
import os
import pickle
import struct
import zipfile

import ckptree
import pytest
from program import run

torch = pytest.importorskip(
    "torch", reason="PyTorch could not be installed: see requirements_torch.txt"
)
safetensors_torch = pytest.importorskip(
    "safetensors.torch",
    reason="safetensors could not be installed: see requirements_torch.txt",
)

import torch.distributed.checkpoint as dcp
from ckptree.torch import export_checkpoint, import_checkpoint

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")

FORMATS = {
    "torch": ("m-1.pt", {}),
    "dcp": ("m-1", {"format": "dcp"}),
    "safetensors": ("m-1.safetensors", {}),
    "shards": ("m-1", {"max_shard_bytes": 48}),
}


class Harmful:
    """Makes a folder where it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (self.path,)


def test_nothing_of_a_file_is_executed(store, tmp_path):
    harm = str(tmp_path / "harm")
    torch.save({"x": Harmful(harm)}, tmp_path / "a-1.pt")
    torch.load(tmp_path / "a-1.pt", weights_only=False)
    os.rmdir(harm)  # It would.
    dcp.save({"x": 1}, checkpoint_id=tmp_path / "dcp-1")
    dcp.save({"x": Harmful(harm)}, checkpoint_id=tmp_path / "object-1")
    hostile = pickle.dumps(Harmful(harm))
    (tmp_path / "dcp-1" / ".metadata").write_bytes(hostile)
    # Pickles without an archive around them, as before PyTorch 1.6.
    (tmp_path / "b-1.pt").write_bytes(hostile)
    torch.save(
        {"x": Harmful(harm)},
        tmp_path / "c-1.pt",
        _use_new_zipfile_serialization=False,
    )
    (tmp_path / "d-1.pt").write_bytes(pickle.dumps(Harmful(harm), 0))
    for name in ("a-1.pt", "b-1.pt", "c-1.pt", "d-1.pt", "dcp-1", "object-1"):
        with pytest.raises(ckptree.UnsupportedError, match="mkdir") as error:
            import_checkpoint(store, tmp_path / name)
        assert name in str(error.value)
        # No advice to execute it.
        assert "weights_only" not in str(error.value)
        assert "\n" not in str(error.value)
    assert len(store) == 0
    assert not os.path.exists(harm)


@pytest.mark.parametrize("archive", [True, False])
def test_nothing_of_a_tensor_is_executed(store, tmp_path, archive):
    harm = str(tmp_path / "harm")
    folder = tmp_path / "dcp-1"
    dcp.save({"w": torch.ones(3)}, checkpoint_id=folder)
    stream = io.BytesIO()
    if archive:
        torch.save(Harmful(harm), stream)
    else:
        pickle.dump(Harmful(harm), stream)
    metadata = pickle.loads((folder / ".metadata").read_bytes())
    for info in metadata.storage_data.values():
        file = folder / info.relative_path
        info.offset = file.stat().st_size
        info.length = len(stream.getvalue())
        file.write_bytes(file.read_bytes() + stream.getvalue())
    (folder / ".metadata").write_bytes(pickle.dumps(metadata))
    with pytest.raises(
        ckptree.CorruptionError, match="objects that are more than arrays"
    ) as error:
        import_checkpoint(store, folder)
    # No advice to execute it.
    assert "weights_only" not in str(error.value)
    assert "\n" not in str(error.value)
    assert not os.path.exists(harm)


def changed(path, name, change):
    """Of the one entry of a folder of DCP: its archive with another record."""
    dcp.save({name: torch.full((9,), 7.0)}, checkpoint_id=path)
    metadata = pickle.loads((path / ".metadata").read_bytes())
    (info,) = metadata.storage_data.values()
    file = path / info.relative_path
    stream = io.BytesIO(file.read_bytes()[info.offset :][: info.length])
    change(stream)
    info.offset, info.length = 3, len(stream.getvalue())
    file.write_bytes(b"..." + stream.getvalue() + b"behind it")
    (path / ".metadata").write_bytes(pickle.dumps(metadata))


def another(stream):
    with zipfile.ZipFile(stream) as archive:
        records = {name: archive.read(name) for name in archive.namelist()}
    stream.truncate(0)
    with zipfile.ZipFile(stream, "w") as archive:
        for name, data in records.items():
            is_data = name.endswith("data/0")
            archive.writestr(name, data[:8] if is_data else data)
        archive.writestr("archive/more", bytes(99))


def flip(stream):
    at = stream.getvalue().index(struct.pack("<2f", 7, 7)) + 5
    stream.getbuffer()[at] ^= 1


class Vast:
    def __reduce__(self):
        return bytearray, (2**40,)


def vast(stream):
    stream.truncate(0)
    stream.seek(0)
    torch.save(Vast(), stream)


@pytest.mark.parametrize(
    "change, said",
    [
        (another, "w: the record archive/data/0 has 8 bytes"),
        (flip, "w: the bytes of the record archive/data/0 are not those"),
        (vast, "w: it calls builtins.bytearray with the number of its bytes"),
    ],
)
def test_records_in_a_folder_of_dcp(store, tmp_path, change, said):
    changed(tmp_path / "dcp-1", "w", change)
    kinds = (ckptree.CorruptionError, ckptree.UnsupportedError)
    with pytest.raises(kinds, match=said) as error:
        import_checkpoint(store, tmp_path / "dcp-1")
    assert str(tmp_path / "dcp-1") in str(error.value)
    assert len(store) == 0


def test_an_object_of_dcp_that_asks_for_any_memory(store, tmp_path):
    dcp.save({"x": Vast(), "w": torch.ones(1)}, checkpoint_id=tmp_path / "d-1")
    with pytest.raises(ckptree.UnsupportedError, match="x: it calls .*bytea"):
        import_checkpoint(store, tmp_path / "d-1")


def test_memory_that_there_is_not_is_told_of_the_folder(
    store, tmp_path, monkeypatch
):
    def load(*_, **__):
        raise MemoryError

    dcp.save({"w": torch.ones(1)}, checkpoint_id=tmp_path / "d-1")
    monkeypatch.setattr(torch, "load", load)
    with pytest.raises(ckptree.NoSpaceError, match="d-1: .*memory"):
        import_checkpoint(store, tmp_path / "d-1")


def test_a_shell_is_told_and_nothing_is_left(tmp_path, capfd):
    from ckptree.torch.__main__ import main

    harm = str(tmp_path / "harm")
    torch.save({"x": Harmful(harm)}, tmp_path / "a-1.pt")
    torch.save({"x": torch.ones(3), "y": [{1, 2}]}, tmp_path / "b-1.pt")
    whole = (tmp_path / "b-1.pt").read_bytes()
    (tmp_path / "c-1.pt").write_bytes(whole[: len(whole) // 2])
    for name, said in (("a", "mkdir"), ("b", "y/[0]"), ("c", "damaged")):
        new = tmp_path / f"store-{name}"
        path = str(tmp_path / f"{name}-1.pt")
        assert main(["import", path, str(new)]) == 1
        error = capfd.readouterr().err
        assert said in error and error.count("\n") == 1, error
        if name != "b":
            assert not new.exists()
    assert not os.path.exists(harm)
    # A folder that was there is as it was, with files of others in it, too.
    there = tmp_path / "there"
    there.mkdir()
    for names in ([], ["config.yaml"]):
        for name in names:
            (there / name).write_text("mine")
        assert main(["import", str(tmp_path / "c-1.pt"), str(there)]) == 1
        assert [p.name for p in there.iterdir()] == names
    assert (there / "config.yaml").read_text() == "mine"
    torch.save({"x": torch.ones(3)}, tmp_path / "d-1.pt")
    assert main(["import", str(tmp_path / "d-1.pt"), str(there)]) == 0
    assert main(["import", str(tmp_path / "c-1.pt"), str(there)]) == 1
    with ckptree.open(there) as store:
        assert len(store) == 1


# ---- What is cut, lies, or is not there ----


def header(path):
    data = path.read_bytes()
    count = int.from_bytes(data[:8], "little")
    return json.loads(data[8 : 8 + count]), data[8 + count :]


def with_header(path, head, data):
    text = json.dumps(head).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def lie(change):
    """Changes the header of a file of safetensors."""

    def do(path):
        head, data = header(path)
        with_header(path, change(head), data)

    return do


def cut(path, keep=0.6):
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * keep)])


def index(change):
    def do(path):
        file = path / "model.safetensors.index.json"
        found = json.loads(file.read_text())
        change(path, found)
        file.write_text(json.dumps(found))

    return do


def placed(where):
    return index(lambda path, found: found["weight_map"].update(w=where))


def meta(change):
    """Changes what the .metadata of a folder of DCP says."""

    def do(path):
        file = path / ".metadata"
        found = pickle.loads(file.read_bytes())
        change(found)
        file.write_bytes(pickle.dumps(found))

    return do


def infos(found):
    return found.storage_data.values()


def moved(found):
    for info in infos(found):
        info.relative_path = "../" + info.relative_path


def longer(found):
    for info in infos(found):
        info.length = 2**40


def hole(found):
    found.state_dict_metadata["w"].size = torch.Size([8, 3])


def double(found):
    about = found.state_dict_metadata["w"]
    about.chunks = about.chunks * 2


def vast(found):
    about = found.state_dict_metadata["w"]
    about.size = torch.Size([2**40, 3])
    about.chunks[0].sizes = about.size


def unplaced(found):
    found.planner_data["w"] = ("v",)


WRONG = {
    "torch": {
        "cut": cut,
        "empty": lambda path: path.write_bytes(b""),
        "something else": lambda path: path.write_bytes(b"hello" * 99),
    },
    "safetensors": {
        "cut": cut,
        "empty": lambda path: path.write_bytes(b""),
        "header of 2**60 bytes": lambda path: path.write_bytes(
            struct.pack("<Q", 2**60) + b"{}"
        ),
        "shape of 2**62": lie(
            lambda h: {**h, "w": {**h["w"], "shape": [2**62, 2**62]}}
        ),
        "offsets beyond the end": lie(
            lambda h: {**h, "w": {**h["w"], "data_offsets": [0, 2**50]}}
        ),
        "negative offsets": lie(
            lambda h: {**h, "w": {**h["w"], "data_offsets": [-1, 47]}}
        ),
        "two in one place": lie(lambda h: {**h, "u": h["w"]}),
        "unknown type": lie(lambda h: {**h, "w": {**h["w"], "dtype": "X1"}}),
    },
    "shards": {
        "a file elsewhere": placed("../m.safetensors"),
        "an absolute file": placed("/etc/passwd"),
        "no name": placed(""),
        "the folder": placed(".."),
        "no text": placed(3),
        "a file that is not there": placed("model-00009-of-00002.safetensors"),
        "another file": index(
            lambda p, f: f["weight_map"].update(w=f["weight_map"]["v"])
        ),
        "a tensor less": index(lambda p, f: f["weight_map"].pop("w")),
        "a tensor more": index(
            lambda p, f: f["weight_map"].update(x=f["weight_map"]["v"])
        ),
        "no map": index(lambda p, f: f.pop("weight_map")),
        "no index": lambda p: (p / "model.safetensors.index.json").unlink(),
        "no JSON": lambda p: (p / "model.safetensors.index.json").write_text(
            "{"
        ),
        "an index too deep": lambda p: (
            p / "model.safetensors.index.json"
        ).write_text("[" * 100_000),
        "a shard that is cut": lambda p: cut(
            p / "model-00001-of-00002.safetensors"
        ),
    },
    "dcp": {
        "cut": lambda path: cut(path / "__0_0.distcp", 0.9),
        "no file": lambda path: (path / "__0_0.distcp").unlink(),
        "cut metadata": lambda path: cut(path / ".metadata"),
        "empty metadata": lambda path: (path / ".metadata").write_bytes(b""),
        "other metadata": lambda path: (path / ".metadata").write_bytes(
            pickle.dumps({"a": 1})
        ),
        "a file elsewhere": meta(moved),
        "longer": meta(longer),
        "negative": meta(lambda f: vars([*infos(f)][0]).update(offset=-9)),
        "a hole": meta(hole),
        "a chunk twice": meta(double),
        "2**40 rows in 48 bytes": meta(vast),
        "no place": meta(unplaced),
        "no storage": meta(lambda found: found.storage_data.clear()),
    },
}


@pytest.mark.parametrize(
    "format, what",
    [(format, what) for format in WRONG for what in WRONG[format]],
)
def test_what_is_wrong_is_named_and_leaves_nothing(tmp_path, format, what):
    name, options = FORMATS[format]
    state = {"w": torch.arange(12.0).view(4, 3), "v": torch.ones(1)}
    with ckptree.Store(tmp_path / "run") as store:
        store.save(7, state).result()
        path = export_checkpoint(store, tmp_path / name, **options)
        WRONG[format][what](path)
        kinds = (ckptree.CorruptionError, ValueError, NotImplementedError)
        with pytest.raises(kinds) as error:
            import_checkpoint(store, path, step=1)
        assert str(path) in str(error.value)
        assert [info.step for info in store.steps()] == [7]
        assert store.verify("deep").ok


def test_a_few_bytes_do_not_ask_for_all_the_memory(store, tmp_path):
    path = tmp_path / "m-1.pt"
    one = torch.ones(1)
    # More than can be reserved; where it can be, the test would end by that.
    for vast in (
        {"v": one, "model": [{"mask": one.expand(2**44)}]},
        {"v": one, "model": [{"mask": one.as_strided((2**43, 2), (0, 0))}]},
    ):
        torch.save(vast, path)
        with pytest.raises(ckptree.UnsupportedError) as error:
            import_checkpoint(store, path)
        assert "m-1.pt: model/[0]/mask has 4 bytes there" in str(error.value)
        assert str(2**46) in str(error.value)
    assert len(store) == 0
    # What is small, or no larger than its file, comes as it is.
    kept = {"a": one.expand(1000, 3), "b": torch.arange(6.0).expand(2, 6)}
    torch.save(kept, path)
    import_checkpoint(store, path)
    found = store.restore(1)
    assert found["a"].shape == (1000, 3) and (found["a"] == 1).all()
    assert found["b"].tolist() == [[0.0, 1.0, 2.0, 3.0, 4.0, 5.0]] * 2


def test_names_that_no_step_can_have(store, tmp_path):
    for name in ("x" * 5000, "\ud800"):
        torch.save({name: torch.ones(2)}, tmp_path / "m-1.pt")
        with pytest.raises(ValueError, match="4096|UTF-8"):
            import_checkpoint(store, tmp_path / "m-1.pt")
    assert len(store) == 0


def test_a_store_that_another_process_has_begun_stays(tmp_path):
    from ckptree.torch import __main__ as command

    made = tmp_path / "run"
    with ckptree.Store(made):
        command._remove_empty(made)  # Somebody writes to it.
    assert made.is_dir()
    with ckptree.Store(made) as store:
        store.save(1, {"w": 1}).result()
        store.fork(1, "trial")
        store.save(2, {"w": 2}, branch="trial").result()
        store.delete(1)
    command._remove_empty(made)
    with ckptree.open(made) as store:
        assert store.restore("trial/2") == {"w": 2}
    ckptree.Store(tmp_path / "empty").close()
    command._remove_empty(tmp_path / "empty")
    assert not (tmp_path / "empty").exists()


def test_a_list_that_contains_itself(store, tmp_path):
    ring = [torch.ones(2)]
    ring.append({"again": ring})
    torch.save({"m": {"ring": ring}}, tmp_path / "m-1.pt")
    with pytest.raises(ckptree.UnsupportedError, match="m/ring.* itself"):
        import_checkpoint(store, tmp_path / "m-1.pt")
    assert len(store) == 0
    shared = [torch.ones(2)]
    torch.save({"a": shared, "b": shared}, tmp_path / "m-1.pt")
    import_checkpoint(store, tmp_path / "m-1.pt")
    assert store[1]["a/[0]"].shape == store[1]["b/[0]"].shape == (2,)


def test_lists_that_stand_in_each_other_again_and_again(store, tmp_path):
    """2**60 leaves of some hundred bytes, and ten thousand lists deep."""
    again = [torch.ones(1)]
    for _ in range(60):
        again = [again, again]
    torch.save({"m": again}, tmp_path / "m-1.pt")
    with pytest.raises(ckptree.UnsupportedError, match=f"m-1.* {2**60} leave"):
        import_checkpoint(store, tmp_path / "m-1.pt")
    torch.save({"w": torch.ones(1)}, tmp_path / "m-1.pt")
    with zipfile.ZipFile(tmp_path / "m-1.pt") as archive:
        records = {name: archive.read(name) for name in archive.namelist()}
    deep = b"\x80\x02}X\x01\x00\x00\x00d" + b"]" * 10000 + b"a" * 9999 + b"s."
    with zipfile.ZipFile(tmp_path / "m-1.pt", "w") as archive:
        for name, data in records.items():
            archive.writestr(name, deep if name.endswith(".pkl") else data)
    with pytest.raises(ckptree.UnsupportedError, match="m-1.pt: .*too deep"):
        import_checkpoint(store, tmp_path / "m-1.pt")
    assert len(store) == 0


def test_what_no_file_can_hold_is_named(store, tmp_path):
    state = {
        "m": {"w": torch.ones(2), "a.b": torch.ones(1)},
        "twice": {"a.b": torch.ones(1), "a": {"b": torch.ones(2)}},
        "lr": 0.5,
        "wide": {"c": torch.ones(2, dtype=torch.complex128)},
        "meta": {"__metadata__": torch.ones(1)},
        "sparse": {"s": torch.ones(2).to_sparse()},
        "none": {"w": torch.ones(1), "n": None, "e": {}},
    }
    store.save(1, state).result()
    path = tmp_path / "m.safetensors"
    for item, said in {
        "": "not these: lr, none/e",
        "lr": "not these: lr",
        "twice": "'a.b'",
        "wide": "wide/c.*complex128",
        "meta": "__metadata__",
        "sparse": "not these: sparse/s",
        "none": "not these: none/e, none/n",
        "nothing": "no item 'nothing'",
    }.items():
        with pytest.raises((ValueError, KeyError), match=said):
            export_checkpoint(store, path, item=item)
    assert os.listdir(tmp_path) == ["store"]
    export_checkpoint(store, path, item="m")
    found = safetensors_torch.load_file(path)
    assert found.keys() == state["m"].keys()


@pytest.mark.parametrize(
    "name, options, said",
    [
        ("m", {}, "which format"),
        ("m.txt", {}, "which format"),
        ("m.pt", {"max_shard_bytes": 5}, "format='torch'"),
        ("m.safetensors", {"max_shard_bytes": 5}, "name a folder"),
        ("m.pt", {"metadata": {"a": "b"}}, "metadata is of"),
        ("no/m.pt", {}, "there is no folder"),
        ("store", {"format": "dcp"}, "overwrite"),
        ("store", {"format": "dcp", "overwrite": True}, "no file of such"),
    ],
)
def test_outputs_that_cannot_be_meant(store, tmp_path, name, options, said):
    store.save(1, {"w": torch.ones(2)}).result()
    with pytest.raises((ValueError, OSError), match=said):
        export_checkpoint(store, tmp_path / name, **options)
    assert store.restore(1)["w"].tolist() == [1, 1]


def test_inputs_that_cannot_be_meant(store, tmp_path):
    def refused(said, name, **options):
        with pytest.raises((ValueError, OSError), match=said):
            import_checkpoint(store, tmp_path / name, **options)

    torch.save({"w": torch.ones(2)}, tmp_path / "model.pt")
    torch.save(torch.ones(2), tmp_path / "tensor-1.pt")
    (tmp_path / "notes.txt").write_text("x")
    (tmp_path / "none").mkdir()
    (tmp_path / "runs" / "a-5").mkdir(parents=True)
    (tmp_path / "runs" / "b-5").mkdir()
    for run in ("a-5", "b-5"):
        torch.save({"w": torch.ones(2)}, tmp_path / "runs" / run / "m.pt")
    (tmp_path / "two").mkdir()
    for suffix in ("pt", "bin"):
        torch.save({"w": torch.ones(2)}, tmp_path / "two" / f"m.{suffix}")
    refused("no file or folder", "gone.pt")
    refused("pass step=", "model.pt")
    refused("pass format=", "notes.txt", step=1)
    refused("holds one Tensor", "tensor-1.pt")
    refused("holds no checkpoint", "none", step=1)
    refused("may both be step 5", "runs")
    refused("both be the item 'm'", "two", step=1)
    refused("is a folder", "two", step=1, format="torch")
    refused("DCP has folders", "model.pt", step=1, format="dcp")
    assert len(store) == 0
    assert import_checkpoint(store, tmp_path / "tensor-1.pt", item="w") == [1]
    skip = ["*.bin"]
    assert import_checkpoint(store, tmp_path / "two", step=2, skip=skip) == [2]
    torch.save({"w": torch.ones(2)}, tmp_path / "runs" / "c-7.pt")
    refused("no checkpoint of step 6", "runs", step=6, skip=["b-*"])
    refused("several", "runs", metrics={"loss": 1.0}, skip=["b-*"])


def test_a_raw_export_is_told_as_such(store, tmp_path):
    """Its files end as those of PyTorch may."""
    raw = tmp_path / "raw-1"
    raw.mkdir()
    (raw / "index.json").write_text('{\n  "schema": "ckptree.raw/1"\n}')
    (raw / "w.bin").write_bytes(bytes(24))
    for source in (raw, tmp_path):
        with pytest.raises(ValueError, match="raw-1 .*--format raw.*npz"):
            import_checkpoint(store, source)
    # Of others there may be such a file.
    (raw / "index.json").write_text('{"schema": "mine"}')
    torch.save({"w": torch.ones(2)}, raw / "w.bin")
    assert import_checkpoint(store, raw) == [1]


def test_a_state_of_a_trainer_that_is_nested_without_end(tmp_path, capsys):
    from ckptree.torch import __main__ as program

    folder = tmp_path / "checkpoint-1"
    folder.mkdir()
    torch.save({"w": torch.ones(1)}, folder / "optimizer.pt")
    (folder / "trainer_state.json").write_text("[" * 200_000)
    store = tmp_path / "store"
    assert program.main(["import", str(folder), str(store)]) == 1
    said = capsys.readouterr().err
    assert f"{folder / 'trainer_state.json'} is no JSON" in said
    assert not store.exists()


@pytest.mark.parametrize("format", ["torch", "dcp"])
def test_what_pytorch_cannot_write_to_its_end_is_named(tmp_path, format):
    """A limit stands for a full disk: a write ends before its end."""
    with ckptree.Store(tmp_path / "store") as store:
        store.save(1, {"w": torch.arange(1 << 20)}).result()
    done = run(
        "import resource, sys\n"
        "from ckptree.torch import __main__ as program\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))\n"
        "sys.exit(program.main(sys.argv[1:]))\n",
        *("export", tmp_path / "store", tmp_path / "out.pt"),
        *("--format", format),
    )
    assert done.returncode == 1, done.stderr
    last = done.stderr.splitlines()[-1]
    assert f"{tmp_path / 'out.pt'} cannot be written to its end" in last
    assert not (tmp_path / "out.pt").exists()
