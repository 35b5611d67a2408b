# SPDX-License-Identifier: Apache-2.0
"""Names of steps."""

from ckptree.orbax.path import step

__all__ = ["step"]
