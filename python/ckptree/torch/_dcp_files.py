# SPDX-License-Identifier: Apache-2.0
"""Folders of PyTorch's Distributed Checkpoint (DCP), as its FileSystemWriter
writes them: read and written by one process.

Their .metadata is a pickle, read as data by _dcp_pickle; what it says of files,
sizes and chunks is compared with what is there.
"""

from __future__ import annotations

import io
import math
import pathlib
import re
import warnings
from typing import Any, BinaryIO, Iterable, Iterator

import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint import filesystem
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner
from torch.distributed.checkpoint.metadata import (
    BytesStorageMetadata,
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    StorageMeta,
    TensorProperties,
    TensorStorageMetadata,
)
from torch.distributed.checkpoint.planner import ReadItem

from ckptree.adapters import torch_keys
from ckptree.adapters.protocol import type_name
from ckptree.errors import (
    CorruptionError,
    InvalidArgumentError,
    NoSpaceError,
    UnsupportedError,
)
from ckptree.torch import _dcp_empty, _dcp_pickle, _torch_records
from ckptree.torch._safetensors_files import is_plain_name
from ckptree.torch._torch_files import arrays_of_numpy, below, said_of

METADATA = ".metadata"
_SUFFIX = ".distcp"
# The name of the numbers of the parameters in a group of an optimizer.
_PARAMETERS = re.compile(r"(^|\.)param_groups\.[0-9]+\.params$")


class _Reader(dcp.FileSystemReader):  # type: ignore[misc]
    """With the metadata that was checked."""

    def __init__(self, path: pathlib.Path, checked: Metadata) -> None:
        super().__init__(path)
        self._checked = checked

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        return self._checked


class _Planner(DefaultLoadPlanner):  # type: ignore[misc]
    """Of objects it takes what is data."""

    def __init__(self) -> None:
        super().__init__(flatten_state_dict=False)
        self.objects: dict[str, Any] = {}

    def load_bytes(self, read_item: ReadItem, value: io.BytesIO) -> None:
        name = read_item.dest_index.fqn
        try:
            _torch_records.check(value, whole=True)
            value.seek(0)
            found = torch.load(value, weights_only=True)
        except UnsupportedError as error:
            raise UnsupportedError(f"{name}: {error}") from error
        except Exception as error:
            value.seek(0)
            raise _refused(name, value, error) from error
        self.objects[name] = found


def _refused(name: str, value: io.BytesIO, error: Exception) -> Exception:
    try:
        names = torch.serialization.get_unsafe_globals_in_checkpoint(value)
    except Exception:
        names = []
    if not names:
        return CorruptionError(f"{name}: it cannot be read: {said_of(error)}")
    return UnsupportedError(
        f"{name}: it asks for {', '.join(sorted(names))}, which is code: only "
        "data is read"
    )


def read(folder: pathlib.Path) -> dict[str, Any]:
    """The state, nested as it was saved. UnsupportedError: reading it would
    execute code. CorruptionError: something is cut, or does not fit together.
    """
    found = _metadata(folder)
    _check(folder, found)
    flat: dict[str, Any] = {
        name: _empty(about)
        for name, about in found.state_dict_metadata.items()
    }
    flat.update(_load(folder, found, flat))
    return _nested(folder, flat, found.planner_data)


def _load(
    folder: pathlib.Path, found: Metadata, flat: dict[str, Any]
) -> dict[str, Any]:
    """Reads the tensors of `flat` into them; returns what is no tensor, and
    quantized ones, whose scales only their bytes say."""
    planner = _Planner()
    about = found.state_dict_metadata
    try:
        with warnings.catch_warnings(), arrays_of_numpy():
            warnings.simplefilter("ignore")
            _check_records(folder, found, flat)
            quantized = {
                name: _quantized(folder, found, name)
                for name in flat
                if is_quantized(about[name])
            }
            others = {n: v for n, v in flat.items() if n not in quantized}
            dcp.load(
                others,
                storage_reader=_Reader(folder, found),
                planner=planner,
                no_dist=True,
            )
    except BaseException as error:
        raise _cause_of(folder, error) from error
    return {**planner.objects, **quantized}


