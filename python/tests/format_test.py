"""Stores of newer engines: refused, or only read, and what to do is said.

A store is made one by a changed record of the store: it stands in the
write-ahead log until more is written.
"""

import struct

import ckptree
import numpy as np
import pytest
import xxhash

LOG_HEADER = struct.Struct("<IHB")  # Checksum, length, type.
ENVELOPE = struct.Struct(">2sBBI")  # Magic, kind, format, length.
# Of the record's fields, each with its length behind: the text in it becomes
# the name of a feature that no engine knows.
CREATED_BY, INCOMPAT, RO_COMPAT = b"\x22", b"\x2a", b"\x32"


def crc32c(data):
    crc = ~0 & 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return ~crc & 0xFFFFFFFF


def change(store, format=0, field=CREATED_BY):
    """Writes another format, or field, into the record of a closed store."""
    changed = 0
    for path in (store / "db").glob("*.log"):
        log = bytearray(path.read_bytes())
        at = 0
        while at + LOG_HEADER.size < len(log):
            _, length, kind = LOG_HEADER.unpack_from(log, at)
            if kind == 0:
                break
            begin, end = at + LOG_HEADER.size, at + LOG_HEADER.size + length
            found = log.find(b"ck\x01\x00", begin, end)
            if found >= 0:
                body_at = found + ENVELOPE.size + 8
                size = ENVELOPE.unpack_from(log, found)[3]
                body = bytes(log[body_at : body_at + size])
                version = ckptree.__version__.encode()
                name = CREATED_BY + bytes([len(version)]) + version
                assert body.count(name) == 1
                body = body.replace(name, field + name[1:])
                head = ENVELOPE.pack(b"ck", 1, format, size)
                log[found : body_at + size] = (
                    head + xxhash.xxh3_64_digest(head + body) + body
                )
                crc = crc32c(log[at + 6 : end])
                masked = ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
                struct.pack_into("<I", log, at, masked)
                changed += 1
            at = end
        path.write_bytes(log)
    assert changed == 1


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
    change(closed)
    for call in openings(closed).values():
        call().close()


@pytest.mark.parametrize("how", ["to write", "to read", "to manage"])
def test_a_newer_format_is_refused_with_both_numbers(closed, how):
    change(closed, format=99)
    with pytest.raises(ckptree.StateError, match="99.* 0.*newer"):
        openings(closed)[how]()


@pytest.mark.parametrize("how", ["to write", "to read", "to manage"])
def test_an_unknown_feature_is_refused_by_name(closed, how):
    change(closed, field=INCOMPAT)
    with pytest.raises(ckptree.StateError, match=f"'{ckptree.__version__}'.*newer"):
        openings(closed)[how]()


def test_what_an_older_engine_may_only_read(closed):
    change(closed, field=RO_COMPAT)
    for how in ("to write", "to manage"):
        with pytest.raises(ckptree.StateError, match="open it read only, or"):
            openings(closed)[how]()
    with ckptree.open(closed) as reader:
        assert reader.about().read_only
        np.testing.assert_array_equal(reader.restore(1)["w"], np.arange(3))
        with pytest.raises(ckptree.StateError, match="read only"):
            reader.delete(1)
    with ckptree.CheckpointManager(closed, read_only=True) as manager:
        assert manager.latest_step() == 1
