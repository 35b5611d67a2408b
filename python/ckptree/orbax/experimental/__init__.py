# SPDX-License-Identifier: Apache-2.0
"""What Orbax calls experimental."""

from ckptree.orbax.experimental import v1

__all__ = ["v1"]
