# SPDX-License-Identifier: Apache-2.0
"""Tensors that are kept as their parts: sparse and quantized ones, and
subclasses that say by __tensor_flatten__() what they are made of.

Each is a node whose tag says what it is, with the parts below: histories,
differences and `ckptree show` have these.

* torch.sparse_coo 4,5: indices, values, coalesced
* torch.sparse_csr 4,5; csc, bsr and bsc likewise: as PyTorch calls them
* torch.quantized qint8 per_tensor_affine: int_repr, scale, zero_point
* torch.quantized quint8 per_channel_affine 0: int_repr, scales, zero_points
* torch.subclass MODULE.CLASS 4,5: its inner tensors, and context

Back they come without anything being imported or called that a store names: a
subclass is made by the class of the template, or by one of those that the
caller allows. What a store says of sparse tensors is checked, so that no index
leads out of them.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
from typing import Any, Callable, Iterable, Mapping, NamedTuple

from ckptree.adapters.protocol import (
    ATTRIBUTE,
    INDEX,
    OBJECT,
    PARTS,
    TUPLE,
    Container,
    type_name,
)
from ckptree.adapters.torch_dtypes import DTYPES

import torch  # After torch_dtypes, which says what to install.

# The plain tensors. Other types may stand for what no memory has.
PLAIN = (torch.Tensor, torch.nn.Parameter)

_COMPRESSED: dict[torch.layout, tuple[str, str]] = {
    torch.sparse_csr: ("crow_indices", "col_indices"),
    torch.sparse_csc: ("ccol_indices", "row_indices"),
    torch.sparse_bsr: ("crow_indices", "col_indices"),
    torch.sparse_bsc: ("ccol_indices", "row_indices"),
}
_LAYOUTS = {str(layout): layout for layout in _COMPRESSED}
_COO = str(torch.sparse_coo)
_QUANTIZED = "torch.quantized"
_SUBCLASS = "torch.subclass"
_CONTEXT = "context"
# What a context has beside plain data.
_DTYPE, _SIZE, _DEVICE = "torch.dtype", "torch.Size", "torch.device"
_ENUM, _RECORD = "enum", "dataclass"
_QUANTIZED_DTYPES = (torch.qint8, torch.quint8, torch.qint32)
_PER_TENSOR = (torch.per_tensor_affine, torch.per_tensor_symmetric)
# By their names, as a context may hold them.
_ALL_DTYPES = {f"torch.{name}": dtype for name, dtype in DTYPES.items()} | {
    str(dtype): dtype for dtype in _QUANTIZED_DTYPES
}


class Part:
    """A part in a template. `free`: the dimension that may have any size."""

    __slots__ = ("tensor", "free")

    def __init__(self, tensor: torch.Tensor, free: int) -> None:
        self.tensor = tensor
        self.free = free


class Wrapped:
    """What has no other type of its own, and is this container."""

    __slots__ = ("container",)

    def __init__(self, container: Container) -> None:
        self.container = container


class _Opened(NamedTuple):
    """A tensor in parts. Of a part: its name, itself, and the dimension that
    may have any size."""

    tag: str
    parts: list[tuple[str, Any, int | None]]
    rebuild: Callable[[list[Any]], Any]


def to_save(value: torch.Tensor) -> Container | None:
    """The parts of a tensor; None: it is kept as it is."""
    opened = _open(value)
    if opened is None:
        return None
    children = [(ATTRIBUTE, name, part) for name, part, _ in opened.parts]
    tag, rebuild = PARTS + opened.tag, opened.rebuild
    return Container(OBJECT, tag, children, rebuild)


def of_template(value: torch.Tensor) -> Container | None:
    """The same of a tensor in a template."""
    opened = _open(value)
    if opened is None:
        return None
    children = [
        (ATTRIBUTE, name, part if free is None else Part(part, free))
        for name, part, free in opened.parts
    ]
    given = [child for _, _, child in children]

    def rebuild(made: list[Any]) -> Any:
        # Nothing was read for it.
        as_given = all(a is b for a, b in zip(made, given))
        return value if as_given else opened.rebuild(made)

    return Container(OBJECT, PARTS + opened.tag, children, rebuild)


def of_data(value: Any) -> Container | None:
    """What stands for a dtype or a size, which are no tensors and no plain
    data; None of all else."""
    if isinstance(value, Wrapped):
        return value.container
    if type(value) is torch.dtype or type(value) is torch.Size:
        found: Container = _image(value, "").container
        return found
    return None


def _open(value: torch.Tensor) -> _Opened | None:
    if value.is_nested:
        raise TypeError(
            "a nested tensor is no leaf: save its values() and offsets()"
        )
    if type(value) not in PLAIN:
        return _open_subclass(value)
    layout = value.layout
    if layout is torch.sparse_coo or layout in _COMPRESSED:
        return _open_sparse(value)
    if layout is not torch.strided:
        raise TypeError(
            f"a tensor of layout {layout} is no leaf: save its to_dense()"
        )
    if value.is_quantized:
        return _open_quantized(value)
    return None


def whole(
    tag: str, parts: dict[str, Any], classes: Iterable[type] = ()
) -> Any:
    """The tensor that has these parts; None: it is of a class that is not among
    `classes`, or nothing of PyTorch, or not all parts are here. ValueError
    where they make no such tensor.

    >>> indices, values = torch.tensor([[0, 2]]), torch.tensor([1.0, 2.0])
    >>> parts = {"indices": indices, "values": values, "coalesced": True}
    >>> whole("torch.sparse_coo 3", parts).to_dense()
    tensor([1., 0., 2.])
    """
    kind, _, rest = tag.partition(" ")
    make = _MAKERS.get(kind)
    if make is None:
        return None
    if not _NEEDED.get(kind, set()) <= set(parts):
        return None
    try:
        return make(kind, rest, parts, classes)
    except (
        AttributeError, IndexError, KeyError, RuntimeError, TypeError
    ) as error:
        raise ValueError(f"its parts make no {tag}: {error}") from error


def classes_of(value: torch.Tensor) -> set[type]:
    """The classes that make a tensor of its parts: of itself, of its inner
    tensors, and those that its context has."""
    found: set[type] = set()
    if type(value) in PLAIN or not hasattr(value, "__tensor_flatten__"):
        return found
    names, context = value.__tensor_flatten__()
    found.add(type(value))
    for name in names:
        found |= classes_of(getattr(value, name))

    def look(below: Any) -> None:
        if isinstance(below, dict):
            below = list(below.values())
        if isinstance(below, enum.Enum):
            found.add(type(below))
        elif dataclasses.is_dataclass(below):
            found.add(type(below))
            names = [field.name for field in dataclasses.fields(below)]
            look([getattr(below, name) for name in names])
        elif isinstance(below, (list, tuple)):
            for child in below:
                look(child)

    look(context)
    return found


# ---- Sparse ----


def _open_sparse(value: torch.Tensor) -> _Opened:
    layout, size = value.layout, value.shape
    tensor = value.detach()
    if layout is torch.sparse_coo:
        parts: list[tuple[str, Any, int | None]] = [
            ("indices", tensor._indices(), 1),
            ("values", tensor._values(), 0),
            ("coalesced", tensor.is_coalesced(), None),
        ]
    else:
        rows, columns = _COMPRESSED[layout]
        first = getattr(tensor, rows)()
        batch = first.dim() - 1
        parts = [
            (rows, first, None),
            (columns, getattr(tensor, columns)(), batch),
            ("values", tensor.values(), batch),
        ]
    names = [name for name, _, _ in parts]

    def rebuild(children: list[Any]) -> torch.Tensor:
        return _as_before(
            _sparse(str(layout), size, dict(zip(names, children))), value
        )

    return _Opened(f"{layout} {_text(size)}", parts, rebuild)


def _sparse(
    kind: str, size: Iterable[int], parts: Mapping[str, Any]
) -> torch.Tensor:
    """One whose indices are checked: a store may say anything."""
    dims = tuple(size)
    if kind == _COO:
        return torch.sparse_coo_tensor(
            parts["indices"],
            parts["values"],
            dims,
            check_invariants=True,
            is_coalesced=parts["coalesced"],
        )
    layout = _LAYOUTS[kind]
    rows, columns = _COMPRESSED[layout]
    return torch.sparse_compressed_tensor(
        parts[rows],
        parts[columns],
        parts["values"],
        size=dims,
        layout=layout,
        check_invariants=True,
    )


def _make_sparse(
    kind: str, rest: str, parts: dict[str, Any], classes: Iterable[type]
) -> torch.Tensor:
    return _sparse(kind, _dims(rest), parts)


# ---- Quantized ----


def _open_quantized(value: torch.Tensor) -> _Opened | None:
    dtype = value.dtype
    if dtype not in _QUANTIZED_DTYPES:
        return None  # Of parts of bytes: refused as their type is.
    try:
        scheme = value.qscheme()
    except RuntimeError:  # Its text is of PyTorch's own lines.
        raise TypeError(
            f"a tensor of {dtype} that has no scale is no leaf: "
            "torch.quantize_per_tensor() makes one with a scale"
        ) from None
    tensor = value.detach()
    name = str(scheme).removeprefix("torch.")
    tag = f"{_QUANTIZED} {str(dtype).removeprefix('torch.')} {name}"
    if scheme in _PER_TENSOR:
        parts: list[tuple[str, Any, int | None]] = [
            ("int_repr", tensor.int_repr(), None),
            ("scale", tensor.q_scale(), None),
            ("zero_point", tensor.q_zero_point(), None),
        ]
        rebuild: Callable[[list[Any]], torch.Tensor] = _per_tensor
    else:
        axis = tensor.q_per_channel_axis()
        tag = f"{tag} {axis}"
        parts = [
            ("int_repr", tensor.int_repr(), None),
            ("scales", tensor.q_per_channel_scales(), None),
            ("zero_points", tensor.q_per_channel_zero_points(), None),
        ]
        rebuild = functools.partial(_per_channel, axis)

    return _Opened(tag, parts, lambda made: _as_before(rebuild(made), value))


def _per_tensor(parts: list[Any]) -> torch.Tensor:
    return torch._make_per_tensor_quantized_tensor(*parts)


def _per_channel(axis: int, parts: list[Any]) -> torch.Tensor:
    return torch._make_per_channel_quantized_tensor(*parts, axis)


def _make_quantized(
    kind: str, rest: str, parts: dict[str, Any], classes: Iterable[type]
) -> torch.Tensor:
    dtype, _, scheme = rest.partition(" ")
    scheme, _, axis = scheme.partition(" ")
    integers = parts["int_repr"]
    if scheme in ("per_tensor_affine", "per_tensor_symmetric"):
        made = _per_tensor([integers, parts["scale"], parts["zero_point"]])
    elif axis.isdecimal() and int(axis) < integers.dim():
        scales, zeros = parts["scales"], parts["zero_points"]
        made = _per_channel(int(axis), [integers, scales, zeros])
    else:
        raise IndexError(f"{scheme} of dimension {axis!r}")
    if str(made.dtype) != f"torch.{dtype}":
        raise TypeError(f"int_repr is {integers.dtype}")
    return made


# ---- Subclasses ----


def _open_subclass(value: torch.Tensor) -> _Opened | None:
    kind = type(value)
    if not hasattr(kind, "__tensor_flatten__"):
        return None
    if type_name(value).startswith("torch.distributed."):
        raise TypeError(
            f"a {kind.__name__} is what one of several processes has of a "
            "tensor: save it by dcp.save() with ckptree.torch.dcp.StoreWriter, "
            "or full_tensor() of it"
        )
    names, context = value.__tensor_flatten__()
    if _CONTEXT in names:
        raise TypeError(f"a {type_name(value)} has a tensor called 'context'")
    inner = [getattr(value, name) for name in names]
    parts: list[tuple[str, Any, int | None]] = [
        (name, tensor, None) for name, tensor in zip(names, inner)
    ]
    if context is not None:
        parts.append((_CONTEXT, _image(context, type_name(value)), None))

    def rebuild(children: list[Any]) -> torch.Tensor:
        made = children[: len(names)]
        there = children[-1] if context is not None else None
        # Read in place: it has its bytes already.
        in_place = all(a is b for a, b in zip(made, inner))
        if in_place and _are_equal(there, context):
            return value
        unflattened = kind.__tensor_unflatten__(
            dict(zip(names, made)), there, value.shape, _strides(value.shape)
        )
        return _as_before(unflattened, value)

    tag = f"{_SUBCLASS} {type_name(value)} {_text(value.shape)}"
    return _Opened(tag, parts, rebuild)


def _make_subclass(
    kind: str, rest: str, parts: dict[str, Any], classes: Iterable[type]
) -> Any:
    name, _, size = rest.partition(" ")
    allowed: Any = _allowed(name, classes)
    if allowed is None:
        return None
    _check_made(parts.get(_CONTEXT))
    inner = {k: v for k, v in parts.items() if k != _CONTEXT}
    dims = torch.Size(_dims(size))
    return allowed.__tensor_unflatten__(
        inner, parts.get(_CONTEXT), dims, _strides(dims)
    )


def _allowed(name: str, classes: Iterable[type]) -> type | None:
    for kind in classes:
        if f"{kind.__module__}.{kind.__qualname__}" == name:
            return kind
    return None


class _Unmade(dict[str, Any]):
    """What an object of a class that is not allowed was made of."""

    def __init__(self, name: str, parts: dict[str, Any]) -> None:
        super().__init__(parts)
        self.class_name = name


def _check_made(context: Any) -> None:
    """ValueError where a part of it would not be what it was."""
    if isinstance(context, _Unmade):
        raise ValueError(
            f"its context has a {context.class_name}: allow that class, too"
        )
    if isinstance(context, dict):
        context = list(context.values())
    for below in context if isinstance(context, (list, tuple)) else ():
        _check_made(below)


def _image(context: Any, owner: str) -> Any:
    """A context as a state has it. What is no data is a TypeError."""

    def image(value: Any) -> Any:
        kind = type(value)
        if value is None or kind in (bool, int, float, complex, str, bytes):
            return value
        if kind is dict:
            return {key: image(below) for key, below in value.items()}
        if kind in (list, tuple):
            return kind(map(image, value))
        if kind is torch.Size:
            sizes = [(INDEX, i, int(n)) for i, n in enumerate(value)]
            return Wrapped(
                Container(TUPLE, PARTS + _SIZE, sizes, torch.Size)
            )
        if kind is torch.dtype:
            return _named(_DTYPE, str(value), lambda text: _ALL_DTYPES[text])
        if kind is torch.device:
            # Where it is now, whatever it was.
            return _named(_DEVICE, str(value), lambda text: value)
        if isinstance(value, enum.Enum):
            members = type(value).__members__
            tag = f"{_ENUM} {type_name(value)}"
            return _named(tag, value.name, lambda text: members[text])
        make = getattr(kind, "_make", None)  # Of a named tuple.
        if isinstance(value, tuple) and make is not None:
            return make(map(image, value))
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            return _record(value, image)
        raise TypeError(
            f"the context of a {owner} has a {type_name(value)}, which is no "
            "data: save the plain tensors that it is made of"
        )

    return image(context)


def _named(tag: str, text: str, parse: Callable[[str], Any]) -> Wrapped:
    def rebuild(children: list[Any]) -> Any:
        try:
            return parse(children[0])
        except KeyError:
            raise ValueError(f"{tag} has no {children[0]!r}") from None

    parts = [(ATTRIBUTE, "name", text)]
    return Wrapped(Container(OBJECT, PARTS + tag, parts, rebuild))


def _record(value: Any, image: Callable[[Any], Any]) -> Wrapped:
    names = [field.name for field in dataclasses.fields(value)]

    def rebuild(children: list[Any]) -> Any:
        return _new_record(type(value), dict(zip(names, children)))

    parts = [(ATTRIBUTE, name, image(getattr(value, name))) for name in names]
    tag = f"{PARTS}{_RECORD} {type_name(value)}"
    return Wrapped(Container(OBJECT, tag, parts, rebuild))


def _new_record(kind: type, fields: dict[str, Any]) -> Any:
    made: Any = object.__new__(kind)
    for name, field in fields.items():
        object.__setattr__(made, name, field)
    return made


def _make_record(
    kind: str, rest: str, parts: dict[str, Any], classes: Iterable[type]
) -> Any:
    allowed = _allowed(rest, classes)
    if allowed is None or not dataclasses.is_dataclass(allowed):
        return _Unmade(rest, parts)
    names = {field.name for field in dataclasses.fields(allowed)}
    if names != set(parts):
        raise TypeError(f"the fields of {rest} are {sorted(names)}")
    return _new_record(allowed, parts)


def _make_enum(
    kind: str, rest: str, parts: dict[str, Any], classes: Iterable[type]
) -> Any:
    allowed = _allowed(rest, classes)
    if allowed is None or not issubclass(allowed, enum.Enum):
        return _Unmade(rest, parts)
    return allowed[parts["name"]]


def _make_dtype(
    kind: str, rest: str, parts: dict[str, Any], classes: Iterable[type]
) -> Any:
    return _ALL_DTYPES[parts["name"]]


def _make_device(
    kind: str, rest: str, parts: dict[str, Any], classes: Iterable[type]
) -> Any:
    return torch.device(parts["name"])


def _make_size(
    kind: str, rest: str, parts: dict[Any, Any], classes: Iterable[type]
) -> Any:
    return torch.Size([parts[i] for i in range(len(parts))])


_MAKERS: dict[
    str, Callable[[str, str, dict[str, Any], Iterable[type]], Any]
] = {
    **{name: _make_sparse for name in [_COO, *_LAYOUTS]},
    _QUANTIZED: _make_quantized,
    _SUBCLASS: _make_subclass,
    _DTYPE: _make_dtype,
    _DEVICE: _make_device,
    _SIZE: _make_size,
    _ENUM: _make_enum,
    _RECORD: _make_record,
}


# Without these they are no more than parts: others may have been left out.
_NEEDED: dict[str, set[str]] = {
    _COO: {"indices", "values", "coalesced"},
    _QUANTIZED: {"int_repr"},
    _DTYPE: {"name"},
    _DEVICE: {"name"},
    _ENUM: {"name"},
    **{
        name: {*_COMPRESSED[layout], "values"}
        for name, layout in _LAYOUTS.items()
    },
}


# ---- What all have in common ----


def _as_before(made: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """With the gradient of the template's, and a parameter where it is one."""
    if isinstance(value, torch.nn.Parameter):
        return torch.nn.Parameter(made, requires_grad=value.requires_grad)
    if made.requires_grad != value.requires_grad:
        made.requires_grad_(value.requires_grad)
    return made


def _are_equal(a: Any, b: Any) -> bool:
    try:
        return bool(a == b)
    except Exception:
        return False


def _strides(size: torch.Size) -> tuple[int, ...]:
    """Of a dense tensor: that is what is made."""
    return tuple(torch.empty(size, device="meta").stride())


def _text(size: Iterable[int]) -> str:
    return ",".join(map(str, size))


def _dims(text: str) -> list[int]:
    return [int(n) for n in text.split(",") if n]
