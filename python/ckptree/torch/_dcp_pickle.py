# SPDX-License-Identifier: Apache-2.0
"""The pickle in .metadata of a folder of DCP, read as data.

Python's own unpickler sets attributes of whatever a pickle names, also of
classes, and takes memory for numbers that only the pickle says. So it is gone
through here: what is made are containers, numbers, texts, and objects of the
few classes that such a file has, with their own fields.
"""

from __future__ import annotations

import dataclasses
import io
import pathlib
import pickle
import pickletools
from typing import Any

import torch
from torch.distributed.checkpoint import filesystem, metadata

# Objects of dataclasses: made without arguments, then given their fields.
_OBJECTS: dict[tuple[str, str], type] = {
    (module.__name__, name): getattr(module, name)
    for module, names in (
        (
            metadata,
            "Metadata TensorStorageMetadata BytesStorageMetadata MetadataIndex "
            "ChunkStorageMetadata TensorProperties StorageMeta",
        ),
        (filesystem, "_StorageInfo"),
    )
    for name in names.split()
}
_FIELDS = {
    kind: frozenset(field.name for field in dataclasses.fields(kind))
    for kind in _OBJECTS.values()
}
_FORMATS = metadata._MEM_FORMAT_ENCODING
# More than any tensor has: a size is copied each time that it is asked for.
_MOST_DIMENSIONS = 64
_MOST_PATH = 4096

_CONSTANTS = {"NONE": None, "NEWFALSE": False, "NEWTRUE": True}
_CONTAINERS = {"EMPTY_LIST": list, "EMPTY_DICT": dict, "EMPTY_TUPLE": tuple}
_TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
_WRITTEN = frozenset(
    """BININT BININT1 BININT2 LONG1 BINFLOAT SHORT_BINUNICODE BINUNICODE
    SHORT_BINBYTES BINBYTES""".split()
)


class Code(Exception):
    """A name that a pickle asks for, which no such file has."""


class _Call:
    """A name that makes something; never in what is returned."""

    def __init__(self, kind: Any) -> None:
        self.kind = kind


def load(file: io.BufferedReader) -> Any:
    """What is in it. Code: it asks for something else. Anything else may be
    raised where it is not whole; the texts are short."""
    return _Reader().read(io.BytesIO(file.read()))