_QUANTIZED = tuple(
    getattr(torch, name)
    for name in ("qint8", "quint8", "qint32", "quint4x2", "quint2x4")
    if hasattr(torch, name)
)


def is_quantized(about: Any) -> bool:
    """Whether that is what the metadata says of a quantized tensor."""
    return (
        isinstance(about, TensorStorageMetadata)
        and about.properties.dtype in _QUANTIZED
    )


def _quantized(
    folder: pathlib.Path, found: Metadata, name: str
) -> torch.Tensor:
    """A quantized tensor, whose record was checked: DCP itself reads one only
    into a tensor with the same scales."""
    about = found.state_dict_metadata[name]
    dtype = about.properties.dtype
    if len(about.chunks) != 1:
        raise UnsupportedError(
            f"{name}: it is a tensor of {dtype} that several processes saved, "
            "each with scales of its own: save its dequantize(), or its "
            "int_repr() and scales, by DCP"
        )
    (chunk,) = about.chunks
    info = found.storage_data[MetadataIndex(name, chunk.offsets)]
    if getattr(info, "transform_descriptors", None):
        raise UnsupportedError(
            f"{name}: it is a tensor of {dtype} that DCP has compressed: save "
            "it without an extension"
        )
    with open(folder / info.relative_path, "rb") as file:
        # A part of a file is no file for PyTorch: it asks for seeks.
        file.seek(info.offset)
        record = io.BytesIO(file.read(info.length))
    tensor = torch.load(record, map_location="cpu", weights_only=True)
    if (
        not isinstance(tensor, torch.Tensor)
        or tensor.dtype != dtype
        or tensor.shape != about.size
    ):
        raise CorruptionError(
            f"{name}: it is said to be {dtype}{list(about.size)}, and its "
            f"record has {_shown(tensor)}"
        )
    return tensor


def _check_records(
    folder: pathlib.Path, found: Metadata, names: Iterable[str]
) -> None:
    """Of the tensors of these names, each of whose chunks was written by
    torch.save()."""
    for name in names:
        about = found.state_dict_metadata[name]
        if not isinstance(about, TensorStorageMetadata):
            continue  # Checked where it is loaded.
        for chunk in about.chunks:
            info = found.storage_data[MetadataIndex(name, chunk.offsets)]
            if getattr(info, "transform_descriptors", None):
                continue  # Compressed.
            with open(folder / info.relative_path, "rb") as file:
                part = _Part(file, info.offset, info.length)
                try:
                    _torch_records.check(io.BufferedReader(part), whole=True)
                except UnsupportedError as error:
                    raise UnsupportedError(f"{name}: {error}") from error
                except ValueError as error:
                    raise ValueError(f"{name}: {error}") from error


class _Part(io.RawIOBase):
    """Some bytes of a file, as a file."""

    def __init__(self, file: BinaryIO, start: int, length: int) -> None:
        self._file, self._start, self._length = file, start, length
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = offset + (0, self._at, self._length)[whence]
        return self._at

    def readinto(self, buffer: Any) -> int:
        left = max(self._length - self._at, 0)
        self._file.seek(self._start + self._at)
        found = self._file.read(min(len(buffer), left))
        buffer[: len(found)] = found
        self._at += len(found)
        return len(found)


