# SPDX-License-Identifier: Apache-2.0
"""What is said of a name of Orbax that is not here."""

from __future__ import annotations

from typing import Any, Callable

WHERE = (
    "what of Orbax is not here, and what to write instead, is in "
    'python/README.md of ckptree, under "What differs from Orbax"'
)


def absent(module: str) -> Callable[[str], Any]:
    """`__getattr__` of that module.

    >>> absent("ckptree.orbax.utils")("pytree_structure")
    Traceback (most recent call last):
    AttributeError: ckptree.orbax.utils has no pytree_structure: what of ...
    """

    def find(name: str) -> Any:
        if name.startswith("_"):
            # Python's own tools ask for some.
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        raise AttributeError(f"{module} has no {name}: {WHERE}")

    return find
