# SPDX-License-Identifier: Apache-2.0
"""Tensors of PyTorch: state_dict() of modules and optimizers, and every other
state that has tensors in it.

Nothing here needs to be called: Store.save() and Store.restore() do, where
PyTorch is imported.

>>> import ckptree
>>> model = torch.nn.Linear(3, 2)
>>> with ckptree.Store(tmp / "run") as store:
...     _ = store.save(1, {"model": model.state_dict()}).result()
...     restored = store.restore(1, like={"model": model.state_dict()})
...     store[1]["model/weight"].torch().shape
torch.Size([2, 3])
>>> model.load_state_dict(restored["model"])
<All keys matched successfully>

Without a template step.torch() gives tensors, also for an optimizer that has no
moments to be a template of.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Sequence

import numpy as np

from ckptree.arrays import casting, dtypes
from ckptree.adapters.protocol import (
    Container,
    Expected,
    Pieces,
    Request,
    type_name,
)
from ckptree.arrays.values import SCALAR_TAG, kind_of

try:
    import torch
except ImportError:
    raise ImportError(
        "tensors need PyTorch: pip install 'ckptree[torch]', or torch for "
        "your device; without it, restore() gives arrays of NumPy"
    ) from None

if TYPE_CHECKING:
    from ckptree import _engine
    from ckptree.arrays.values import ReadRequest

PLACE = "device"
PLACE_TYPE = "torch.device"

# By the engine's names, as far as this PyTorch has them.
_DTYPES = {
    name: getattr(torch, name)
    for name in """bool int8 int16 int32 int64 uint8 uint16 uint32 uint64
    float16 bfloat16 float32 float64 complex32 complex64 complex128
    float8_e4m3fn float8_e5m2 float8_e4m3fnuz float8_e5m2fnuz
    float8_e8m0fnu""".split()
    if hasattr(torch, name)
}
_NAMES = {dtype: name for name, dtype in _DTYPES.items()}
for _name, _dtype in _DTYPES.items():
    dtypes.NUMBERS[_dtype] = dtypes.number_of(_name)

# NumPy has no such elements: their bytes pass as those of integers.
_CARRIERS = {
    _DTYPES[name]: carrier
    for names, carrier in (
        ("bfloat16", torch.int16),
        ("complex32", torch.int32),
        (
            "float8_e4m3fn float8_e5m2 float8_e4m3fnuz float8_e5m2fnuz "
            "float8_e8m0fnu",
            torch.uint8,
        ),
    )
    for name in names.split()
    if name in _DTYPES
}

# Other types may stand for what no memory has.
_PLAIN = (torch.Tensor, torch.nn.Parameter)

# These are no leaves: their state_dict() is a state.
_WITH_STATE = (torch.nn.Module, torch.optim.Optimizer)


# ---- Saving ----


def is_leaf(value: Any) -> bool:
    return isinstance(value, (torch.Tensor, *_WITH_STATE))


def container(value: Any) -> Container | None:
    return None


def pieces(value: Any) -> Pieces | None:
    """The memory of a tensor; None of other types. TypeError and ValueError
    for what has no bytes of its own."""
    if isinstance(value, _WITH_STATE):
        raise TypeError(
            f"a {type_name(value)} is no leaf: save its state_dict()"
        )
    if not isinstance(value, torch.Tensor):
        return None
    _check(value)
    if value.device.type == "meta":
        raise ValueError("a tensor on the meta device has no values to save")
    tensor = value.detach().resolve_conj().resolve_neg()
    on_host = tensor.cpu()
    # What was copied here nobody else can change.
    frozen = on_host.untyped_storage().data_ptr() != (
        value.untyped_storage().data_ptr()
    )
    return Pieces(
        value.dtype,
        tuple(value.shape),
        [(None, _array(on_host))],
        "",
        frozen,
        memory=_memory(value),
    )


def _check(value: torch.Tensor) -> None:
    kind = type_name(value)
    if type(value) not in _PLAIN:
        raise TypeError(
            f"a {kind} is no leaf: save the plain tensors that it is made of"
        )
    if value.is_nested or value.layout is not torch.strided:
        raise TypeError(
            "a sparse or nested tensor is no leaf: save to_dense() of it, or "
            "its indices and values"
        )
    if value.dtype not in _NAMES:
        raise TypeError(
            f"tensors of {value.dtype} cannot be saved: elements are numbers "
            "or bool of whole bytes"
        )


def _memory(value: torch.Tensor) -> Any:
    """Equal for tensors that are the same elements: state_dict() gives tied
    parameters as two objects. None where there is nothing to share."""
    if value.numel() == 0:
        return None
    return (
        str(value.device),
        value.data_ptr(),
        value.dtype,
        tuple(value.shape),
        value.stride(),
        value.is_conj(),
        value.is_neg(),
    )


def _array(tensor: torch.Tensor) -> np.ndarray[Any, Any]:
    """The memory of a tensor on the host."""
    carrier = _CARRIERS.get(tensor.dtype)
    array: np.ndarray[Any, Any] = (
        tensor if carrier is None else tensor.view(carrier)
    ).numpy()
    return array


# ---- Restoring ----


def describe(value: Any) -> Expected | None:
    """What a tensor in a template asks for; one on the meta device has no
    values, as jax.ShapeDtypeStruct."""
    if not isinstance(value, torch.Tensor):
        return None
    _check(value)
    return Expected(
        "array",
        _NAMES[value.dtype],
        tuple(value.shape),
        abstract=value.device.type == "meta",
        arrays="torch",
        like=value,
    )


def prefetch(state: Any) -> None:
    pass  # pieces() copies a tensor as soon as it is met.


def is_place(given: Any) -> bool:
    return True


def takes(info: _engine.LeafInfo) -> bool:
    """Scalars of NumPy stay what they are: options of an optimizer are no
    tensors."""
    return kind_of(info) == "array" and info.tag != SCALAR_TAG


def load(
    step: _engine.Step, requests: Sequence[Request]
) -> tuple[list[Any], dict[int, str]]:
    """Tensors of leaves, as Loader.load() says, in one parallel pass."""
    tensors: list[Any] = []
    reads: list[ReadRequest] = []
    for request in requests:
        info = request.info
        dtype = _DTYPES.get(info.dtype_name)
        if dtype is None or info.packed:
            raise TypeError(
                f"{info.name}: PyTorch has no {info.dtype_name}; numpy() or "
                "jax() read it"
            )
        tensor = torch.empty(info.shape, dtype=dtype)
        tensors.append(tensor)
        reads.append((info, _array(tensor), None, None))
    step.read(reads)
    changed: dict[int, str] = {}
    for i, request in enumerate(requests):
        if request.like is not None:
            try:
                tensors[i] = like(tensors[i], request.like, request.lossy)
            except casting.Changed as what:
                changed[i] = str(what)
                tensors[i] = None
        elif request.place is not None:
            tensors[i] = tensors[i].to(request.place)
    return tensors, changed


def made(value: Any, expected: Expected, *, lossy: bool) -> torch.Tensor:
    return like(value, expected.like, lossy)


def like(
    value: torch.Tensor | float, template: torch.Tensor, lossy: bool
) -> torch.Tensor:
    """What was read, as the template has it: its type, device and gradient.
    casting.Changed where it would be another value, unless `lossy`."""
    device = template.device if template.device.type != "meta" else "cpu"
    if isinstance(value, torch.Tensor):
        drops = value.is_complex() and not template.is_complex()
        real = value.real if drops else value
        converted = real.to(dtype=template.dtype)
        if not lossy and value.dtype != template.dtype:
            _check_values(value, converted)
    else:
        converted = _of_number(value, template.dtype, lossy)
    made = converted.to(device=device)
    if isinstance(template, torch.nn.Parameter):
        return torch.nn.Parameter(made, requires_grad=template.requires_grad)
    return made.requires_grad_(template.requires_grad)


def _of_number(
    value: float, dtype: torch.dtype, lossy: bool
) -> torch.Tensor:
    try:
        number = value
        if isinstance(value, complex) and not dtype.is_complex:
            number = value.real
        made = torch.as_tensor(np.asarray(number)).to(dtype)
    except TypeError:  # An int of more than 64 bits.
        raise casting.Changed(f"{value!r} is no {_NAMES[dtype]}") from None
    there = made.item()
    if not lossy and there != value and value == value:
        raise casting.Changed(f"from {value!r} to {there!r} ({_NAMES[dtype]})")
    return made


def _check_values(before: torch.Tensor, made: torch.Tensor) -> None:
    """casting.Changed where two tensors of the host differ."""
    olds, news = before.reshape(-1), made.reshape(-1)
    for start in range(0, olds.numel(), casting.ELEMENTS_AT_ONCE):
        part = slice(start, start + casting.ELEMENTS_AT_ONCE)
        casting.check(
            _wide_array(olds[part]),
            _wide_array(news[part]),
            _NAMES[before.dtype],
            _NAMES[made.dtype],
        )


def _wide_array(tensor: torch.Tensor) -> np.ndarray[Any, Any]:
    """The values of a tensor of the host, in elements that NumPy has."""
    if tensor.dtype in _CARRIERS:
        wide = torch.complex64 if tensor.is_complex() else torch.float32
        tensor = tensor.to(wide)
    return _array(tensor)
