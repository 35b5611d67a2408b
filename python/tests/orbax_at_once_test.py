# SPDX-License-Identifier: Apache-2.0
"""Several managers of one directory, and handlers that go on in the
background: under Orbax and under ckptree."""

import dataclasses
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import ckptree
import numpy as np
import pytest

STATE = {"w": np.arange(3)}


# ---- Several managers of one directory ----


def test_a_second_manager_reads_and_saves(managed, save):
    first = managed()
    save(first, 0)
    first.wait_until_finished()
    second = managed()
    assert list(second.all_steps()) == [0]
    assert second.restore(0)["w"].tolist() == [0, 0, 0]
    for manager, step in ((second, 1), (first, 2), (second, 3)):
        assert save(manager, step, force=True)
        manager.wait_until_finished()
        first.reload()
        second.reload()
    assert sorted(first.all_steps()) == sorted(second.all_steps())
    assert sorted(first.all_steps()) == [0, 1, 2, 3]
    assert first.restore(3)["w"].tolist() == [3, 3, 3]


def test_a_save_in_flight_when_another_takes_over(managed, save):
    first, second = managed(), managed()
    big = {"w": np.arange(1 << 20)}
    save(first, 0, big)
    save(second, 1, big)
    first.wait_until_finished()
    second.wait_until_finished()
    second.reload()
    assert sorted(second.all_steps()) == [0, 1]
    assert np.array_equal(second.restore(0)["w"], big["w"])


def test_both_save_at_once(managed, save):
    first, second = managed(), managed()
    big = {"w": np.arange(1 << 20)}
    for step in range(0, 6, 2):
        assert save(first, step, big, force=True)
        assert save(second, step + 1, big, force=True)
    first.close()  # While the other one saves.
    second.wait_until_finished()
    second.reload()
    assert sorted(second.all_steps()) == list(range(6))
    for step in range(6):
        assert np.array_equal(second.restore(step)["w"], big["w"])


def test_a_step_that_another_has_saved_since(managed, save, ours):
    first, second = managed(), managed()
    save(first, 0)
    first.wait_until_finished()
    assert second.restore(0)["w"].tolist() == [0, 0, 0]
    assert set(second.item_metadata(0).tree if ours else ["w"]) == {"w"}
    assert list(second.all_steps(read=True)) == [0]
    # Orbax's second manager would save it once more.
    if ours:
        assert not save(second, 0)
        with pytest.raises(ValueError, match="there is a step 0"):
            save(second, 0, force=True)
    save(second, 1)
    second.wait_until_finished()
    second.delete(0)
    first.reload()
    assert list(first.all_steps()) == [1]


def test_a_forced_step_that_is_not_kept(managed, save, ours):
    manager = managed(max_to_keep=3)
    for step in range(1, 6):
        save(manager, step)
    if ours:  # Orbax keeps it, until the next step goes by its place.
        with pytest.raises(ckptree.StateError, match="does not keep it"):
            save(manager, 2, force=True)
        manager.wait_until_finished()
        assert manager.all_steps() == [3, 4, 5]


@pytest.mark.parametrize("keeps", [True, False])
def test_a_metric_that_is_nan(managed, save, ours, caplog, keeps):
    manager = managed(
        best_fn=lambda metrics: metrics["loss"],
        best_mode="min",
        max_to_keep=2,
        keep_checkpoints_without_metrics=keeps,
    )
    for step in range(6):
        loss = 1 / (step + 1) if step < 3 else float("nan")
        save(manager, step, metrics={"loss": loss})
    manager.wait_until_finished()
    if ours:
        kept = [1, 2, 3, 4, 5] if keeps else [1, 2, 5]
        assert manager.all_steps() == kept
        said = [record.getMessage() for record in caplog.records]
        said = [text for text in said if "NaN" in text]
        assert len(said) == keeps
        assert all("step 3: what best_fn returns is NaN" in s for s in said)
    else:
        assert manager.all_steps() == [4, 5]


def test_each_keeps_as_its_options_say(managed, save):
    few, every = managed(max_to_keep=1), managed()
    for step in (0, 1):
        save(few, step)
        few.wait_until_finished()
    every.reload()
    assert list(every.all_steps()) == [1]
    for step in (2, 3):
        save(every, step)
        every.wait_until_finished()
    assert list(every.all_steps()) == [1, 2, 3]
    few.reload()
    save(few, 4)
    few.wait_until_finished()
    every.reload()
    assert list(every.all_steps()) == [4]


