# SPDX-License-Identifier: Apache-2.0
"""What a file of torch.save() asks for, compared with what it has, before
PyTorch reads it: PyTorch takes the bytes of a tensor from where they should be,
whatever is there, and makes what it is told to make, of any size.

The pickle is gone through, and nothing of it is looked up or called.
"""

from __future__ import annotations

import _compat_pickle
import io
import math
import pickle
import pickletools
import re
import zipfile
import zlib
from typing import Any, BinaryIO, Iterable, NamedTuple

import torch

from ckptree.errors import UnsupportedError

# The most that a tensor may take whose elements share memory, where its file is
# smaller: a file of some bytes could ask for all the memory there is.
SMALL = 64 << 20


def check(file: BinaryIO, *, whole: bool) -> None:
    """Of a file from its beginning; `whole`: with the CRC-32 of all of it,
    where it was written with them. UnsupportedError: it would take memory that
    no tensor in it has. ValueError, and others: it is cut or damaged."""
    size = file.seek(0, io.SEEK_END)
    file.seek(0)
    pickled = _Pickle(max(SMALL, size))
    if zipfile.is_zipfile(file):
        _check_archive(file, pickled, whole)
        return
    # From before PyTorch 1.6: pickles, then the bytes.
    file.seek(0)
    first = None
    try:
        first = pickled.read(file)
    except (UnsupportedError, pickle.UnpicklingError):
        raise
    except Exception:
        pass  # No pickle.
    if first != torch.serialization.MAGIC_NUMBER:
        raise ValueError("it does not begin as such a file")
    for _ in ("protocol", "system", "state", "keys"):
        pickled.read(file)
    needed = sum(pickled.storages.values())
    if needed > size:
        raise ValueError(f"its tensors need {needed} bytes, and it has {size}")


def sums_of(file: BinaryIO) -> dict[int, set[int]]:
    """The CRC-32 of the records of a file that check() has taken, by the sizes
    of the records; of sizes where all of them were written with one. Empty for
    a file from before PyTorch 1.6, which has none."""
    found: dict[int, set[int]] = {}
    if zipfile.is_zipfile(file):
        records, _ = _records(file)
        for one in records.values():
            found.setdefault(one.size, set()).add(one.crc)
    return {size: sums for size, sums in found.items() if 0 not in sums}


# ---- The archive ----


class _Record(NamedTuple):
    name: str
    header: int
    start: int
    size: int
    crc: int  # 0: it was written without.


def _check_archive(file: BinaryIO, pickled: _Pickle, whole: bool) -> None:
    records, top = _records(file)
    state = records.get(f"{top}/data.pkl")
    if state is None:
        raise ValueError("it has no record data.pkl")
    for one in records.values() if whole else (state,):
        if one.crc not in (0, _crc(file, one)):
            raise ValueError(
                f"the bytes of the record {one.name} are not those that "
                "were written, by their CRC-32"
            )
    file.seek(state.start)
    pickled.read(io.BytesIO(file.read(state.size)))
    taken: dict[str, str] = {}
    for key, needed in pickled.storages.items():
        called = f"{top}/data/{key}".lower()
        record = records.get(called)
        if record is None:
            raise ValueError(f"it has no record data/{key}")
        if record.size < needed:
            raise ValueError(
                f"the record {record.name} has {record.size} bytes, and its "
                f"tensor needs {needed}"
            )
        other = taken.setdefault(called, key)
        if other != key:
            raise ValueError(f"data/{other} and data/{key} are one record")


def _records(file: BinaryIO) -> tuple[dict[str, _Record], str]:
    """By their names as PyTorch finds them, whatever their case; and the name
    of the folder that they are in."""
    found: dict[str, _Record] = {}
    with zipfile.ZipFile(file) as archive:
        entries = archive.infolist()
        end = archive.start_dir
    top = entries[0].filename.partition("/")[0].lower() if entries else ""
    for entry in entries:
        name = entry.filename
        if entry.compress_type != zipfile.ZIP_STORED:
            raise ValueError(
                f"the record {name} is compressed, which torch.save() never "
                "does: load it by torch.load(mmap=False), and save it again"
            )
        if name.lower() in found:
            raise ValueError(f"it has two records {name}")
        file.seek(entry.header_offset)
        header = file.read(30)
        if len(header) < 30 or header[:4] != b"PK\3\4":
            raise ValueError(f"the record {name} is not where it should be")
        # Its name and what else stands before its bytes.
        between = sum(
            int.from_bytes(header[i : i + 2], "little") for i in (26, 28)
        )
        found[name.lower()] = _Record(
            name,
            entry.header_offset,
            entry.header_offset + 30 + between,
            entry.file_size,
            entry.CRC,
        )
    ordered = sorted(found.values(), key=lambda record: record.header)
    for one, other in zip(ordered, ordered[1:]):
        if one.start + one.size > other.header:
            raise ValueError(
                f"the records {one.name} and {other.name} overlap"
            )
    if ordered and ordered[-1].start + ordered[-1].size > end:
        raise ValueError(f"the record {ordered[-1].name} is cut")
    return found, top


