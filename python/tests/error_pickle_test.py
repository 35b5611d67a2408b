# SPDX-License-Identifier: Apache-2.0
"""Errors go from process to process, as those of a job send them: the same
class, message and differences."""

import pickle

import ckptree
import pytest
from ckptree import errors

KINDS = [
    getattr(errors, name)
    for name in errors.__all__
    if name not in ("Difference", "MismatchError")
]


@pytest.mark.parametrize("kind", KINDS)
def test_an_error_is_the_same_after_pickle(kind):
    again = pickle.loads(pickle.dumps(kind("step 7: why")))
    assert type(again) is kind
    assert str(again) == "step 7: why"


def test_a_mismatch_keeps_its_differences(store):
    store.save(1, {"w": [1.0] * 30}).result()
    with pytest.raises(ckptree.MismatchError) as raised:
        store.restore(1, like={"w": [1] * 30})
    again = pickle.loads(pickle.dumps(raised.value))
    assert str(again) == str(raised.value)
    assert again.differences == raised.value.differences
    assert len(again.differences) == 30
    assert again.args == raised.value.args
