# SPDX-License-Identifier: Apache-2.0
"""Closing: what `with` closes."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from types import TracebackType

    Self = TypeVar("Self", bound="Closing")


class Closing:
    """`with` closes it at the end, whatever happened."""

    if TYPE_CHECKING:

        def close(self) -> None: ...

    def __enter__(self: Self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
