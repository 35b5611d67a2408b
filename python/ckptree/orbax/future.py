# SPDX-License-Identifier: Apache-2.0
"""Future: what goes on in the background."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable


@runtime_checkable
class Future(Protocol):
    """What an asynchronous handler returns: result() waits, and raises what it
    failed of."""

    def result(self, timeout: float | None = None) -> Any:
        """TimeoutError after `timeout` seconds."""
