# SPDX-License-Identifier: Apache-2.0
"""Files of torch.save() whose records are not what their pickle asks for, or
whose pickle asks for any memory: each is refused by name, before a tensor takes
bytes that are not its own, and before anything is allocated."""

import codecs
import collections
import re
import struct
import zipfile

import ckptree
import numpy as np
import pytest

torch = pytest.importorskip(
    "torch", reason="PyTorch could not be installed: see requirements_torch.txt"
)

from ckptree import lending
from ckptree.torch import _lending, import_checkpoint


@pytest.fixture
def saved(tmp_path):
    path = tmp_path / "g-1.pt"
    state = {"w": torch.arange(1.0, 9.0), "z": torch.full((100,), 7.0)}
    torch.save(state, path)
    return path


def rewritten(path, change, method=zipfile.ZIP_STORED):
    """The file with other records; change(name, bytes) gives some of each."""
    with zipfile.ZipFile(path) as archive:
        records = [(n, archive.read(n)) for n in archive.namelist()]
    with zipfile.ZipFile(path, "w", method) as archive:
        for name, data in records:
            for new_name, new_data in change(name, data):
                archive.writestr(new_name, new_data)


def only(end, *instead):
    """Instead of the record whose name ends so."""

    def change(name, data):
        if not name.endswith(end):
            return [(name, data)]
        return [(name[: -len(end)] + n, make(data)) for n, make in instead]

    return lambda path: rewritten(path, change)


def same(data):
    return data


def pickled(old, new):
    """The pickle says something else."""

    def replace(data):
        assert old in data
        return data.replace(old, new)

    return only("data.pkl", ("data.pkl", replace))


def overlapping(path):
    """The directory says that data/1 lies where data/0 does."""
    with zipfile.ZipFile(path) as archive:
        start = archive.start_dir
        places = {
            info.filename[-6:]: info.header_offset
            for info in archive.infolist()
        }
    data = bytearray(path.read_bytes())
    place = struct.pack("<I", places["data/1"])
    at = data.index(place, start)
    data[at : at + 4] = struct.pack("<I", places["data/0"])
    path.write_bytes(data)


def flipped(path):
    data = bytearray(path.read_bytes())
    data[data.index(struct.pack("<3f", 7, 7, 7)) + 40] ^= 1
    path.write_bytes(data)


KEY_1 = b"X\x01\x00\x00\x001q"
KEY_A = b"X\x01\x00\x00\x00aq"
KEY_B = b"X\x01\x00\x00\x00Aq"
WRONG = {
    "short": (only("data/0", ("data/0", lambda d: d[:8])),
              "g-1/data/0 has 8 bytes, and its tensor needs 32"),
    "none": (only("data/1"), "no record data/1"),
    "twice": (only("data/1", ("data/1", same), ("DATA/1", same)),
              "two records g-1/DATA/1"),
    "no pickle": (only("data.pkl"), "no record data.pkl"),
    "two keys": (
        lambda path: [
            pickled(b"X\x01\x00\x00\x000q", KEY_A)(path),
            pickled(KEY_1, KEY_B)(path),
            only("data/0", ("data/a", lambda d: bytes(400)))(path),
        ],
        "data/a and data/A are one record",
    ),
    "below nothing": (pickled(b"K\x08tq", b"J\xff\xff\xff\xfftq"),
                      "data/0 has -1 elements"),
    "overlap": (overlapping, "records g-1/data/[01] and g-1/data/[01] overlap"),
    "compressed": (
        lambda path: rewritten(
            path, lambda *record: [record], zipfile.ZIP_DEFLATED
        ),
        "compressed",
    ),
    "a bit": (flipped, "g-1/data/1 are not those that were written"),
}


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize("what", WRONG)
def test_records_that_are_not_as_the_pickle_says(store, saved, what):
    change, said = WRONG[what]
    change(saved)
    with pytest.raises(ckptree.CorruptionError, match=said) as error:
        import_checkpoint(store, saved)
    assert str(saved) in str(error.value)
    assert len(store) == 0
    if what != "a bit":  # That takes all bytes of the file.
        with pytest.raises(ckptree.CorruptionError, match=said):
            _lending.find(saved)


def test_a_bit_is_found_by_who_lends_the_tensor(saved):
    """And by nobody else: to look at one does not read the others."""
    flipped(saved)
    lent, _ = _lending.find(saved)
    by_name = {one.name: one for one in lent}
    assert len(by_name) == 2
    damaged = 0
    for one in lent:
        try:
            one.read()
        except ckptree.CorruptionError as error:
            assert "g-1/data/1 are not those" in str(error)
            assert str(saved) in str(error)
            damaged += 1
    assert damaged == 1


