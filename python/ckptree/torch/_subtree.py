# SPDX-License-Identifier: Apache-2.0
"""A step, or one subtree of it, as other formats have states."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from ckptree.adapters.protocol import PARTS
from ckptree.adapters.torch import whole
from ckptree.arrays import values
from ckptree.arrays.values import SCALAR_TAG
from ckptree.errors import MAX_SHOWN, InvalidArgumentError, NotFoundError
from ckptree.restoring import plain
from ckptree.torch import _safetensors_files

if TYPE_CHECKING:
    from ckptree import _engine
    from ckptree.step import Step

# In the metadata of a step: what its files said that is in no tensor.
IMPORTED = "imported"


class Subtree:
    """A step, or one subtree of it."""

    def __init__(self, step: Step, item: str) -> None:
        self._step = step
        self._item = item
        infos = step._engine.leaves("")
        self._by_name = {info.name: info for info in infos}
        if not item:
            self._infos = infos
            self._depth = self._depth_of_root()
            return
        below = [
            info for info in infos
            if info.name == item or info.name.startswith(item + "/")
        ]
        if not below:
            raise NotFoundError(f"step {step.step} has no item {item!r}")
        self._infos = below
        names = [name for name, _ in below[0].parents()]
        self._depth = len(below[0].path)
        if item in names:
            self._depth = names.index(item) + 1

    def _depth_of_root(self) -> int:
        """A state that is no dict with str keys lies in an item."""
        if len(self._step.metadata.items) == 1:
            mark = self._by_name.get(plain.ROOT_ITEM)
            if mark is not None and mark.tag.split(" ")[0] == plain.ROOT_MARK:
                return 1
        return 0

    def state(self, meter: Any) -> Any:
        """With tensors for its arrays, in memory."""
        only = {info.name for info in self._infos}
        made = plain.restore(
            self._step._engine,
            "torch",
            {"device": None},
            only if self._item else None,
            meter,
            functools.partial(whole, classes=()),
        )
        if not self._item:
            return made
        keys = [key for _, key in self._infos[0].path[: self._depth]]
        for key in keys[self._depth_of_root() :]:
            made = made[key]
        return made

    def tensors(self) -> list[_safetensors_files.Tensor]:
        """InvalidArgumentError names what is no tensor, and what would have one
        name with something else."""
        found: list[_safetensors_files.Tensor] = []
        others: list[str] = []
        names: dict[str, str] = {}
        twice: tuple[str, str, str] | None = None
        above = {
            name for info in self._infos for name, _ in info.parents()
        }
        parts = tuple(
            f"{info.name}/"
            for info in self._infos
            if info.tag.startswith(PARTS)
        )
        for info in self._infos:
            value = self._by_name[info.tie_to] if info.tie_to else info
            if parts and info.name.startswith(parts):
                continue
            keys = [str(key) for _, key in info.path[self._depth :]]
            if not _is_tensor(value) or not keys:
                # Containers of tensors are in their names.
                if value.tag.startswith(PARTS) or info.name not in above:
                    others.append(info.name)
                continue
            name = ".".join(keys)
            if name in names:
                twice = twice or (names[name], info.name, name)
            names[name] = info.name
            found.append(_safetensors_files.Tensor(name, value))
        if others:
            shown = ", ".join(others[:MAX_SHOWN])
            more = len(others) - MAX_SHOWN
            raise InvalidArgumentError(
                "files of safetensors hold nothing but tensors, and not these: "
                f"{shown}{f' and {more} others' if more > 0 else ''}: "
                "pass item=, or write a .pt"
            )
        if twice is not None:
            raise InvalidArgumentError(
                f"{twice[0]} and {twice[1]} would both be called {twice[2]!r}: "
                "export them one by one, by item="
            )
        return found

    def said(self) -> tuple[dict[str, str], dict[str, Any]]:
        """What files of safetensors and their index say, as far as they were
        imported."""
        custom = self._step.metadata.custom
        for key in (IMPORTED, "files", self._item):
            custom = custom.get(key) if isinstance(custom, dict) else None
        if not isinstance(custom, dict) or "metadata" not in custom:
            return {"format": "pt"}, {}
        of_file, of_index = custom["metadata"], custom.get("index", {})
        if not isinstance(of_file, dict) or not isinstance(of_index, dict):
            return {"format": "pt"}, {}
        return {str(k): str(v) for k, v in of_file.items()}, of_index


def _is_tensor(info: _engine.LeafInfo) -> bool:
    return (
        info.is_leaf
        and values.kind_of(info) == "array"
        and info.tag != SCALAR_TAG
    )
