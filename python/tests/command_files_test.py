# SPDX-License-Identifier: Apache-2.0
"""The `ckptree` command on files of arrays: what NumPy and the package of
safetensors wrote comes back bit by bit through them."""

import json
import os
import struct
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import numpy as np
import pytest
from again import again

safetensors = pytest.importorskip("safetensors.numpy")

# Another build of the command than the one that is installed.
COMMAND = os.environ.get("CKPTREE_COMMAND") or (
    Path(sysconfig.get_path("scripts")) / "ckptree"
)


def run(*arguments, code=0):
    done = subprocess.run(
        [COMMAND, *map(str, arguments)], capture_output=True, text=True
    )
    assert done.returncode == code, done.stderr
    return done.stdout


def arrays():
    random = np.random.default_rng(7)
    made = {
        "scalar": np.array(2.5),
        "empty": np.zeros((3, 0), np.float32),
        "flags": np.array([True, False, True]),
        "layers.0.weight": random.normal(size=(33, 17)).astype(np.float32),
        "layers.1.weight": random.normal(size=(4, 3, 5)).astype(np.float16),
        "nan": np.array([np.nan, -0.0, np.inf], np.float64),
    }
    for dtype in "int8 int16 int32 int64 uint8 uint16 uint32 uint64".split():
        made[dtype] = random.integers(0, 100, (5, 4)).astype(dtype)
    return made


def same(found, wanted):
    assert sorted(found) == sorted(wanted)
    for name, value in wanted.items():
        assert found[name].dtype == value.dtype, name
        assert found[name].shape == value.shape, name
        assert found[name].tobytes() == value.tobytes(), name


def write(path, made):
    if path.suffix == ".safetensors":
        safetensors.save_file(made, path, metadata={"who": "me"})
    elif path.name == "packed.npz":
        np.savez_compressed(path, **made)
    elif path.suffix == ".npz":
        np.savez(path, **made)
    else:
        path.mkdir()
        for name, value in made.items():
            # Columns first: another order of the bytes in the file.
            np.save(path / f"{name}.npy", np.array(value, order="F"))


NAMES = ["model.safetensors", "model.npz", "packed.npz", "folder"]


@pytest.mark.parametrize("name", NAMES)
def test_import_and_export_round_trip(tmp_path, name):
    made = arrays()
    write(tmp_path / name, made)
    store = tmp_path / "store"
    run("-C", store, "import", tmp_path / name, "--step", 3)
    run("-C", store, "verify", "--deep")
    out = tmp_path / "out.safetensors"
    run("-C", store, "export", 3, out)
    same(safetensors.load_file(out), made)
    out = tmp_path / "out.npz"
    run("-C", store, "export", 3, out)
    with np.load(out) as found:
        same(dict(found), made)
    run("-C", store, "export", 3, tmp_path / "npy", "--format", "npy")
    same({p.stem: np.load(p) for p in (tmp_path / "npy").iterdir()}, made)
    run("-C", store, "export", 3, tmp_path / "raw", "--format", "raw")
    index = json.loads((tmp_path / "raw" / "index.json").read_text())
    raw = {}
    for entry in index["arrays"]:
        data = (tmp_path / "raw" / entry["file"]).read_bytes()
        raw[entry["name"]] = np.frombuffer(data, entry["dtype"]).reshape(
            entry["shape"]
        )
    same(raw, made)
    # A file against the step that was made of it.
    assert "no difference" in run("-C", store, "diff", 3, tmp_path / name)