def test_a_manager_and_a_store(tmp_path):
    import ckptree
    import ckptree.orbax as ours

    with ckptree.CheckpointManager(tmp_path / "run") as native:
        native.save(0, {"w": 1})
        with ours.CheckpointManager(tmp_path / "run") as manager:
            assert manager.save(1, args=ours.args.StandardSave(STATE))
            manager.wait_until_finished()
            assert native.all_steps() == [0, 1]
        assert native.save(2, {"w": 2})
    with ckptree.open(tmp_path / "run") as store:
        assert list(store) == [0, 1, 2]


def test_what_fails_is_told_to_who_saved(tmp_path):
    import ckptree.orbax as ours

    def policy():
        class Fails:
            def should_preserve(self, checkpoints, *, context):
                raise ZeroDivisionError("of the policy")

        return ours.CheckpointManagerOptions(preservation_policy=Fails())

    first = ours.CheckpointManager(tmp_path / "run", options=policy())
    first.save(0, args=ours.args.StandardSave(STATE))
    with ours.CheckpointManager(tmp_path / "run") as second:
        second.save(1, args=ours.args.StandardSave(STATE))
        second.wait_until_finished()
        with pytest.raises(ZeroDivisionError, match="of the policy"):
            first.wait_until_finished()
        first.close()


# ---- Checkpointers beside a manager ----


def test_a_checkpointer_saves_a_step(ocp, managed, save, tmp_path):
    manager = managed()
    save(manager, 0)
    manager.wait_until_finished()
    run = tmp_path / "run"
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(run / "7" / "default", {"w": np.full(2, 7)})
        checkpointer.wait_until_finished()
        found = checkpointer.restore(run / "7" / "default")
        assert found["w"].tolist() == [7, 7]
        with pytest.raises(ValueError, match="already exists"):
            checkpointer.save(run / "7" / "default", STATE)
        checkpointer.save(run / "0" / "default", {"w": np.ones(1)}, force=True)
        checkpointer.wait_until_finished()
    ocp.PyTreeCheckpointer().save(run / "8" / "default", {"w": np.full(2, 8)})
    manager.reload()
    assert list(manager.all_steps()) == [0, 7, 8]
    assert manager.restore(0)["w"].tolist() == [1]
    assert manager.restore(8)["w"].tolist() == [8, 8]
    assert save(manager, 9)
    manager.wait_until_finished()
    assert list(manager.all_steps()) == [0, 7, 8, 9]


def test_a_checkpointer_saves_a_step_without_items(ocp, managed, tmp_path):
    managed()
    checkpointer = ocp.PyTreeCheckpointer()
    checkpointer.save(tmp_path / "run" / "7", {"w": np.full(2, 7)})
    found = checkpointer.restore(tmp_path / "run" / "7")
    assert found["w"].tolist() == [7, 7]


def test_an_item_beside_others_is_refused(tmp_path):
    import ckptree.orbax as ours

    run = tmp_path / "run"
    with ours.CheckpointManager(run) as manager:
        save = ours.args.StandardSave
        both = ours.args.Composite(a=save(STATE), b=save(STATE))
        manager.save(0, args=both)
        manager.wait_until_finished()
        checkpointer = ours.PyTreeCheckpointer()
        for name in ("a", "c"):
            with pytest.raises(ValueError, match="items a, b.* as a whole"):
                checkpointer.save(run / "0" / name, STATE, force=True)
        for name in ("other", "exp2"):
            with pytest.raises(ValueError, match="names no step"):
                checkpointer.save(run / name, STATE)
        manager.save(1, args=both)
        manager.wait_until_finished()
        # One checkpoint does not take the place of a run.
        with pytest.raises(ValueError, match="a run, with steps up to 1"):
            checkpointer.save(run, STATE, force=True)
        assert manager.all_steps() == [0, 1]
        assert sorted(manager.restore(0).keys()) == ["a", "b"]


def test_v1_deletes_beside_a_manager(ocp, managed, save, ours, tmp_path):
    import importlib

    v1 = importlib.import_module(f"{ocp.__name__}.experimental.v1")
    manager = managed()
    for step in (0, 1):
        save(manager, step)
    manager.wait_until_finished()
    assert v1.delete(tmp_path / "run" / "0")
    manager.reload()
    assert list(manager.all_steps()) == [1]
    # The whole of it is not taken away from below the manager.
    with pytest.raises(ValueError, match="open in this" if ours else None):
        v1.delete(tmp_path / "run")
    save(manager, 2)
    manager.wait_until_finished()
    assert manager.restore(1)["w"].tolist() == [1, 1, 1]
    assert list(manager.all_steps()) == [1, 2]


