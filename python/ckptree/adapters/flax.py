# SPDX-License-Identifier: Apache-2.0
"""States of Flax. Modules, optimizers and states of NNX are saved as dicts of
their variables' values, under the names that the attributes have: a module, its
nnx.State and the plain dict of either fit each other. States of Linen are
pytrees, and need nothing of this.

Nothing here needs to be called: Store.save() and Store.restore() do, where NNX
is imported.

>>> import ckptree
>>> model = nnx.Linear(3, 2, rngs=nnx.Rngs(0))
>>> with ckptree.Store(tmp / "run") as store:
...     _ = store.save(1, {"model": model}).result()
...     list(store[1])
...     restored = store.restore(1, like={"model": model})["model"]
['model/bias', 'model/kernel']
>>> bool((restored.kernel[...] == model.kernel[...]).all())
True
"""

from __future__ import annotations

import copy
from typing import Any

import jax
from flax import nnx

from ckptree.adapters.protocol import (
    DICT,
    DICT_KEY,
    Container,
    Expected,
    Pieces,
)

# Modules and optimizers; older versions have no common name for them.
_GRAPHS: tuple[type, ...] = tuple(
    getattr(nnx, name)
    for name in ("Pytree", "Object", "Module")
    if hasattr(nnx, name)
)

# Older versions split modules into objects of another type.
_VARIABLES: tuple[type, ...] = (
    nnx.Variable,
    getattr(nnx, "VariableState", nnx.Variable),
)


def has_variables(value: Any) -> bool:
    """Whether it is a state, a module or an optimizer of NNX."""
    return isinstance(value, (nnx.State, *_GRAPHS))


def _is_variable(value: Any) -> bool:
    """Whether it is a variable, or what stands for one in a state."""
    return isinstance(value, _VARIABLES)


def _others(state: Any) -> list[tuple[str, ...]]:
    """The keys that lead to leaves which are no variables."""
    if all(map(_is_variable, jax.tree.leaves(state, is_leaf=_is_variable))):
        return []  # As nearly always.
    found, _ = jax.tree_util.tree_flatten_with_path(state, is_leaf=_is_variable)
    return [
        tuple(map(_key, path)) for path, part in found if not _is_variable(part)
    ]


def _key(part: Any) -> str:
    names = ("key", "idx", "name")
    return str(next(getattr(part, n) for n in names if hasattr(part, n)))


def is_leaf(value: Any) -> bool:
    return False  # Its arrays are those of JAX.


def container(value: Any) -> Container | None:
    """The dict of variables that `value` stands for; None of other types."""
    if isinstance(value, nnx.State):
        return _state_container(value)
    if isinstance(value, _GRAPHS):
        graph, state = nnx.split(value)
        found = _state_container(state)
        return found._replace(
            rebuild=lambda children: nnx.merge(graph, found.rebuild(children))
        )
    return None


def _state_container(state: Any) -> Container:
    plain = nnx.to_pure_dict(state)
    keys = list(plain)

    def rebuild(children: list[Any]) -> Any:
        made = copy.copy(state)
        nnx.replace_by_pure_dict(made, dict(zip(keys, children)))
        return made

    return Container(
        DICT,
        "",
        [(DICT_KEY, key, plain[key]) for key in keys],
        rebuild,
        variables=lambda: _others(state),
    )


def pieces(value: Any) -> Pieces | None:
    return None


def describe(value: Any) -> Expected | None:
    return None
