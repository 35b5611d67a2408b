# SPDX-License-Identifier: Apache-2.0
"""What an app has: objects with states, generators, tensors, plain values."""

from __future__ import annotations

from collections import Counter, OrderedDict, defaultdict
from typing import Any, Callable, Iterator

import numpy as np
import torch

from ckptree.adapters.protocol import type_name
from ckptree.errors import at_path
from ckptree.torch import _generators
from ckptree.torch._generators import GENERATORS, Rng

# Their states are taken, and put back, after all others.
_LAST = (Rng, *GENERATORS)
_PLAIN = (bool, int, float, complex, str, bytes, type(None), torch.dtype)
# Without tensors they have the keys of the step.
DICTS = (dict, Counter, OrderedDict, defaultdict)


class Object:
    """Something with a state of its own, which is no data."""

    def __init__(self, value: Any, name: str) -> None:
        self.value = unwrapped(value)
        self.last = isinstance(value, _LAST)
        self._name = name  # Its place in the app.

    def state(self) -> Any:
        """What it says its state is; what it raises gets its place."""
        try:
            if isinstance(self.value, GENERATORS):
                return _generators.state_of(self.value)
            return self.value.state_dict()
        except Exception as error:
            raise at_path(self._name, error) from error

    def load(self, state: Any) -> None:
        if isinstance(self.value, GENERATORS):
            _generators.set_state(self.value, state)
        else:
            self.value.load_state_dict(state)

    @property
    def has_fixed_state(self) -> bool:
        """Whether its state has always the same leaves."""
        return isinstance(self.value, (torch.nn.Module, *_LAST))


def object_of(value: Any, name: str) -> Object | None:
    """The object that `value` is; None: it is data. TypeError where it says
    its state and takes none."""
    if isinstance(value, GENERATORS):
        return Object(value, name)
    if isinstance(value, type) or isinstance(value, torch.Tensor):
        return None
    gives = callable(getattr(value, "state_dict", None))
    if not gives:
        return None
    if not callable(getattr(value, "load_state_dict", None)):
        raise TypeError(
            f"{name}: a {type_name(value)} has a state_dict() and no "
            "load_state_dict(): it could not be loaded again"
        )
    return Object(value, name)


def unwrapped(value: Any) -> Any:
    """The module in what torch.compile() or data parallelism made of it: their
    prefixes are no part of a checkpoint."""
    parallel = (
        torch.nn.DataParallel,
        torch.nn.parallel.DistributedDataParallel,
    )
    while isinstance(value, torch.nn.Module):
        inner = value._modules
        if isinstance(value, parallel):
            value = value.module
        elif type(value).__name__ == "OptimizedModule" and (
            "_orig_mod" in inner
        ):
            value = inner["_orig_mod"]
        else:
            break
    return value


def is_plain(value: Any) -> bool:
    """Whether it is data without tensors, which what was saved replaces."""
    if type(value) in _PLAIN or type(value) is np.ndarray:
        return True
    if isinstance(value, np.generic):
        return True
    if type(value) in DICTS:
        return all(map(is_plain, value.values()))
    return type(value) in (list, tuple) and all(map(is_plain, value))


def state_of(app: dict[str, Any]) -> dict[str, Any]:
    """What is saved of an app."""
    objects = list(_objects(app, "", []))
    states: dict[int, Any] = {}
    for found in sorted(objects, key=lambda found: found.last):
        if id(found.value) not in states:
            states[id(found.value)] = found.state()
    saved: dict[str, Any] = mapped(app, lambda made: states[id(made.value)])
    return saved


def _objects(value: Any, name: str, above: list[int]) -> Iterator[Object]:
    found = object_of(value, name)
    if found is not None:
        yield found
        return
    if not isinstance(value, (dict, list, tuple)):
        return
    if id(value) in above:
        raise ValueError(f"{name}: the app contains itself here")
    below = value.items() if isinstance(value, dict) else enumerate(value)
    for key, child in list(below):
        inner = f"{name}/{key}" if name else str(key)
        for one in _objects(child, inner, [*above, id(value)]):
            if type(value) not in (dict, list, tuple):
                raise TypeError(
                    f"{name}: a {type_name(value)} is data to an app, and it "
                    f"holds a {type_name(one.value)}, which has a "
                    "state_dict(): give a dict, list or tuple in its place"
                )
            yield one


def mapped(
    value: Any,
    of_object: Callable[[Object], Any],
    of_data: Callable[[Any], Any] = lambda value: value,
    stops_at: Callable[[Any], bool] = lambda value: False,
    name: str = "",
) -> Any:
    """Dicts, lists and tuples like those of an app, with what the functions
    make of objects and of data. `stops_at`: what is data as a whole."""
    found = object_of(value, name)
    if found is not None:
        return of_object(found)
    if type(value) not in (dict, list, tuple) or stops_at(value):
        return of_data(value)

    def below(child: Any, key: Any) -> Any:
        inner = f"{name}/{key}" if name else str(key)
        return mapped(child, of_object, of_data, stops_at, inner)

    if type(value) is dict:
        return {key: below(child, key) for key, child in value.items()}
    return type(value)(below(child, i) for i, child in enumerate(value))