def test_flax_saves_beside_a_manager(managed, save, ours, tmp_path):
    import importlib

    flax = importlib.import_module(
        "ckptree.flax.checkpoints" if ours else "flax.training.checkpoints"
    )
    manager = managed()
    save(manager, 0)
    for step in (3, 4):
        flax.save_checkpoint(tmp_path / "run", STATE, step, keep=1)
    manager.reload()
    found = flax.restore_checkpoint(tmp_path / "run", None)
    assert found["w"].tolist() == [0, 1, 2]
    assert flax.latest_checkpoint(tmp_path / "run").endswith("checkpoint_4")
    save(manager, 1)
    manager.wait_until_finished()
    assert list(manager.all_steps()) == [0, 1]


# ---- Other processes ----


READS = """
import sys, ckptree.orbax as ocp
with ocp.CheckpointManager(sys.argv[1]) as manager:
    print(list(manager.all_steps()), manager.restore(0)["w"].tolist())
    manager.save(1, args=ocp.args.StandardSave({"w": 1}))
"""


def test_another_process_reads_and_may_not_save(tmp_path):
    import ckptree.orbax as ours

    with ours.CheckpointManager(tmp_path / "run") as manager:
        manager.save(0, args=ours.args.StandardSave(STATE))
        manager.wait_until_finished()
        found = subprocess.run(
            [sys.executable, "-c", READS, str(tmp_path / "run")],
            capture_output=True,
            text=True,
        )
    assert found.stdout == "[0] [0, 1, 2]\n"
    assert found.returncode == 1
    assert "UnavailableError" in found.stderr and "pid" in found.stderr
    assert "read_only=True" in found.stderr


def test_reading_does_not_lock(tmp_path):
    import ckptree.orbax as ours

    with ours.CheckpointManager(tmp_path / "run") as manager:
        manager.save(0, args=ours.args.StandardSave(STATE))
    with ours.CheckpointManager(tmp_path / "run") as manager:
        assert manager.restore(0)["w"].tolist() == [0, 1, 2]
        program = READS.replace("manager.save", "assert manager.save")
        found = subprocess.run(
            [sys.executable, "-c", program, str(tmp_path / "run")],
            capture_output=True,
            text=True,
        )
        assert found.returncode == 0, found.stderr
        manager.reload()
        assert manager.all_steps() == [0, 1]


# ---- Handlers with a background of their own ----


class Background:
    """What a handler of a test waits for, and does then."""

    def __init__(self):
        self.may_end = threading.Event()
        self.fails = None
        self.pool = ThreadPoolExecutor(1)

    def handler(self, ocp):
        outer = self

        class Handler(ocp.AsyncCheckpointHandler):
            def save(self, directory, item=None, args=None):
                raise AssertionError("not this one")

            async def async_save(self, directory, item=None, args=None):
                def write():
                    assert outer.may_end.wait(60)
                    if outer.fails is not None:
                        raise outer.fails
                    (directory / "text").write_text(str(args.item))

                return [outer.pool.submit(write)]

            def restore(self, directory, item=None, args=None):
                return (directory / "text").read_text()

            def finalize(self, directory):
                assert (directory / "text").exists()

        register = ocp.args.register_with_handler

        @register(Handler, for_save=True, for_restore=True)
        @dataclasses.dataclass
        class Args(ocp.args.CheckpointArgs):
            item: object = None

        return Handler(), Args


@pytest.fixture
def background():
    made = Background()
    yield made
    made.may_end.set()
    made.pool.shutdown()


def at_once(ocp):
    """Orbax: folders are there when a handler is called."""
    return ocp.AsyncOptions(create_directories_asynchronously=False)


