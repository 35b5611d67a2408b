# SPDX-License-Identifier: Apache-2.0
"""Arrays that a state has at several places, and modules that hold one object:
they come back so into a template that has them so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from flax import nnx

import ckptree


def saved(path: Path, state: Any) -> ckptree.Store:
    store = ckptree.Store(path / "run")
    store.save(1, state).result()
    return store


def arrays(kind: str) -> Any:
    if kind == "numpy":
        return np.arange(6.0), np.zeros(6)
    if kind == "jax":
        return jnp.arange(6.0), jnp.zeros(6)
    return torch.arange(6.0), torch.zeros(6)


@pytest.mark.parametrize("kind", ["numpy", "jax", "torch"])
def test_what_both_have_tied_is_one_array(tmp_path: Path, kind: str) -> None:
    one, zero = arrays(kind)
    with saved(tmp_path, {"a": one, "b": [one], "c": one + 1}) as store:
        like = {"a": zero, "b": [zero], "c": zero}
        made = store.restore(1, like=like)
        # Nobody can tell immutable arrays from their copies.
        assert kind == "jax" or made["a"] is made["b"][0]
        assert made["a"] is not zero
        assert made["a"].tolist() == one.tolist()
        # The step has another value there.
        assert made["c"].tolist() == (one + 1).tolist()
        assert made["c"] is not made["a"]


@pytest.mark.parametrize("kind", ["numpy", "jax", "torch"])
def test_a_template_of_two_arrays_gets_two(tmp_path: Path, kind: str) -> None:
    one, zero = arrays(kind)
    with saved(tmp_path, {"a": one, "b": one}) as store:
        other = zero + 0
        made = store.restore(1, like={"a": zero, "b": other})
        assert made["a"] is not made["b"]
        assert made["a"].tolist() == made["b"].tolist() == one.tolist()


def test_restore_or_keeps_ties(tmp_path: Path) -> None:
    one = np.arange(3.0)
    with saved(tmp_path, {"a": one, "b": one}) as store:
        zero = np.zeros(3)
        made, number = store.restore_or({"a": zero, "b": zero})
        assert number == 1
        assert made["a"] is made["b"] and made["a"].tolist() == [0, 1, 2]


def test_a_part_of_the_ties_is_asked_for(tmp_path: Path) -> None:
    one = np.arange(3.0)
    with saved(tmp_path, {"a": one, "b": one, "c": one}) as store:
        zero = np.zeros(3)
        like = {"x": {"b": zero, "c": zero}}
        made = store.restore(
            1, like=like, partial=True, rename={"x/b": "b", "x/c": "c"}
        )
        assert made["x"]["b"] is made["x"]["c"]
        assert made["x"]["b"].tolist() == [0, 1, 2]
        # What is not asked for keeps the template's.
        made = store.restore(
            1, like={"a": zero, "b": zero, "c": zero}, partial="a"
        )
        assert made["a"].tolist() == [0, 1, 2]
        assert made["b"] is zero and made["c"] is zero


def test_ties_are_kept_by_a_cast(tmp_path: Path) -> None:
    one = np.arange(3.0)
    with saved(tmp_path, {"a": one, "b": one}) as store:
        zero = np.zeros(3, np.float32)
        made = store.restore(1, like={"a": zero, "b": zero}, cast=True)
        assert made["a"] is made["b"] and made["a"].dtype == np.float32
    large = np.full(3, 1e300)
    with ckptree.Store(tmp_path / "run") as store:
        store.save(2, {"a": large, "b": large}).result()
        with pytest.raises(ckptree.MismatchError, match="a"):
            store.restore(2, like={"a": zero, "b": zero}, cast=True)


def test_ties_of_a_state_dict_are_kept(tmp_path: Path) -> None:
    """state_dict() has a tensor of its own for each of its names."""
    model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Linear(3, 3))
    model[1].weight = model[0].weight
    state = model.state_dict()
    assert state["0.weight"] is not state["1.weight"]
    with saved(tmp_path, {"m": state}) as store:
        made = store.restore(1, like={"m": model.state_dict()})["m"]
    assert made["0.weight"].data_ptr() == made["1.weight"].data_ptr()
    assert torch.equal(made["0.weight"], model[0].weight)
    assert made["0.bias"].data_ptr() != made["1.bias"].data_ptr()


def test_a_parameter_is_not_what_shares_its_memory(tmp_path: Path) -> None:
    weight = torch.nn.Parameter(torch.arange(3.0))
    with saved(tmp_path, {"p": weight, "d": weight.detach()}) as store:
        like = torch.nn.Parameter(torch.zeros(3))
        made = store.restore(1, like={"p": like, "d": like.detach()})
    assert isinstance(made["p"], torch.nn.Parameter)
    assert type(made["d"]) is torch.Tensor
    assert made["p"].tolist() == made["d"].tolist() == [0, 1, 2]


def test_one_sharding_each_where_ties_go_to_several(tmp_path: Path) -> None:
    one = jnp.arange(8.0)
    devices = jax.devices()
    mesh = jax.sharding.Mesh(np.array(devices), ("x",))
    across = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("x"))
    whole = jax.sharding.SingleDeviceSharding(devices[0])
    with saved(tmp_path, {"a": one, "b": one}) as store:
        zero = np.zeros(8, np.float32)
        made = store.restore(
            1,
            like={"a": zero, "b": zero},
            sharding={"a": across, "b": whole},
        )
    assert made["a"].sharding == across and made["b"].sharding == whole
    assert made["a"].tolist() == made["b"].tolist() == one.tolist()


# ---- Modules of NNX ----


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


def test_one_module_at_two_places(tmp_path: Path) -> None:
    model = nnx.Linear(2, 2, rngs=nnx.Rngs(0))
    like = nnx.Linear(2, 2, rngs=nnx.Rngs(1))
    with saved(tmp_path, {"a": model, "b": [model]}) as store:
        made = store.restore(1, like={"a": like, "b": [like]})
    assert made["a"] is made["b"][0] and made["a"] is not like
    assert same(made["a"].kernel, model.kernel)


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
