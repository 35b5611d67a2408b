# SPDX-License-Identifier: Apache-2.0
"""Checkpoints of other formats into a store and out of it: the same bits by the
readers of these formats, and little memory."""

import json
import os
import pathlib
import subprocess
import sys

import ckptree
import numpy as np
import pytest

torch = pytest.importorskip(
    "torch", reason="PyTorch could not be installed: see requirements_torch.txt"
)
safetensors_torch = pytest.importorskip(
    "safetensors.torch",
    reason="safetensors could not be installed: see requirements_torch.txt",
)

import torch.distributed.checkpoint as dcp
from ckptree import beside
from ckptree.adapters.torch_dtypes import DTYPES
from ckptree.torch import (
    _lending,
    export_checkpoint,
    import_checkpoint,
)
from ckptree.torch._safetensors_files import DTYPE_NAMES
from safetensors import safe_open

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")


def tensors(names=tuple(DTYPES)):
    """Of every element type, with random bits, and of every odd shape."""
    generator = torch.Generator().manual_seed(7)
    made = {
        "empty": torch.zeros(0, 3),
        "scalar": torch.tensor(2.5),
        "": torch.ones(1),
        "../x": torch.ones(2),
        "/": torch.full((2,), 3.0),
        "ünï.\0": torch.ones(3),
    }
    for name in names:
        dtype = DTYPES[name]
        high = 2 if dtype == torch.bool else 256
        count = 3 * 5 * dtype.itemsize
        flat = torch.randint(high, (count,), generator=generator)
        made[name] = flat.to(torch.uint8).view(dtype).view(3, 5)
    return made


def bits(value):
    flat = value.detach().contiguous().reshape(-1).view(torch.uint8)
    return str(value.dtype), tuple(value.shape), flat.numpy().tobytes()


def same(one, other):
    assert one.keys() == other.keys()
    return all(bits(one[name]) == bits(other[name]) for name in one)


# Each format: the name, the options, and what reads it without us.
def read_dcp(path):
    from torch.distributed.checkpoint.format_utils import dcp_to_torch_save

    dcp_to_torch_save(path, path.with_suffix(".of_dcp"))
    return torch.load(path.with_suffix(".of_dcp"))


def read_shards(path):
    index = json.loads((path / "model.safetensors.index.json").read_text())
    found = {}
    for file in sorted(set(index["weight_map"].values())):
        for name, tensor in safetensors_torch.load_file(path / file).items():
            assert index["weight_map"][name] == file
            found[name] = tensor
    assert len(found) == len(index["weight_map"])
    total = sum(tensor.nbytes for tensor in found.values())
    assert index["metadata"]["total_size"] == total
    return found


FORMATS = {
    "torch": ("m-1.pt", {}, torch.load),
    "dcp": ("m-1", {"format": "dcp"}, read_dcp),
    "safetensors": ("m-1.safetensors", {}, safetensors_torch.load_file),
    "one shard": (
        "m-1",
        {"format": "safetensors"},
        lambda path: safetensors_torch.load_file(path / "model.safetensors"),
    ),
    "shards": ("m-1", {"max_shard_bytes": 100}, read_shards),
}


@pytest.mark.parametrize("format", FORMATS)
def test_the_same_bits_out_and_in_again(store, tmp_path, format):
    name, options, read = FORMATS[format]
    names = DTYPES if format in ("torch", "dcp") else DTYPE_NAMES
    state = tensors(tuple(n for n in names if n in DTYPES))
    store.save(7, state).result()
    path = export_checkpoint(store, tmp_path / name, **options)
    assert same(read(path), state)
    assert import_checkpoint(store, path) == [1]
    assert same(store[1].torch(), state)
    left = [entry for entry in os.listdir(tmp_path) if entry.startswith(".")]
    assert left == []


