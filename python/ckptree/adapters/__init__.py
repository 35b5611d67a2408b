# SPDX-License-Identifier: Apache-2.0
"""Adapters: one module for each framework whose values a state may have.

An adapter is loaded where its framework has been imported by somebody else, or
where arrays are asked for by its name: restore(arrays="torch"). What one
answers stands in protocol.py.

register() makes one of your own known:

>>> register("my_arrays", "my_arrays_for_ckptree", "My arrays")
"""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, cast

if TYPE_CHECKING:
    from ckptree.adapters.protocol import (
        Adapter,
        Completing,
        Container,
        InParts,
        Loader,
    )


__all__ = ["register"]


class _Known(NamedTuple):
    adapter: str  # Its module.
    title: str  # What people call the framework.
    place: str  # Loader.PLACE; "" of a framework without arrays.


# By the module that has been imported where there are such values. Asked in
# this order; who is asked first has the last word.
_known: dict[str, _Known] = {
    "numpy": _Known("ckptree.adapters.numpy", "NumPy", ""),
    "torch": _Known("ckptree.adapters.torch", "PyTorch", "device"),
    "flax.nnx": _Known("ckptree.adapters.flax", "Flax", ""),
    "jax": _Known("ckptree.adapters.jax", "JAX", "sharding"),
}
_loaded: dict[str, Adapter] = {}
# What these dicts say, as it is asked for each value.
_adapters: tuple[Adapter, ...] = ()
_waiting: tuple[str, ...] = tuple(_known)
_owners: dict[type, Adapter] = {}


def register(
    framework: str, adapter: str, title: str, place: str = ""
) -> None:
    """Makes an adapter known, by the name of its module: see protocol.py.

    It is imported where the module `framework` has been. `place`: as
    Loader.PLACE, where it has arrays of its own; restore(arrays=framework) then
    gives them.

    >>> import sys, types
    >>> from ckptree.adapters import register
    >>> from ckptree.adapters.protocol import DICT, DICT_KEY, Container
    >>> class Bag:
    ...     def __init__(self, **things):
    ...         self.things = things
    >>> ours = types.ModuleType("bags_for_ckptree")
    >>> def container(value):
    ...     if isinstance(value, Bag):
    ...         children = [(DICT_KEY, k, v) for k, v in value.things.items()]
    ...         return Container(DICT, "Bag", children, lambda made: Bag(
    ...             **dict(zip(value.things, made))))
    >>> ours.container = container
    >>> ours.is_leaf = lambda value: False
    >>> ours.pieces = ours.describe = lambda value: None
    >>> sys.modules["bags_for_ckptree"] = ours
    >>> register(__name__, "bags_for_ckptree", "Bags")
    >>> with ckptree.Store(tmp / "run") as store:
    ...     _ = store.save(1, {"bag": Bag(w=1)}).result()
    ...     store.restore(1, like={"bag": Bag(w=0)})["bag"].things
    {'w': 1}
    """
    global _waiting
    _known[framework] = _Known(adapter, title, place)
    _waiting = (*_waiting, framework)


def imported() -> tuple[Adapter, ...]:
    """The adapters of all frameworks that have been imported."""
    for name in _waiting:
        if sys.modules.get(name) is not None:
            _load(name)
    return _adapters


def owner(value: Any) -> Adapter | None:
    """The adapter of which `value` is a leaf; None: of nobody. Asked of each
    leaf of a state."""
    kind = type(value)
    found = _owners.get(kind)
    if found is None:
        for adapter in imported():
            if adapter.is_leaf(value):
                _owners[kind] = found = adapter
                break
    return found


def memory(value: Any) -> Any:
    """Equal for leaves that are the same memory, while they live."""
    asked = getattr(owner(value), "memory", None)
    found = None if asked is None else asked(value)
    return id(value) if found is None else found


def parts(
    adapter: Adapter, value: Any
) -> Container | Literal[False] | None:
    """As InParts.parts() of a leaf of that adapter says, if it has such
    leaves."""
    asked = cast("InParts | None", adapter if _in_parts(adapter) else None)
    return None if asked is None else asked.parts(value)


def whole(loader: Loader | None, tag: str, parts: dict[str, Any]) -> Any:
    """As InParts.whole() says, if the loader has it."""
    if not _in_parts(loader):
        return None
    return cast("InParts", loader).whole(tag, parts)


def completed(loader: Loader | None, state: Any) -> Any:
    """As Completing.completed() says, if the loader has it."""
    if not hasattr(loader, "completed"):
        return state
    return cast("Completing", loader).completed(state)


def _in_parts(adapter: Any) -> bool:
    return hasattr(adapter, "parts")


def loader(name: str) -> Loader:
    """What makes arrays of that framework, which is imported here.
    ImportError, with what to install."""
    return cast("Loader", _loaded.get(name) or _load(name))


def loader_for(
    arrays: str, places: dict[str, Any]
) -> tuple[Loader | None, Any]:
    """What restore() without a template is asked for: who makes its arrays, and
    where. None: NumPy. `places`: the options of that kind. ValueError where
    they do not fit each other."""
    makers = [name for name, known in _known.items() if known.place]
    if arrays != "numpy" and arrays not in makers:
        *names, last = map(repr, ["numpy", *sorted(makers)])
        raise ValueError(f"arrays={arrays!r}: {', '.join(names)} or {last}")
    chosen = arrays
    for option, place in places.items():
        takes = maker_of(option)
        if place is None or takes == chosen:
            continue
        if option != "sharding":
            raise ValueError(f"{option}= goes with arrays={takes!r}")
        if chosen != "numpy":
            raise ValueError(
                f"{option}= is of {_known[takes].title}: with "
                f"arrays={arrays!r}, {_known[chosen].place}="
            )
        chosen = takes
    if chosen == "numpy":
        return None, None
    return loader(chosen), places.get(_known[chosen].place)


def maker_of(option: str) -> str:
    """The framework whose loader takes that option of restore()."""
    return next(name for name, k in _known.items() if k.place == option)


def _load(name: str) -> Adapter:
    global _adapters, _waiting
    found = cast("Adapter", importlib.import_module(_known[name].adapter))
    _loaded[name] = found
    _waiting = tuple(n for n in _known if n not in _loaded)
    _adapters = tuple(_loaded[n] for n in _known if n in _loaded)
    return found


if TYPE_CHECKING:
    # Where a type checker sees that they are what they have to be.
    from ckptree.adapters import flax, jax, numpy, torch

    _numpy: Adapter = numpy
    _flax: Adapter = flax
    _torch: tuple[Adapter, InParts, Loader] = (torch, torch, torch)
    _jax: tuple[Adapter, Loader] = (jax, jax)