@pytest.mark.parametrize("name", NAMES)
def test_a_file_is_looked_at(tmp_path, name):
    made = arrays()
    write(tmp_path / name, made)
    rows = json.loads(run("ls", tmp_path / name, "--json", "--stats"))["leaves"]
    assert {row["key"] for row in rows} == set(made)
    for row in rows:
        value = made[row["key"]]
        assert row["shape"] == list(value.shape)
        assert row["dtype"] == value.dtype.name
        assert row["bytes"] == value.nbytes
        assert row["nan"] == np.isnan(value.astype(np.float64)).sum()
    key = f"{tmp_path / name}:layers.0.weight[3:5,::-2]"
    got = json.loads(run("get", key, "-o", "json"))["arrays"][0]["data"]
    want = made["layers.0.weight"][3:5, ::-2]
    assert np.array_equal(np.array(got, np.float32), want)
    out = tmp_path / "one.npy"
    run("get", f"{tmp_path / name}:layers.1.weight", "-o", "npy", "--out", out)
    assert np.array_equal(np.load(out), made["layers.1.weight"])
    other = tmp_path / "other.npz"
    run("export", tmp_path / name, other)
    with np.load(other) as found:
        same(dict(found), made)


def test_shards_with_an_index(tmp_path):
    made = arrays()
    files = {}
    for i, part in enumerate((sorted(made)[:5], sorted(made)[5:])):
        name = f"model-{i + 1:05}-of-00002.safetensors"
        safetensors.save_file({k: made[k] for k in part}, tmp_path / name)
        files.update(dict.fromkeys(part, name))
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"metadata": {}, "weight_map": files}))
    out = tmp_path / "out"
    out.mkdir()
    for source in (index, tmp_path):
        run("export", source, out / "all.npz", "--force")
        with np.load(out / "all.npz") as found:
            same(dict(found), made)
    (tmp_path / "model-00002-of-00002.safetensors").unlink()
    run("ls", index, code=2)


def test_a_folder_of_checkpoints(tmp_path):
    for step in (5, 10, 200):
        folder = tmp_path / "output" / f"checkpoint-{step}"
        folder.mkdir(parents=True)
        value = np.full(3, step, np.float32)
        safetensors.save_file({"w": value}, folder / "model.safetensors")
    output = tmp_path / "output"
    assert run("-C", output, "get", "latest:w") == "[200.0 200.0 200.0]\n"
    assert run("-C", output, "get", "latest~2:w") == "[5.0 5.0 5.0]\n"
    run("-C", output, "ls", 7, code=3)
    store = tmp_path / "store"
    run("-C", store, "import", output / "checkpoint-10")
    run("-C", store, "import", output, code=2)
    run("-C", store, "import", output, "--new")
    log = run("-C", store, "log", "-o", "csv", "--columns", "step")
    assert log == "step\n200\n10\n5\n"
    assert run("-C", store, "get", "5:w") == "[5.0 5.0 5.0]\n"


def gguf(path, arrays):
    def text(value):
        return struct.pack("<Q", len(value)) + value.encode()

    numbers = {"float32": 0, "float16": 1, "int8": 24, "int64": 27}
    head = b"GGUF" + struct.pack("<IQQ", 3, len(arrays) + 1, 1)
    head += text("general.name") + struct.pack("<I", 8) + text("tiny")
    data = b""
    for name, value in arrays.items():
        shape = value.shape[::-1]
        head += text(name) + struct.pack("<I", len(shape))
        head += struct.pack(f"<{len(shape)}Q", *shape)
        head += struct.pack("<IQ", numbers[value.dtype.name], len(data))
        data += value.tobytes()
        data += bytes(-len(data) % 32)
    head += text("blocks") + struct.pack("<IQIQ", 1, 64, 2, len(data))
    data += bytes(36)
    path.write_bytes(head + bytes(-len(head) % 32) + data)


def test_gguf(tmp_path):
    made = {
        name: value
        for name, value in arrays().items()
        if value.dtype.name in ("float32", "float16", "int8", "int64")
        and value.size
    }
    gguf(tmp_path / "model.gguf", made)
    assert "Q4_0" in run("ls", tmp_path / "model.gguf")
    run("get", f"{tmp_path / 'model.gguf'}:blocks", code=2)
    store = tmp_path / "store"
    words = ["-C", store, "import", tmp_path / "model.gguf", "--step", 1]
    run(*words, code=2)
    run(*words, "--skip")
    run("-C", store, "export", 1, tmp_path / "out.npz")
    with np.load(tmp_path / "out.npz") as found:
        same(dict(found), made)