def test_what_dcp_and_safetensors_wrote_comes_in(store, tmp_path):
    state = tensors(tuple(n for n in DTYPE_NAMES if n in DTYPES))
    state = {name: t for name, t in state.items() if name.isalnum()}
    safetensors_torch.save_file(
        state, tmp_path / "w.safetensors", {"author": "me"}
    )
    nested = {"model": state, "groups": [{"lr": 0.5}, torch.ones(2)], "n": None}
    dcp.save(nested, checkpoint_id=tmp_path / "parts-5")
    import_checkpoint(store, tmp_path / "w.safetensors", step=3, item="w")
    import_checkpoint(store, tmp_path / "parts-5")
    assert same(store[3].torch()["w"], state)
    found = store[5].torch()
    assert same(found["model"], state)
    assert found["groups"][0] == {"lr": 0.5} and found["n"] is None
    out = export_checkpoint(store, tmp_path / "o.safetensors", step=3, item="w")
    with safe_open(out, "pt") as file:
        assert file.metadata() == {"author": "me"}
    out = export_checkpoint(
        store, out, step=3, item="w", metadata={"by": "ünï"}, overwrite=True
    )
    with safe_open(out, "pt") as file:
        assert file.metadata() == {"by": "ünï"}


def test_a_training_of_torch_save(store, tmp_path):
    """Optimizers, generators of NumPy, and ties."""
    import numpy as np

    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 4))
    model[1].weight = model[0].weight
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(4)).sum().backward()
    optimizer.step()
    state = {
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "numpy": np.random.RandomState(3).get_state(),
        "rate": np.float64(0.5),
        "betas": (0.9, 0.99),
        "list": [1, None, b"x", 1j],
    }
    torch.save(state, tmp_path / "last.ckpt")
    import_checkpoint(store, tmp_path / "last.ckpt", step=4)
    weight = store[4]["model/0.weight"].torch()
    assert bits(weight) == bits(model[0].weight)
    path = export_checkpoint(store, tmp_path / "again.pt")
    again = torch.load(path, weights_only=False)
    assert again["betas"] == (0.9, 0.99) and again["rate"] == 0.5
    assert again["list"] == state["list"]
    assert (again["numpy"][1] == state["numpy"][1]).all()
    tied = [again["model"][f"{i}.weight"].data_ptr() for i in range(2)]
    assert tied[0] == tied[1]
    fresh = torch.optim.AdamW(model.parameters())
    fresh.load_state_dict(again["optimizer"])
    moments = optimizer.state_dict()["state"][0]
    assert same(fresh.state_dict()["state"][0], moments)
    # safetensors has each of the two.
    path = export_checkpoint(store, tmp_path / "w.safetensors", item="model")
    assert same(safetensors_torch.load_file(path), dict(model.state_dict()))


def test_files_of_old_versions_of_pytorch(store, tmp_path):
    state = {"w": torch.arange(6.0).reshape(2, 3)}
    torch.save(
        state, tmp_path / "old-9.pth", _use_new_zipfile_serialization=False
    )
    assert import_checkpoint(store, tmp_path / "old-9.pth") == [9]
    assert same(store[9].torch(), state)


class Unknown:
    pass


def test_folders_of_the_trainer_of_transformers(store, tmp_path):
    def write(step):
        folder = tmp_path / "out" / f"checkpoint-{step}"
        folder.mkdir(parents=True)
        weights = {"w": torch.full((3,), float(step)), "v": torch.ones(2)}
        with ckptree.Store(tmp_path / "other") as other:
            other.save(step, weights).result()
            export_checkpoint(
                other, folder / "shards", step=step, max_shard_bytes=12
            )
        for file in (folder / "shards").iterdir():
            file.rename(folder / file.name)
        (folder / "shards").rmdir()
        torch.save({"lr": step / 10}, folder / "scheduler.pt")
        torch.save(Unknown(), folder / "training_args.bin")
        (folder / "trainer_state.json").write_text('{"epoch": 1.5}')
        (folder / "config.json").write_text("{}")
        return weights

    weights = {step: write(step) for step in (500, 1000)}
    (tmp_path / "out" / "runs").mkdir()
    with pytest.raises(ckptree.UnsupportedError, match="training_args.*Unkn"):
        import_checkpoint(store, tmp_path / "out")
    assert len(store) == 0
    skip = ["training_args.bin"]
    options = {"item": "app", "skip": skip, "step": 500}
    assert import_checkpoint(store, tmp_path / "out", **options) == [500]
    found = import_checkpoint(store, tmp_path / "out", skip=skip)
    assert found == [500, 1000]
    # The one that was there has stayed as it was.
    assert list(store[500])[0].startswith("app/")
    state = store[1000].torch()
    assert same(state["model"], weights[1000])
    assert state["scheduler"] == {"lr": 100.0}
    assert state["trainer_state"] == {"epoch": 1.5}
    about = store[1000].metadata.custom["imported"]
    assert about["left_out"] == ["config.json", "training_args.bin"]
    folder = tmp_path / "out" / "checkpoint-500"
    begun = store.step_info(500).begun_ns
    assert abs(begun - folder.stat().st_mtime_ns) < 1000  # By a float.


