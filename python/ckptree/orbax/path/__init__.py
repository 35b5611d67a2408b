# SPDX-License-Identifier: Apache-2.0
"""Names of steps."""

from ckptree.orbax.path import atomicity, step

__all__ = ["atomicity", "step"]