class _Reader:
    def __init__(self) -> None:
        self._stack: list[Any] = []
        self._marked: list[list[Any]] = []
        self._memo: dict[int, Any] = {}
        # Objects that have no fields yet, by their id(); each once: what is a
        # key of a dict does not change.
        self._fresh: dict[int, Any] = {}

    def read(self, file: io.BytesIO) -> Any:
        for opcode, argument, _ in pickletools.genops(file):
            if opcode.name == "STOP":
                (found,) = self._stack
                return self._plain(found)
            self._do(opcode.name, argument)
        raise EOFError("it is cut")

    def _do(self, op: str, argument: Any) -> None:
        stack = self._stack
        if op in ("PROTO", "FRAME"):
            pass
        elif op == "MEMOIZE":
            self._memo[len(self._memo)] = stack[-1]
        elif op in ("BINPUT", "LONG_BINPUT"):
            self._memo[argument] = stack[-1]
        elif op in ("BINGET", "LONG_BINGET"):
            stack.append(self._memo[argument])
        elif op in _WRITTEN:
            stack.append(argument)
        elif op in _CONSTANTS:
            stack.append(_CONSTANTS[op])
        elif op in _CONTAINERS:
            stack.append(_CONTAINERS[op]())
        elif op == "MARK":
            self._marked.append(stack)
            self._stack = []
        elif op in _TUPLES:
            self._tuple(_TUPLES[op])
        elif op == "TUPLE":
            items = self._items()
            self._stack.append(tuple(map(self._plain, items)))
        elif op in ("APPEND", "APPENDS"):
            items = self._items() if op == "APPENDS" else [stack.pop()]
            self._list().extend(map(self._plain, items))
        elif op in ("SETITEM", "SETITEMS"):
            items = self._items() if op == "SETITEMS" else self._last(2)
            self._put(items)
        elif op == "GLOBAL":
            module, _, name = argument.partition(" ")
            stack.append(_named(module, name))
        elif op == "STACK_GLOBAL":
            module, name = self._last(2)
            if type(module) is not str or type(name) is not str:
                raise pickle.UnpicklingError("a name that is no text")
            stack.append(_named(module, name))
        elif op in ("NEWOBJ", "REDUCE"):
            call, arguments = self._last(2)
            if type(call) is not _Call or type(arguments) is not tuple:
                raise pickle.UnpicklingError("a call of what it has made")
            stack.append(self._made(op, call.kind, arguments))
        elif op == "BUILD":
            state = stack.pop()
            self._build(stack[-1], state)
        else:
            raise pickle.UnpicklingError(f"{op} is in no such pickle")

    def _items(self) -> list[Any]:
        """What stands behind the last mark."""
        items, self._stack = self._stack, self._marked.pop()
        return items

    def _last(self, count: int) -> list[Any]:
        items = self._stack[-count:]
        if len(items) < count:
            raise pickle.UnpicklingError("it takes more than it has made")
        del self._stack[-count:]
        return items

    def _tuple(self, count: int) -> None:
        self._stack.append(tuple(map(self._plain, self._last(count))))

    def _list(self) -> list[Any]:
        found: Any = self._stack[-1]
        if type(found) is not list:
            raise pickle.UnpicklingError("an item of what is no list")
        return found

    def _plain(self, value: Any) -> Any:
        if type(value) is _Call:
            raise pickle.UnpicklingError("a class in the place of a value")
        return value

    def _put(self, items: list[Any]) -> None:
        found: Any = self._stack[-1]
        if type(found) is not dict or len(items) % 2:
            raise pickle.UnpicklingError("an entry of what is no dict")
        for key, value in zip(items[::2], items[1::2]):
            self._check_key(key)
            found[key] = self._plain(value)

    def _check_key(self, key: Any) -> None:
        """A tuple of tuples of tuples would be gone through without end."""
        parts = [key]
        if type(key) is metadata.MetadataIndex and id(key) not in self._fresh:
            parts = [key.fqn, *(key.offset or ())]
        elif type(key) is tuple:
            parts = list(key)
        if not all(type(part) in (str, int) for part in parts):
            raise pickle.UnpicklingError("a key that is no name")

    def _made(self, op: str, kind: Any, arguments: tuple[Any, ...]) -> Any:
        if kind in _FIELDS:
            if op != "NEWOBJ" or arguments:
                raise pickle.UnpicklingError("an object with arguments")
            one = kind.__new__(kind)
            self._fresh[id(one)] = one
            return one
        if kind is dict:
            fits = arguments == ()
        elif kind is torch.Size:
            fits = len(arguments) == 1 and _is_size(arguments[0])
        elif kind is pathlib.PurePosixPath:
            fits = all(type(part) is str for part in arguments)
            fits = fits and sum(map(len, arguments)) <= _MOST_PATH
            fits = fits and len(arguments) <= _MOST_PATH
        else:
            wanted = int if kind is _FORMATS else str
            fits = len(arguments) == 1 and type(arguments[0]) is wanted
        if op != "REDUCE" or not fits:
            raise pickle.UnpicklingError("a call with other arguments")
        return kind(*arguments)

    def _build(self, one: Any, state: Any) -> None:
        if self._fresh.pop(id(one), None) is not one:
            raise pickle.UnpicklingError("a state of what takes none")
        if type(one) is metadata.TensorProperties:
            kinds = (torch.dtype, torch.layout, bool, _FORMATS, bool)
            if type(state) is not tuple or tuple(map(type, state)) != kinds:
                raise pickle.UnpicklingError("properties of another kind")
            one.__setstate__(state)
        elif type(state) is dict:
            # Newer versions of PyTorch may have more.
            fields = _FIELDS[type(one)]
            one.__dict__.update(
                {name: state[name] for name in state if name in fields}
            )
        else:
            raise pickle.UnpicklingError("a state that is no dict")


def _is_size(value: Any) -> bool:
    return (
        type(value) in (tuple, list)
        and len(value) <= _MOST_DIMENSIONS
        and all(type(n) is int and 0 <= n < 2**63 for n in value)
    )


def _layout(name: str) -> torch.layout:
    if name != "torch.strided":
        raise pickle.UnpicklingError("a tensor of another layout than strided")
    return torch.strided


_KNOWN: dict[tuple[str, str], Any] = {
    **_OBJECTS,
    (metadata.__name__, _FORMATS.__name__): _FORMATS,
    ("torch", "Size"): torch.Size,
    ("torch.serialization", "_get_layout"): _layout,
    ("collections", "OrderedDict"): dict,
}


def _named(module: str, name: str) -> Any:
    """What a name means; nothing is imported."""
    if module == "torch":
        found = getattr(torch, name, None) if name.isidentifier() else None
        if isinstance(found, torch.dtype):
            return found
    if module in ("pathlib", "pathlib._local") and name.endswith("Path"):
        return _Call(pathlib.PurePosixPath)
    if (module, name) not in _KNOWN:
        raise Code(f"{module}.{name}"[:200])
    return _Call(_KNOWN[module, name])
