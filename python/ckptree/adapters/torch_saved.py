# SPDX-License-Identifier: Apache-2.0
"""What DCP saves as bytes and is more than dicts, lists and numbers: a node
with a mark, and one child. Nothing of a store is ever unpickled but what
torch.load(weights_only=True) takes.
"""

from __future__ import annotations

import io
from typing import Any

import torch

from ckptree.adapters.protocol import ARRAY_MARK, TENSOR_MARK
from ckptree.errors import UnsupportedError

NUMPY = ARRAY_MARK  # An array of NumPy.
TENSOR = TENSOR_MARK  # A tensor that its planner took as bytes.
STREAM = "io.BytesIO"  # Which trainers put into their states.
SAVED = "torch.save"  # What torch.load(weights_only=True) reads.
MARKS = (NUMPY, TENSOR, STREAM, SAVED)


def value(mark: str, children: dict[str, Any]) -> Any:
    """What a node with that mark was made of. ValueError: these are not its
    children. UnsupportedError: its bytes are not read as data."""
    if len(children) != 1:
        raise ValueError(f"a {mark} of {list(children)}")
    (child,) = children.values()
    if mark == NUMPY:
        return child.numpy() if isinstance(child, torch.Tensor) else child
    if mark == TENSOR:
        return child
    if not isinstance(child, bytes):
        raise ValueError(f"a {mark} of a {type(child).__name__}")
    if mark == STREAM:
        return io.BytesIO(child)
    try:
        return torch.load(
            io.BytesIO(child), map_location="cpu", weights_only=True
        )
    except Exception as error:
        said = str(error).strip().partition("\n")[0]
        raise UnsupportedError(
            "torch.load(weights_only=True) does not read it; a class may be "
            f"allowed by torch.serialization.add_safe_globals(): {said}"
        ) from error
