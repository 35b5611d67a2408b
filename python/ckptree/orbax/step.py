# SPDX-License-Identifier: Apache-2.0
"""The same as path.step, where Orbax has it, too."""

from ckptree.orbax.path.step import (
    Metadata,
    NameFormat,
    checkpoint_steps,
    checkpoint_steps_paths,
    composite_name_format,
    get_save_directory,
    is_path_finalized,
    is_standard_name_format,
    single_host_load_and_broadcast_name_format,
    standard_name_format,
)

__all__ = [
    "Metadata",
    "NameFormat",
    "checkpoint_steps",
    "checkpoint_steps_paths",
    "composite_name_format",
    "get_save_directory",
    "is_path_finalized",
    "is_standard_name_format",
    "single_host_load_and_broadcast_name_format",
    "standard_name_format",
]
