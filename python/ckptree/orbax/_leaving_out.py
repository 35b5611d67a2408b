# SPDX-License-Identifier: Apache-2.0
"""What a step has that Orbax does not save, found before it is written."""

from __future__ import annotations

import math
import warnings
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ckptree.arrays import values
from ckptree.orbax import _items, _random_keys, _transfer
from ckptree.orbax._keys import Keys, keys_of
from ckptree.orbax._tree_save import map_leaves
from ckptree.restoring.inventory import Inventory

if TYPE_CHECKING:
    from ckptree import _engine
    from ckptree.step import Step


class Refused(NamedTuple):
    """What is left out of a step: whole items, and leaves by their items and
    the keys below; and `said`, a line for each of them."""

    items: set[str]
    leaves: set[tuple[str, Keys]]
    said: list[str]

    def below(self, item: str) -> set[Keys]:
        return {keys for name, keys in self.leaves if name == item}


def look(step: Step, directory: str, skip: bool) -> Refused:
    """ValueError, NotImplementedError: there is something to leave out, and not
    `skip`; or there is nothing else."""
    refused = Refused(set(), set(), [])
    names = _items.names(step)
    inventory = Inventory(step._engine)
    for name in names:
        item = _items.stored(step, name, directory)
        why = _why_not_item(item, inventory)
        if why is not None:
            if not skip:
                raise _error(step, name, why)
            refused.items.add(name)
            refused.said.append(f"`{name}` {why}")
            continue
        if step.metadata.items[name] == "json":
            continue
        infos = item.infos(inventory.listed.values())
        for info in infos:
            found = inventory.value(info.name)
            reason = "" if found is None else _why_not(step, found)
            if reason and not skip:
                raise _error(step, info.name, ValueError(reason))
            if reason:
                refused.leaves.add((name, keys_of(info.name)))
                refused.said.append(f"`{info.name}` {reason}")
        left = {
            keys_of(info.name) for info in infos
        } - refused.below(name) - {()}
        if refused.below(name) and not left:
            refused.items.add(name)
    if not set(names) - refused.items - {_items.METRICS}:
        raise ValueError(
            f"step {step.step}: it has nothing that Orbax saves: leave it out "
            "of `steps`"
        )
    return refused


def tell(refused: dict[int, Refused], stacklevel: int) -> None:
    """A UserWarning for each key that is left out, of whichever steps."""
    steps: dict[str, list[int]] = {}
    for number, one in refused.items():
        for line in one.said:
            steps.setdefault(line, []).append(number)
    for line, numbers in steps.items():
        first, last = min(numbers), max(numbers)
        of = (
            f"step {first}"
            if first == last
            else f"{len(numbers)} steps, {first} to {last}"
        )
        warnings.warn(f"left out of {of}: {line}", stacklevel=stacklevel + 1)


def _error(step: Step, name: str, why: Exception) -> Exception:
    hint = "skip=True (--skip) leaves it out"
    return type(why)(f"step {step.step}: `{name}` {why}; {hint}")


def _why_not_item(
    item: _items.StoredItem, inventory: Inventory
) -> Exception | None:
    kind = item.step.metadata.items[item.name]
    if kind == "json":
        return None
    handler = handler_of(item)
    if kind != "tree" or item.files() is not None:
        return NotImplementedError(
            f"is of a handler of your own ({handler or kind}), which Orbax "
            "lacks"
        )
    if item.name == _items.METRICS:
        return ValueError("is what Orbax calls the metrics of a step")
    if "/" in item.name or item.name in ("", ".", ".."):
        return ValueError("would be a folder of Orbax, and is no name of one")
    infos = item.infos(inventory.listed.values())
    if not any(keys_of(info.name) for info in infos):
        # The item is one value, or an empty container.
        if all(inventory.value(info.name) is None for info in infos):
            return ValueError("is empty, and Orbax saves no such items")
    if handler == "JaxRandomKeyCheckpointHandler":
        try:
            _random_keys.check_for_orbax(key_of(item))
        except ValueError as error:
            return error
    return None


def _why_not(step: Step, info: _engine.LeafInfo) -> str:
    """Why Orbax does not save a leaf; empty where it does."""
    kind = values.kind_of(info)
    if kind in ("bytes", "complex"):
        return f"is {kind} of Python, which Orbax does not save"
    if kind == "int" and info.kind == "array":
        (value,) = values.read(step._engine, [info])
        if not -(2**63) <= value < 2**64:
            return "is an int of more than 64 bits, and Orbax saves none"
    if kind != "array":
        return ""
    if math.prod(info.shape) == 0:
        return "has no elements, and Orbax saves no such arrays"
    if info.packed:
        return f"is packed {info.dtype_name}, which cannot be read here yet"
    if not _is_known(info.dtype_name):
        return f"is {info.dtype_name}, and Orbax saves no such elements"
    return ""


def _is_known(dtype: str) -> bool:
    """Whether what Orbax writes arrays by has that type."""
    import tensorstore

    try:
        tensorstore.dtype(dtype)
    except (ValueError, TypeError):
        return False
    return True


def handler_of(item: _items.StoredItem) -> str:
    """The name of what saved it; empty: a store did."""
    return str(item.about.get("handler", "")).removeprefix(_transfer.OURS)


def restored(item: _items.StoredItem) -> Any:
    """Its tree, of dicts and lists."""
    import jax
    from ckptree.orbax import _tree_restore

    # Arrays that lay on devices that are not here.
    first = jax.sharding.SingleDeviceSharding(jax.local_devices()[0])
    tree = _tree_restore.restore(item, sharding=first)

    def on_leaf(name: str, leaf: Any) -> Any:
        # Orbax takes scalars of NumPy's own numbers alone.
        odd = isinstance(leaf, np.generic) and not isinstance(leaf, np.number)
        return np.asarray(leaf) if odd else leaf

    return map_leaves(tree, on_leaf)


def key_of(item: _items.StoredItem) -> Any:
    """The random key of JAX that it is."""
    import jax

    return jax.numpy.asarray(restored(item))


def without(tree: Any, leaves: set[Keys]) -> Any:
    """A tree of dicts and lists without these.

    >>> without({"a": [1, 2], "b": {"c": 3}}, {("a", "1"), ("b", "c")})
    {'a': [1, None], 'b': {}}
    """

    def built(part: Any, keys: Keys) -> Any:
        if isinstance(part, dict):
            return {
                key: built(value, (*keys, str(key)))
                for key, value in part.items()
                if (*keys, str(key)) not in leaves
            }
        if isinstance(part, list):
            # The others keep their places.
            return [
                None
                if (*keys, str(i)) in leaves
                else built(value, (*keys, str(i)))
                for i, value in enumerate(part)
            ]
        return part

    return built(tree, ()) if leaves else tree