def test_the_program_of_the_readme_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for step in (500, 1000):
        folder = tmp_path / "out" / f"checkpoint-{step}"
        folder.mkdir(parents=True)
        torch.save({"w": torch.ones(step)}, folder / "model.bin")
        torch.save(Unknown(), folder / "training_args.bin")
    torch.save({"w": torch.ones(7)}, tmp_path / "ema.pt")
    text = (pathlib.Path(__file__).parent.parent / "README.md").read_text()
    start = text.index("```python", text.index("<!-- program: files -->"))
    program = text[start:].partition("\n")[2].partition("```")[0]
    exec(program, {"path": tmp_path / "run"})
    with ckptree.open(tmp_path / "run") as found:
        assert [info.step for info in found.steps()] == [500, 1000, 1200]
    for file in ("ema.safetensors", "hub/model.safetensors"):
        assert len(safetensors_torch.load_file(file)["w"]) == 7
    assert len(read_dcp(tmp_path / "all")["w"]) == 500


def test_an_import_from_a_shell(tmp_path, capfd):
    from ckptree.torch.__main__ import main

    # One of each, by its name alone; a folder of several; each into one store.
    weights = tensors(("float32", "bfloat16"))
    del weights[""], weights["../x"], weights["/"], weights["ünï.\0"]
    torch.save(weights, tmp_path / "w-1.pt")
    safetensors_torch.save_file(weights, tmp_path / "w-2.safetensors")
    dcp.save(weights, checkpoint_id=tmp_path / "w-3")
    with ckptree.Store(tmp_path / "other") as other:
        other.save(4, weights).result()
        shards = export_checkpoint(other, tmp_path / "w-4", max_shard_bytes=64)
    assert len(list(shards.glob("*.safetensors"))) > 1
    for step in (500, 600):
        folder = tmp_path / "out" / f"checkpoint-{step}"
        folder.mkdir(parents=True)
        torch.save({"w": torch.ones(step)}, folder / "model.bin")
        torch.save(Unknown(), folder / "training_args.bin")
    store = str(tmp_path / "store")

    def run(name, *options):
        code = main(["import", str(tmp_path / name), store, *options])
        said = capfd.readouterr()
        return code, said.out if code == 0 else said.err

    for name in ("w-1.pt", "w-2.safetensors", "w-3", "w-4"):
        assert run(name) == (0, f"{store}: 1 step\n")
    assert run("w-1.pt", "--step", "9", "--item", "ema")[0] == 0
    code, said = run("out")
    assert code == 1 and "training_args" in said and "code" in said
    skipped = ("--skip", "training_*")
    assert run("out", *skipped, "--step", "600") == (0, f"{store}: 1 step\n")
    assert run("out", *skipped) == (0, f"{store}: 2 steps\n")
    with ckptree.open(store) as reader:
        assert list(reader) == [1, 2, 3, 4, 9, 500, 600]
        for step in (1, 2, 3, 4):
            assert same(reader[step].torch(), weights)
        assert same(reader[9].torch()["ema"], weights)
        assert len(reader[500].torch()["w"]) == 500

    # Errors by name, and usage.
    assert "step 1 is there already" in run("w-1.pt")[1]
    (tmp_path / "cut-7.pt").write_bytes(b"PK")
    assert "cut-7.pt is cut or damaged" in run("cut-7.pt")[1]
    torch.save(weights, tmp_path / "last.pt")
    assert "--step N" in run("last.pt")[1]
    new = str(tmp_path / "new")
    assert main(["import", str(tmp_path / "nothing"), new]) == 1
    assert "there is no file or folder" in capfd.readouterr().err
    assert not os.path.exists(new)
    for wrong in (["import"], ["import", "a", "b", "--format", "zip"], []):
        with pytest.raises(SystemExit) as refused:
            main(wrong)
        assert refused.value.code == 2
    with pytest.raises(SystemExit) as helped:
        main(["import", "--help"])
    assert helped.value.code == 0
    assert "safetensors" in capfd.readouterr().out


