# SPDX-License-Identifier: Apache-2.0
"""Modules of NNX that hold one object come back so into a template of such."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import ckptree


def saved(path: Path, state: Any) -> ckptree.Store:
    store = ckptree.Store(path / "run")
    store.save(1, state).result()
    return store


class Net(nnx.Module):
    def __init__(self, encoder: nnx.Linear, seed: int) -> None:
        self.encoder = encoder
        self.head = nnx.Linear(3, 2, rngs=nnx.Rngs(seed))


def nets(seed: int) -> dict[str, Net]:
    encoder = nnx.Linear(3, 3, rngs=nnx.Rngs(seed))
    return {"actor": Net(encoder, seed + 1), "critic": Net(encoder, seed + 2)}


def same(one: Any, other: Any) -> bool:
    return bool((one[...] == other[...]).all())


def check_nets(made: dict[str, Net], state: dict[str, Net]) -> None:
    assert made["actor"].encoder is made["critic"].encoder
    assert made["actor"].head is not made["critic"].head
    for name in ("actor", "critic"):
        for part in ("encoder", "head"):
            new = getattr(made[name], part)
            old = getattr(state[name], part)
            assert new is not old
            assert same(new.kernel, old.kernel) and same(new.bias, old.bias)


def test_modules_share_a_module(tmp_path: Path) -> None:
    state, like = nets(0), nets(10)
    kernel = np.asarray(like["actor"].encoder.kernel[...])
    with saved(tmp_path, state) as store:
        made = store.restore(1, like=like)
    check_nets(made, state)
    # One of it alone: what is set through one is seen through the other.
    made["actor"].encoder.kernel[...] = jnp.ones((3, 3))
    assert (made["critic"].encoder.kernel[...] == 1).all()
    assert (np.asarray(like["actor"].encoder.kernel[...]) == kernel).all()


def test_modules_without_values_share_a_module(tmp_path: Path) -> None:
    state = nets(0)
    with saved(tmp_path, state) as store:
        made = store.restore(1, like=nnx.eval_shape(lambda: nets(10)))
    check_nets(made, state)


def test_one_template_for_a_model_and_its_average(tmp_path: Path) -> None:
    """Which are equal at first, and trained apart."""
    model = nnx.Linear(2, 2, rngs=nnx.Rngs(0))
    state = {"model": model, "average": [nnx.clone(model)]}
    shapes = nnx.eval_shape(lambda: nnx.Linear(2, 2, rngs=nnx.Rngs(1)))
    with saved(tmp_path, state) as store:
        state["average"][0].kernel[...] = jnp.ones((2, 2))
        store.save(2, state).result()
        for like in (shapes, nnx.Linear(2, 2, rngs=nnx.Rngs(1))):
            for step in (1, 2):
                made = store.restore(
                    step, like={"model": like, "average": [like]}
                )
                new, average = made["model"], made["average"][0]
                assert new is not like and average is not like
                assert new is not average
                assert new.kernel is not average.kernel
                assert same(new.kernel, model.kernel)
                assert same(average.bias, model.bias)
                kernel = model.kernel if step == 1 else jnp.ones((2, 2))
                assert same(average.kernel, kernel)


def test_one_template_for_modules_that_share_and_their_averages(
    tmp_path: Path,
) -> None:
    state = {**nets(0), "target": nets(5)}
    like = nets(10)
    with saved(tmp_path, state) as store:
        made = store.restore(1, like={**like, "target": dict(like)})
        alone = store.restore(
            1, like={**like, "target": {"actor": like["actor"]}}, partial=True
        )
    check_nets(made, state)
    check_nets(made["target"], state["target"])
    assert made["actor"].encoder is not made["target"]["actor"].encoder
    check_nets(alone, state)
    target = alone["target"]["actor"]
    assert target.encoder is not alone["actor"].encoder
    kernel = state["target"]["actor"].encoder.kernel
    assert same(target.encoder.kernel, kernel)


def test_modules_that_share_nothing(tmp_path: Path) -> None:
    state = {n: nnx.Linear(2, 2, rngs=nnx.Rngs(i)) for i, n in enumerate("ab")}
    like = {n: nnx.Linear(2, 2, rngs=nnx.Rngs(9)) for n in "ab"}
    with saved(tmp_path, state) as store:
        made = store.restore(1, like=like)
    assert made["a"].kernel is not made["b"].kernel
    assert all(same(made[n].kernel, state[n].kernel) for n in "ab")


def test_two_values_for_one_variable(tmp_path: Path) -> None:
    """Of modules that were two when they were saved."""
    state = {"actor": nets(0)["actor"], "critic": nets(5)["critic"]}
    like = nets(10)
    with saved(tmp_path, state) as store:
        with pytest.raises(ValueError, match="critic.*two values"):
            store.restore(1, like=like)
        alone = store.restore(1, like={"actor": like["actor"]}, partial=True)
        assert same(
            alone["actor"].encoder.kernel, state["actor"].encoder.kernel
        )
        # Two arrays, and one value.
        state["critic"].encoder = nnx.clone(state["actor"].encoder)
        store.save(2, state).result()
        made = store.restore(2, like=like)
    check_nets(made, state)


def test_a_part_of_shared_modules(tmp_path: Path) -> None:
    state, like = nets(0), nets(10)
    for asked, given in (("actor/**", "actor"), ("critic/**", "critic")):
        with saved(tmp_path / given, state) as store:
            made = store.restore(1, like=like, partial=asked)
        assert made["actor"].encoder is made["critic"].encoder
        assert same(
            made["critic"].encoder.kernel, state["actor"].encoder.kernel
        )
        other = "critic" if given == "actor" else "actor"
        assert same(made[given].head.kernel, state[given].head.kernel)
        assert same(made[other].head.kernel, like[other].head.kernel)


def test_modules_and_their_optimizer(tmp_path: Path) -> None:
    import optax

    def made(seed: int) -> dict[str, Any]:
        model = nnx.Linear(2, 2, rngs=nnx.Rngs(seed))
        optimizer = nnx.Optimizer(model, optax.adam(1e-3), wrt=nnx.Param)
        return {"model": model, "optimizer": optimizer}

    state = made(0)
    with saved(tmp_path, state) as store:
        new = store.restore(1, like=made(1))
    assert same(new["model"].kernel, state["model"].kernel)
    gradients = jax.tree.map(jnp.ones_like, nnx.state(new["model"], nnx.Param))
    new["optimizer"].update(new["model"], gradients)
    state["optimizer"].update(state["model"], gradients)
    assert same(new["model"].kernel, state["model"].kernel)
