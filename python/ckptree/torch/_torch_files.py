# SPDX-License-Identifier: Apache-2.0
"""Files of torch.save(): read as data, and never as code."""

from __future__ import annotations

import contextlib
import pathlib
import pickle
import pickletools
import zipfile
from typing import Any, Iterator

import numpy as np
import torch

from ckptree.adapters.protocol import type_name
from ckptree.errors import (
    CorruptionError,
    InvalidArgumentError,
    NoSpaceError,
    UnsupportedError,
)
from ckptree.torch import _torch_records

# As torch.load(weights_only=True) finds them in a file, whatever NumPy wrote.
_OLD_AND_NEW = ("numpy.core.multiarray", "numpy._core.multiarray")


def arrays_of_numpy() -> Any:
    """A block in which torch.load(weights_only=True) takes arrays and scalars
    of NumPy as well: generators are saved as such; and b"", which a pickle
    makes by a call. What is called with more _torch_records.check() refuses."""
    rebuild = np.zeros(1).__reduce__()[0]
    scalar = np.float64(0).__reduce__()[0]
    kinds = "bool i1 i2 i4 i8 u1 u2 u4 u8 f2 f4 f8 c8 c16".split()
    allowed: list[Any] = [np.ndarray, np.dtype, bytes]
    allowed += [type(np.dtype(kind)) for kind in kinds]
    for module in _OLD_AND_NEW:
        allowed.append((rebuild, f"{module}._reconstruct"))
        allowed.append((scalar, f"{module}.scalar"))
    return torch.serialization.safe_globals(allowed)


def read(path: pathlib.Path, *, whole: bool = False) -> Any:
    """What torch.save() was given. Tensors lie in the mapped file: nothing of
    them is in memory before it is used. `whole`: all of it is read before, and
    compared with the CRC-32 that PyTorch wrote with it.

    UnsupportedError: it is a program, or loading it would execute code; all
    names that it asks for are told; or a tensor of few bytes would take many.
    CorruptionError: the file is cut, or its sizes are not right.
    """
    if _is_program(path):
        raise UnsupportedError(
            f"{path} is a TorchScript program, as torch.jit.save() writes it: "
            "save the state_dict() of torch.jit.load() of it"
        )
    try:
        with open(path, "rb") as file:
            _torch_records.check(file, whole=whole)
        # Files from before PyTorch 1.6 cannot be mapped.
        mapped = zipfile.is_zipfile(path)
        with arrays_of_numpy():
            state = torch.load(
                path, map_location="cpu", weights_only=True, mmap=mapped
            )
    except (FileNotFoundError, PermissionError):
        raise
    except MemoryError as error:
        raise NoSpaceError(
            f"{path}: there is not enough memory to read it"
        ) from error
    except UnsupportedError as error:
        raise UnsupportedError(f"{path}: {error}") from error
    except Exception as error:
        names = _code_in(path)
        if names:
            raise UnsupportedError(
                f"{path}: it asks for {', '.join(names)}, which is code: only "
                "data is read. Leave it out, or, if you trust it, allow its "
                "classes by torch.serialization.safe_globals()"
            ) from error
        raise CorruptionError(
            f"{path} is cut or damaged, or no file of torch.save(): "
            f"{said_of(error)}"
        ) from error
    size = path.stat().st_size
    try:
        _check_tensors(path, state, max(_torch_records.SMALL, size))
        places = _places(state, {})
    except RecursionError as error:
        raise UnsupportedError(
            f"{path}: its lists and dicts lie in each other too deep for a step"
        ) from error
    # Without what is there again and again each takes a byte and more.
    if places > max(_MOST_PLACES, size):
        raise UnsupportedError(
            f"{path}: a step of it would have {places} leaves: the same lists "
            f"or dicts stand in it again and again, and {_MOST_PLACES} is the "
            "most for a file as small as it is"
        )
    return state


def _is_program(path: pathlib.Path) -> bool:
    with contextlib.suppress(Exception), zipfile.ZipFile(path) as file:
        names = [name.partition("/")[2] for name in file.namelist()]
        return "constants.pkl" in names and any(
            name.startswith("code/") for name in names
        )
    return False


_MOST_PLACES = 1_000_000


def _places(value: Any, known: dict[int, int]) -> int:
    """The leaves of a step, which has what is shared at each of its places."""
    if not isinstance(value, (dict, list, tuple)):
        return 1
    if id(value) not in known:
        children = value.values() if isinstance(value, dict) else value
        known[id(value)] = sum(_places(child, known) for child in children)
    return known[id(value)]


def _check_tensors(path: pathlib.Path, state: Any, most: int) -> None:
    """UnsupportedError where one would take more memory than its file."""
    for name, tensor in _tensors_in(state, "", _Walk(path)):
        size = tensor.numel() * tensor.element_size()
        held = tensor.untyped_storage().nbytes()
        if size > most and size > held:
            raise UnsupportedError(
                f"{path}: {name or 'the tensor'} has {held} bytes there and "
                f"would take {size}: its elements share memory, as expand() "
                f"makes them, and {most} is the most that such a tensor may "
                "take. Save it without expand()"
            )


