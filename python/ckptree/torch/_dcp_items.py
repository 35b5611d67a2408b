# SPDX-License-Identifier: Apache-2.0
"""Entries of PyTorch's Distributed Checkpoint as leaves of a step, and back.

DCP knows a state as a flat dict: "model.layers.0.weight" is a tensor, or any
other object, which it calls bytes. Its planner says where in the nested state
each of them is, and that place is the path of the leaf: "model/layers.0.weight"
of a module's dict, "optim/groups/[0]/lr" of a list. So a step that DCP saved
looks as any other, and DCP reads steps that it did not save.

What is no tensor is stored as the plain data that it is. A container which is
one entry is a node that is marked as such, so that it is one again. Nothing of
the store is ever unpickled but what torch.load(weights_only=True) takes.
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any, Iterable, Iterator, NamedTuple

import numpy as np
import torch
from torch.distributed.checkpoint.default_planner import DefaultSavePlanner
from torch.distributed.checkpoint.planner import WriteItemType

from ckptree import _rules
from ckptree.adapters import torch as tensors
from ckptree.adapters.protocol import (
    CUSTOM,
    DICT,
    DICT_KEY,
    INDEX,
    LIST,
    PARTS,
    TUPLE,
    Container,
    Pieces,
    Request,
    type_name,
)
from ckptree.adapters.torch_saved import MARKS, NUMPY, SAVED, STREAM, TENSOR
from ckptree.arrays import values
from ckptree.errors import (
    CorruptionError,
    InvalidArgumentError,
    UnsupportedError,
)
from ckptree.restoring.plain import ROOT_ITEM, is_root, named_tuple
from ckptree.torch._torch_files import below

if TYPE_CHECKING:
    from torch.distributed.checkpoint.planner import SavePlanner, WriteItem

    from ckptree import _engine

# The mark of a node: a container that is one entry. For others see torch_saved.
ENTRY = "entry"

Part = tuple[int, Any]  # Kind and key of one part of a path.


# ---- Saving ----


class Branch:
    """A container of a part, as the extension takes it."""

    def __init__(self, kind: int, tag: str, children: list[Any]) -> None:
        self.container = Container(kind, tag, children, list)


class Boxes:
    """What this rank has of one tensor."""

    def __init__(self, planner: SavePlanner) -> None:
        self._planner = planner
        self._items: list[WriteItem] = []

    def add(self, item: WriteItem) -> None:
        self._items.append(item)

    def pieces(self) -> Pieces:
        """The memory, asked for as late as possible: a planner may copy."""
        made: Pieces | None = None
        boxes: list[Any] = []
        for item in self._items:
            found = _pieces_of(item, self._planner.resolve_data(item))
            if made is not None and made.dtype != found.dtype:
                raise InvalidArgumentError(
                    f"its shards are of {made.dtype} and {found.dtype}"
                )
            made = found
            boxes += found.boxes
        assert made is not None
        return made._replace(boxes=boxes)


class Rules:
    """What the extension asks about values of a part."""

    def __getattr__(self, name: str) -> Any:
        return getattr(_rules, name)

    def adapt(self, value: Any) -> Any:
        if isinstance(value, Branch):
            return value.container
        if isinstance(value, Boxes):
            return value.pieces()
        if isinstance(value, torch.Tensor):
            return _whole(value)
        return _rules.adapt(value)


def part_of(
    items: Iterable[WriteItem], places: Any, planner: SavePlanner
) -> Branch:
    """The state that these entries are, as far as this rank saves it.

    `places`: where in the nested state each entry is, by its name, as DCP's own
    planners say; of another planner, the name is the path.
    """
    if not isinstance(places, dict):
        places = {}
    root: dict[Part, Any] = {}
    boxes: dict[str, Boxes] = {}
    for item in items:
        name = item.index.fqn
        if item.type == WriteItemType.BYTE_IO:
            _put(root, name, places, _encoded(name, _value_of(item, planner)))
            continue
        if _is_left_out(item):
            continue
        if name not in boxes:
            boxes[name] = Boxes(planner)
            _put(root, name, places, boxes[name])
        boxes[name].add(item)
    return _branch(root)


def _is_left_out(item: WriteItem) -> bool:
    """Shards of no elements: uneven ones of the last ranks. Of a tensor without
    any elements the first one stands for all."""
    data = item.tensor_data
    if item.type != WriteItemType.SHARD or data is None:
        return False
    if 0 in data.size:
        return any(data.chunk.offsets)
    return 0 in data.chunk.sizes


def _pieces_of(item: WriteItem, tensor: Any) -> Pieces:
    if not isinstance(tensor, torch.Tensor):
        raise TypeError(
            f"the planner gave a {type_name(tensor)} for a tensor: "
            "resolve_data() returns the tensor that is saved"
        )
    pieces = _whole(tensor)
    data = item.tensor_data
    if item.type == WriteItemType.TENSOR or data is None:
        return pieces
    if tensor.shape != data.chunk.sizes:
        raise InvalidArgumentError(
            f"the planner gave a tensor of {list(tensor.shape)} for a shard "
            f"of {list(data.chunk.sizes)}"
        )
    start = tuple(data.chunk.offsets)
    return pieces._replace(
        shape=tuple(data.size),
        boxes=[(start, array) for _, array in pieces.boxes],
    )


def _whole(tensor: torch.Tensor) -> Pieces:
    """A tensor of this rank. The same memory twice is saved twice: which rank
    saves an entry is not ours to say."""
    found = tensors.pieces(tensor.detach())
    if not isinstance(found, Pieces):
        raise TypeError(
            f"a tensor of {tensor.layout} or of the class "
            f"{type_name(tensor)} cannot be saved from several processes: "
            "save its plain tensors"
        )
    return found._replace(memory=None)


def _value_of(item: WriteItem, planner: SavePlanner) -> Any:
    """The object of an entry that is no tensor."""
    if (
        isinstance(planner, DefaultSavePlanner)
        and type(planner).resolve_data is DefaultSavePlanner.resolve_data
        and type(planner).transform_object
        is DefaultSavePlanner.transform_object
    ):
        return planner.lookup_object(item.index)
    stream = planner.resolve_data(item)
    # What the planner in this process has just written, not what a store says.
    try:
        assert isinstance(stream, io.BytesIO)
        stream.seek(0)
        return torch.load(stream, weights_only=False)
    except Exception as error:
        raise TypeError(
            f"{item.index.fqn}: the planner gave bytes that torch.load() does "
            f"not read ({error}): a checkpoint is data, write it by "
            "torch.save()"
        ) from None


def _encoded(name: str, value: Any) -> Any:
    """As the extension takes it. TypeError where it is no data."""
    if isinstance(value, torch.Tensor):
        return Branch(CUSTOM, TENSOR, [(DICT_KEY, "tensor", value.detach())])
    try:
        if _is_plain(value):
            return _plain(value, ENTRY)
    except RecursionError:
        raise TypeError(
            f"{name}: it contains itself, or its lists and dicts lie in each "
            "other too deep for a step"
        ) from None
    if type(value) is io.BytesIO:
        return Branch(
            CUSTOM, STREAM, [(DICT_KEY, "bytes", value.getvalue())]
        )
    saved = _saved(value)
    if saved is None:
        place, refused = _refused(name, value)
        if isinstance(refused, (dict, list, tuple)):
            reason = (
                f"a {type_name(refused)} is saved as bytes, and here "
                "torch.load(weights_only=True) does not read them, as where it "
                "has arrays of NumPy: save a dict or a list of its items"
            )
        else:
            reason = _rules.refusal(refused)
        raise TypeError(
            f"{place}: {reason}; or register its class by "
            "torch.serialization.add_safe_globals()"
        )
    return Branch(CUSTOM, SAVED, [(DICT_KEY, "bytes", saved)])


def _saved(value: Any) -> bytes | None:
    """What torch.save() makes of it; None where torch.load() does not read that
    as data."""
    stream = io.BytesIO()
    try:
        torch.save(value, stream)
        stream.seek(0)
        torch.load(stream, weights_only=True)
    except Exception:
        return None
    return stream.getvalue()


def _refused(name: str, value: Any) -> tuple[str, Any]:
    """What is at fault in a value that is not saved, and where it is."""
    if isinstance(value, (dict, list, tuple)):
        for place, child in below(value, name):
            if not _is_plain(child) and _saved(child) is None:
                return _refused(place, child)
    return name, value


_SCALARS = (type(None), bool, int, float, complex, str, bytes)
_KEYS = (type(None), bool, int, float, str, bytes)


def _is_plain(value: Any) -> bool:
    """Whether it comes back as it is, from the records of a step alone."""
    kind = type(value)
    if kind in _SCALARS or kind is torch.Tensor:
        return True
    if kind is np.ndarray:
        return value.dtype.kind in "biufc"
    if kind is dict:
        return all(type(k) in _KEYS and _is_plain(v) for k, v in value.items())
    return kind in (list, tuple) and all(map(_is_plain, value))


def _plain(value: Any, mark: str = "") -> Any:
    kind = type(value)
    if kind is np.ndarray:
        return Branch(CUSTOM, NUMPY, [(DICT_KEY, "array", value)])
    if kind is dict:
        pairs = [(DICT_KEY, key, _plain(v)) for key, v in value.items()]
        return Branch(DICT, mark, pairs)
    if kind in (list, tuple):
        elements = [(INDEX, i, _plain(v)) for i, v in enumerate(value)]
        return Branch(LIST if kind is list else TUPLE, mark, elements)
    return value


def _put(
    root: dict[Part, Any], name: str, places: dict[str, Any], value: Any
) -> None:
    node = root
    path = _path_of(name, places)
    for part in path[:-1]:
        node = node.setdefault(part, {})
        if not isinstance(node, dict):
            break
    if not isinstance(node, dict) or path[-1] in node:
        raise InvalidArgumentError(
            f"{name}: the planner has another entry at this place, or above "
            "or below it"
        )
    node[path[-1]] = value


def _path_of(name: str, places: dict[str, Any]) -> list[Part]:
    place = places.get(name)
    if not isinstance(place, tuple) or ".".join(map(str, place)) != name:
        place = (name,)
    return [
        (INDEX, part) if type(part) is int else (DICT_KEY, str(part))
        for part in place
    ]


def _branch(node: dict[Part, Any]) -> Branch:
    children = [
        (kind, key, _branch(child) if isinstance(child, dict) else child)
        for (kind, key), child in node.items()
    ]
    is_list = bool(children) and all(kind == INDEX for kind, _, _ in children)
    return Branch(LIST if is_list else DICT, "", children)


# ---- Reading ----


class Node:
    """A place of a step."""

    def __init__(self) -> None:
        self.info: _engine.LeafInfo | None = None
        self.children: dict[Part, Node] = {}

    @property
    def kind(self) -> str:
        if self.info is not None:
            return values.kind_of(self.info)
        indices = bool(self.children) and all(
            kind == INDEX for kind, _ in self.children
        )
        return "list" if indices else "dict"

    @property
    def tag(self) -> str:
        return "" if self.info is None else self.info.tag

    def is_tensor(self) -> bool:
        return self.kind == "array" and not self.tag


class Entry(NamedTuple):
    """One entry of DCP's flat state."""

    place: tuple[Any, ...]  # Where in the nested state: str, and int of lists.
    node: Node