def test_an_export_from_a_shell(tmp_path, capfd):
    from ckptree.torch.__main__ import main

    weights = tensors(("float32", "bfloat16"))
    del weights[""], weights["../x"], weights["/"], weights["ünï.\0"]
    store = str(tmp_path / "store")
    with ckptree.Store(store) as opened:
        for step in (3, 4):
            state = {"model": weights, "step": step}
            opened.save(step, state, metrics={"loss": -step}).result()

    def run(name, *options):
        code = main(["export", store, str(tmp_path / name), *options])
        said = capfd.readouterr()
        return code, said.out if code == 0 else said.err

    file = tmp_path / "all.pt"
    assert run("all.pt") == (0, f"{file}: 1 step\n")
    assert torch.load(file)["step"] == 4
    code, said = run("all.pt", "--step", "best:loss:max", "--json")
    assert code == 1 and "is there already: --overwrite replaces it" in said
    again = ("--step", "best:loss:max", "--overwrite", "--json")
    assert run("all.pt", *again) == (0, '{"steps": [3]}\n')
    assert torch.load(file)["step"] == 3
    model = ("--item", "model")
    assert run("w.safetensors", *model)[0] == 0
    found = safetensors_torch.load_file(tmp_path / "w.safetensors")
    assert same(found, weights)
    assert run("hub", *model, "--max-shard-bytes", "64")[0] == 0
    assert len(list((tmp_path / "hub").glob("*.safetensors"))) > 1
    assert run("dcp", *model, "--format", "dcp")[0] == 0
    assert (tmp_path / "dcp" / ".metadata").is_file()
    # Errors by options, and nothing of them is left.
    for name, options, what in (
        ("x", (), "say --format dcp or safetensors"),
        ("x.safetensors", (), "not these: step: say --item NAME"),
        ("x.pt", ("--max-shard-bytes", "9"), "--max-shard-bytes is of"),
        ("x.pt", ("--step", "9"), "no step 9"),
        ("x.pt", ("--item", "ema"), "no item 'ema'"),
    ):
        code, said = run(name, *options)
        assert code == 1 and what in said
        assert not list(tmp_path.glob("x*"))
    assert main(["export", str(tmp_path / "none"), "x.pt"]) == 1


def test_nothing_is_overwritten_unless_asked(store, tmp_path):
    store.save(1, {"w": torch.ones(2), "v": torch.zeros(3)}).result()
    store.save(2, {"w": torch.full((2,), 2.0)}).result()
    for number, (name, options, _) in enumerate(FORMATS.values()):
        folder = tmp_path / f"out {number}" / name
        folder.parent.mkdir()
        if "max_shard_bytes" in options:
            options = {"max_shard_bytes": 12}
        path = export_checkpoint(store, folder, step=1, **options)
        with pytest.raises(ckptree.AlreadyExistsError, match="overwrite=True"):
            export_checkpoint(store, folder, **options)
        import_checkpoint(store, folder, step=9, overwrite=True)
        assert store[9].torch()["w"].tolist() == [1, 1]
        export_checkpoint(
            store, folder, step=2, overwrite=True, **options
        )
        import_checkpoint(store, folder, step=9, overwrite=True)
        assert store[9].torch()["w"].tolist() == [2, 2]
        assert os.listdir(path.parent) == [name]
        if path.is_dir():
            (path / "mine.txt").write_text("mine")
            with pytest.raises(ValueError, match="mine.txt"):
                export_checkpoint(store, folder, overwrite=True, **options)
            assert (path / "mine.txt").read_text() == "mine"
            continue
        with pytest.raises(ckptree.AlreadyExistsError, match="step 9"):
            import_checkpoint(store, folder, step=9)


