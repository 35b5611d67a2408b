# SPDX-License-Identifier: Apache-2.0
"""The .metadata of folders of DCP that were made to change the program that
reads them, or to take its memory or its time: each is refused by name."""

import pickle
import resource
import struct

import ckptree
import pytest
from program import run

torch = pytest.importorskip(
    "torch", reason="PyTorch could not be installed: see requirements_torch.txt"
)

import torch.distributed.checkpoint as dcp
from ckptree.torch import _dcp_files, _dcp_pickle, _lending, import_checkpoint
from torch.distributed.checkpoint import metadata
from torch.distributed.checkpoint.metadata import (
    Metadata,
    MetadataIndex,
    TensorStorageMetadata,
)

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")

STATE = {"w": torch.ones(3), "m": {"a": torch.zeros(2, 3), "n": [1, "x"]}}


@pytest.fixture
def folder(tmp_path):
    dcp.save(dict(STATE), checkpoint_id=tmp_path / "m-1")
    return tmp_path / "m-1"


def refused(folder, data, said):
    (folder / ".metadata").write_bytes(data)
    for read in (_dcp_files.read, _lending.find):
        with pytest.raises(
            (ckptree.CorruptionError, ckptree.UnsupportedError), match=said
        ) as error:
            read(folder)
        assert ".metadata" in str(error.value)
        assert len(str(error.value)) < 1000


def name(module, what):
    return b"c%s\n%s\n" % (module.encode(), what.encode())


INDEX = name(metadata.__name__, "MetadataIndex")
SIZE = name("torch", "Size")


def text(value):
    return b"X" + struct.pack("<I", len(value)) + value


# What Python's own unpickler does: each sets __hash__ of the class.
SETS_A_CLASS = {
    "by attributes": INDEX + b"(N}" + text(b"__hash__") + SIZE + b"stb.",
    "by its dict": INDEX + b"}" + text(b"__hash__") + SIZE + b"sb.",
}


def test_no_class_is_changed(folder):
    # Where nothing is done against it, it is.
    changed = run(
        "import pickle, sys\n"
        "from torch.distributed.checkpoint.metadata import MetadataIndex\n"
        "before = MetadataIndex.__hash__\n"
        "pickle.loads(bytes.fromhex(sys.argv[1]))\n"
        "print(MetadataIndex.__hash__ is not before)\n",
        (b"\x80\x02" + SETS_A_CLASS["by attributes"]).hex(),
    )
    assert changed.stdout == "True\n", changed.stderr
    before = MetadataIndex.__hash__
    for data in SETS_A_CLASS.values():
        refused(folder, b"\x80\x02" + data, "damaged")
        assert MetadataIndex.__hash__ is before
    # A later save of the same process is as it was.
    dcp.save(dict(STATE), checkpoint_id=folder.parent / "later")
    assert _dcp_files.read(folder.parent / "later")["m"]["n"] == [1, "x"]


def doubled(depth, kind):
    value = kind()
    for _ in range(depth):
        value = kind((value, value))
    return value


def test_what_would_be_long_is_not_written_out(folder):
    one = pickle.loads((folder / ".metadata").read_bytes())
    for kind in (list, tuple):
        value = doubled(40, kind)
        for found in (
            Metadata({"w": value}, storage_data={}),
            Metadata({}, storage_data={MetadataIndex("w"): value}),
            Metadata(one.state_dict_metadata, {"w": value}, one.storage_data),
        ):
            said = "damaged|does not say|no place"
            refused(folder, pickle.dumps(found), said)
    info = next(iter(one.storage_data.values()))
    info.relative_path = doubled(40, tuple)
    refused(folder, pickle.dumps(one), "a builtins.tuple, which is no file")


def test_a_key_that_would_be_hashed_without_end(folder):
    made = b")" + b"".join(b"q\x00h\x00\x86" for _ in range(40))
    refused(folder, b"\x80\x02}" + made + b"Ns.", "a key that is no name")
    state = b"}(" + text(b"fqn") + made + b"u"
    key = INDEX + b")\x81" + state + b"b"
    refused(folder, b"\x80\x02}" + key + b"Ns.", "a key that is no name")


def test_no_memory_is_taken_for_a_number(folder):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for data in (
        b"\x80\x02]r\xff\xff\xff\x0f.",  # A place in a list of so many.
        b"\x80\x02X\xff\xff\xff\x0fshort.",
        b"\x80\x02\x8e" + struct.pack("<Q", 2**40) + b"short.",
        # A size of many numbers, again and again.
        b"\x80\x02(" + b"K\x01" * 99 + b"t\x85q\x00" + SIZE + b"h\x00R.",
    ):
        refused(folder, data, "damaged")
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert after - before < 100_000  # KiB.


@pytest.mark.parametrize(
    "data",
    [
        b"", b"\x80\x02", b"\x80\x02.", b"\x80\x02N.", b"\x80\x02}q\x00h\x01.",
        b"\x80\x02\x86.", b"\x80\x02t.", b"\x80\x02NNa.", b"\x80\x02NNNs.",
        b"\x80\x02N}b.", b"\x80\x02NN\x81.", b"\x80\x02" + INDEX + b".",
        b"\x80\x02]" + INDEX + b"a.", b"\x80\x02" + INDEX + b"N\x85\x81.",
        b"\x80\x02" + INDEX + b")R.", b"\x80\x02" + INDEX + b")\x81Nb.",
        # Given its fields twice.
        b"\x80\x02" + INDEX + b")\x81}b}b.",
        b"\x80\x02" + SIZE + text(b"ab") + b"\x85R.",
        b"\x80\x04NN\x93.",
    ],
    ids=lambda data: data[:24].hex() or "nothing",
)
def test_pickles_that_are_none_of_a_folder(folder, data):
    refused(folder, data, "damaged")


def test_every_pickle_protocol_is_read(folder):
    file = folder / ".metadata"
    found = pickle.loads(file.read_bytes())
    for protocol in (2, 3, 4, 5):
        file.write_bytes(pickle.dumps(found, protocol))
        with open(file, "rb") as opened:
            assert _dcp_pickle.load(opened) == found
        assert _dcp_files.read(folder)["m"]["n"] == [1, "x"]


def test_fields_that_are_not_there(folder):
    tensor = TensorStorageMetadata.__new__(TensorStorageMetadata)
    found = Metadata({"w": tensor}, storage_data={})
    refused(folder, pickle.dumps(found), "damaged: .*no attribute")


def test_any_byte_may_be_another(store, folder):
    """Damage is said in one line, whatever byte it is."""
    file = folder / ".metadata"
    data = file.read_bytes()
    wrong = 0
    for at in range(len(data)):
        for value in (data[at] ^ 1, 255, ord("b")):
            changed = data[:at] + bytes([value]) + data[at + 1 :]
            file.write_bytes(changed)
            try:
                found = _dcp_files._metadata(folder)
                _dcp_files._check(folder, found)
                _dcp_files._nested(
                    folder,
                    dict.fromkeys(found.state_dict_metadata),
                    found.planner_data,
                )
            except (ckptree.CorruptionError, ckptree.UnsupportedError):
                wrong += 1
    assert wrong > len(data)
    file.write_bytes(data)
    assert import_checkpoint(store, folder) == [1]
