# SPDX-License-Identifier: Apache-2.0
"""Earlier names of functions."""

from __future__ import annotations

import functools
import warnings
from typing import Any, Callable, TypeVar

from ckptree.orbax.experimental.v1 import _loading, _saving

_F = TypeVar("_F", bound=Callable[..., Any])


def renamed(function: _F) -> _F:
    """`function`, with a warning that says its name."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        warnings.warn(
            f"Use `{function.__name__}` instead.",
            DeprecationWarning,
            stacklevel=2,
        )
        return function(*args, **kwargs)

    return call  # type: ignore[return-value]


save_pytree = renamed(_saving.save)
save_pytree_async = renamed(_saving.save_async)
load_pytree = renamed(_loading.load)
load_pytree_async = renamed(_loading.load_async)
pytree_metadata = renamed(_loading.metadata)
