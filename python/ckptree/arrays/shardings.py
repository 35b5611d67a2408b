# SPDX-License-Identifier: Apache-2.0
"""How arrays of JAX were spread over devices when they were saved. It is noted
for people: reading an array needs none of it."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

# The name of the line of a step's lineage that has all of it.
LINE = "sharding"
# A line may have that much; where there is more it is left out.
_MAX_BYTES = 1 << 20


class LeafSharding(NamedTuple):
    """How one array was spread, as a jax.sharding.NamedSharding says it."""

    mesh: dict[str, int]  # Names and sizes of the axes, in their order.
    spec: tuple[Any, ...]  # For each dimension None, an axis, or axes.


def to_text(shardings: dict[str, LeafSharding]) -> str:
    """Of leaves by their names; empty where there are none, or too many.

    >>> to_text({"w": LeafSharding({"x": 4, "y": 2}, ("x", None))})
    '{"meshes":[[["x",4],["y",2]]],"leaves":{"w":[0,["x",null]]}}'
    """
    if not shardings:
        return ""
    meshes: list[list[tuple[str, int]]] = []
    leaves = {}
    for name, (mesh, spec) in shardings.items():
        axes = list(mesh.items())
        if axes not in meshes:
            meshes.append(axes)
        leaves[name] = (meshes.index(axes), spec)
    text = json.dumps(
        {"meshes": meshes, "leaves": leaves},
        separators=(",", ":"),
        default=str,
    )
    return text if len(text) <= _MAX_BYTES else ""


def from_text(text: str) -> dict[str, LeafSharding]:
    """What to_text() made the text of.

    >>> from_text('{"meshes":[[["x",4]]],"leaves":{"w":[0,["x",null]]}}')
    {'w': LeafSharding(mesh={'x': 4}, spec=('x', None))}
    """
    if not text:
        return {}
    found = json.loads(text)
    return {
        name: LeafSharding(
            dict(found["meshes"][mesh]),
            tuple(tuple(x) if isinstance(x, list) else x for x in spec),
        )
        for name, (mesh, spec) in found["leaves"].items()
    }