def test_what_is_made_of_records_is_lent(tmp_path):
    """Its memory is that of no record."""
    eye = torch.eye(3)
    state = {
        "coo": eye.to_sparse(),
        "q": torch.quantize_per_tensor(eye, 0.1, 0, torch.qint8),
        "view": eye[1:, :2],
        "empty": torch.zeros(0),
    }
    path = tmp_path / "m-1.pt"
    torch.save(state, path)
    lent, _ = _lending.find(path)
    read = {one.name: one.read() for one in lent}
    assert read["view"] == eye[1:, :2].contiguous().numpy().tobytes()
    assert len(read["q/.int_repr"]) == 9 and read["empty"] == b""


def test_a_file_that_was_written_without_crc(store, saved):
    torch.serialization.set_crc32_options(False)
    try:
        torch.save({"w": torch.full((3,), 7.0)}, saved)
    finally:
        torch.serialization.set_crc32_options(True)
    assert import_checkpoint(store, saved) == [1]
    assert store[1].torch()["w"].tolist() == [7, 7, 7]
    (one,) = _lending.find(saved)[0]
    assert one.read() == store[1].torch()["w"].numpy().tobytes()


def test_records_that_are_longer_are_read(store, saved):
    """As of a storage whose bytes are no whole number of elements."""
    only("data/0", ("data/0", lambda data: data + b"more"))(saved)
    import_checkpoint(store, saved)
    assert store[1].torch()["w"].tolist() == [1, 2, 3, 4, 5, 6, 7, 8]


def test_an_old_file_that_asks_for_more_than_it_has(store, tmp_path):
    path = tmp_path / "old-1.pt"
    torch.save(
        {"w": torch.ones(77)}, path, _use_new_zipfile_serialization=False
    )
    data, count = re.subn(b"(cpuq.)KM", b"\\1M\xff\xff", path.read_bytes())
    assert count == 1
    path.write_bytes(data)
    with pytest.raises(ckptree.CorruptionError, match="need 262140 bytes"):
        import_checkpoint(store, path)


# ---- What would take any memory ----


class Call:
    """Is pickled as the call of a function."""

    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


VAST = {
    "bytearray": Call(bytearray, 2**40),
    "bytearray of a Counter": Call(bytearray, Call(collections.Counter)),
    "ndarray": Call(np.ndarray, (2**40,)),
    "_reconstruct": Call(np.zeros(1).__reduce__()[0], np.ndarray, (2**40,), 0),
    "scalar": Call(np.float64(0).__reduce__()[0], np.dtype("V1000000000")),
    "Tensor": Call(torch.Tensor, 2**40),
    "FloatTensor": Call(torch.FloatTensor, 2**40),
    "UntypedStorage": Call(torch.UntypedStorage, 2**40),
    "encode": Call(codecs.encode, Call(codecs.encode, "x", "utf-32"), "hex"),
    "Tensor of a type": Call(
        torch._tensor._rebuild_from_type_v2,
        *(torch.Tensor, torch.Tensor, (2**40,), {}),
    ),
}


@pytest.mark.parametrize("what", VAST)
@pytest.mark.parametrize("archive", [True, False])
def test_a_call_that_takes_any_memory(store, tmp_path, what, archive):
    path = tmp_path / "m-1.pt"
    torch.save(
        {"w": torch.ones(2), "x": VAST[what]},
        path,
        _use_new_zipfile_serialization=archive,
    )
    said = rf"it calls \S*{what.partition(' ')[0]} with "
    with pytest.raises(ckptree.UnsupportedError, match=said) as error:
        import_checkpoint(store, path)
    assert str(path) in str(error.value)
    assert len(store) == 0
    with pytest.raises(ckptree.UnsupportedError, match=said):
        _lending.find(path)


def test_a_copy_of_a_tensor_whose_elements_share_memory(store, saved):
    """As tensors of other devices are saved: 2**40 elements out of one."""
    other = torch.ones(1).expand(2**20)
    torch.save({"w": Copied(other)}, saved)
    import_checkpoint(store, saved)
    assert store[1].torch()["w"].shape == (2**20,)
    torch.save({"w": Copied(torch.ones(1).expand(2**40))}, saved)
    with pytest.raises(ckptree.UnsupportedError, match="share memory"):
        import_checkpoint(store, saved, step=2)