def entries_of(step: _engine.Step) -> dict[str, Entry]:
    """The entries of a step by their names, from its records alone."""
    infos = step.leaves("")
    by_name = {info.name: info for info in infos}
    root = Node()
    for info in infos:
        node = root
        for part in info.path:
            node = node.children.setdefault(part, Node())
        node.info = by_name[info.tie_to] if info.tie_to else info
    found: dict[str, Entry] = {}
    for place, node in _entries(_state_in(root), ()):
        name = ".".join(map(str, place))
        if name in found:
            raise InvalidArgumentError(
                f"two leaves of the step have the name {name!r} in PyTorch's "
                "Distributed Checkpoint, which joins keys by dots"
            )
        found[name] = Entry(place, node)
    return found


def _state_in(root: Node) -> Node:
    """A state that is no dict alone, as an OrderedDict, lies in an item."""
    if list(root.children) == [(DICT_KEY, ROOT_ITEM)]:
        (state,) = root.children.values()
        if state.kind == "dict" and is_root(state.tag):
            return state
    return root


def _entries(
    node: Node, place: tuple[Any, ...]
) -> Iterator[tuple[tuple[Any, ...], Node]]:
    """As DCP's traverse_state_dict() goes through a state: into every dict, of
    whatever class, of which an empty one is no entry. What a planner took as a
    whole is marked."""
    if place and _is_entry(node):
        yield place, node
        return
    for (kind, key), child in node.children.items():
        part = key if kind == INDEX else str(key)
        yield from _entries(child, (*place, part))