@pytest.mark.parametrize("exchanges", [True, False])
def test_an_overwrite_that_is_interrupted(
    store, tmp_path, monkeypatch, exchanges
):
    store.save(1, {"w": torch.ones(2)}).result()
    store.save(2, {"w": torch.full((2,), 2.0)}).result()
    path = export_checkpoint(store, tmp_path / "m", step=1, format="dcp")
    real = beside._exchange if exchanges else os.rename
    calls = []

    def interrupted(*args):
        done = real(*args)
        calls.append(args)
        if len(calls) == 1:
            raise KeyboardInterrupt
        return done

    if exchanges:
        monkeypatch.setattr(beside, "_exchange", interrupted)
    else:
        monkeypatch.setattr(beside, "_exchange", lambda *args: False)
        monkeypatch.setattr(os, "rename", interrupted)
    with pytest.raises(KeyboardInterrupt):
        export_checkpoint(store, path, step=2, format="dcp", overwrite=True)
    assert calls
    monkeypatch.undo()
    assert sorted(os.listdir(tmp_path)) == ["m", "store"]
    import_checkpoint(store, path, step=9, format="dcp")
    found = store[9].torch()["w"].tolist()
    assert found == ([2, 2] if exchanges else [1, 1])


MEMORY = """
import sys, threading, torch, ckptree, ckptree.torch
import torch.distributed.checkpoint  # What it imports is no part of this.
import safetensors.torch

def anonymous():
    with open("/proc/self/status") as file:
        for line in file:
            if line.startswith("RssAnon"):
                return int(line.split()[1]) >> 10

def most(call):
    peak, done = [anonymous()], threading.Event()
    before = peak[0]
    def watch():
        while not done.wait(0.001):
            peak.append(anonymous())
    thread = threading.Thread(target=watch)
    thread.start()
    call()
    done.set()
    thread.join()
    assert len(peak) > 5
    return max(peak) - before

folder = sys.argv[1]
with ckptree.Store(folder + "/run") as store:
    generator = torch.Generator().manual_seed(1)
    state = {
        str(i): torch.randn(25 << 18, generator=generator) for i in range(8)
    }
    store.save(1, state, borrow=True).result()
    del state
    for name, options in {
        "m.safetensors": {}, "m.pt": {}, "m": {"format": "dcp"}
    }.items():
        path = folder + "/" + name
        print(most(lambda: ckptree.torch.export_checkpoint(
            store, path, **options)))
        print(most(lambda: ckptree.torch.import_checkpoint(
            store, path, step=2, overwrite=True)))
"""


def test_the_host_holds_no_two_copies(tmp_path):
    """Of 200 MiB: a file of safetensors passes through a buffer, out of a
    mapped file nothing is copied, and else there is one."""
    found = subprocess.run(
        [sys.executable, "-c", MEMORY, str(tmp_path)],
        check=True,
        capture_output=True,
        text=True,
    )
    numbers = list(map(int, found.stdout.split()))
    out, into, torch_out, torch_in, dcp_out, dcp_in = numbers
    assert out < 100 and into < 60, numbers
    assert torch_out < 270 and torch_in < 60, numbers
    assert dcp_out < 330 and dcp_in < 330, numbers


