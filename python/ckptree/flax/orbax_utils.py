# SPDX-License-Identifier: Apache-2.0
"""flax.training.orbax_utils: `from ckptree.flax import orbax_utils`."""

from __future__ import annotations

from ckptree.flax.checkpoints import (
    restore_args_from_target,
    save_args_from_target,
)

__all__ = ["restore_args_from_target", "save_args_from_target"]
