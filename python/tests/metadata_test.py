# SPDX-License-Identifier: Apache-2.0
"""Metadata come back as they were given, or are refused; of what changes a
warning says where it is."""

import json
import math
import warnings

import ckptree
import pytest

STATE = {"n": 1}


@pytest.fixture
def kept(store):
    """Saves metadata; what a program that knows only JSON reads of them."""

    def keep(metadata):
        step = len(store.steps())
        store.save(step, STATE, metadata=metadata).result(timeout=60)
        return store[step].metadata.custom

    return keep


@pytest.mark.parametrize(
    "metadata",
    [
        {"seed": 1, "rates": [0.1, 0.2], "on": True, "none": None, "n": {}},
        [1, [2, []]],
        "a text",
        2**80,
        False,
    ],
)
def test_what_json_has_comes_back_alike(kept, metadata):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert kept(metadata) == metadata


@pytest.mark.parametrize(
    "metadata, where",
    [
        ({1: 2, "1": 3}, "metadata has the key 1, .*'1'"),
        ({"a": [{True: 1}]}, r"metadata\['a'\]\[0\] has the key True"),
        ({"a": {None: 1}}, r"metadata\['a'\] has the key None"),
        ({"a": {0.5: 1}}, r"metadata\['a'\] has the key 0.5"),
    ],
)
def test_a_key_that_is_no_str_is_refused(store, tmp_path, metadata, where):
    with pytest.raises(TypeError, match=where):
        store.save(1, STATE, metadata=metadata)
    with pytest.raises(TypeError, match=where):
        store.set_metadata(metadata)
    with pytest.raises(TypeError, match=where):
        ckptree.CheckpointManager(tmp_path / "m", metadata=metadata)
    with ckptree.CheckpointManager(tmp_path / "m") as manager:
        with pytest.raises(TypeError, match=where):
            manager.save(1, STATE, metadata=metadata)
    assert store.steps() == [] and store.metadata() is None


def test_a_tuple_becomes_a_list_with_a_warning(kept):
    where = r"metadata\['betas'\] .* list"
    with pytest.warns(UserWarning, match=where) as said:
        assert kept({"betas": (0.9, 0.999)}) == {"betas": [0.9, 0.999]}
    assert len(said) == 1 and said[0].filename == __file__


def nested(levels):
    made = []
    for _ in range(levels):
        made = [made]
    return made


@pytest.mark.parametrize("levels", [600, 5_000, 100_000])
def test_too_many_levels_are_a_value_error(store, levels):
    with pytest.raises(ValueError, match="500 levels"):
        store.save(1, STATE, metadata=nested(levels))
    assert store.steps() == []


def test_what_json_cannot_write(store):
    itself = {}
    itself["again"] = itself
    for wrong in (itself, math.nan):
        with pytest.raises(ValueError, match="metadata"):
            store.save(1, STATE, metadata=wrong)
    with pytest.raises(TypeError, match="metadata"):
        store.save(1, STATE, metadata={1, 2})


def test_the_drop_in_refuses_what_orbax_loses(tmp_path):
    """Keys become str there, as in Orbax; but none is lost."""
    ocp = pytest.importorskip("ckptree.orbax")
    both = {1: 2, "1": 3}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        manager = ocp.CheckpointManager(
            tmp_path / "s", metadata={"shape": (2, 3)}
        )
    with manager:
        for wrong in (
            {"args": ocp.args.JsonSave(both)},
            {"args": ocp.args.JsonSave([]), "custom_metadata": both},
        ):
            with pytest.raises(ValueError, match="one key '1' for two"):
                manager.save(0, **wrong)
        assert manager.save(
            0, args=ocp.args.JsonSave({1: (2,)}), custom_metadata={1: (2,)}
        )
        manager.wait_until_finished()
        assert manager.restore(0) == {"1": [2]}
        assert manager.metadata(0).custom_metadata == {"1": [2]}
        root = manager.metadata().custom_metadata
        assert root == json.loads(json.dumps({"shape": (2, 3)}))
