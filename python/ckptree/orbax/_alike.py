# SPDX-License-Identifier: Apache-2.0
"""Whether processes have the same tree to save. Of arrays that are spread over
them each has its shards; all else they have alike, for one of them saves it."""

from __future__ import annotations

import base64
import json
import sys
import zlib
from typing import TYPE_CHECKING, Any, Mapping

import numpy as np

from ckptree import _rules, adapters
from ckptree.orbax._items import DEFAULT
from ckptree.orbax._tree_save import ROOT, map_leaves

if TYPE_CHECKING:
    from ckptree.orbax._items import Item
    from ckptree.orbax._processes import Job

    # The type and shape of a leaf, or what container it is; a checksum of its
    # value, 0 where each process has a part of it.
    _Entry = tuple[str, int]

_ADVICE = (
    "All processes save one checkpoint: make it the same on each of them, as "
    "by multihost_utils.broadcast_one_to_all(), or leave it out"
)
_PLAIN = (bool, int, float, complex, str, bytes, type(None))


class Survey:
    """What one process is about to save. ValueError: it has something that is
    no leaf, by its name."""

    def __init__(self, items: Mapping[str, Item]) -> None:
        found: dict[str, _Entry] = {}
        for name, item in items.items():
            if item.state is not None:
                _add(name, item.state, found)
            if item.files:
                _add(f"{name}/files", item.files, found)
        # In one order, whatever the dicts of each process have.
        self._entries = sorted(found.items())
        self._text = json.dumps(self._entries).encode()

    def said(self) -> int:
        """The same on processes that have the same."""
        return zlib.crc32(self._text)

    def in_full(self) -> str:
        """For difference() of another process."""
        return base64.b64encode(zlib.compress(self._text)).decode()

    def difference(self, job: Job, texts: list[str]) -> str:
        """What a message says of the first that is not the same; to be asked of
        the first process, of what all of them say."""
        mine = dict(self._entries)
        first = job.processes[0]
        for place, text in enumerate(texts):
            other = job.processes[place]
            theirs = {
                name: tuple(entry)
                for name, entry in json.loads(
                    zlib.decompress(base64.b64decode(text))
                )
            }
            for name in sorted(mine.keys() | theirs.keys()):
                here, there = mine.get(name), theirs.get(name)
                if here == there:
                    continue
                shown = _shown(name)
                if here is None or there is None:
                    has, lacks = (first, other) if here else (other, first)
                    return (
                        f"{shown} is on process {has} and not on process "
                        f"{lacks}. {_ADVICE}"
                    )
                if here[0] != there[0]:
                    return (
                        f"{shown} is {here[0]} on process {first} and "
                        f"{there[0]} on process {other}. {_ADVICE}"
                    )
                return (
                    f"{shown} is not the same on processes {first} and "
                    f"{other}. {_ADVICE}"
                )
        return f"not all processes have the same. {_ADVICE}"


def _add(item: str, state: Any, found: dict[str, _Entry]) -> None:
    wrong: list[str] = []

    def on_leaf(name: str, leaf: Any) -> Any:
        path = item + name.removeprefix(ROOT)
        entry = _of_leaf(leaf)
        if entry is None:
            wrong.append(f"{_shown(path)}: {_rules.refusal(leaf)}")
        else:
            found[path] = entry
        return leaf

    def on_node(name: str, kind: str, empty: bool, tag: str) -> None:
        found[item + name.removeprefix(ROOT)] = f"a {kind}", 0

    map_leaves(state, on_leaf, on_node=on_node)
    if wrong:
        # Not by the save itself: that would tell only this process.
        raise ValueError(wrong[0])


def _shown(path: str) -> str:
    """As messages call it: an item without a name has none there."""
    return path.removeprefix(f"{DEFAULT}/")


def _of_leaf(leaf: Any) -> _Entry | None:
    """None: it is no leaf."""
    if isinstance(leaf, _PLAIN):
        return type(leaf).__name__, zlib.crc32(repr(leaf).encode())
    if isinstance(leaf, _rules.Document):
        return leaf.content.kind, zlib.crc32(leaf.content.data)
    if isinstance(leaf, (np.ndarray, np.generic)):
        array = np.asarray(leaf)
        return f"{array.dtype}{array.shape}", _checksum(array)
    jax = sys.modules.get("jax")
    if jax is not None and isinstance(leaf, jax.Array):
        kind = f"{leaf.dtype}{leaf.shape}"
        if not leaf.is_fully_addressable:
            how = ", too," if leaf.addressable_shards else " alone,"
            return f"{kind} on devices of other processes{how}", 0
        if jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            leaf = jax.random.key_data(leaf)
        return kind, _checksum(np.asarray(leaf))
    return None if adapters.owner(leaf) is None else (type(leaf).__name__, 0)


def _checksum(array: np.ndarray[Any, Any]) -> int:
    if array.dtype.hasobject:
        return 0  # It is no leaf: the save says so.
    plain = np.ascontiguousarray(array).reshape(-1)
    return zlib.crc32(plain.view(np.uint8).data)
