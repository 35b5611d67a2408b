# SPDX-License-Identifier: Apache-2.0
"""Stores of newer engines: refused, or only read, and what to do is said.

A store is made one by a changed record of the store, in both copies of its
journal.
"""

import struct

import ckptree
import numpy as np
import pytest
import xxhash

PREFACE, HEADER = 4096, 120  # Of a file of the journal, and of its records.
ENVELOPE = struct.Struct(">2sBBI")  # Magic, kind, format, length.
# Of the record's fields, each with its length behind: the text in it becomes
# the name of a feature that no engine knows.
CREATED_BY, INCOMPAT, RO_COMPAT = b"\x22", b"\x2a", b"\x32"


def changed(record, format, field):
    """The bytes of a record of the store with another format, or field."""
    size = ENVELOPE.unpack_from(record)[3]
    body = record[ENVELOPE.size + 8 :]
    assert len(body) == size
    version = ckptree.__version__.encode()
    name = CREATED_BY + bytes([len(version)]) + version
    assert body.count(name) == 1
    body = body.replace(name, field + name[1:])
    head = ENVELOPE.pack(b"ck", 1, format, size)
    return head + xxhash.xxh3_64_digest(head + body) + body


def change(store, format=1, field=CREATED_BY):
    """Writes another format, or field, into the record of a closed store: that
    row is put by the first record of the journal, whose hash the next one
    has."""
    folder, places = store / "journal", 0
    hashes = {bytes(16): bytes(16)}  # Of records, as they were and as they are.
    for path in sorted(folder.glob("[ab]-*")):
        data, at = bytearray(path.read_bytes()), PREFACE
        while data[at : at + 4] == b"CKJR":
            rows_bytes, blocks_bytes = struct.unpack_from(">QQ", data, at + 80)
            end = at + HEADER + rows_bytes
            before = xxhash.xxh3_128_digest(data[at:end])
            found = data.find(b"ck\x01\x01", at + HEADER, end)
            if found >= 0:
                size = ENVELOPE.size + 8 + ENVELOPE.unpack_from(data, found)[3]
                record = bytes(data[found : found + size])
                data[found : found + size] = changed(record, format, field)
                places += 1
            data[at + 96 : at + 112] = hashes[bytes(data[at + 96 : at + 112])]
            data[at + 112 : at + 120] = xxhash.xxh3_64_digest(
                data[at : at + 112] + data[at + 120 : end]
            )
            hashes[before] = xxhash.xxh3_128_digest(data[at:end])
            at = end
            if path.name[0] == "a":
                at += blocks_bytes + -(end + blocks_bytes) % 4096
        path.write_bytes(data)
    tip = bytearray((folder / "tip").read_bytes())
    tip[52:68] = hashes[bytes(tip[52:68])]
    tip[68:76] = xxhash.xxh3_64_digest(tip[:68])
    (folder / "tip").write_bytes(tip)
    assert places == 2  # One in each copy.


@pytest.fixture
def closed(tmp_path):
    with ckptree.Store(tmp_path / "s") as store:
        store.save(1, {"w": np.arange(3)}).result(timeout=60)
    return tmp_path / "s"


def openings(path):
    return {
        "to write": lambda: ckptree.Store(path),
        "to read": lambda: ckptree.open(path),
        "to manage": lambda: ckptree.CheckpointManager(path),
    }


def test_a_record_that_did_not_change_opens(closed):
    journal = sorted((closed / "journal").iterdir())
    before = [path.read_bytes() for path in journal]
    change(closed)
    assert [path.read_bytes() for path in journal] == before
    for call in openings(closed).values():
        call().close()


@pytest.mark.parametrize("how", ["to write", "to read", "to manage"])
def test_a_newer_format_is_refused_with_both_numbers(closed, how):
    change(closed, format=99)
    with pytest.raises(ckptree.StateError, match="99.* 1.*newer"):
        openings(closed)[how]()


@pytest.mark.parametrize("how", ["to write", "to read", "to manage"])
def test_an_unknown_feature_is_refused_by_name(closed, how):
    change(closed, field=INCOMPAT)
    with pytest.raises(
        ckptree.StateError, match=f"'{ckptree.__version__}'.*newer"
    ):
        openings(closed)[how]()


def test_what_an_older_engine_may_only_read(closed):
    change(closed, field=RO_COMPAT)
    for how in ("to write", "to manage"):
        with pytest.raises(ckptree.StateError, match="open it read only, or"):
            openings(closed)[how]()
    with ckptree.open(closed) as reader:
        assert reader.info().read_only
        np.testing.assert_array_equal(reader.restore(1)["w"], np.arange(3))
        with pytest.raises(ckptree.StateError, match="read only"):
            reader.delete(1)
    with ckptree.CheckpointManager(closed, read_only=True) as manager:
        assert manager.latest_step() == 1
