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

import functools
from typing import Any, Callable, Sequence

import jax
import numpy as np
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

# Older versions split modules into objects of another type; newer ones warn
# where they are asked for it.
_VARIABLES: tuple[type, ...] = (
    nnx.Variable,
    vars(nnx).get("VariableState", nnx.Variable),
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


def _raw_key(part: Any) -> Any:
    names = ("key", "idx", "name")
    return next(getattr(part, n) for n in names if hasattr(part, n))


def _key(part: Any) -> str:
    return str(_raw_key(part))


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
            rebuild=lambda children: nnx.merge(graph, found.rebuild(children)),
            together=_together,
        )
    return None


class _Several(nnx.Module):  # type: ignore[misc]
    """Graphs as one, which knows what they share."""


def _together(
    graphs: Sequence[Any],
) -> list[Callable[[list[Any]], Any]] | None:
    """As protocol.Together: of copies that share what the graphs do."""
    several = _Several()
    for i, graph in enumerate(graphs):
        setattr(several, f"g{i}", graph)
    whole, state = nnx.split(several)
    if _count(state) == sum(_count(nnx.state(g)) for g in graphs):
        return None
    # Of variables of its own: merging takes those that it is given.
    made = nnx.merge(whole, jax.tree.map(lambda value: value, state))
    return [
        functools.partial(_fill, getattr(made, f"g{i}"), nnx.state(graph))
        for i, graph in enumerate(graphs)
    ]


def _count(state: Any) -> int:
    return len(jax.tree.leaves(state, is_leaf=_is_variable))


def _fill(graph: Any, template: Any, children: list[Any]) -> Any:
    """`graph`, a copy of what `template` is the state of, with new values.
    ValueError where it shares a variable that has got another one."""
    plain = nnx.to_pure_dict(template)
    now = nnx.to_pure_dict(nnx.state(graph))
    new = dict(zip(plain, children))
    values = jax.tree.map(_chosen, plain, now, new)
    nnx.update(graph, _filled(template, values))
    return graph


def _chosen(before: Any, now: Any, new: Any) -> Any:
    """Of a variable: its value in the template, in the copy, and the one that
    is read for it."""
    if new is before or now is new:
        return now
    if now is not before and not _is_same(now, new):
        raise ValueError(
            "the template has one variable here and in another module, and "
            "the step has two values for it: restore the modules one by one"
        )
    return new


def _is_same(one: Any, other: Any) -> bool:
    """Whether they have the same bits, as far as this process has them."""
    if (one.dtype, one.shape) != (other.dtype, other.shape):
        return False
    return _bits(one) == _bits(other)


def _bits(value: Any) -> list[bytes]:
    if jax.dtypes.issubdtype(value.dtype, jax.dtypes.prng_key):
        value = jax.random.key_data(value)
    if not isinstance(value, jax.Array) or value.is_fully_addressable:
        return [np.asarray(value).tobytes()]
    return [np.asarray(s.data).tobytes() for s in value.addressable_shards]


def _filled(state: Any, values: Any) -> Any:
    """A state like `state`, which stays as it is, of the values that stand in
    its pure dict. nnx.replace_by_pure_dict() would change it, and knows no
    variable whose value is a container."""
    parts, structure = jax.tree_util.tree_flatten_with_path(
        state, is_leaf=_is_variable
    )
    made = []
    for path, part in parts:
        value = values
        for key in path:
            value = value[_raw_key(key)]
        made.append(part.replace(value) if _is_variable(part) else value)
    return jax.tree.unflatten(structure, made)


def _state_container(state: Any) -> Container:
    plain = nnx.to_pure_dict(state)
    keys = list(plain)

    def rebuild(children: list[Any]) -> Any:
        return _filled(state, dict(zip(keys, children)))

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
