# SPDX-License-Identifier: Apache-2.0
"""A group of options, which does not change while its Context is in use."""

from __future__ import annotations

import dataclasses
from typing import Any, TypeVar

from ckptree.orbax._option_states import tell_of

_Group = TypeVar("_Group", bound="OptionGroup")


class OptionGroup:
    """What groups of options are: dataclasses with names that are checked."""

    # How many active contexts have it.
    _users = 0

    def __setattr__(self, name: str, value: Any) -> None:
        known = {field.name for field in dataclasses.fields(self)}  # type: ignore[arg-type]
        if name not in known:
            raise AttributeError(
                f"{type(self).__qualname__} has no option {name!r}: it has "
                f"{', '.join(sorted(known))}"
            )
        if self._users:
            raise RuntimeError(
                "Cannot mutate options of an active context: set them before "
                "the `with` block"
            )
        super().__setattr__(name, value)

    def use(self, more: int) -> None:
        """Says that a context begins (1) or ends (-1) to be active."""
        object.__setattr__(self, "_users", self._users + more)
        for group in self._groups().values():
            group.use(more)

    def tell(self) -> None:
        """Warns, once, of what does nothing."""
        tell_of(self)
        for group in self._groups().values():
            group.tell()

    def copied(self: _Group) -> _Group:
        """One like it, of its own."""
        groups = {
            name: group.copied() for name, group in self._groups().items()
        }
        made: _Group = dataclasses.replace(self, **groups)  # type: ignore[type-var]
        return made

    def _groups(self) -> dict[str, OptionGroup]:
        return {
            field.name: getattr(self, field.name)
            for field in dataclasses.fields(self)  # type: ignore[arg-type]
            if isinstance(getattr(self, field.name), OptionGroup)
        }
