# SPDX-License-Identifier: Apache-2.0
"""Steps of other times than that of the save."""

import datetime

import ckptree
import pytest
from ckptree.policies import Within


def test_a_save_of_another_time(store):
    utc = datetime.timezone.utc
    then = datetime.datetime(2020, 2, 3, 4, 5, 6, 789, tzinfo=utc)
    store.save(1, {"a": 1}, time=then).result()
    store.save(2, {"a": 2}, time=then.timestamp() + 60).result()
    store.save(3, {"a": 3}).result()
    times = [info.begun_ns for info in store.steps()]
    assert times[0] == 1580702706000789000
    assert times[1] == pytest.approx(times[0] + 60 * 10**9, abs=10**4)
    assert times[2] > 1.6e18
    now = datetime.datetime.now(utc) - then
    assert Within(now / 2).decide(
        [
            ckptree.policies.PolicyStep(info.step, info.begun_ns / 1e9)
            for info in store.steps()
        ],
        datetime.datetime.now(utc),
    ) == [False, False, True]
    with pytest.raises(ValueError, match="zone"):
        store.save(4, {"a": 4}, time=then.replace(tzinfo=None))
    with pytest.raises(TypeError, match="1970"):
        store.save(4, {"a": 4}, time="yesterday")
