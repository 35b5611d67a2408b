# SPDX-License-Identifier: Apache-2.0
"""orbax_*: the same calls by ckptree.orbax and by Orbax, in turns. Orbax syncs
nothing to the disk; what a store has said is durable."""

from __future__ import annotations

import contextlib
import os
import shutil
from typing import Any, Callable, Iterator

import numpy as np
from files import forget
from measure import Report, fail, ratios, seconds, take_turns
from peers import Orbax, there
from states import JaxState, NumpyState, same

Times = dict[str, list[float]]


def _both(report: Report) -> dict[str, Any]:
    """The two modules by name; nothing where Orbax is not there."""
    import ckptree.orbax

    if not there(report, Orbax):
        return {}
    import orbax.checkpoint

    return {"ours": ckptree.orbax, "orbax": orbax.checkpoint}


def _turns(
    report: Report, modules: dict[str, Any], work: Callable[[Any, str], float]
) -> Times:
    """`work(module, path)` by each in turns, in an empty place."""

    def run(name: str) -> float:
        path = os.path.join(os.path.abspath(report.settings.directory), name)
        shutil.rmtree(path, ignore_errors=True)
        return work(modules[name], path)

    return take_turns(
        report.settings.repeats,
        {name: lambda name=name: run(name) for name in modules},
    )


def _times_faster(
    report: Report, what: str, took: Times, floor: float | None, goal: float
) -> None:
    report.show(f"{what}: Orbax", [t * 1e3 for t in took["orbax"]], "ms")
    report.show(f"{what}: ckptree.orbax", [t * 1e3 for t in took["ours"]], "ms")
    report.at_least(
        f"{what}: times faster",
        ratios(took["orbax"], took["ours"]),
        floor,
        goal,
    )


def _args(ocp: Any, state: Any) -> Any:
    return ocp.args.StandardSave(state)


@contextlib.contextmanager
def _manager(ocp: Any, path: str, **options: Any) -> Iterator[Any]:
    made = ocp.CheckpointManagerOptions(**options)
    with ocp.CheckpointManager(path, options=made) as manager:
        yield manager


def loop(report: Report) -> None:
    """200 steps of 64 KiB, of which three are kept."""
    modules = _both(report)
    steps = 50 if report.settings.quick else 200
    state = {"w": np.zeros((128, 128), "f4"), "b": np.zeros(128, "f4")}
    for asynchronous in (False, True) if modules else ():

        def run(ocp: Any, path: str) -> float:
            def work() -> None:
                with _manager(
                    ocp,
                    path,
                    max_to_keep=3,
                    enable_async_checkpointing=asynchronous,
                ) as manager:
                    for step in range(steps):
                        state["w"][:] = step
                        manager.save(step, args=_args(ocp, state))
                    manager.wait_until_finished()

            return seconds(work)

        kind = "asynchronous" if asynchronous else "synchronous"
        took = _turns(report, modules, run)
        _times_faster(report, f"{steps} {kind} steps", took, 10, 50)


def tree(report: Report) -> None:
    """Many leaves of 4 KiB."""
    modules = _both(report)
    leaves = 2_000 if report.settings.quick else 20_000
    state = NumpyState(leaves, 4096)
    figures: dict[str, Times] = {}

    def run(ocp: Any, path: str) -> float:
        name = "ours" if ocp is modules["ours"] else "orbax"

        def note(what: str, taken: float) -> None:
            figures.setdefault(what, {}).setdefault(name, []).append(taken)

        checkpointer = ocp.Checkpointer(ocp.StandardCheckpointHandler())
        saved = seconds(
            lambda: checkpointer.save(path, args=_args(ocp, state.tree))
        )
        note("save", saved)
        forget(path)
        restored: list[Any] = []
        wanted = ocp.args.StandardRestore(state.tree)
        note(
            "restore",
            seconds(
                lambda: restored.append(checkpointer.restore(path, args=wanted))
            ),
        )
        if not same(state.tree, restored[0]):
            fail("a restore gave other bytes than were saved")
        note("metadata", seconds(lambda: checkpointer.metadata(path)))
        return saved

    if modules:
        # It takes a millisecond for each leaf: once is enough to see.
        for name in modules:
            path = os.path.join(
                os.path.abspath(report.settings.directory), name
            )
            run(modules[name], path)
            shutil.rmtree(path)
    for what, took in figures.items():
        _times_faster(report, f"{leaves} leaves: {what}", took, 10, 50)


