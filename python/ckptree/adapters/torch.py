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

import math
from typing import TYPE_CHECKING, Any, Iterable, Literal, Sequence

import numpy as np

from ckptree.arrays import casting
from ckptree.adapters import (
    torch_keys,
    torch_memory,
    torch_parts,
    torch_saved,
)
from ckptree.adapters.protocol import (
    ANY_SIZE,
    Container,
    Expected,
    Fetched,
    Pieces,
    Request,
    type_name,
)
from ckptree.adapters.torch_dtypes import (
    CARRIERS,
    DTYPES,
    NAMES,
    array_of,
    memory_of,
)
from ckptree.adapters.torch_parts import PLAIN, Part
from ckptree.arrays.values import SCALAR_TAG, kind_of
from ckptree.errors import InvalidArgumentError

import torch  # After torch_dtypes, which says what to install.

from ckptree.adapters import torch_device

if TYPE_CHECKING:
    from ckptree import _engine
    from ckptree.adapters.torch_memory import Want

PLACE = "device"
PLACE_TYPE = "torch.device"

# These are no leaves: their state_dict() is a state.
_WITH_STATE = (torch.nn.Module, torch.optim.Optimizer)


# ---- Saving ----


def is_leaf(value: Any) -> bool:
    return isinstance(value, (torch.Tensor, Part, *_WITH_STATE))


def container(value: Any) -> Container | None:
    return torch_parts.of_data(value)


def pieces(value: Any) -> Pieces | Container | None:
    """The memory of a tensor, or its parts; None of other types. TypeError and
    ValueError for what has no bytes of its own."""
    if isinstance(value, _WITH_STATE):
        raise TypeError(
            f"a {type_name(value)} is no leaf: save its state_dict(), or call "
            "ckptree.torch.save()"
        )
    if not isinstance(value, torch.Tensor):
        return None
    in_parts = torch_parts.to_save(value)
    if in_parts is not None:
        return in_parts
    _check(value)
    if value.device.type == "meta":
        raise ValueError("a tensor on the meta device has no values to save")
    try:
        freed = torch_memory.is_freed(value)
    except NotImplementedError as error:
        raise TypeError(
            "a tensor without memory of its own, as within torch.func.vmap "
            f"or torch.func.grad: save outside of these ({error})"
        ) from None
    if freed:
        raise ValueError(
            "the memory of the tensor was freed (its storage ends before it, "
            "as FSDP leaves it): save it where it is whole"
        )
    memory: np.ndarray[Any, Any] | Fetched
    frozen = False
    device = torch_device.of(value)
    if device is not None:
        memory = torch_device.Source(device, value).fetched()
    else:
        on_host = value.detach().resolve_conj().resolve_neg().cpu()
        # What was copied here nobody else can change.
        frozen = on_host.untyped_storage().data_ptr() != (
            value.untyped_storage().data_ptr()
        )
        memory = array_of(on_host)
    return Pieces(
        value.dtype,
        tuple(value.shape),
        [(None, memory)],
        "",
        frozen,
        memory=memory_of(value),
    )


def _check(value: torch.Tensor) -> None:
    if torch.nn.parameter.is_lazy(value):
        raise TypeError(
            f"a {type_name(value)} has no shape yet: its module gets it where "
            "it is run for the first time, so run that once before"
        )
    if type(value) not in PLAIN:
        raise TypeError(
            f"a {type_name(value)} is no leaf: save the plain tensors that it "
            "is made of, or give it __tensor_flatten__()"
        )
    if value.dtype not in NAMES:
        raise TypeError(
            f"tensors of {value.dtype} cannot be saved: elements are numbers "
            "or bool of whole bytes"
        )


# ---- Restoring ----


def parts(value: Any) -> Container | Literal[False] | None:
    if not isinstance(value, torch.Tensor):
        return None
    return torch_parts.of_template(value) or False


def whole(tag: str, parts: dict[str, Any], classes: Iterable[type] = ()) -> Any:
    if tag in torch_saved.MARKS:
        return torch_saved.value(tag, parts)
    return torch_parts.whole(tag, parts, classes)


def completed(state: Any) -> Any:
    return torch_keys.of_parameters(state)


def describe(value: Any) -> Expected | None:
    """What a tensor in a template asks for; one on the meta device has no
    values, as jax.ShapeDtypeStruct."""
    free = None
    if isinstance(value, Part):
        value, free = value.tensor, value.free
    if not isinstance(value, torch.Tensor):
        return None
    _check(value)
    shape = tuple(value.shape)
    if free is not None:
        shape = (*shape[:free], ANY_SIZE, *shape[free + 1 :])
    return Expected(
        "array",
        NAMES[value.dtype],
        shape,
        abstract=value.device.type == "meta",
        arrays="torch",
        like=value,
    )


