# SPDX-License-Identifier: Apache-2.0
"""What is more than plain tensors and numbers, in files of torch.save() and in
folders of DCP: quantized tensors, types, sizes, dicts with nothing in them."""

import ckptree
import pytest

torch = pytest.importorskip(
    "torch", reason="PyTorch could not be installed: see requirements_torch.txt"
)
pytest.importorskip(
    "safetensors",
    reason="safetensors could not be installed: see requirements_torch.txt",
)

import torch.distributed.checkpoint as dcp
from ckptree.torch import (
    _dcp_files,
    _lending,
    export_checkpoint,
    import_checkpoint,
)
from torch.distributed.checkpoint.metadata import (
    ChunkStorageMetadata,
    MetadataIndex,
)

pytestmark = pytest.mark.filterwarnings(
    "ignore:(torch.distributed is|torch.quantize|TypedStorage|.*quantiz)"
)


def quantized():
    """Per tensor, per channel, and of another type and an axis behind."""
    w = torch.linspace(-1, 1, 12).view(3, 4)
    scales, zeros = torch.tensor([0.1, 0.2, 0.3]), torch.tensor([0, 1, 2])
    of = torch.quantize_per_channel
    return {
        "a": torch.quantize_per_tensor(w, 0.1, 3, torch.qint8),
        "m": {"b": of(w, scales, zeros, 0, torch.quint8)},
        "c": of(w.T.contiguous(), scales, zeros, 1, torch.qint8),
        "w": torch.ones(2),
    }


def assert_quantized(found):
    for one, other in (
        (found["a"], quantized()["a"]),
        (found["m"]["b"], quantized()["m"]["b"]),
        (found["c"], quantized()["c"]),
    ):
        assert one.qscheme() == other.qscheme() and one.dtype == other.dtype
        assert torch.equal(one.int_repr(), other.int_repr())
        assert torch.equal(one.dequantize(), other.dequantize())
    assert found["w"].tolist() == [1, 1]


def test_quantized_tensors_in_a_folder_of_dcp(store, tmp_path):
    dcp.save(quantized(), checkpoint_id=tmp_path / "d-1", no_dist=True)
    import_checkpoint(store, tmp_path / "d-1")
    assert_quantized(store[1].torch())
    path = export_checkpoint(store, tmp_path / "d-2", format="dcp")
    import_checkpoint(store, path)
    assert_quantized(store[2].torch())
    lent, others = _lending.find(path)
    assert [one.name for one in lent] == ["w"] and others == 3


def test_a_quantized_tensor_in_two_parts_is_named(
    store, tmp_path, monkeypatch
):
    """As several ranks would save it; whose scales count nobody can say."""
    dcp.save(quantized(), checkpoint_id=tmp_path / "d-1", no_dist=True)
    read = _dcp_files._metadata

    def halved(folder):
        found = read(folder)
        about = found.state_dict_metadata["m.b"]
        (chunk,) = about.chunks
        where = found.storage_data[MetadataIndex("m.b", chunk.offsets)]
        about.chunks = [
            ChunkStorageMetadata(torch.Size([0, 0]), torch.Size([1, 4])),
            ChunkStorageMetadata(torch.Size([1, 0]), torch.Size([2, 4])),
        ]
        found.storage_data[MetadataIndex("m.b", torch.Size([1, 0]))] = where
        return found

    monkeypatch.setattr(_dcp_files, "_metadata", halved)
    with pytest.raises(ckptree.UnsupportedError, match="m.b: .*quint8"):
        import_checkpoint(store, tmp_path / "d-1")
    assert len(store) == 0


def test_types_and_sizes_come_in_and_go_out_as_they_are(store, tmp_path):
    state = {
        "dtype": torch.float16, "size": torch.Size([2, 3]),
        "q": [torch.qint8, {"none": torch.Size([])}], "lr": 0.5}
    torch.save(state, tmp_path / "m-1.pt")
    import_checkpoint(store, tmp_path / "m-1.pt")
    path = export_checkpoint(store, tmp_path / "again.pt")
    found = torch.load(path, weights_only=True)
    assert found == state and type(found["size"]) is torch.Size


def test_bytes_of_any_length_come_in_and_go_to_dcp(store, tmp_path):
    state = {"none": b"", "some": b"\x00a", "in": [b"", {"w": torch.ones(1)}]}
    torch.save(state, tmp_path / "m-1.pt")
    dcp.save(state, checkpoint_id=tmp_path / "d-2", no_dist=True)
    import_checkpoint(store, tmp_path / "m-1.pt")
    import_checkpoint(store, tmp_path / "d-2")
    for step in (1, 2):
        assert store[step].torch() == state
    path = export_checkpoint(store, tmp_path / "d", format="dcp")
    import_checkpoint(store, path, step=3)
    assert store[3].torch() == state
    # PyTorch itself refuses b"" in a file of its own.
    with pytest.raises(ValueError, match="in/.0.: .*length 0|none: .*length 0"):
        export_checkpoint(store, tmp_path / "again.pt")
    assert not (tmp_path / "again.pt").exists()


def test_bytes_by_their_number_are_refused(store, tmp_path):
    class Many:
        def __reduce__(self):
            return bytes, (1 << 40,)

    torch.save({"a": Many(), "w": torch.ones(1)}, tmp_path / "m-1.pt")
    with torch.serialization.safe_globals([bytes]):
        with pytest.raises(ckptree.UnsupportedError, match="number of its"):
            import_checkpoint(store, tmp_path / "m-1.pt")
    assert len(store) == 0


def test_empty_dicts_go_to_a_folder_of_dcp_and_come_back(store, tmp_path):
    state = {
        "k0": {}, "k1": True, "deep": {"x": {"y": {}}, "l": [{}, 1, [{}]]},
        "optim": torch.optim.SGD([torch.ones(1)], 0.5).state_dict()}
    store.save(1, state).result()
    path = export_checkpoint(store, tmp_path / "d", format="dcp")
    import_checkpoint(store, path, step=2)
    assert store[2].torch() == store[1].torch() == state
    # DCP itself reads what it asks for, as out of a folder of its own.
    other = torch.optim.SGD([torch.ones(1)], 0.1).state_dict()
    into = {"k0": {}, "k1": False, "optim": other}
    dcp.load(into, checkpoint_id=path, no_dist=True)
    assert into == {key: state[key] for key in into}