def described(
    folder: pathlib.Path,
) -> tuple[Metadata, dict[int, str], dict[str, Any]]:
    """What the folder says of itself; the names of its tensors, by the id() of
    those in the state; and the state, with tensors that have no elements
    anywhere (device "meta"), and None for what is no tensor, or is quantized:
    nothing is known of its scales yet. Errors are those of read()."""
    found = _metadata(folder)
    _check(folder, found)
    flat: dict[str, Any] = {}
    names: dict[int, str] = {}
    for name, about in found.state_dict_metadata.items():
        flat[name] = None
        if isinstance(about, TensorStorageMetadata) and (
            not is_quantized(about)
        ):
            tensor = torch.empty(
                about.size, dtype=about.properties.dtype, device="meta"
            )
            flat[name] = tensor
            names[id(tensor)] = name
    # What says that keys of an optimizer are ints.
    groups = {name: None for name in flat if _PARAMETERS.search(name)}
    numbers = _load(folder, found, groups)
    state = _nested(folder, {**flat, **numbers}, found.planner_data)
    return found, names, _without(state, set(map(id, numbers.values())))


def _without(value: Any, left_out: set[int]) -> Any:
    """The state with None for values of these id()s."""
    if id(value) in left_out:
        return None
    if isinstance(value, dict):
        return {key: _without(v, left_out) for key, v in value.items()}
    if isinstance(value, list):
        return [_without(v, left_out) for v in value]
    return value


def read_tensor(
    folder: pathlib.Path, found: Metadata, name: str
) -> torch.Tensor:
    """One tensor, by its name in the folder, which described() said `found` of.
    Errors are those of read()."""
    flat = {name: _empty(found.state_dict_metadata[name])}
    _load(folder, found, flat)
    tensor = flat[name]
    assert tensor is not None
    return tensor


def _cause_of(folder: pathlib.Path, error: BaseException) -> BaseException:
    """What went wrong, out of what DCP makes of it."""
    cause = error
    if isinstance(error, dcp.CheckpointException):
        cause, _ = next(iter(error.failures.values()))
    if isinstance(cause, (UnsupportedError, CorruptionError)):
        return type(cause)(f"{folder}: {cause}")
    if isinstance(cause, MemoryError):
        return NoSpaceError(f"{folder}: there is not enough memory to read it")
    if isinstance(cause, (KeyboardInterrupt, SystemExit)):
        return cause
    if isinstance(cause, NotImplementedError):
        return UnsupportedError(
            f"{folder}: PyTorch does not read it: {said_of(cause)}"
        )
    return CorruptionError(f"{folder} is cut or damaged: {said_of(cause)}")


def _metadata(folder: pathlib.Path) -> Metadata:
    path = folder / METADATA
    try:
        with open(path, "rb") as file:
            found = _dcp_pickle.load(file)
    except FileNotFoundError:
        raise
    except MemoryError as error:
        raise NoSpaceError(
            f"{path}: there is not enough memory to read it"
        ) from error
    except _dcp_pickle.Code as code:
        raise UnsupportedError(
            f"{path}: it asks for {code}, which is no part of a checkpoint: "
            "only data is read"
        ) from None
    except Exception as error:
        raise CorruptionError(
            f"{path} is cut or damaged: {str(error)[:200]}"
        ) from error
    if not isinstance(found, Metadata) or not all(
        isinstance(getattr(found, part, None), dict)
        for part in ("state_dict_metadata", "storage_data")
    ):
        raise CorruptionError(f"{path} is damaged: it is no Metadata")
    # Of older versions of PyTorch.
    if getattr(found, "storage_meta", None) is None:
        found.storage_meta = StorageMeta()
    return found


def _check(folder: pathlib.Path, found: Metadata) -> None:
    """CorruptionError, by name, where what the metadata says cannot be."""
    try:
        _check_all(folder, found)
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        # A field is not there, or of another type.
        raise CorruptionError(
            f"{folder / METADATA} is damaged: {str(error)[:200]}"
        ) from error


def _shown(value: Any) -> str:
    """In a message: a text as it is, of all else what it is. What is in it
    could be of any length."""
    if isinstance(value, str):
        return repr(value[:200])
    return f"a {type_name(value)}"