def test_types_that_numpy_lacks(tmp_path):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    made = {"w": np.arange(6, dtype=np.float32).astype(ml_dtypes.bfloat16)}
    safetensors.save_file(made, tmp_path / "a.safetensors")
    run("export", tmp_path / "a.safetensors", tmp_path / "a.npz")
    with np.load(tmp_path / "a.npz") as found:
        assert found["w"].view(ml_dtypes.bfloat16).tolist() == list(range(6))
    run("export", tmp_path / "a.npz", tmp_path / "b.safetensors")
    same(safetensors.load_file(tmp_path / "b.safetensors"), made)


def flip_in_the_middle(path, name):
    """One bit of the bytes of an entry of an archive."""
    with zipfile.ZipFile(path) as archive:
        entry = archive.getinfo(name)
    data = bytearray(path.read_bytes())
    lengths = struct.unpack_from("<HH", data, entry.header_offset + 26)
    start = entry.header_offset + 30 + sum(lengths)
    data[start + entry.file_size // 2] ^= 1
    path.write_bytes(data)


def refused(*arguments):
    done = subprocess.run(
        [COMMAND, *map(str, arguments)], capture_output=True, text=True
    )
    assert done.returncode == 2, (arguments, done.stdout, done.stderr)
    return done.stderr


# The first in one piece, the second in two.
@pytest.mark.parametrize("count", [100_000, 17_000_000])
def test_a_bit_of_an_npz_is_found_however_it_is_read(tmp_path, count):
    path, out = tmp_path / "a.npz", tmp_path / "a.safetensors"
    store = tmp_path / "store"
    np.savez(path, w=np.arange(count, dtype=np.float32), v=np.ones(3))
    assert run("get", f"{path}:w[7:9]") == "[7.0 8.0]\n"
    flip_in_the_middle(path, "w.npy")
    with pytest.raises(zipfile.BadZipFile, match="Bad CRC-32"), np.load(
        path
    ) as found:
        found["w"]
    for words in (
        ["get", f"{path}:w[7:9]"],
        ["get", f"{path}:w"],
        ["export", path, out],
        ["-C", store, "import", path, "--step", 1],
    ):
        said = refused(*words)
        assert "a.npz is damaged" in said and "CRC" in said, words
        assert not out.exists()
    assert not store.exists()
    # What is whole in it is read.
    assert run("get", f"{path}:v") == "[1.0 1.0 1.0]\n"


def test_an_npz_that_numpy_did_not_pack(tmp_path):
    """bzip2 and LZMA make less of an array than no memory may be taken for."""
    path, value = tmp_path / "a.npz", np.zeros(10**6)
    np.save(tmp_path / "w.npy", value)
    for method in (zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA):
        with zipfile.ZipFile(path, "w", method) as archive:
            archive.write(tmp_path / "w.npy", "w.npy")
        said = refused("ls", path)
        assert "`w` is packed by another method" in said
        assert "damaged" not in said


# ---- Through Python ----


def state(torch):
    return {
        "model": {
            "0.weight": torch.arange(12, dtype=torch.float32).reshape(4, 3),
            "half": torch.arange(6).to(torch.bfloat16),
        },
        "flags": torch.tensor([True, False]),
    }


def with_python():
    return {**os.environ, "CKPTREE_PYTHON": sys.executable}


def through_python(*arguments, code=0, environment=None):
    done = subprocess.run(
        [COMMAND, *map(str, arguments)],
        capture_output=True,
        text=True,
        env=environment or with_python(),
    )
    assert done.returncode == code, done.stderr
    return done.stdout if code == 0 else done.stderr


def torch_checkpoint(torch, path):
    """Of torch.save(), or of DCP where the name has no end."""
    if path.suffix:
        torch.save(state(torch), path)
    else:
        import torch.distributed.checkpoint as dcp

        dcp.save(state(torch), checkpoint_id=path, no_dist=True)
    return path


def flat_state(torch):
    model = state(torch)["model"]
    flat = {f"model.{name}": value for name, value in model.items()}
    return {**flat, "flags": state(torch)["flags"]}


def same_state(torch, found):
    flat = flat_state(torch)
    assert sorted(found) == sorted(flat)
    for name, value in flat.items():
        assert found[name].dtype == value.dtype
        assert torch.equal(found[name], value), name


@pytest.mark.parametrize("name", ["step_5.pt", again("dcp_5")])
def test_pytorch_is_looked_at_imported_and_exported(tmp_path, name):
    torch = pytest.importorskip("torch")
    path = torch_checkpoint(torch, tmp_path / name)
    rows = json.loads(through_python("ls", path, "--json"))["leaves"]
    assert {row["key"]: (row["dtype"], row["shape"]) for row in rows} == {
        "model/0.weight": ("float32", [4, 3]),
        "model/half": ("bfloat16", [6]),
        "flags": ("bool", [2]),
    }
    got = through_python("get", f"{path}:model/0.weight[1:3,::2]", "-o", "json")
    assert json.loads(got)["arrays"][0]["data"] == [[3.0, 5.0], [6.0, 8.0]]
    stat = json.loads(through_python("stat", path, "--json"))
    assert {row["key"]: row["max"] for row in stat["arrays"]}[
        "model/0.weight"
    ] == 11
    store = tmp_path / "store"
    said = through_python("-C", store, "import", path, "--json")
    assert json.loads(said)["steps"][0]["step"] == 5
    assert json.loads(said)["steps"][0]["result"] == "saved"
    said = through_python("-C", store, "import", path, code=2)
    assert "step 5 is there already: --step N" in said
    again = json.loads(
        through_python("-C", store, "import", path, "--new", "--json")
    )
    assert again["steps"][0]["result"] == "there"
    run("-C", store, "verify", "--deep")
    assert "no difference" in through_python("-C", store, "diff", 5, path)
    out = tmp_path / "out.pt"
    through_python("-C", store, "export", 5, out)
    same_state(torch, torch.load(out, weights_only=True))
    through_python("-C", store, "export", 5, out, code=2)
    through_python(
        "-C", store, "export", "5:model", out, "--force", "--strip", "model"
    )
    assert sorted(torch.load(out, weights_only=True)) == ["0.weight", "half"]
    folder = tmp_path / "dcp"
    through_python("-C", store, "export", 5, folder, "--format", "dcp")
    import torch.distributed.checkpoint as dcp

    found = {
        name: torch.zeros_like(value)
        for name, value in flat_state(torch).items()
    }
    dcp.load(found, checkpoint_id=folder, no_dist=True)
    same_state(torch, found)
    # Without a store between.
    through_python("export", path, tmp_path / "flat.pt")
    same_state(torch, torch.load(tmp_path / "flat.pt", weights_only=True))
    assert [p.name for p in tmp_path.iterdir() if "tmp" in p.name] == []


def test_orbax_is_looked_at_imported_and_exported(tmp_path):
    pytest.importorskip("jax")
    ocp = pytest.importorskip("orbax.checkpoint")
    import jax.numpy as jnp

    tree = {
        "params": {
            "w": jnp.arange(6.0).reshape(2, 3),
            "half": jnp.arange(3).astype(jnp.bfloat16),
        }
    }
    runs = tmp_path / "runs"
    with ocp.CheckpointManager(runs) as manager:
        for step in (1, 2):
            manager.save(step, args=ocp.args.StandardSave(tree))
            manager.wait_until_finished()
    listed = json.loads(through_python("-C", runs, "ls", "2", "--json"))
    assert {row["key"]: row["shape"] for row in listed["leaves"]} == {
        "default/params/half": [3],
        "default/params/w": [2, 3],
    }
    got = through_python("get", f"{runs / '1'}:default/params/w[1]")
    assert got == "[3.0 4.0 5.0]\n"
    store = tmp_path / "store"
    said = json.loads(through_python("-C", store, "import", runs, "--json"))
    assert [row["step"] for row in said["steps"]] == [1, 2]
    run("-C", store, "verify", "--deep")
    out = tmp_path / "out"
    through_python(
        "-C", store, "export", 2, out, "--format", "orbax", "--strip", "default"
    )
    found = ocp.StandardCheckpointer().restore(out)
    for name, value in tree["params"].items():
        assert found["params"][name].dtype == value.dtype
        assert np.array_equal(found["params"][name], value)


def steps_in(store):
    log = run("-C", store, "log", "-o", "csv", "--columns", "step")
    return [int(line) for line in log.split()[1:]]


@pytest.mark.parametrize(
    "name", ["m2.5.pt", again("run.v1-step_7.pt"), again("9")]
)
def test_new_leaves_out_the_step_that_would_be_saved(tmp_path, name):
    """The number by which it is left out is the one by which it is saved."""
    torch = pytest.importorskip("torch")
    path = tmp_path / name
    if path.suffix:
        torch.save(state(torch), path)
        wanted = {"m2.5.pt": 5, "run.v1-step_7.pt": 7}[name]
    else:
        ocp = pytest.importorskip("orbax.checkpoint")
        with ocp.StandardCheckpointer() as checkpointer:
            checkpointer.save(path, {"w": np.arange(3.0)})
        wanted = 9
    store = tmp_path / "store"
    words = ["-C", store, "import", path]
    through_python(*words)
    assert steps_in(store) == [wanted]
    assert "--new" in through_python(*words, code=2)
    said = json.loads(through_python(*words, "--new", "--json"))["steps"]
    assert [(row["step"], row["result"]) for row in said] == [(wanted, "there")]
    # Another number, given: of a store with steps.
    through_python(*words, "--new", "--step", 11)
    through_python(*words, "--new", "--step", 11)
    assert steps_in(store) == [11, wanted]
    run("-C", store, "verify", "--deep")


def test_names_of_files_say_the_same_step_everywhere(tmp_path):
    names = {
        "m2.5.safetensors": 5,
        "model-v1.0-300.npz": 300,
        "epoch=1-step=8.npz": 8,
        "checkpoint-10.safetensors": 10,
    }
    for name in names:
        write(tmp_path / name, arrays())
        run("-C", tmp_path / "store", "import", tmp_path / name)
    assert sorted(steps_in(tmp_path / "store")) == sorted(names.values())


def test_what_python_lacks_is_named(tmp_path):
    path = tmp_path / "model.pt"
    path.write_bytes(b"no pickle")
    store = tmp_path / "store"
    nothing = {**os.environ, "CKPTREE_PYTHON": str(tmp_path / "nothing")}
    for words in (["ls", path], ["-C", store, "import", path]):
        said = through_python(*words, code=2, environment=nothing)
        assert "with torch and safetensors: install them for" in said
    bare = tmp_path / "bare"
    bare.write_text(
        "#!/bin/sh\necho \"ModuleNotFoundError: No module named 'torch'\" >&2\n"
        "exit 1\n"
    )
    bare.chmod(0o755)
    lacking = {**os.environ, "CKPTREE_PYTHON": str(bare)}
    said = through_python("ls", path, code=2, environment=lacking)
    assert "No module named 'torch'" in said
    assert "with torch and safetensors: install them for" in said
    assert not store.exists()


def test_a_bit_of_a_torch_file_is_found_by_who_reads_it(tmp_path):
    torch = pytest.importorskip("torch")
    path = torch_checkpoint(torch, tmp_path / "step_5.pt")
    flip_in_the_middle(path, "step_5/data/0")
    for words in (
        ["get", f"{path}:model/0.weight"],
        ["export", path, tmp_path / "out.npz"],
    ):
        said = through_python(*words, code=2)
        assert "step_5/data/0 are not those that were written" in said
    assert not (tmp_path / "out.npz").exists()


def test_a_torch_file_that_is_none(tmp_path):
    pytest.importorskip("torch")
    path = tmp_path / "step_1.pt"
    path.write_bytes(b"no pickle")
    store = tmp_path / "store"
    for words in (["ls", path], ["-C", store, "import", path]):
        said = through_python(*words, code=2)
        assert "step_1.pt is cut or damaged" in said
        assert len(said.splitlines()) == 2
    assert not store.exists()


def test_modules_of_the_folder_we_are_in_are_not_run(tmp_path, monkeypatch):
    torch = pytest.importorskip("torch")
    path = torch_checkpoint(torch, tmp_path / "step_5.pt")
    (tmp_path / "torch.py").write_text("raise SystemExit('it was run')\n")
    (tmp_path / "ckptree").mkdir()
    (tmp_path / "ckptree" / "__init__.py").write_text("raise SystemExit(3)\n")
    monkeypatch.chdir(tmp_path)
    assert "model/half" in through_python("ls", path)


def test_a_folder_of_a_trainer_comes_whole(tmp_path):
    torch = pytest.importorskip("torch")
    folder = tmp_path / "output" / "checkpoint-100"
    folder.mkdir(parents=True)
    weights = {"w": np.ones(3, np.float32)}
    safetensors.save_file(weights, folder / "model.safetensors")
    torch.save({"state": {0: {"m": torch.ones(3)}}}, folder / "optimizer.pt")
    (folder / "trainer_state.json").write_text('{"global_step": 100}')
    (folder / "training_args.bin").write_bytes(b"code")
    store = tmp_path / "store"
    through_python("-C", store, "import", tmp_path / "output")
    keys = through_python("-C", store, "ls", "-o", "csv", "--columns", "key")
    assert "model/w\n" in keys and "optimizer/state/{0}/m\n" in keys


def test_gguf_of_its_own_package(tmp_path):
    gguf_package = pytest.importorskip("gguf")
    ml_dtypes = pytest.importorskip("ml_dtypes")
    random = np.random.default_rng(3)
    made = {
        "blk.0.weight": random.normal(size=(4, 32)).astype(np.float32),
        "blk.0.half": random.normal(size=(3, 8)).astype(np.float16),
        "double": random.normal(size=(5,)).astype(np.float64),
    }
    brain = random.normal(size=(2, 16)).astype(ml_dtypes.bfloat16)
    path = tmp_path / "model.gguf"
    writer = gguf_package.GGUFWriter(path, "tiny")
    for name, value in made.items():
        writer.add_tensor(name, value)
    writer.add_tensor(
        "brain",
        brain.view(np.uint8),
        raw_dtype=gguf_package.GGMLQuantizationType.BF16,
    )
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    store = tmp_path / "store"
    run("-C", store, "import", path, "--step", 1)
    run("-C", store, "verify", "--deep")
    run("-C", store, "export", 1, tmp_path / "out.npz")
    with np.load(tmp_path / "out.npz") as found:
        same(
            dict(found),
            {**made, "brain": brain.view(np.dtype("V2"))},
        )
    # And against what the package itself reads.
    for tensor in gguf_package.GGUFReader(path).tensors:
        out = tmp_path / "one.raw"
        key = f"{path}:{tensor.name}"
        run("get", key, "-o", "raw", "--out", out)
        assert out.read_bytes() == tensor.data.tobytes(), tensor.name


def test_export_does_what_its_flags_say(tmp_path):
    made = arrays()
    path = tmp_path / "a.safetensors"
    safetensors.save_file(made, path)
    out = tmp_path / "b.safetensors"
    run("export", path, out, "-k", "layers.*", "--strip", "layers")
    assert sorted(safetensors.load_file(out)) == ["0.weight", "1.weight"]
    run("export", path, out, code=2)
    assert sorted(safetensors.load_file(out)) == ["0.weight", "1.weight"]
    run("export", path, out, "--force", "-k", "layers.*", "--rename",
        "layers.0=first", "--rename", "layers.1=second")
    assert sorted(safetensors.load_file(out)) == [
        "first.weight", "second.weight",
    ]
    # Two of one name: refused, and with --skip the first one is taken.
    clash = ["export", path, out, "--force", "-k", "layers.*", "--rename",
             "layers.0=one", "--rename", "layers.1=one"]
    run(*clash, code=2)
    run(*clash, "--skip")
    found = safetensors.load_file(out)
    assert list(found) == ["one.weight"]
    assert found["one.weight"].tobytes() == made["layers.0.weight"].tobytes()
    run("export", path, tmp_path / "none" / "x.npz", code=3)
