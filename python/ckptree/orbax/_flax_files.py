# SPDX-License-Identifier: Apache-2.0
"""Files of Flax's legacy checkpoints, and directories of checkpoints that
flax.training.checkpoints wrote: as files, or by Orbax as folders."""

from __future__ import annotations

import os
import pathlib
import re
from typing import Any, NamedTuple

import numpy as np

from ckptree.arrays import dtypes

# A prefix and the number of a step; "1e5" is one, too.
_NAME = re.compile(r"(.*?)((?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)")
_NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?")
# What is beside them, and what a save that was killed left.
_BESIDE = "_gda"
UNFINISHED = ".orbax-checkpoint-tmp"
# A folder of a tree has one of these, or a file of msgpack of that name.
_TREE = ("_METADATA", "manifest.ocdbt")
_LEGACY_TREE = "checkpoint"

_USUAL_PREFIX = "checkpoint_"
# The first bytes of a dict and of an array, as msgpack has them.
_FIRST = frozenset(
    [*range(0x80, 0x90), 0xDE, 0xDF, 0xC7, 0xC8, 0xC9, *range(0xD4, 0xD9)]
)

ARRAY, COMPLEX, SCALAR, TUPLE = 1, 2, 3, 4
# As deep as tuples may lie in each other: each is read by a call of C of its
# own, and a thread's stack has room for some hundreds.
MOST_TUPLES = 64
CHUNKED = "__msgpack_chunked_array__"
_ELSEWHERE = "//GDAPlaceholder:"


class FlaxStep(NamedTuple):
    """A checkpoint in a directory of Flax."""

    prefix: str
    number: float
    path: pathlib.Path  # A file of msgpack, or a folder of Orbax.

    @property
    def step(self) -> int:
        """ValueError: a store has no such step."""
        whole = int(self.number)
        if whole != self.number or whole < 0:
            raise ValueError(
                f"{self.path}: steps of a store are whole numbers from 0: give "
                "it such a name"
            )
        return whole


def folder_name(prefix: str) -> str:
    """Of the store with the steps of that prefix; each prefix has another one.
    ValueError.

    >>> folder_name("checkpoint_"), folder_name("best"), folder_name("")
    ('checkpoint', 'best.', '_')
    """
    if "/" in prefix:
        raise ValueError(f"prefix {prefix!r}: it becomes the name of a folder")
    if not prefix:
        return "_"
    without = prefix.removesuffix("_")
    if without == prefix or without.endswith((".", "_")) or not without:
        return prefix + "."
    return without


def steps_in(
    directory: pathlib.Path, prefix: str | None = None
) -> list[FlaxStep]:
    """What Flax wrote there, of one prefix or all, by prefix and number."""
    if not directory.is_dir():
        return []
    found = []
    for child in directory.iterdir():
        named = _parse(child.name, prefix)
        if named is not None and _is_of_flax(child, named[0]):
            found.append(FlaxStep(*named, child))
    return sorted(found)


def _parse(name: str, prefix: str | None) -> tuple[str, float] | None:
    if name.endswith(_BESIDE) or UNFINISHED in name:
        return None
    if prefix is not None:
        below = name.removeprefix(prefix)
        if name.startswith(prefix) and _NUMBER.fullmatch(below):
            return prefix, float(below)
        return None
    found = _NAME.fullmatch(name)
    if found is None:
        return None
    before, number = found[1], float(found[2])
    if before.endswith("_-"):
        return before[:-1], -number
    return before, number


def _is_of_flax(path: pathlib.Path, prefix: str) -> bool:
    if path.is_dir():
        return is_tree_folder(path)
    return path.is_file() and (
        prefix == _USUAL_PREFIX or _begins_as_msgpack(path)
    )


def is_tree_folder(path: pathlib.Path) -> bool:
    """Whether Orbax wrote a tree into this very folder."""
    return any((path / name).is_file() for name in _TREE) or is_file(
        path / _LEGACY_TREE
    )


