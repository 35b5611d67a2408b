# SPDX-License-Identifier: Apache-2.0
"""What stands in for Flax's own checkpoints: `from ckptree.flax import
checkpoints` in place of `from flax.training import checkpoints`.

States of Flax need nothing of this: Store.save() and Store.restore() take
modules, optimizers and states as they are.

>>> import numpy as np
>>> path = save_checkpoint(tmp / "run", {"w": np.ones(2)}, step=3)
>>> restore_checkpoint(tmp / "run", target=None)
{'w': array([1., 1.])}
"""

from __future__ import annotations

try:
    import flax as _flax  # noqa: F401
except ImportError:
    raise ImportError(
        "ckptree.flax needs Flax: pip install 'ckptree[flax]'"
    ) from None

from ckptree.flax.checkpoints import (
    AsyncManager,
    InvalidCheckpointError,
    available_steps,
    convert_pre_linen,
    latest_checkpoint,
    natural_sort,
    restore_args_from_target,
    restore_checkpoint,
    safe_normpath,
    save_args_from_target,
    save_checkpoint,
    save_checkpoint_multiprocess,
)

__all__ = [
    "AsyncManager",
    "InvalidCheckpointError",
    "available_steps",
    "convert_pre_linen",
    "latest_checkpoint",
    "natural_sort",
    "restore_args_from_target",
    "restore_checkpoint",
    "safe_normpath",
    "save_args_from_target",
    "save_checkpoint",
    "save_checkpoint_multiprocess",
]