def said_of(error: BaseException) -> str:
    """What went wrong, in one line. What PyTorch says of a pickle ends with how
    to execute it, which is left out."""
    if isinstance(error, pickle.UnpicklingError):
        return (
            "its pickle is not whole, or has objects that are more than "
            "arrays, which only running their code would read"
        )
    return str(error).strip().partition("\n")[0]


class _Walk:
    """Through the dicts, lists and tuples of a file, each once."""

    def __init__(self, path: pathlib.Path) -> None:
        self._path = path
        self._inside: set[int] = set()
        self._seen: set[int] = set()

    def children(self, value: Any, name: str) -> Iterator[tuple[str, Any]]:
        if id(value) in self._inside:
            raise UnsupportedError(
                f"{self._path}: {name or 'what it holds'} contains itself, "
                "which no tree of a step does"
            )
        if id(value) in self._seen:
            return
        self._seen.add(id(value))
        self._inside.add(id(value))
        yield from below(value, name)
        self._inside.remove(id(value))


def below(value: Any, name: str) -> Iterator[tuple[str, Any]]:
    """What a dict, list or tuple holds, by its place."""
    if isinstance(value, dict):
        for key, child in value.items():
            yield f"{name}/{key}" if name else str(key), child
    else:
        for i, child in enumerate(value):
            yield f"{name}/[{i}]" if name else f"[{i}]", child


def _tensors_in(
    value: Any, name: str, walk: _Walk
) -> Iterator[tuple[str, torch.Tensor]]:
    """Those of one memory, of dicts, lists and tuples, by their names."""
    if isinstance(value, torch.Tensor):
        if value.layout == torch.strided and not value.is_meta:
            yield name, value
    elif isinstance(value, (dict, list, tuple)):
        for place, child in walk.children(value, name):
            yield from _tensors_in(child, place, walk)


def _code_in(path: pathlib.Path) -> list[str]:
    """What a file would import, beyond what is known as data."""
    with contextlib.suppress(Exception), arrays_of_numpy():
        return sorted(
            torch.serialization.get_unsafe_globals_in_checkpoint(path)
        )
    # A pickle without an archive around it, as before PyTorch 1.6.
    names: set[str] = set()
    with contextlib.suppress(Exception), open(path, "rb") as file:
        while file.peek(1):
            names.update(_globals_of(file))
    return sorted(n for n in names if n.partition(".")[0] not in _DATA)


# Packages whose classes stand in files of tensors.
_DATA = ("torch", "numpy", "collections")


def _globals_of(file: Any) -> Iterator[str]:
    """The names that the next pickle of a file imports; none is."""
    words: list[str] = []
    for opcode, argument, _ in pickletools.genops(file):
        if opcode.name == "GLOBAL":
            yield str(argument).replace(" ", ".", 1)
        elif opcode.name == "STACK_GLOBAL" and len(words) >= 2:
            yield ".".join(words[-2:])
        elif "UNICODE" in opcode.name:
            words.append(str(argument))


@contextlib.contextmanager
def writing(what: str) -> Iterator[None]:
    """Where PyTorch writes a file: it says in which line of its own it stopped,
    and not why. `what`: the name of what is written, or ""."""
    try:
        yield
    except RuntimeError as error:
        if "inline_container" not in str(error):
            raise
        raise NoSpaceError(
            f"{what or 'the file'} cannot be written to its end: the disk is "
            "full, or a limit is less than it takes"
        ) from error


def write(state: Any, path: pathlib.Path, *, name: str) -> None:
    """A file that torch.load(weights_only=True) reads. InvalidArgumentError
    names what it would not read."""
    for place, value in _others(state, name):
        what = f"a {type_name(value)}"
        if type(value) is bytes:
            what = "bytes of length 0"
        raise InvalidArgumentError(
            f"{place}: {what} is nothing that "
            "torch.load(weights_only=True) reads: export another part of the "
            "step by item="
        )
    torch.save(_without_numpy(state), path)
    torch.load(path, weights_only=True, mmap=True)


_PLAIN = (
    *(type(None), bool, int, float, complex, str, bytes),
    *(torch.Tensor, torch.dtype, torch.device),
)


def _without_numpy(value: Any) -> Any:
    """With a tensor for each scalar of NumPy, which torch.load() takes for
    code."""
    kind = type(value)
    if kind is dict:
        return {key: _without_numpy(child) for key, child in value.items()}
    if kind in (list, tuple):
        return kind(_without_numpy(child) for child in value)
    if isinstance(value, np.generic):
        return torch.as_tensor(np.asarray(value))
    return value


def _others(value: Any, name: str) -> Iterator[tuple[str, Any]]:
    kind = type(value)
    if kind in (dict, list, tuple, torch.Size):
        for place, child in below(value, name):
            yield from _others(child, place)
    elif kind is bytes and not value:
        yield name, value  # A pickle makes it by a call; all others by none.
    elif kind not in _PLAIN and not _is_tensor(value):
        yield name, value


def _is_tensor(value: Any) -> bool:
    """Whether it is a scalar of NumPy that a tensor has a type for."""
    if not isinstance(value, np.generic):
        return False
    try:
        torch.as_tensor(np.asarray(value))
    except TypeError:
        return False
    return True