def _begins_as_msgpack(path: pathlib.Path) -> bool:
    with path.open("rb") as file:
        return file.read(1)[:1] in {bytes([n]) for n in _FIRST}


def is_file(path: str | os.PathLike[str]) -> bool:
    """Whether a path may be a file that Flax wrote."""
    given = pathlib.Path(os.fspath(path))
    return given.is_file() and _begins_as_msgpack(given)


def read(path: str | os.PathLike[str]) -> Any:
    """The state dict in a file of Flax: dicts, arrays of NumPy, numbers, str.
    Executes nothing. ValueError: it is not such a file, or is damaged."""
    try:
        return decode(pathlib.Path(os.fspath(path)).read_bytes())
    except (ValueError, TypeError) as error:
        raise ValueError(
            f"{os.fspath(path)} is no whole checkpoint of Flax: {error}"
        ) from error
    except NotImplementedError as error:
        raise NotImplementedError(f"{os.fspath(path)}: {error}") from None


def decode(data: bytes) -> Any:
    """As read(), of bytes."""
    msgpack = msgpack_package()
    try:
        return _joined(_unpacked(data, 0))
    except msgpack.UnpackException as error:
        raise ValueError(str(error) or type(error).__name__) from error
    except RecursionError:
        raise ValueError(
            "its dicts and lists lie in each other deeper than Python goes"
        ) from None


def _unpacked(data: bytes, tuples: int) -> Any:
    """`tuples`: how many the data lies in."""
    check_tuples(tuples)
    return msgpack_package().unpackb(
        data,
        ext_hook=lambda code, inner: _extension(code, inner, tuples),
        raw=False,
        strict_map_key=False,
    )


def check_tuples(tuples: int) -> None:
    """ValueError: so many lie in each other that reading them is refused."""
    if tuples > MOST_TUPLES:
        raise ValueError(f"tuples lie in each other deeper than {MOST_TUPLES}")


def msgpack_package() -> Any:
    try:
        import msgpack
    except ImportError:
        raise ImportError(
            "files of Flax are in the format of msgpack: pip install msgpack"
        ) from None
    return msgpack


def _extension(code: int, data: bytes, tuples: int) -> Any:
    if code == ARRAY:
        return _array(data)
    if code == SCALAR:
        return _array(data)[()]
    if code == COMPLEX:
        real, imaginary = msgpack_package().unpackb(data)
        return complex(real, imaginary)
    if code == TUPLE:
        return tuple(_unpacked(data, tuples + 1))
    raise ValueError(f"a value of the unknown kind {code}")


def _array(data: bytes) -> np.ndarray[Any, Any]:
    shape, name, elements = msgpack_package().unpackb(data, raw=True)
    dtype = dtypes.by_name(name.decode())
    return np.frombuffer(elements, dtype).reshape(shape)


def _joined(tree: Any) -> Any:
    """With arrays that were too large for one value joined again."""
    if isinstance(tree, str) and tree.startswith(_ELSEWHERE):
        raise NotImplementedError(
            f"{tree.removeprefix(_ELSEWHERE)} was saved by several processes, "
            "beside the file: restore it by Flax, and save it"
        )
    if isinstance(tree, list):
        return [_joined(value) for value in tree]
    if not isinstance(tree, dict):
        return tree
    if CHUNKED not in tree:
        return {key: _joined(value) for key, value in tree.items()}
    parts = _listed(tree.get("chunks"))
    if not all(isinstance(part, np.ndarray) for part in parts):
        raise ValueError("a part of an array is not an array")
    return np.concatenate(parts).reshape(_listed(tree.get("shape")))


def _listed(numbered: Any) -> list[Any]:
    """Of a dict with the keys "0", "1", ..."""
    if not isinstance(numbered, dict):
        raise ValueError("an array in parts lacks its parts or shape")
    try:
        return [numbered[str(i)] for i in range(len(numbered))]
    except KeyError as lacking:
        raise ValueError(f"an array in parts lacks part {lacking}") from None
