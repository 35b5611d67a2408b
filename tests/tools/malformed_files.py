# SPDX-License-Identifier: Apache-2.0
"""Files that are cut, damaged, or lie, for malformed_test.py: of each kind one
that is right, and what is done to it."""

import io
import json
import struct
import zipfile


def safetensors(head, data):
    text = head if isinstance(head, bytes) else json.dumps(head).encode()
    return struct.pack("<Q", len(text)) + text + data


def npy(head, data, version=b"\x01\x00"):
    text = head.encode()
    size = struct.pack("<H" if version[0] == 1 else "<I", len(text))
    return b"\x93NUMPY" + version + size + text + data


def zipped(entries):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, data in entries:
            archive.writestr(name, data)
    return out.getvalue()


def gguf(shape=(2,), number=0, offset=0, name=b"w", arrays=1, version=3,
         keys=0, data=bytes(32)):
    head = b"GGUF" + struct.pack("<IQQ", version, arrays, keys)
    head += struct.pack("<Q", len(name)) + name + struct.pack("<I", len(shape))
    head += struct.pack(f"<{len(shape)}Q", *shape)
    head += struct.pack("<IQ", number, offset)
    return head + bytes(-len(head) % 32) + data


EIGHT = struct.pack("<2f", 1, 2)
W = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}
NPY = "{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }\n"


def _tensors():
    for head in (
        b"", b"{", b"[]", b"null", b"\xff\xfe", b'{"w":1}', b'{"w":{}}',
        b"[" * 3000, b'{"w":' * 3000, {"w": {**W, "dtype": "X1"}},
        {"w": {**W, "dtype": 3}}, {"w": {**W, "shape": "2"}},
        {"w": {**W, "shape": [-2]}}, {"w": {**W, "shape": [2.5]}},
        {"w": {**W, "shape": [2**62, 2**62]}}, {"w": {**W, "shape": [3]}},
        {"w": {**W, "data_offsets": [0, 2**50]}},
        {"w": {**W, "data_offsets": [-1, 7]}},
        {"w": {**W, "data_offsets": [8, 0]}},
        {"w": {**W, "data_offsets": [0]}},
        {"w": {**W, "data_offsets": "08"}},
        {"w": W, "v": W}, {"": W}, {"x" * 70000: W}, {"a\nb" * 30000: W},
        {"w": {**W, "data_offsets": [4, 12]}},
    ):
        yield safetensors(head, EIGHT)
    whole = safetensors({"w": W}, EIGHT)
    for keep in (0, 1, 7, 8, 9, len(whole) - 9, len(whole) - 1):
        yield whole[:keep]
    yield whole + b"x"
    yield struct.pack("<Q", 2**62) + b"{}"


def _npy():
    for head in (
        "", "{", "{}", "[]", "\n", NPY.replace("<f4", ">f4x"),
        NPY.replace("(2,)", "(-2,)"), NPY.replace("(2,)", "(3,)"),
        NPY.replace("(2,)", "(2"), NPY.replace("(2,)", "2"),
        NPY.replace("(2,)", "(99999999999999999999,)"),
        NPY.replace("(2,)", "(4611686018427387904, 4611686018427387904)"),
        NPY.replace("False", "Maybe"), NPY.replace("'<f4'", "'|O'"),
        NPY.replace("'<f4'", "[('a', '<f4')]"), NPY.replace("'<f4'", "f4"),
        NPY.replace("descr", "dscr"), NPY[:-4], "(" * 3000, "{'" * 3000,
    ):
        yield npy(head, EIGHT)
    whole = npy(NPY, EIGHT)
    for keep in (0, 5, 6, 8, 9, 20, len(whole) - 1):
        yield whole[:keep]
    yield npy(NPY, EIGHT, b"\x09\x00")
    yield b"\x93NUMPY\x02\x00\xff\xff\xff\xff" + EIGHT


def _npz():
    yield b""
    yield b"PK"
    yield zipped([])
    yield zipped([("w.npy", b"")])
    yield zipped([("w.npy", b"no array")])
    yield zipped([("w.npy", npy(NPY.replace("2", "9"), EIGHT))])
    yield zipped([("readme", b"text")])
    # Of which nothing would be said.
    yield zipped([("w.npy", npy(NPY, EIGHT)), ("w", npy(NPY, EIGHT))])
    yield zipped([("w.npy", npy(NPY, EIGHT)), ("readme.txt", b"text")])
    whole = zipped([("w.npy", npy(NPY, EIGHT))])
    # Another name in the directory at the end than at the array.
    at = whole.rindex(b"w.npy")
    yield whole[:at] + b"v.npy" + whole[at + 5:]
    for keep in (10, len(whole) // 2, len(whole) - 1):
        yield whole[:keep]
    # A byte of the array: the archive has its checksum.
    at = whole.index(EIGHT)
    yield whole[:at] + b"\x55" + whole[at + 1:]


def _gguf():
    for words in (
        {"shape": (2**63,)}, {"shape": (2**40, 2**40)}, {"shape": (9,)},
        {"shape": (1,) * 9}, {"number": 9999}, {"offset": 2**60},
        {"offset": 25}, {"arrays": 2**60}, {"arrays": 9}, {"keys": 2**60},
        {"version": 99}, {"version": 0}, {"name": b""},
        {"name": b"x" * 70000},
    ):
        yield gguf(**words)
    whole = gguf()
    for keep in (0, 3, 4, 20, 40, len(whole) - 31):
        yield whole[:keep]
    # Some kinds of numbers are listed, and only reading them is refused.
    yield b"GGUF" + b"\xff" * 60


def _index():
    for text in (
        "", "{", "[]", "{}", '{"weight_map":3}', '{"weight_map":{}}',
        '{"weight_map":{"w":"nosuch.safetensors"}}',
        '{"weight_map":{"w":"../x.safetensors"}}',
        '{"weight_map":{"w":"/etc/passwd"}}', '{"weight_map":{"w":3}}',
    ):
        yield text.encode()


KINDS = {
    ".safetensors": _tensors,
    ".npy": _npy,
    ".npz": _npz,
    ".gguf": _gguf,
    ".safetensors.index.json": _index,
}


def files():
    """Yields the end of a name, and what stands in such a file."""
    for end, make in KINDS.items():
        for data in make():
            yield end, data
