# SPDX-License-Identifier: Apache-2.0
"""Arrays of random keys: their shape is that of the keys."""

from __future__ import annotations

from pathlib import Path

import jax
import numpy as np
import pytest

import ckptree
import ckptree.orbax as ocp


def keys(*shape: int, impl: str = "threefry2x32") -> jax.Array:
    key = jax.random.key(3, impl=impl)
    return jax.random.split(key, shape) if shape else key


@pytest.mark.parametrize("impl", ["threefry2x32", "rbg"])
@pytest.mark.parametrize("shape", [(), (2,), (5,), (3, 2), (0,)])
def test_another_shape_is_another_template(
    tmp_path: Path, shape: tuple[int, ...], impl: str
) -> None:
    state = {"k": keys(*shape, impl=impl)}
    with ckptree.Store(tmp_path / "run") as store:
        store.save(1, state).result()
        for other in ((), (2,), (3,), (5,), (3, 2), (2, 2), (5, 2), (0,)):
            like = {"k": keys(*other, impl=impl)}
            for template in (like, jax.eval_shape(lambda one=like: one)):
                if other != shape:
                    with pytest.raises(ckptree.MismatchError, match="k"):
                        store.restore(1, like=template)
                    continue
                made = store.restore(1, like=template)["k"]
                assert made.shape == shape
                assert np.array_equal(
                    jax.random.key_data(made), jax.random.key_data(state["k"])
                )


def test_another_shape_is_an_error_in_the_drop_in(tmp_path: Path) -> None:
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(tmp_path / "x", {"k": keys(5)})
        checkpointer.wait_until_finished()
        for wrong in (keys(), keys(5, 2), keys(2)):
            with pytest.raises(ValueError, match="k"):
                checkpointer.restore(tmp_path / "x", {"k": wrong})
        made = checkpointer.restore(tmp_path / "x", {"k": keys(5)})
    assert made["k"].shape == (5,)