def _check_all(folder: pathlib.Path, found: Metadata) -> None:
    path = folder / METADATA
    sizes: dict[str, int] = {}
    for index, info in found.storage_data.items():
        if not isinstance(index, MetadataIndex) or not isinstance(
            info, filesystem._StorageInfo
        ):
            raise CorruptionError(
                f"{path} is damaged: {_shown(index)}: {_shown(info)}"
            )
        if not isinstance(index.fqn, str):
            raise CorruptionError(f"{path}: {_shown(index.fqn)} is no name")
        file = info.relative_path
        if not is_plain_name(file):
            raise CorruptionError(
                f"{path}: {index.fqn} is said to be in {_shown(file)}, which "
                "is no file of this folder"
            )
        if file not in sizes:
            there = folder / file
            if not there.is_file():
                raise CorruptionError(f"{path} names {file!r}: it is not there")
            sizes[file] = there.stat().st_size
        start, count = info.offset, info.length
        if not _counts((start, count)) or start + count > sizes[file]:
            raise CorruptionError(
                f"{folder / file} has {sizes[file]} bytes, and {index.fqn} is "
                f"said to be {count} bytes at {start}: it was cut"
            )
    for name, about in found.state_dict_metadata.items():
        if not isinstance(name, str):
            raise CorruptionError(f"{path}: {_shown(name)} is no name")
        if isinstance(about, TensorStorageMetadata):
            _check_tensor(path, name, about)
            wanted = [MetadataIndex(name, c.offsets) for c in about.chunks]
        elif isinstance(about, BytesStorageMetadata):
            wanted = [MetadataIndex(name)]
        else:
            raise CorruptionError(
                f"{path} is damaged: {name}: {_shown(about)}"
            )
        if any(index not in found.storage_data for index in wanted):
            raise CorruptionError(f"{path} does not say where {name} is")
        if isinstance(about, TensorStorageMetadata):
            _check_bytes(path, name, about, found)


def _check_tensor(
    path: pathlib.Path, name: str, about: TensorStorageMetadata
) -> None:
    """The chunks lie in the tensor, side by side, and are all of it."""
    size = tuple(about.size)
    boxes = []
    if type(about.properties) is not TensorProperties:
        raise CorruptionError(f"{path} is damaged: {name} has no properties")
    fits = _counts(size) and isinstance(about.properties.dtype, torch.dtype)
    for chunk in about.chunks:
        if type(chunk) is not ChunkStorageMetadata:
            raise CorruptionError(
                f"{path} is damaged: {name} has {_shown(chunk)} as a chunk"
            )
        start, box = tuple(chunk.offsets), tuple(chunk.sizes)
        fits = fits and _counts(start + box)
        fits = fits and len(start) == len(box) == len(size)
        fits = fits and all(a + n <= m for a, n, m in zip(start, box, size))
        if 0 not in box:
            boxes.append((start, box))
    if not fits:
        raise CorruptionError(
            f"{path} is damaged: the size of {name}, or of its chunks"
        )
    covered = sum(math.prod(box) for _, box in boxes)
    if covered != math.prod(size) or _overlap(boxes):
        raise CorruptionError(
            f"{path}: the chunks of {name} are not the whole of "
            f"{list(size)}: they have {covered} elements"
        )


def _check_bytes(
    path: pathlib.Path, name: str, about: TensorStorageMetadata, found: Metadata
) -> None:
    """No memory is taken for what the file does not have: DCP writes all
    elements of a tensor, also of one whose elements share memory."""
    for chunk in about.chunks:
        info = found.storage_data[MetadataIndex(name, chunk.offsets)]
        if getattr(info, "transform_descriptors", None):
            continue  # Compressed.
        size = math.prod(chunk.sizes) * about.properties.dtype.itemsize
        if size > info.length:
            raise CorruptionError(
                f"{path}: {name} is said to have {size} bytes in "
                f"{info.length} of {info.relative_path}"
            )


