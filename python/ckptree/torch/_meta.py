# SPDX-License-Identifier: Apache-2.0
"""Modules on the meta device, which have shapes and no memory yet."""

from __future__ import annotations

from typing import Any, Iterator

import torch

from ckptree.adapters.protocol import type_name
from ckptree.errors import StateError
from ckptree.torch import _app

# Of tensors that are nothing but their memory.
_NO_DISPATCH = torch.Tensor.__torch_dispatch__


def modules_on_meta(app: dict[str, Any]) -> dict[str, torch.nn.Module]:
    """Those of the app that have parameters or buffers without memory, by
    their names."""
    found: dict[str, torch.nn.Module] = {}

    def look(value: Any, name: str) -> None:
        made = _app.object_of(value, name)
        if made is not None:
            module = made.value
            if isinstance(module, torch.nn.Module):
                if next(_on_meta(module), None) is not None:
                    found[name] = module
        elif type(value) in (dict, list, tuple):
            below = value.items() if type(value) is dict else enumerate(value)
            for key, child in below:
                look(child, f"{name}/{key}" if name else str(key))

    look(app, "")
    return found


def _on_meta(
    module: torch.nn.Module,
) -> Iterator[tuple[str, torch.Tensor]]:
    for name, tensor in module.named_parameters():
        if tensor.device.type == "meta":
            yield name, tensor
    for name, tensor in module.named_buffers():
        if tensor.device.type == "meta":
            yield name, tensor


def check(name: str, module: torch.nn.Module) -> None:
    """ValueError where something would have no values afterwards either: a
    buffer that is in no state_dict()."""
    saved = set(module.state_dict(keep_vars=True))
    # A tied one stands there under one of its names at least.
    kept = {id(t) for t in module.state_dict(keep_vars=True).values()}
    lost = [
        f"{name}/{path}"
        for path, tensor in _on_meta(module)
        if path not in saved and id(tensor) not in kept
    ]
    if lost:
        raise ValueError(
            f"{', '.join(lost)}: on the meta device, and in no state_dict() "
            "(persistent=False): make it first, by to_empty() and what "
            "computes it"
        )


def materialize(name: str, module: torch.nn.Module, device: Any) -> None:
    """Gives them memory on the device, and no values. Parameters stay the same
    objects, so that ties and optimizers hold them still."""
    for path, tensor in list(_on_meta(module)):
        if type(tensor).__torch_dispatch__ is not _NO_DISPATCH:
            raise TypeError(
                f"{name}/{path}: a {type_name(tensor)} on the meta device: "
                "call to_empty() of the module first"
            )
        empty = torch.empty_like(tensor, device=device, requires_grad=False)
        if isinstance(tensor, torch.nn.Parameter):
            empty = torch.nn.Parameter(empty, tensor.requires_grad)
        empty.__class__ = type(tensor)
        empty.__dict__.update(tensor.__dict__)
        try:
            torch.utils.swap_tensors(tensor, empty)
        except RuntimeError as error:
            raise StateError(
                f"{name}/{path}: it cannot be given memory, for something else "
                f"holds it ({error}): call to_empty() of the module first"
            ) from error
