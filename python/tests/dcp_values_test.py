# SPDX-License-Identifier: Apache-2.0
"""What PyTorch's Distributed Checkpoint takes as bytes, as a store gives it
back."""

import collections
import io
import os
import re

import ckptree
import ckptree.torch
import numpy as np
import pytest

torch = pytest.importorskip(
    "torch",
    reason="PyTorch could not be installed: see requirements_torch.txt",
)

import torch.distributed.checkpoint as dcp
from ckptree import _engine
from ckptree.torch import _dcp_items
from ckptree.torch.dcp import StoreReader, StoreWriter

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")


def state():
    return {
        "dtype": torch.float16,
        "size": torch.Size([2, 3]),
        "stream": io.BytesIO(b"abc"),
        "numpy": np.arange(3, dtype="u2"),
        "list": [1, torch.Size([4])],
        "plain": 7,
    }


def shown(value):
    """With its type."""
    if isinstance(value, io.BytesIO):
        value = ("stream", value.getvalue())
    if isinstance(value, np.ndarray):
        value = (value.dtype.name, value.tolist())
    if isinstance(value, (dict, list)):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        return {key: shown(child) for key, child in items}
    return type(value), value


@pytest.fixture
def saved(tmp_path):
    with StoreWriter(tmp_path / "run") as writer:
        dcp.save(state(), checkpoint_id=1, storage_writer=writer)
    with ckptree.open(tmp_path / "run") as store:
        yield store


def test_a_step_gives_what_was_saved(saved):
    assert shown(saved[1].torch()) == shown(state())
    assert shown(ckptree.torch.load(saved)) == shown(state())
    with StoreReader(saved) as reader:
        again = dict.fromkeys(state())
        dcp.load(again, checkpoint_id=1, storage_reader=reader)
    assert shown(again) == shown(state())


@pytest.mark.filterwarnings("ignore:.*quantize")
def test_dcp_gets_what_a_store_saved(tmp_path):
    eye = torch.eye(3)
    quantized = torch.quantize_per_tensor(eye, 0.1, 2, torch.qint8)
    values = {
        "dtype": torch.bfloat16,
        "size": torch.Size([2, 3]),
        "deep": {"d": [torch.float16, {"s": torch.Size([])}]},
        "sparse": eye.to_sparse(),
        "quantized": quantized,
    }
    with ckptree.Store(tmp_path / "run") as store:
        store.save(1, values).result()
    found = {
        **dict.fromkeys(values),
        "deep": {"d": [None, {"s": None}]},
    }
    with StoreReader(tmp_path / "run") as reader:
        dcp.load(found, checkpoint_id=1, storage_reader=reader)
    for name in ("dtype", "size", "deep"):
        assert shown(found[name]) == shown(values[name])
    assert torch.equal(found["sparse"].to_dense(), eye)
    assert torch.equal(found["quantized"].int_repr(), quantized.int_repr())
    assert found["quantized"].q_scale() == 0.1


def test_an_app_gets_what_was_saved(saved):
    app = {"dtype": torch.int8, "size": None, "stream": None, "list": []}
    app["numpy"] = np.zeros(3)
    ckptree.torch.load(saved, app, partial=True)
    assert shown(app) == shown({key: state()[key] for key in app})


def test_without_pytorch_there_are_bytes(saved):
    found = saved.restore(1)
    assert shown(found["numpy"]) == shown(state()["numpy"])
    assert found["stream"] == {"bytes": b"abc"}
    assert list(found["dtype"]) == ["bytes"]
    assert found["plain"] == 7


def in_itself():
    found = [1]
    found.append(found)
    return (found,)


@pytest.mark.parametrize("value, said", [
    ([(collections.OrderedDict(z=np.arange(3)),), 1],
     r"k/\[0\]/\[0\]: a collections.OrderedDict .*arrays of NumPy"),
    (({"a": [object()]},), r"k/\[0\]/a/\[0\]: object is no leaf"),
    (in_itself(), "k: it contains itself"),
], ids=["array", "object", "in itself"])
def test_what_is_at_fault_is_named(tmp_path, value, said):
    with StoreWriter(tmp_path / "run") as writer:
        with pytest.raises(dcp.CheckpointException) as caught:
            dcp.save({"k": value}, checkpoint_id=1, storage_writer=writer)
    (error,) = [error for error, _ in caught.value.failures.values()]
    assert isinstance(error, TypeError) and re.match(said, str(error))


class Harmful:
    """Makes a folder where it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (self.path,)


def test_nothing_is_executed(tmp_path):
    harm = tmp_path / "harm"
    stream = io.BytesIO()
    torch.save(Harmful(str(harm)), stream)
    of = _dcp_items
    key = of.DICT_KEY
    node = of.Branch(of.CUSTOM, of.SAVED, [(key, "bytes", stream.getvalue())])
    with ckptree.Store(tmp_path / "run") as store:
        _engine.save(
            store._live(),
            step=1,
            state=of.Branch(of.DICT, "", [(key, "x", node)]),
            rules=of.Rules(),
            overwrite=False,
            delete_later=False,
            branch="",
            metrics={},
            note="",
            metadata="",
            borrow=False,
        ).wait_committed(60)
        with pytest.raises(
            ckptree.UnsupportedError, match="x: .*weights_only"
        ):
            store[1].torch()
        with pytest.raises(
            ckptree.UnsupportedError, match="x: .*weights_only"
        ):
            ckptree.torch.load(store, {"x": None})
        assert list(store.restore(1)["x"]) == ["bytes"]
    assert not harm.exists()