def memory(value: Any) -> Any:
    tensor = value.tensor if isinstance(value, Part) else value
    if type(tensor) not in PLAIN or tensor.device.type == "meta":
        return None
    found = memory_of(tensor)
    if found is None:
        return None
    return type(value), type(tensor), tensor.requires_grad, found


def is_place(given: Any) -> bool:
    try:
        torch.device(given)
    except (RuntimeError, TypeError) as error:
        said = str(error).partition("\n")[0]
        raise InvalidArgumentError(f"device={given!r}: {said}") from None
    return True


def takes(info: _engine.LeafInfo) -> bool:
    """Scalars of NumPy stay what they are: options of an optimizer are no
    tensors."""
    return kind_of(info) == "array" and info.tag != SCALAR_TAG


def load(
    step: _engine.Step, requests: Sequence[Request]
) -> tuple[list[Any], dict[int, str]]:
    """Tensors of leaves, as Loader.load() says, in one parallel pass."""
    tensors: list[Any] = [_memory_for(request) for request in requests]
    reads: list[Want] = [
        (request.info, tensor)
        for request, tensor in zip(requests, tensors)
        if tensor.device.type != "meta"
    ]
    torch_memory.read(step, reads)
    changed: dict[int, str] = {}
    for i, request in enumerate(requests):
        if request.like is None or request.into is not None:
            continue
        try:
            tensors[i] = like(
                tensors[i], request.like, request.lossy, request.place
            )
        except casting.Changed as what:
            changed[i] = str(what)
            tensors[i] = None
    return tensors, changed


def _memory_for(request: Request) -> torch.Tensor:
    """What a leaf is read into: where it is going to stay, unless another type
    is made of it."""
    info = request.info
    dtype = DTYPES.get(info.dtype_name)
    if dtype is None or info.packed:
        raise TypeError(
            f"{info.name}: PyTorch has no {info.dtype_name}; numpy() or "
            "jax() read it"
        )
    if request.into is not None:
        return request.into
    place = request.place
    if request.like is not None:
        same = request.like.dtype == dtype
        place = _device_of(request.like, place) if same else "cpu"
    device = "cpu" if place is None else place
    return torch.empty(info.shape, dtype=dtype, device=device)


def _device_of(template: torch.Tensor, place: Any = None) -> Any:
    """Of what is made like it: one on the meta device has no values, and is
    made at `place`."""
    if template.device.type != "meta":
        return template.device
    return "cpu" if place is None else place


def made(value: Any, expected: Expected, *, lossy: bool) -> torch.Tensor:
    return like(value, expected.like, lossy)


def like(
    value: torch.Tensor | float,
    template: torch.Tensor,
    lossy: bool,
    place: Any = None,
) -> torch.Tensor:
    """What was read, as the template has it: its type, device and gradient.
    casting.Changed where it would be another value, unless `lossy`."""
    device = _device_of(template, place)
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
        raise casting.Changed(f"{value!r} is no {NAMES[dtype]}") from None
    there = made.item()
    if not lossy and not casting.is_same(there, value):
        raise casting.Changed(f"from {value!r} to {there!r} ({NAMES[dtype]})")
    return made


def _check_values(before: torch.Tensor, made: torch.Tensor) -> None:
    """casting.Changed where two tensors of the host differ."""
    olds, news = before.reshape(-1), made.reshape(-1)
    for start in range(0, olds.numel(), casting.ELEMENTS_AT_ONCE):
        part = slice(start, start + casting.ELEMENTS_AT_ONCE)
        old, new = _wide_array(olds[part]), _wide_array(news[part])
        if made.dtype in CARRIERS and not made.is_complex():
            _check_held(old, new, made.dtype)
        casting.check(old, new, NAMES[before.dtype], NAMES[made.dtype])


def _check_held(
    old: np.ndarray[Any, Any], new: np.ndarray[Any, Any], dtype: torch.dtype
) -> None:
    """casting.Changed where PyTorch makes the largest number of a small type of
    a larger one, drops a sign, or makes something of 0."""
    told = torch.finfo(dtype)
    largest = float(told.max)
    # Half a unit beyond it is rounded to it.
    most = largest + 2.0 ** math.floor(math.log2(largest)) * told.eps / 2
    real = old.real
    with np.errstate(invalid="ignore"):
        wrong = np.isfinite(real) & (
            (abs(real) > most)
            | (np.sign(real) * np.sign(new) < 0)
            | ((real == 0) & (new != 0))
        )
    if wrong.any():
        at = int(np.argmax(wrong))
        raise casting.Changed(
            f"from {real[at].item()!r} to {new[at].item()!r} ({NAMES[dtype]})"
        )


def _wide_array(tensor: torch.Tensor) -> np.ndarray[Any, Any]:
    """The values of a tensor of the host, in elements that NumPy has."""
    if tensor.dtype in CARRIERS:
        wide = torch.complex64 if tensor.is_complex() else torch.float32
        tensor = tensor.to(wide)
    return array_of(tensor)
