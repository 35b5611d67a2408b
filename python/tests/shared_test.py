# SPDX-License-Identifier: Apache-2.0
"""Arrays that a state has at several places come back so into a template that
has them so. Modules of NNX: nnx_shared_test.py."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

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
