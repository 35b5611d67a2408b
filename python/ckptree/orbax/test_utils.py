# SPDX-License-Identifier: Apache-2.0
"""For examples and tests."""

from __future__ import annotations

import os
import pathlib
import shutil
from typing import Any

from ckptree.paths import local_path


def erase_and_create_empty(directory: str | os.PathLike[str]) -> pathlib.Path:
    """The directory, without what was in it.

    >>> erase_and_create_empty(tmp / "new").exists()
    True
    """
    path = pathlib.Path(local_path(directory))
    if path.exists():
        shutil.rmtree(path)
    path.mkdir(parents=True)
    return path


def empty_directory(directory: str | os.PathLike[str]) -> None:
    """Deletes what is in it."""
    erase_and_create_empty(directory)


def assert_tree_equal(testclass: Any, expected: Any, actual: Any) -> None:
    """AssertionError where containers, or leaves, types or elements of them
    differ. `testclass` is not used."""
    import jax
    import numpy as np

    del testclass
    paths, structure = jax.tree_util.tree_flatten_with_path(expected)
    others, other_structure = jax.tree_util.tree_flatten_with_path(actual)
    assert structure == other_structure, f"{structure} != {other_structure}"
    for (path, left), (_, right) in zip(paths, others):
        name = jax.tree_util.keystr(path)
        assert type(left) is type(right), f"{name}: {type(left)}, {type(right)}"
        if hasattr(left, "dtype"):
            assert left.dtype == right.dtype, (
                f"{name}: {left.dtype}, {right.dtype}"
            )
        np.testing.assert_array_equal(left, right, err_msg=name)
