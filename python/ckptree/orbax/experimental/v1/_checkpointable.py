# SPDX-License-Identifier: Apache-2.0
"""What can be saved under a name, and what saves it."""

from __future__ import annotations

from typing import Any, Awaitable, Protocol, TypeVar, runtime_checkable

from ckptree.orbax.experimental.v1.path import Path, PathAwaitingCreation

Checkpointable = Any
AbstractCheckpointable = Any

_T = TypeVar("_T")
_A = TypeVar("_A")


@runtime_checkable
class CheckpointableHandler(Protocol[_T, _A]):
    """Saves objects of some kind to a directory, and loads them.

    Each method is a coroutine that returns one: the first is awaited before
    save_async() returns, the second is the work. What save() writes to the
    directory becomes part of the step, in the same commit.
    """

    def is_handleable(self, checkpointable: Any) -> bool:
        """Whether it saves such an object."""
        ...

    def is_abstract_handleable(
        self, abstract_checkpointable: Any
    ) -> bool | None:
        """Whether it loads by such a description; None: it says nothing."""
        return None

    async def save(
        self, directory: PathAwaitingCreation, checkpointable: _T
    ) -> Awaitable[None]:
        """Writes the object."""
        ...

    async def load(
        self, directory: Path, abstract_checkpointable: _A | None = None
    ) -> Awaitable[_T]:
        """Reads what save() wrote."""
        ...

    async def metadata(self, directory: Path) -> _A:
        """What describes the object, without loading it."""
        ...


@runtime_checkable
class StatefulCheckpointable(Protocol):
    """An object that saves and loads itself; as CheckpointableHandler's."""

    async def save(self, directory: PathAwaitingCreation) -> Awaitable[None]:
        ...

    async def load(self, directory: Path) -> Awaitable[None]:
        ...
