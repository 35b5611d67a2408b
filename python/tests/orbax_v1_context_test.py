# SPDX-License-Identifier: Apache-2.0
"""Context and its options: the same calls under Orbax and under ckptree."""

import threading

import jax.numpy as jnp
import numpy as np
import pytest


@pytest.fixture
def ocp(ocp):
    """The second interface of each."""
    return ocp.v1


def partial_context(ocp):
    context = ocp.Context()
    context.pytree.loading.partial_load = True
    return context


# ---- V1-04: Context ----

GROUPS = (
    "array asynchronous atomicity checkpointables deletion file memory "
    "multiprocessing pathways pytree safetensors"
)


def test_groups_have_two_names(ocp):
    context = ocp.Context()
    for name in GROUPS.split():
        group = getattr(context, name)
        short = {"asynchronous": "async"}.get(name, name)
        if hasattr(context, f"{short}_options"):  # Orbax lacks some.
            assert getattr(context, f"{short}_options") is group
    assert context.asynchronous.timeout_secs == 1200
    assert context.array.saving.use_ocdbt and context.array.saving.use_zarr3
    assert not context.pytree.loading.partial_load
    assert context.multiprocessing.primary_host == 0
    broadcast = context.array.loading.load_and_broadcast_options
    assert broadcast.broadcast_memory_scaling_factor == 0.75
    assert context.checkpoint_layout is ocp.options.CheckpointLayout.ORBAX


def test_an_active_context_does_not_change(ocp, ours):
    context = ocp.Context(
        async_options=ocp.options.AsyncOptions(timeout_secs=5)
    )
    context.array.saving.use_compression = False
    with context:
        with pytest.raises(RuntimeError, match="active context"):
            context.array.saving.use_compression = True
        if ours:  # Orbax's is free after the inner block.
            with context:
                pass
        with pytest.raises(RuntimeError):
            context.asynchronous.timeout_secs = 6
    context.asynchronous.timeout_secs = 7
    copy = ocp.Context(context)
    copy.asynchronous.timeout_secs = 8
    assert context.asynchronous.timeout_secs == 7
    assert not copy.array.saving.use_compression
    with pytest.raises(AttributeError):
        context.async_options = ocp.options.AsyncOptions()
    with pytest.raises(ValueError):
        ocp.Context(checkpoint_layout="paper")


def test_an_option_that_is_none_is_refused():
    import ckptree.orbax.experimental.v1 as ocp

    with pytest.raises(AttributeError, match="timeout_secs"):
        ocp.Context().asynchronous.timeout = 3


def test_a_context_is_of_its_thread(ocp):
    seen = []

    def read():
        with ocp.Context(ocp.Context()) as inner:
            seen.append(inner.pytree.loading.partial_load)

    with partial_context(ocp):
        thread = threading.Thread(target=read)
        thread.start()
        thread.join()
    assert seen == [False]


def test_storage_options_convert_arrays(ocp, tmp_path):
    context = ocp.Context()
    context.array.saving.storage_options.dtype = jnp.bfloat16
    with context:
        ocp.save(tmp_path / "a", {"w": jnp.ones(2), "n": 3})
    loaded = ocp.load(tmp_path / "a")
    assert loaded["w"].dtype == jnp.bfloat16
    assert loaded["n"] == 3


def test_what_a_store_has_not_is_refused(tmp_path):
    import ckptree.orbax.experimental.v1 as ocp

    other = ocp.options.MultiprocessingOptions(primary_host=1)
    context = ocp.Context(multiprocessing_options=other)
    with context, pytest.raises(ValueError, match="there is no process 1"):
        ocp.save(tmp_path / "a", {"a": 1})
    with pytest.raises(ValueError, match="there is no process 1"):
        ocp.training.Checkpointer(tmp_path / "b", context=context)
    moving = ocp.options.DeletionOptions(
        gcs_deletion_options=ocp.options.DeletionOptions.GcsDeletionOptions(
            todelete_full_path="bin"
        )
    )
    wrong = ocp.Context(deletion_options=moving)
    with wrong, pytest.raises(NotImplementedError):
        ocp.save(tmp_path / "a", {"a": 1})
    with pytest.raises(NotImplementedError):
        ocp.training.Checkpointer(tmp_path / "b", context=wrong)


def test_the_mode_of_the_directory(ocp, ours, tmp_path):
    options = ocp.options.FileOptions(path_permission_mode=0o750)
    with ocp.Context(file_options=options):
        ocp.save(tmp_path / "a", {"a": 1})
    if ours:  # Orbax's own depends on the umask.
        assert (tmp_path / "a").stat().st_mode & 0o777 == 0o750


# ---- V1-12, V1-13: what is refused ----


def test_partial_saves_say_what_to_do(tmp_path):  # V1-12
    import ckptree.orbax.experimental.v1 as ocp

    for call in (
        lambda: ocp.partial.save(tmp_path / "a", {"a": 1}),
        lambda: ocp.partial.save_async(tmp_path / "a", {"a": 1}),
        lambda: ocp.partial.finalize(tmp_path / "a"),
    ):
        with pytest.raises(NotImplementedError, match="whole tree"):
            call()


def test_safetensors_are_not_saved(ocp, ours, tmp_path):  # V1-13
    layout = ocp.options.CheckpointLayout.SAFETENSORS
    with ocp.Context(checkpoint_layout=layout):
        with pytest.raises(NotImplementedError):
            ocp.save(tmp_path / "a", {"a": np.ones(2)})
        if ours:
            with pytest.raises(NotImplementedError, match="load_file"):
                ocp.load(tmp_path / "a")
            with pytest.raises(NotImplementedError):
                ocp.training.Checkpointer(tmp_path / "b")