def _is_entry(node: Node) -> bool:
    if node.kind == "dict":
        return node.tag == ENTRY
    if node.tag or node.kind != "list":
        return True
    return not any(
        child.is_tensor() or not _is_entry(child)
        for child in node.children.values()
    )


def values_of(step: _engine.Step, nodes: list[Node]) -> list[Any]:
    """The objects of entries that are no tensors, in one read."""
    leaves: dict[str, _engine.LeafInfo] = {}
    torches: dict[str, _engine.LeafInfo] = {}
    for node in nodes:
        _sort(node, leaves, torches)
    read = dict(zip(leaves, values.read(step, list(leaves.values()))))
    loaded, _ = tensors.load(step, [Request(i) for i in torches.values()])
    read.update(zip(torches, loaded))
    return [_decoded(node, read) for node in nodes]


def _sort(
    node: Node,
    leaves: dict[str, _engine.LeafInfo],
    torches: dict[str, _engine.LeafInfo],
    of_numpy: bool = False,
) -> None:
    """The leaves here and below, by what arrays become."""
    if node.info is not None and node.info.is_leaf:
        of = torches if node.is_tensor() and not of_numpy else leaves
        of[node.info.name] = node.info
    for child in node.children.values():
        _sort(child, leaves, torches, node.tag == NUMPY)


