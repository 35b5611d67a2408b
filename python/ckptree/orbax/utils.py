# SPDX-License-Identifier: Apache-2.0
"""Small helpers."""

from ckptree.orbax.multihost import (
    is_pathways_backend,
    is_primary_host,
    reached_preemption,
)
from ckptree.orbax.path.atomicity import TMP_DIR_SUFFIX
from ckptree.orbax.path.step import (
    any_checkpoint_step,
    checkpoint_steps,
    checkpoint_steps_paths,
    get_save_directory,
    is_checkpoint_finalized,
    is_tmp_checkpoint,
    step_from_checkpoint_name,
    tmp_checkpoints,
)
from ckptree.orbax.tree import (
    deserialize_tree,
    from_flat_dict,
    serialize_tree,
    to_flat_dict,
    to_shape_dtype_struct,
)

__all__ = [
    "TMP_DIR_SUFFIX",
    "any_checkpoint_step",
    "checkpoint_steps",
    "checkpoint_steps_paths",
    "deserialize_tree",
    "from_flat_dict",
    "get_save_directory",
    "is_checkpoint_finalized",
    "is_pathways_backend",
    "is_primary_host",
    "is_tmp_checkpoint",
    "reached_preemption",
    "serialize_tree",
    "step_from_checkpoint_name",
    "tmp_checkpoints",
    "to_flat_dict",
    "to_shape_dtype_struct",
]
