# SPDX-License-Identifier: Apache-2.0
"""The same as path.step, where Orbax has it, too."""

from ckptree.orbax.path.step import (
    Metadata,
    NameFormat,
    all_temporary_paths,
    any_checkpoint_step,
    checkpoint_steps,
    checkpoint_steps_paths,
    composite_name_format,
    get_save_directory,
    is_checkpoint_finalized,
    is_path_finalized,
    is_path_temporary,
    is_standard_name_format,
    is_tmp_checkpoint,
    single_host_load_and_broadcast_name_format,
    standard_name_format,
    step_from_checkpoint_name,
    tmp_checkpoints,
)

__all__ = [
    "Metadata",
    "NameFormat",
    "all_temporary_paths",
    "any_checkpoint_step",
    "checkpoint_steps",
    "checkpoint_steps_paths",
    "composite_name_format",
    "get_save_directory",
    "is_checkpoint_finalized",
    "is_path_finalized",
    "is_path_temporary",
    "is_standard_name_format",
    "is_tmp_checkpoint",
    "single_host_load_and_broadcast_name_format",
    "standard_name_format",
    "step_from_checkpoint_name",
    "tmp_checkpoints",
]
