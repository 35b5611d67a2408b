# SPDX-License-Identifier: Apache-2.0
"""`ckptree import` and `export`: each type of each format goes there and back
bit by bit, as the library reads it whose format it is. Patterns of bits that
no arithmetic makes are among them: NaN with a sign and a payload, -0.0, the
smallest numbers, whatever stands in a byte of a narrow float."""

import json
import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from again import again

# Another build of the command than the one that is installed.
COMMAND = os.environ.get("CKPTREE_COMMAND") or (
    Path(sysconfig.get_path("scripts")) / "ckptree"
)
WIDE = "int8 int16 int32 int64 uint8 uint16 uint32 uint64".split()
WIDE += "float16 float32 float64 complex64 complex128".split()
NARROW = "bfloat16 float8_e4m3fn float8_e5m2".split()


def run(*words):
    done = subprocess.run(
        [COMMAND, *map(str, words)],
        capture_output=True,
        text=True,
        env={**os.environ, "CKPTREE_PYTHON": sys.executable},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def of_bits(name, shape=(3, 5, 7)):
    """An array of random bits, the awkward ones among them."""
    dtype = np.dtype(getattr(ml_dtypes, name, name))
    random = np.random.default_rng(len(name))
    data = random.bytes(dtype.itemsize * int(np.prod(shape)))
    array = np.frombuffer(data, dtype).reshape(shape).copy()
    if dtype.kind in "fcV":
        # A quiet and a signalling NaN with payloads, -0.0, the smallest.
        part = array.reshape(-1).view(np.uint8)
        width = dtype.itemsize // (2 if dtype.kind == "c" else 1)
        for i, first in enumerate((0xFF, 0x7F, 0x80, 0x00)):
            at = i * width
            part[at : at + width] = 0 if first in (0x80, 0x00) else 0xFF
            part[at + width - 1] = first
            if first != 0x80:
                part[at] = 0x01
    return array


def arrays(names):
    made = {f"of.{name}": of_bits(name) for name in names}
    made["bool"] = np.array([[True, False], [False, True]])
    made["scalar"] = np.array(-0.0, np.float32)
    made["empty"] = np.zeros((0, 3), np.float64)
    made["deep"] = np.arange(6, dtype=np.int16).reshape(1, 2, 1, 3, 1)
    return made


def same(found, wanted):
    assert sorted(found) == sorted(wanted)
    for name, value in wanted.items():
        assert found[name].shape == value.shape, name
        assert found[name].dtype.itemsize == value.dtype.itemsize, name
        assert found[name].tobytes() == value.tobytes(), name


def stored(tmp_path, source, *words):
    """A store with one step, of that file."""
    run("-C", tmp_path / "store", "import", source, "--step", 7, *words)
    run("-C", tmp_path / "store", "verify", "--deep")
    return tmp_path / "store"


def through_numpy(tmp_path, store, made):
    """What two other readers get of the step."""
    run("-C", store, "export", 7, tmp_path / "x.npz")
    with np.load(tmp_path / "x.npz") as found:
        same(dict(found), made)
    run("-C", store, "export", 7, tmp_path / "raw", "--format", "raw")
    index = json.loads((tmp_path / "raw" / "index.json").read_text())
    same(
        {
            entry["name"]: np.frombuffer(
                (tmp_path / "raw" / entry["file"]).read_bytes(),
                np.dtype(getattr(ml_dtypes, entry["dtype"], entry["dtype"])),
            ).reshape(entry["shape"])
            for entry in index["arrays"]
        },
        made,
    )


def test_safetensors(tmp_path):
    safetensors = pytest.importorskip("safetensors.numpy")
    # complex128 is no type of theirs.
    made = arrays([n for n in WIDE + NARROW if n != "complex128"])
    safetensors.save_file(made, tmp_path / "a.safetensors")
    store = stored(tmp_path, tmp_path / "a.safetensors")
    run("-C", store, "export", 7, tmp_path / "b.safetensors")
    # By its own words: not every version of theirs has the narrow types.
    kinds = {}
    for name in ("a", "b"):
        data = (tmp_path / f"{name}.safetensors").read_bytes()
        end = 8 + int.from_bytes(data[:8], "little")
        head = json.loads(data[8:end])
        head.pop("__metadata__", None)
        kinds[name] = {
            key: (
                about["dtype"],
                about["shape"],
                data[end:][slice(*about["data_offsets"])],
            )
            for key, about in head.items()
        }
    assert kinds["a"] == kinds["b"]
    # NumPy itself has no narrow types, but for what ml_dtypes brings.
    wide = [key for key in made if "float8" not in key]
    with safetensors.safe_open(tmp_path / "b.safetensors", "numpy") as file:
        same({key: file.get_tensor(key) for key in wide},
             {key: made[key] for key in wide})
    through_numpy(tmp_path, store, made)


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_npz(tmp_path, save):
    made = arrays(WIDE)
    save(tmp_path / "a.npz", **made)
    store = stored(tmp_path, tmp_path / "a.npz")
    through_numpy(tmp_path, store, made)
    run("-C", store, "export", 7, tmp_path / "npy", "--format", "npy")
    same({p.stem: np.load(p) for p in (tmp_path / "npy").iterdir()}, made)


def test_npy_of_other_orders(tmp_path):
    (tmp_path / "npy").mkdir()
    made = arrays(WIDE)
    for name, value in made.items():
        file = tmp_path / "npy" / f"{name}.npy"
        np.save(file, np.array(value, order="F"))
    through_numpy(tmp_path, stored(tmp_path, tmp_path / "npy"), made)


def test_gguf(tmp_path):
    gguf = pytest.importorskip(
        "gguf", reason="gguf could not be installed"
    )
    names = "float16 float32 float64 int8 int16 int32 int64".split()
    made = {f"of.{name}": of_bits(name) for name in names}
    brain = of_bits("bfloat16")
    writer = gguf.GGUFWriter(tmp_path / "a.gguf", "tiny")
    for name, value in made.items():
        writer.add_tensor(name, value)
    writer.add_tensor(
        "brain",
        brain.view(np.uint8),
        raw_dtype=gguf.GGMLQuantizationType.BF16,
    )
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    store = stored(tmp_path, tmp_path / "a.gguf")
    through_numpy(tmp_path, store, {**made, "brain": brain})
    # And as their reader has them.
    with np.load(tmp_path / "x.npz") as found:
        for tensor in gguf.GGUFReader(tmp_path / "a.gguf").tensors:
            data = found[tensor.name].tobytes()
            assert data == tensor.data.tobytes(), tensor.name


def tensors(torch):
    """Of torch, by way of their bytes: some types NumPy lacks."""
    names = [n for n in WIDE if hasattr(torch, n)] + NARROW
    found = {}
    for name, value in arrays(names).items():
        dtype = getattr(torch, value.dtype.name)
        raw = torch.frombuffer(bytearray(value.tobytes() or b"\0" * 16),
                               dtype=torch.uint8)
        raw = raw[: value.nbytes].view(dtype).reshape(value.shape)
        found[name] = raw.clone()
    return found


def same_tensors(torch, found, wanted):
    assert sorted(found) == sorted(wanted)
    for name, value in wanted.items():
        assert found[name].dtype == value.dtype, name
        assert found[name].shape == value.shape, name
        bits = [
            bytes(t.contiguous().reshape(-1).view(torch.uint8).tolist())
            for t in (found[name], value)
        ]
        assert bits[0] == bits[1], name


@pytest.mark.parametrize("form", ["torch", again("dcp")])
def test_pytorch(tmp_path, form):
    torch = pytest.importorskip("torch")
    pytest.importorskip("safetensors")
    import torch.distributed.checkpoint as dcp

    made = tensors(torch)
    # The file of safetensors between has no complex128.
    made = {n: v for n, v in made.items() if v.dtype != torch.complex128}

    def save(state, path):
        if form == "torch":
            torch.save(state, path)
        else:
            dcp.save(state, checkpoint_id=path, no_dist=True)

    def load(path):
        if form == "torch":
            return torch.load(path, weights_only=True)
        found = {name: torch.zeros_like(value) for name, value in made.items()}
        dcp.load(found, checkpoint_id=path, no_dist=True)
        return found

    end = ".pt" if form == "torch" else ""
    save(made, tmp_path / f"a{end}")
    same_tensors(torch, load(tmp_path / f"a{end}"), made)  # Theirs alone.
    store = stored(tmp_path, tmp_path / f"a{end}")
    run("-C", store, "export", 7, tmp_path / f"b{end}", "--format", form)
    same_tensors(torch, load(tmp_path / f"b{end}"), made)
    # Without a store between, and against the step.
    run("export", tmp_path / f"a{end}", tmp_path / f"c{end}", "--format", form)
    same_tensors(torch, load(tmp_path / f"c{end}"), made)
    assert "no difference" in run("-C", store, "diff", 7, tmp_path / f"b{end}")


def test_orbax(tmp_path):
    pytest.importorskip("jax")
    ocp = pytest.importorskip("orbax.checkpoint")
    # What JAX has without 64 bits, which Orbax turns others into.
    names = [n for n in WIDE if "64" not in n and "128" not in n] + NARROW
    flat = {
        name.replace(".", "_"): value
        for name, value in arrays(names).items()
        if value.size and value.dtype.itemsize < 8
    }
    tree = {"params": flat}
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(tmp_path / "a", tree)
        checkpointer.wait_until_finished()
        theirs = checkpointer.restore(tmp_path / "a")["params"]
    same({k: np.asarray(v) for k, v in theirs.items()}, flat)
    store = stored(tmp_path, tmp_path / "a")
    words = ["--format", "orbax", "--strip", "default"]
    run("-C", store, "export", 7, tmp_path / "b", *words)
    with ocp.StandardCheckpointer() as checkpointer:
        found = checkpointer.restore(tmp_path / "b")["params"]
    same({k: np.asarray(v) for k, v in found.items()}, flat)
    assert {k: v.dtype for k, v in found.items()} == {
        k: v.dtype for k, v in flat.items()
    }