def _decoded(node: Node, read: dict[str, Any]) -> Any:
    info = node.info
    if info is not None and info.is_leaf:
        return read[info.name]
    if node.kind == "none":
        return None
    children = {
        key: _decoded(child, read) for (_, key), child in node.children.items()
    }
    if info is not None and (
        info.tag.startswith(PARTS)
        or (node.kind == "custom" and info.tag in MARKS)
    ):
        try:
            made = tensors.whole(info.tag.removeprefix(PARTS), children)
        except UnsupportedError as error:
            raise UnsupportedError(f"{info.name}: {error}") from error
        except ValueError as error:
            raise CorruptionError(f"{info.name}: {error}") from error
        if made is not None:
            return made  # Else of a class that may not be made: its parts.
    if node.kind == "namedtuple":
        return named_tuple(node.tag, children)
    if node.kind in ("list", "tuple"):
        elements = [children[i] for i in sorted(children)]
        return tuple(elements) if node.kind == "tuple" else elements
    return children


def dtype_of(info: _engine.LeafInfo) -> torch.dtype:
    """The element type of a tensor. TypeError where PyTorch has none."""
    dtype = getattr(torch, info.dtype_name, None)
    if not isinstance(dtype, torch.dtype) or info.packed:
        raise TypeError(
            f"{info.name}: PyTorch has no {info.dtype_name}; ckptree.open() "
            "reads it as an array of NumPy"
        )
    return dtype


def memory_of(tensor: torch.Tensor) -> np.ndarray[Any, Any] | None:
    """The memory of a tensor to read into; None where that is no block of bytes
    on the host."""
    plain = (
        type(tensor) in (torch.Tensor, torch.nn.Parameter)
        and tensor.device.type == "cpu"
        and tensor.layout is torch.strided
        and tensor.is_contiguous()
        and not tensor.is_conj()
        and not tensor.is_neg()
    )
    if not plain:
        return None
    found = tensors.pieces(tensor)
    assert isinstance(found, Pieces)
    array = found.boxes[0][1]
    assert isinstance(array, np.ndarray)  # As its device is the host's.
    return array
