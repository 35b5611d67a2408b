# SPDX-License-Identifier: Apache-2.0
"""States of Flax. Modules, optimizers and states of NNX are saved as dicts of
their variables' values, under the names that the attributes have: a module, its
nnx.State and the plain dict of either fit each other. States of Linen are
pytrees, and need nothing of this.

Nothing here needs to be called. Importing this module imports Flax.

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

from ckptree import _rules

try:
    from flax import nnx
except ImportError:
    raise ImportError(
        "ckptree.flax needs Flax: pip install 'ckptree[flax]'"
    ) from None

__all__: list[str] = []

# Modules and optimizers; older versions have no common name for them.
_GRAPHS: tuple[type, ...] = tuple(
    getattr(nnx, name)
    for name in ("Pytree", "Object", "Module")
    if hasattr(nnx, name)
)


def container(value: Any) -> _rules.Container | None:
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


def _state_container(state: Any) -> _rules.Container:
    plain = nnx.to_pure_dict(state)
    keys = list(plain)

    def rebuild(children: list[Any]) -> Any:
        made = copy.copy(state)
        nnx.replace_by_pure_dict(made, dict(zip(keys, children)))
        return made

    return _rules.Container(
        _rules.DICT,
        "",
        [(_rules.DICT_KEY, key, plain[key]) for key in keys],
        rebuild,
    )

# Of flax.training.checkpoints and flax.training.orbax_utils: imported where
# somebody asks, since every save of a state of Flax imports this module.
_CHECKPOINTS = (
    "AsyncManager",
    "InvalidCheckpointError",
    "available_steps",
    "convert_pre_linen",
    "latest_checkpoint",
    "natural_sort",
    "restore_args_from_target",
    "restore_checkpoint",
    "safe_normpath",
    "save_args_from_target",
    "save_checkpoint",
    "save_checkpoint_multiprocess",
)


def __getattr__(name: str) -> Any:
    if name == "checkpoints" or name in _CHECKPOINTS:
        import importlib

        checkpoints = importlib.import_module("ckptree.flax.checkpoints")
        return (
            checkpoints if name == "checkpoints" else getattr(checkpoints, name)
        )
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
