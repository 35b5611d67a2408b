# SPDX-License-Identifier: Apache-2.0
"""What the tests of the drop-in compare."""

import jax
import numpy as np


def assert_same(left, right):
    """Equal trees: containers, kinds of leaves, element types, elements."""
    a, structure = jax.tree_util.tree_flatten_with_path(left)
    b, other = jax.tree_util.tree_flatten_with_path(right)
    assert structure == other
    for (path, x), (_, y) in zip(a, b):
        name = jax.tree_util.keystr(path)
        assert isinstance(x, jax.Array) == isinstance(y, jax.Array), name
        assert np.asarray(x).dtype == np.asarray(y).dtype, name
        assert np.array_equal(np.asarray(x), np.asarray(y)), name
