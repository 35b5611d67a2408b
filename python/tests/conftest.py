# SPDX-License-Identifier: Apache-2.0
"""Stores of one test, gone after it."""

import gc
import importlib
import os
import random
import time

# Before anything imports JAX: eight devices, none of them real. For
# accelerator_test.py alone the real ones, of which JAX takes what it needs.
if "CKPTREE_TEST_ACCELERATOR" in os.environ:
    os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
else:
    os.environ["JAX_PLATFORMS"] = "cpu"
    os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"
# Of programs that tests start: from Python 3.12 on a fork() beside threads
# prints this, and the tests are of just that.
os.environ["PYTHONWARNINGS"] = "ignore:This process:DeprecationWarning"

import ckptree
import numpy as np
import pytest

# tests/run --minutes: seconds since 1970, at which no further test begins. Then
# the files come in another order every day, so that it is not always the last
# ones of the alphabet that are left out.
UNTIL = float(os.environ.get("CKPTREE_TEST_UNTIL", "inf"))


def pytest_collection_modifyitems(items):
    if UNTIL == float("inf"):
        return
    files = sorted({item.path for item in items})
    random.Random(int(UNTIL) // 86400).shuffle(files)
    place = {path: at for at, path in enumerate(files)}
    items.sort(key=lambda item: place[item.path])


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup():
    if time.time() > UNTIL:
        pytest.skip("the minutes of tests/run for Python's tests are over")


@pytest.fixture(scope="module", autouse=True)
def _collect_quickly(request):
    """For tests that collect: without the objects of libraries, of which JAX
    and PyTorch have so many that one collection takes some 0.3 s."""
    if not hasattr(request.module, "gc"):
        yield
        return
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture
def store(tmp_path):
    with ckptree.Store(tmp_path / "store") as opened:
        yield opened


@pytest.fixture
def round_trip(store):
    """Saves a state as the next step and restores it."""

    def save_and_restore(state, like=None, **options):
        step = len(store.steps())
        store.save(step, state).result(timeout=60)
        return store.restore(step, like, **options)

    return save_and_restore


ORBAX = "orbax.checkpoint"
OURS = "ckptree.orbax"


@pytest.fixture(params=[ORBAX, OURS])
def ocp(request):
    """Orbax, then what stands for it: the same test runs under both."""
    return importlib.import_module(request.param)


@pytest.fixture
def ours(ocp):
    """Whether it is ckptree.orbax: where the two differ on purpose."""
    return ocp.__name__.startswith(OURS)


@pytest.fixture
def managed(ocp, tmp_path):
    """Managers, closed at the end."""
    made = []

    def make(name="run", *args, **options):
        given = {
            key: options.pop(key)
            for key in ("metadata", "item_names", "item_handlers")
            if key in options
        }
        made.append(
            ocp.CheckpointManager(
                tmp_path / name,
                *args,
                options=ocp.CheckpointManagerOptions(**options),
                **given,
            )
        )
        return made[-1]

    yield make
    for manager in made:
        manager.close()


@pytest.fixture
def save(ocp):
    """Saves a step of one array, or `state`."""

    def one(manager, step, state=None, **more):
        state = {"w": np.full(3, step)} if state is None else state
        return manager.save(step, args=ocp.args.StandardSave(state), **more)

    return one
