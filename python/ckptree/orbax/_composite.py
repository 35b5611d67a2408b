# SPDX-License-Identifier: Apache-2.0
"""Composite: named items."""

from __future__ import annotations

from typing import Any, Iterator, Mapping


class NoItemError(AttributeError, KeyError):
    """There is no item of that name: as an attribute, which is a KeyError with
    Orbax."""


class Composite(Mapping[str, Any]):
    """Items by name, as a mapping and as attributes; cannot be changed. An
    item that is called as a method, such as `keys`, by `[...]` only.

    >>> made = Composite(state=1, config={"a": 2})
    >>> made.state, made["config"], "other" in made
    (1, {'a': 2}, False)
    >>> made
    Composite(state=1, config={'a': 2})
    """

    _items: dict[str, Any]

    def __init__(self, /, **items: Any) -> None:
        for name in items:
            if name.startswith("__"):
                raise ValueError(f"an item cannot be called {name!r}")
        object.__setattr__(self, "_items", items)

    def __getitem__(self, name: str) -> Any:
        if name not in self._items:
            raise KeyError(
                f"no item {name!r}; there are "
                f"{', '.join(self._items) or 'none'}"
            )
        return self._items[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __getattr__(self, name: str) -> Any:
        # Before __init__: of what copies and unpickles.
        items = self.__dict__.get("_items", {})
        if name not in items:
            raise NoItemError(name)
        return items[name]

    def __setattr__(self, name: str, value: Any) -> None:
        raise ValueError("a Composite cannot be changed")

    def __and__(self, other: Composite) -> Composite:
        """The items of this one that the other has, too."""
        return Composite(**{k: v for k, v in self.items() if k in other})

    def __or__(self, other: Composite) -> Composite:
        """The items of both; the other's where both have one."""
        return Composite(**{**self._items, **other._items})

    def __repr__(self) -> str:
        shown = ", ".join(f"{k}={v!r}" for k, v in self._items.items())
        return f"Composite({shown})"