def _overlap(boxes: list[tuple[tuple[int, ...], tuple[int, ...]]]) -> bool:
    if len(boxes) < 2 or not boxes[0][0]:
        return len(boxes) > 1
    starts = torch.tensor([start for start, _ in boxes])
    ends = starts + torch.tensor([box for _, box in boxes])
    for i in range(len(boxes) - 1):
        apart = (ends[i + 1 :] <= starts[i]) | (starts[i + 1 :] >= ends[i])
        if not bool(apart.any(1).all()):
            return True
    return False


def _counts(numbers: tuple[Any, ...]) -> bool:
    return all(type(n) is int and 0 <= n < 2**63 for n in numbers)


def _empty(about: Any) -> torch.Tensor | None:
    if not isinstance(about, TensorStorageMetadata) or is_quantized(about):
        return None
    return torch.empty(about.size, dtype=about.properties.dtype)


def _nested(
    folder: pathlib.Path, flat: dict[str, Any], places: Any
) -> dict[str, Any]:
    """Entries at their places: dicts, and lists where a part is a number."""
    if not isinstance(places, dict):
        return flat  # Of a planner that keeps names as they are.
    root: dict[Any, Any] = {}
    for name, value in flat.items():
        place = places.get(name, (name,))
        if not isinstance(place, tuple) or not all(
            type(part) in (str, int) for part in place
        ):
            place = ()
        node: Any = root
        for part in place[:-1]:
            node = node.setdefault(part, {})
            if isinstance(node, _Value):
                break
        if not place or isinstance(node, _Value) or place[-1] in node:
            raise CorruptionError(
                f"{folder / METADATA}: {name} has no place of its own in the "
                f"state: {_shown(places.get(name))}"
            )
        node[place[-1]] = _Value(value)
    for place in _dcp_empty.places_in(places):
        _put_empty(folder, root, place)
    made: dict[str, Any] = torch_keys.of_parameters(_made(root))
    return made


def _put_empty(folder: pathlib.Path, root: Any, place: Any) -> None:
    """An empty dict, as SavePlanner says where it is."""
    node = root
    for part in place if isinstance(place, tuple) else (None,):
        if type(part) not in (str, int) or isinstance(node, _Value):
            raise CorruptionError(
                f"{folder / METADATA} is damaged: the place of an empty dict "
                f"is {_shown(place)}"
            )
        node = node.setdefault(part, {})


class _Value:
    """An entry, which may be a dict itself."""

    def __init__(self, value: Any) -> None:
        self.value = value


def _made(node: Any) -> Any:
    if isinstance(node, _Value):
        return node.value
    if node and all(type(part) is int for part in node):
        if sorted(node) == list(range(len(node))):
            return [_made(node[i]) for i in range(len(node))]
    return {part: _made(child) for part, child in node.items()}


def write(state: dict[str, Any], folder: pathlib.Path, *, name: str) -> None:
    """Such a folder, of this process alone. InvalidArgumentError names what it
    cannot hold."""
    for place, tensor in _sparse(state, name):
        raise InvalidArgumentError(
            f"{place}: DCP holds no {tensor.layout} tensor: export to a file "
            "of torch.save(), or another part of the step by item="
        )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            dcp.save(
                state,
                storage_writer=dcp.FileSystemWriter(folder),
                planner=_dcp_empty.SavePlanner(),
                no_dist=True,
            )
        except dcp.CheckpointException as error:
            raise next(iter(error.failures.values()))[0] from error


def _sparse(value: Any, name: str) -> Iterator[tuple[str, torch.Tensor]]:
    if isinstance(value, torch.Tensor):
        if value.layout != torch.strided:
            yield name, value
    elif isinstance(value, (dict, list, tuple)):
        for place, child in below(value, name):
            yield from _sparse(child, place)


def is_ours(name: str) -> bool:
    """Whether write() may have written a file of that name."""
    return name == METADATA or name.endswith(_SUFFIX)