def test_numbers_of_numpy_are_read_by_torch_alone(tmp_path):
    numbers = {
        "step": np.int64(3), "loss": np.float32(0.5), "flag": np.bool_(True),
        "list": [np.float64(1.5), (np.uint8(7), 2)],
    }
    with ckptree.Store(tmp_path / "s") as store:
        store.save(1, {"at": numbers}).result()
        file = export_checkpoint(store, tmp_path / "x.pt")
    found = torch.load(file)["at"]
    assert found["step"].dtype == torch.int64 and found["step"] == 3
    assert found["loss"].dtype == torch.float32 and found["loss"] == 0.5
    assert found["flag"].dtype == torch.bool and found["flag"]
    assert found["list"] == [1.5, (7, 2)]


def test_a_scalar_of_a_type_that_is_not_of_numpy(store, tmp_path):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    store.save(1, {"x": ml_dtypes.bfloat16(1.5), "w": torch.ones(1)}).result()
    with pytest.raises(ValueError, match="x: a ml_dtypes.bfloat16 "):
        export_checkpoint(store, tmp_path / "x.pt")
    assert not (tmp_path / "x.pt").exists()


def test_a_state_dict_names_the_items(tmp_path):
    state = torch.nn.Linear(3, 2).state_dict()
    torch.save(state, tmp_path / "lin.pt")
    with ckptree.Store(tmp_path / "s") as store:
        import_checkpoint(store, tmp_path / "lin.pt", step=1)
        names = [leaf.name for leaf in store[1].leaves()]
        assert names == ["bias", "weight"]
        assert torch.equal(
            store.restore(1, like=dict(state))["weight"], state["weight"]
        )


def parts_of_tensors():
    eye = torch.eye(3)
    return {
        "w": torch.ones(2),
        "coo": eye.to_sparse(),
        "m": {"csr": eye.to_sparse_csr(), "v": torch.zeros(1)},
        "q": torch.quantize_per_tensor(eye, 0.1, 0, torch.qint8),
    }


@pytest.mark.filterwarnings("ignore:(Sparse CSR|torch.quantize|TypedStorage)")
def test_a_list_has_the_parts_of_tensors_as_an_import_has(store, tmp_path):
    torch.save(parts_of_tensors(), tmp_path / "m-1.pt")
    import_checkpoint(store, tmp_path / "m-1.pt")
    arrays = {leaf.name for leaf in store[1].leaves() if leaf.shape}
    lent, others = _lending.find(tmp_path / "m-1.pt")
    assert {one.name for one in lent} == arrays
    assert {"w", "coo/.indices", "m/csr/.values", "q/.int_repr"} <= arrays
    assert others == len(list(store[1].leaves())) - len(arrays)
    read = {one.name: one.read() for one in lent}
    assert read["coo/.values"] == np.ones(3, np.float32).tobytes()
    assert read["w"] == np.ones(2, np.float32).tobytes()


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested")
def test_what_no_step_has_is_listed_as_another_entry(tmp_path):
    nested = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])
    nowhere = torch.ones(3, device="meta")
    state = {"n": nested, "o": nowhere, "w": torch.eye(2).to_sparse()}
    torch.save(state, tmp_path / "m.pt")
    lent, others = _lending.find(tmp_path / "m.pt")
    assert [one.name for one in lent] == ["w/.indices", "w/.values"]
    assert others == 3


@pytest.mark.filterwarnings("ignore:(Sparse CSR|torch.quantize|TypedStorage)")
def test_a_sparse_tensor_that_dcp_cannot_hold_is_named(store, tmp_path):
    store.save(1, {"a": parts_of_tensors()}).result()
    for item, said in (("", "a/coo: .*torch.sparse_coo"),
                       ("a/m", "a/m/csr: .*torch.sparse_csr")):
        with pytest.raises(ValueError, match=said):
            export_checkpoint(store, tmp_path / "o", format="dcp", item=item)
    assert not (tmp_path / "o").exists()
    path = export_checkpoint(store, tmp_path / "o.pt")
    found = torch.load(path)["a"]["coo"]
    assert torch.equal(found.to_dense(), torch.eye(3))