def large(report: Report) -> None:
    """2 GiB in arrays of 16 MiB: saved, restored, and how long a save stops a
    training."""
    modules = _both(report)
    arrays = 16 if report.settings.quick else 128
    state = JaxState(arrays, 16 << 20)
    turn = iter(range(1 << 30))
    restored: Times = {}
    stalled: Times = {}

    def run(ocp: Any, path: str) -> float:
        name = "ours" if ocp is modules["ours"] else "orbax"
        tree = state.change(next(turn))
        with _manager(ocp, path) as manager:

            def save() -> None:
                call = seconds(lambda: manager.save(0, args=_args(ocp, tree)))
                stalled.setdefault(name, []).append(call)
                manager.wait_until_finished()

            saved = seconds(save)
            forget(path)
            found: list[Any] = []
            wanted = ocp.args.StandardRestore(tree)
            restored.setdefault(name, []).append(
                seconds(lambda: found.append(manager.restore(0, args=wanted)))
            )
        if not same(tree, found[0]):
            fail("a restore gave other bytes than were saved")
        return saved

    if not modules:
        return
    took = _turns(report, modules, run)
    size = f"{arrays * 16} MiB"
    _times_faster(report, f"{size}: save", took, 1, 3)
    _times_faster(report, f"{size}: restore", restored, 1, 3)
    _times_faster(report, f"{size}: stall", stalled, 1, 20)


def reopen(report: Report) -> None:
    """A manager over many steps: opened, and asked for them."""
    modules = _both(report)
    steps = 100 if report.settings.quick else 1000
    paths = {}
    for name, ocp in modules.items():
        paths[name] = os.path.join(
            os.path.abspath(report.settings.directory), name
        )
        with _manager(ocp, paths[name], best_fn=lambda m: m["loss"]) as manager:
            for step in range(steps):
                manager.save(
                    step, args=_args(ocp, {"w": step}), metrics={"loss": step}
                )
            manager.wait_until_finished()
    asked: Times = {}

    def run(name: str) -> float:
        ocp = modules[name]

        def work() -> None:
            with _manager(
                ocp, paths[name], best_fn=lambda m: m["loss"]
            ) as manager:
                said = (
                    len(manager.all_steps()),
                    manager.latest_step(),
                    manager.metrics(steps // 2)["loss"],
                )
                if said != (steps, steps - 1, steps // 2):
                    fail(f"{name} says {said} of {steps} steps")

                def ask() -> None:
                    for step in range(0, steps, steps // 50):
                        manager.all_steps()
                        manager.latest_step()
                        manager.metrics(step)

                asked.setdefault(name, []).append(seconds(ask))

        return seconds(work)

    if not modules:
        return
    took = take_turns(
        report.settings.repeats,
        {name: lambda name=name: run(name) for name in modules},
    )
    # The floor is for many steps: Orbax reads each of them when it opens, and
    # answers from memory then.
    floor = None if report.settings.quick else 10
    for name in modules:
        report.show(
            f"asked 50 times, {name}", [t * 1e3 for t in asked[name]], "ms"
        )
    _times_faster(report, f"{steps} steps: opened and asked", took, floor, 100)


def delete(report: Report) -> None:
    """One of two steps with many leaves goes."""
    modules = _both(report)
    leaves = 2_000 if report.settings.quick else 20_000
    state = NumpyState(leaves, 4096)
    took: Times = {}
    for name, ocp in modules.items():
        path = os.path.join(os.path.abspath(report.settings.directory), name)
        with _manager(ocp, path) as manager:
            for step in range(2):
                manager.save(step, args=_args(ocp, state.change(step)))
            manager.wait_until_finished()
            took[name] = [seconds(lambda: manager.delete(0))]
            if list(manager.all_steps()) != [1]:
                fail(f"{name} did not delete the step")
    if modules:
        _times_faster(
            report, f"a step of {leaves} leaves: deleted", took, 10, 100
        )