def test_save_returns_before_the_background_ends(ocp, background, tmp_path):
    handler, args = background.handler(ocp)
    weights = np.zeros(4)
    with ocp.CheckpointManager(
        tmp_path / "both",
        item_handlers={
            "mine": handler,
            "state": ocp.StandardCheckpointHandler(),
        },
        options=ocp.CheckpointManagerOptions(async_options=at_once(ocp)),
    ) as manager:
        assert manager.save(
            7,
            args=ocp.args.Composite(
                mine=args("text"), state=ocp.args.StandardSave({"w": weights})
            ),
        )
        assert manager.is_saving_in_progress()
        assert manager.latest_step() == 7
        weights += 1  # What was saved is as it was at the call.
        background.may_end.set()
        manager.wait_until_finished()
        assert not manager.is_saving_in_progress()
        found = manager.restore(
            7,
            args=ocp.args.Composite(
                mine=args(), state=ocp.args.StandardRestore()
            ),
        )
    assert found.mine == "text"
    assert found.state["w"].tolist() == [0, 0, 0, 0]


def test_a_tensor_changes_before_the_background_ends(background, tmp_path):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    from ckptree import orbax as ocp

    handler, args = background.handler(ocp)
    tensor = torch.zeros(4)
    with ocp.CheckpointManager(
        tmp_path / "x",
        item_handlers={"mine": handler, "state": ocp.PyTreeCheckpointHandler()},
    ) as manager:
        state = ocp.args.PyTreeSave({"w": tensor, "ends": tensor[::3]})
        manager.save(7, args=ocp.args.Composite(mine=args("a"), state=state))
        tensor += 1
        background.may_end.set()
        manager.wait_until_finished()
        found = manager.restore(
            7,
            args=ocp.args.Composite(state=ocp.args.PyTreeRestore()),
        ).state
    assert found["w"].tolist() == [0, 0, 0, 0]
    assert found["ends"].tolist() == [0, 0]


def test_a_background_that_fails(ocp, background, managed):
    handler, args = background.handler(ocp)
    background.fails = ZeroDivisionError("of the handler")
    manager = managed(item_handlers=handler, async_options=at_once(ocp))
    assert manager.save(0, args=args("a"))
    background.may_end.set()
    with pytest.raises(ZeroDivisionError, match="of the handler"):
        manager.wait_until_finished()
    background.fails = None
    assert manager.save(1, args=args("b"))
    manager.wait_until_finished()
    assert manager.restore(1, args=args()) == "b"
    manager.reload()
    assert list(manager.all_steps()) == [1]


def test_a_checkpointer_and_a_background(ocp, background, tmp_path):
    handler, args = background.handler(ocp)
    called = []
    checkpointer = ocp.AsyncCheckpointer(
        handler,
        async_options=ocp.AsyncOptions(
            post_finalization_callback=lambda: called.append(1),
            create_directories_asynchronously=False,
        ),
    )
    checkpointer.save(tmp_path / "one", args=args("a"))
    assert called == []
    background.may_end.set()
    checkpointer.wait_until_finished()
    assert called == [1]
    assert checkpointer.restore(tmp_path / "one", args=args()) == "a"
    background.fails = ZeroDivisionError("of the handler")
    checkpointer.save(tmp_path / "two", args=args("a"))
    with pytest.raises(ZeroDivisionError, match="of the handler"):
        checkpointer.wait_until_finished()
    with pytest.raises(FileNotFoundError):
        checkpointer.restore(tmp_path / "two", args=args())
    checkpointer.close()


def test_a_background_that_takes_too_long(ocp, background, tmp_path):
    handler, args = background.handler(ocp)
    options = ocp.AsyncOptions(
        timeout_secs=1, create_directories_asynchronously=False
    )
    checkpointer = ocp.AsyncCheckpointer(handler, async_options=options)
    checkpointer.save(tmp_path / "one", args=args("a"))
    with pytest.raises(TimeoutError):
        checkpointer.wait_until_finished()
    background.may_end.set()


def test_latest_step_waits_for_nothing(ocp, background, managed):
    handler, args = background.handler(ocp)
    manager = managed(item_handlers=handler, async_options=at_once(ocp))
    manager.save(3, args=args("a"))
    assert manager.latest_step() == 3
    assert manager.is_saving_in_progress()
    background.may_end.set()
    manager.wait_until_finished()
    assert manager.latest_step() == 3


def test_a_manager_that_was_closed_can_be_asked(managed, save, ours):
    manager = managed()
    save(manager, 3)
    manager.close()
    assert list(manager.all_steps()) == [3] and manager.latest_step() == 3
    assert manager.restore(3)["w"].tolist() == [3, 3, 3]
    if ours:
        from ckptree.errors import StateError

        with pytest.raises(StateError, match="closed"):
            save(manager, 4)