def _crc(file: BinaryIO, record: _Record) -> int:
    file.seek(record.start)
    buffer = memoryview(bytearray(min(record.size, 1 << 20)))
    left, crc = record.size, 0
    while left > 0:
        count = file.readinto(buffer[:left])  # type: ignore[attr-defined]
        if not count:
            raise ValueError(f"the record {record.name} is cut")
        crc = zlib.crc32(buffer[:count], crc)
        left -= count
    return crc


# ---- The pickle ----


class _Name(str):
    """What a pickle looks up: "module.name"."""


# All else: what is in it does not matter.
_OTHER, _VAST, _BYTES, _TENSOR = object(), object(), object(), object()
# How many elements of arguments are looked through for _VAST.
_LOOKED_AT = 1000

_REBUILD = "torch._utils._rebuild_"
# What makes no more than it is given.
_CALLED = frozenset(
    """collections.Counter collections.OrderedDict builtins.complex
    builtins.set numpy.dtype torch.Size torch.device
    torch.nn.parameter.Parameter torch.serialization._get_layout""".split()
)
# What makes memory of a size that it is told.
_SIZED = re.compile(
    r"torch(\.cuda|\.sparse|\.cuda\.sparse|\.storage)?\.\w*(Tensor|Storage)|"
    r"numpy\.ndarray"
)
_CONSTANTS = {
    "NONE": None,
    "NEWFALSE": False,
    "NEWTRUE": True,
    "EMPTY_TUPLE": (),
}
_CONTAINERS = ("EMPTY_LIST", "EMPTY_DICT", "EMPTY_SET")
_TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
_WRITTEN = frozenset(
    "BININT BININT1 BININT2 LONG1 BINFLOAT BINUNICODE SHORT_BINSTRING".split()
)


class _Storage(NamedTuple):
    size: int
    element: int


class _Many(list[Any]):
    """A container that may change, with what of it matters."""

    def put(self, items: Iterable[Any]) -> _Many:
        self.extend(
            one for one in items if one is _VAST or type(one) in (tuple, _Many)
        )
        return self


def _has_vast(arguments: tuple[Any, ...]) -> bool:
    """Also in what they contain; True where that is too much to tell."""
    waiting: list[Any] = [arguments]
    seen: set[int] = set()
    left = _LOOKED_AT
    while waiting:
        one = waiting.pop()
        if one is _VAST:
            return True
        if type(one) not in (tuple, _Many) or id(one) in seen:
            continue
        seen.add(id(one))
        left -= len(one)
        if left < 0:
            return True
        waiting.extend(one)
    return False


