# SPDX-License-Identifier: Apache-2.0
"""The `ckptree` command on files of arrays: what NumPy and the package of
safetensors wrote comes back bit by bit through them."""

import json
import os
import struct
import subprocess
import sysconfig
from pathlib import Path

import numpy as np
import pytest

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
    got = json.loads(run("get", key, "-o", "json"))["data"]
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
    for source in (index, tmp_path):
        run("export", source, tmp_path / "all.npz", "--force")
        with np.load(tmp_path / "all.npz") as found:
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