def test_tensors_that_share_memory_in_a_sparse_one(store, saved):
    """A step of 805 MB out of 1,789 bytes: they lie within an argument."""
    ones = torch.ones(1, dtype=torch.int64).expand(1, 2**26)
    vast = torch.ones(1).expand(2**26)
    sparse = torch.sparse_coo_tensor(
        ones, vast, (5,), check_invariants=False
    )
    torch.save({"s": sparse}, saved)
    with pytest.raises(ckptree.UnsupportedError, match="share memory"):
        import_checkpoint(store, saved)
    rebuild, layout = torch._utils._rebuild_sparse_tensor, torch.sparse_coo
    data = ones, vast, torch.Size([5])
    ring = [vast]
    ring[:0] = [ring]
    for hidden in (
        list(data),
        collections.OrderedDict.fromkeys(data),
        dict.fromkeys(data),
        (torch.nn.Parameter(vast, requires_grad=False), *data[2:]),
        ([[0]] * 5000, vast),
        ring,
    ):
        saved.unlink()
        torch.save({"s": Call(rebuild, layout, hidden)}, saved)
        with pytest.raises(ckptree.UnsupportedError, match="share memory"):
            import_checkpoint(store, saved)
    assert len(store) == 0
    # Beside one that shares no memory it is as ever.
    sparse = torch.eye(3).to_sparse()
    torch.save({"s": sparse, "e": torch.ones(1).expand(2**20)}, saved)
    import_checkpoint(store, saved)
    assert torch.equal(store[1].torch()["s"].to_dense(), torch.eye(3))


@pytest.mark.parametrize("size", [[2**40], torch.Size([2**40])])
def test_a_size_that_is_no_tuple_of_numbers(store, saved, size):
    storage = torch.ones(1).untyped_storage()
    storage = torch.storage.TypedStorage(
        wrap_storage=storage, dtype=torch.float32, _internal=True
    )
    rebuild = torch._utils._rebuild_tensor_v2
    hooks = collections.OrderedDict()
    call = Call(rebuild, storage, 0, size, (0,), False, hooks)
    torch.save({"w": call}, saved)
    with pytest.raises(ckptree.Error, match="cut or damaged|size"):
        import_checkpoint(store, saved)


@pytest.mark.parametrize("function", [torch.Tensor, torch.nn.Parameter])
def test_a_tensor_that_gets_its_size_later(store, saved, function):
    torch.save({"w": Built(function)}, saved)
    with pytest.raises(ckptree.UnsupportedError, match=r"set_\(\) .* state"):
        import_checkpoint(store, saved)


class Built:
    def __init__(self, function):
        self.function = function

    def __reduce__(self):
        storage = torch.ones(1).untyped_storage()
        return self.function, (), (storage, 0, (2**40,), (0,))


class Copied:
    def __init__(self, tensor):
        self.tensor = tensor

    def __reduce__(self):
        rebuild = torch._utils._rebuild_device_tensor_from_cpu_tensor
        return rebuild, (self.tensor, torch.float64, "cpu", False)


def test_bytes_that_can_be_changed_are_shown_beside_the_rest(store, saved):
    torch.save({"w": torch.ones(2), "b": bytearray(b"abc")}, saved)
    lent, others = _lending.find(saved)
    assert [one.name for one in lent] == ["w"] and others == 1
    with pytest.raises(TypeError, match="b: bytearray is no leaf"):
        import_checkpoint(store, saved)


def test_a_function_that_the_program_allows_is_called(store, saved):
    torch.save({"w": torch.ones(2), "x": Call(allowed, 3)}, saved)
    with pytest.raises(ckptree.UnsupportedError, match="allowed, which is cod"):
        import_checkpoint(store, saved)
    with torch.serialization.safe_globals([allowed]):
        import_checkpoint(store, saved)
    assert store[1].torch()["x"] == 3


def allowed(number):
    return number


def test_memory_that_there_is_not_is_told_of_the_file(saved, monkeypatch):
    def load(*_, **__):
        raise MemoryError

    monkeypatch.setattr(torch, "load", load)
    with pytest.raises(ckptree.NoSpaceError, match="g-1.pt: .*memory"):
        _lending.find(saved)


def test_memory_that_there_is_not_is_told_to_the_command():
    assert "not enough memory" in lending._told(MemoryError())
