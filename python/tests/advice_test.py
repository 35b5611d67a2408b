# SPDX-License-Identifier: Apache-2.0
"""What messages advise can be done, where they advise it."""

import collections
import pathlib

import ckptree
import jax
import numpy as np
import pytest
from ckptree.flax import checkpoints

Point = collections.namedtuple("Point", "a b")
README = pathlib.Path(__file__).parents[1] / "README.md"


def test_no_name_makes_a_dict_of_a_named_tuple(store):
    store.save(1, {"a": {"a": 1, "b": np.ones(2)}, "rate_1": 2}).result()
    like = {"a": Point(0, np.zeros(2)), "rate_2": 0}
    with pytest.raises(ckptree.MismatchError) as raised:
        store.restore(1, like)
    said = str(raised.value)
    assert (
        "a: kind differs, expected a namedtuple, the step has a dict" in said
    )
    assert "a/.a: missing, expected int\n" in said
    assert "rename={'rate_2': 'rate_1'}" in said and said.count("rename") == 1


def test_nor_do_many_names(store):
    names = [f"n{i}" for i in range(30)]
    many = collections.namedtuple("Many", names)
    store.save(1, {"a": dict.fromkeys(names, 1)}).result()
    with pytest.raises(ckptree.MismatchError) as raised:
        store.restore(1, {"a": many(*range(30))})
    assert "rename" not in str(raised.value)


def test_a_type_that_jax_has(store):
    store.save(1, {"w": np.ones(2)}).result()
    like = {"w": jax.ShapeDtypeStruct((2,), np.float64)}
    with pytest.raises(ValueError, match="template of a smaller type, as flo"):
        store.restore(1, like, cast=True)
    like = {"w": jax.ShapeDtypeStruct((2,), np.float32)}
    assert store.restore(1, like, cast=True)["w"].dtype == np.float32


@pytest.mark.parametrize("in_background", [False, True])
def test_an_older_step_of_flax(tmp_path, in_background):
    manager = checkpoints.AsyncManager() if in_background else None

    def save(step, **options):
        checkpoints.save_checkpoint(
            tmp_path, {"w": 1}, step, async_manager=manager, **options
        )
        if manager is not None:
            manager.wait_previous_save()

    save(5)
    with pytest.raises(ckptree.StateError) as raised:
        save(3)
    assert "delete_after" not in str(raised.value)
    assert "overwrite=True" in str(raised.value)
    with pytest.raises(checkpoints.InvalidCheckpointError) as raised:
        save(5)
    assert str(raised.value).count("#flax.errors.InvalidCheckpointError") == 1
    assert "ckptree.flax" not in str(raised.value)
    save(3, overwrite=True)
    assert checkpoints.available_steps(tmp_path) == [3]


ABSENT = (
    "arrays.construct_maximal_shardings arrays.to_shape_dtype_struct "
    "future.ChainedFuture future.NoopFuture metadata.MetadataStore "
    "metadata.get_step_metadata multihost.broadcast_one_to_all "
    "multihost.global_max multihost.unique_barrier_key "
    "multihost.get_barrier_sync_fn serialization.async_deserialize "
    "serialization.async_serialize utils.sync_global_devices"
).split()


@pytest.mark.parametrize("name", ABSENT)
def test_what_is_not_here_is_where_it_is_said(name):
    import ckptree.orbax as ocp

    module, _, attribute = name.partition(".")
    with pytest.raises(AttributeError, match="What differs from Orbax"):
        getattr(getattr(ocp, module), attribute)
    assert f"`{name}`" in README.read_text()


def test_a_program_of_torch(store, tmp_path):
    torch = pytest.importorskip("torch")
    import ckptree.torch

    module = torch.jit.trace(torch.nn.Linear(2, 2), torch.ones(1, 2))
    torch.jit.save(module, tmp_path / "m-1.pt")
    with pytest.raises(ckptree.UnsupportedError, match="TorchScript program"):
        ckptree.torch.import_checkpoint(store, tmp_path / "m-1.pt")
    again = torch.jit.load(tmp_path / "m-1.pt")
    torch.save(again.state_dict(), tmp_path / "m-2.pt")
    assert ckptree.torch.import_checkpoint(store, tmp_path / "m-2.pt") == [2]