class _Pickle:
    """What pickles ask for; those opcodes are known that PyTorch knows."""

    def __init__(self, most: int) -> None:
        self.storages: dict[str, int] = {}  # The bytes of each, by its key.
        self._most = most
        self._any_vast = False
        # What the program itself allows.
        self._allowed = {
            one[1]
            if isinstance(one, tuple)
            else f"{one.__module__}.{one.__name__}"
            for one in torch.serialization.get_safe_globals()
        }

    def read(self, file: BinaryIO) -> Any:
        """The next one; what it is, of a number. Anything may be raised where
        it is not whole."""
        stack: list[Any] = []
        marked: list[list[Any]] = []
        memo: dict[int, Any] = {}
        argument: Any
        for opcode, argument, _ in pickletools.genops(file):
            op = opcode.name
            if op in _WRITTEN:
                stack.append(argument)
            elif op in ("BINPUT", "LONG_BINPUT"):
                memo[argument] = stack[-1]
            elif op in ("BINGET", "LONG_BINGET"):
                stack.append(memo[argument])
            elif op in _CONTAINERS:
                stack.append(_Many())
            elif op in _CONSTANTS:
                stack.append(_CONSTANTS[op])
            elif op == "MARK":
                marked.append(stack)
                stack = []
            elif op in _TUPLES:
                stack[-_TUPLES[op] :] = [tuple(stack[-_TUPLES[op] :])]
            elif op == "TUPLE":
                made = tuple(stack)
                stack = marked.pop()
                stack.append(made)
            elif op in ("APPENDS", "SETITEMS"):
                items = stack
                stack = marked.pop()
                _put(stack[-1], items)
            elif op in ("APPEND", "SETITEM"):
                count = 1 if op == "APPEND" else 2
                items = stack[-count:]
                del stack[-count:]
                _put(stack[-1], items)
            elif op == "BUILD":
                stack.pop()
                if stack[-1] in (_TENSOR, _VAST):
                    # PyTorch takes its size from there, as it once wrote them.
                    raise _refused("set_() of a tensor", "a state")
            elif op in ("REDUCE", "NEWOBJ"):
                arguments = stack.pop()
                stack[-1] = self._called(stack[-1], arguments)
            elif op == "GLOBAL":
                stack.append(_name(argument))
            elif op == "BINPERSID":
                stack[-1] = self._storage(*stack[-1])
            elif op == "STOP":
                return stack[-1]
            elif op != "PROTO":
                raise pickle.UnpicklingError(op)
        raise EOFError("it is cut")

    def _storage(
        self, what: str, kind: Any, key: str, place: str, count: int, *view: Any
    ) -> _Storage:
        if what != "storage" or type(key) is not str or type(count) is not int:
            raise pickle.UnpicklingError("a storage of another kind")
        name = kind.rpartition(".")[2]
        element = 1
        if name != "UntypedStorage":
            element = torch.serialization.StorageType(name).dtype.itemsize
        if count < 0:
            raise ValueError(f"data/{key} has {count} elements")
        size = count * element
        self.storages[key] = max(size, self.storages.get(key, 0))
        return _Storage(size, element)

    def _called(self, name: Any, arguments: tuple[Any, ...]) -> Any:
        """What a call makes; PyTorch would make it."""
        if not isinstance(name, _Name) or not isinstance(arguments, tuple):
            raise pickle.UnpicklingError("a call of what it has made")
        if name == "torch._tensor._rebuild_from_type_v2":
            name, arguments = arguments[0], arguments[2]
            if not isinstance(name, _Name) or not isinstance(arguments, tuple):
                raise pickle.UnpicklingError("a call of what it has made")
        if name.startswith(f"{_REBUILD}tensor"):
            return self._tensor(*arguments)
        if name.startswith(_REBUILD):
            if self._any_vast and _has_vast(arguments):
                raise _refused(name, "a tensor whose elements share memory")
            return _TENSOR
        elif name == "builtins.bytearray":
            if arguments not in ((), (_BYTES,)):
                raise _refused(name, "the number of its bytes")
        elif name == "builtins.bytes":
            if arguments != ():
                raise _refused(name, "the number of its bytes")
        elif name == "_codecs.encode":
            # As bytes are written. Others make bytes longer, again and again.
            if type(arguments[0]) is not str or arguments[1:] != ("latin1",):
                raise _refused(name, "another encoding than latin1")
            return _BYTES
        elif name.endswith(".multiarray._reconstruct"):
            # Its size comes with its bytes, and is compared by NumPy.
            if arguments[1] != (0,):
                raise _refused(name, "the size of an array")
        elif name.endswith(".multiarray.scalar"):
            if len(arguments) != 2:
                raise _refused(name, "a type without a value")
        elif _SIZED.fullmatch(name) and arguments:
            raise _refused(name, "a size")
        elif not (
            name in _CALLED or name in self._allowed or _SIZED.fullmatch(name)
        ):
            raise pickle.UnpicklingError(name)
        elif _SIZED.fullmatch(name):
            return _TENSOR
        elif name == "torch.nn.parameter.Parameter":
            return _VAST if _has_vast(arguments) else _TENSOR
        else:
            return _Many().put(arguments)
        return _OTHER

    def _tensor(self, storage: Any, offset: Any, size: Any, *more: Any) -> Any:
        if not isinstance(storage, _Storage):
            raise pickle.UnpicklingError("a tensor without a storage")
        if type(size) is not tuple or not all(type(n) is int for n in size):
            raise pickle.UnpicklingError("a tensor without a size")
        needed = math.prod(size) * storage.element
        if needed <= max(self._most, storage.size):
            return _TENSOR
        self._any_vast = True
        return _VAST


def _put(container: Any, items: list[Any]) -> None:
    if isinstance(container, _Many):
        container.put(items)


def _name(both: str) -> _Name:
    """As PyTorch reads what Python 2 called otherwise."""
    module, _, name = both.partition(" ")
    module, name = _compat_pickle.NAME_MAPPING.get(
        (module, name),
        (_compat_pickle.IMPORT_MAPPING.get(module, module), name),
    )
    return _Name(f"{module}.{name}")


def _refused(name: str, what: str) -> UnsupportedError:
    return UnsupportedError(
        f"it calls {name} with {what}, which could take any memory. Leave it "
        "out: save a tensor or bytes in its place"
    )
