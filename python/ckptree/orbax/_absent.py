# SPDX-License-Identifier: Apache-2.0
"""What is said of a name of Orbax that is not here."""

from __future__ import annotations

import sys
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


def say_in(package: str) -> None:
    """All its public modules that are imported say what they lack, but those
    that say more of it themselves."""
    for name, module in list(sys.modules.items()):
        if name != package and not name.startswith(package + "."):
            continue
        private = any(part.startswith("_") for part in name.split("."))
        if not private and "__getattr__" not in vars(module):
            vars(module)["__getattr__"] = absent(name)
