# SPDX-License-Identifier: Apache-2.0
"""bench/run ranks: several processes that save one step, beside one process,
PyTorch's DCP and Orbax with as many, in turns."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import shutil
import socket
import subprocess
import sys
from typing import Any, Callable, Iterator

from measure import Report, median, percentile, ratios, take_turns

_WORKER = os.path.join(
    os.path.dirname(os.path.abspath(__file__)), "ranks_worker.py"
)
_LEAF_BYTES = 16 << 20
_PEERS = {"DCP": "torch", "Orbax": "orbax"}


class Ended(RuntimeError):
    """A process of a job is gone."""


class Job:
    """The processes of one contender, which live until the case is over."""

    def __init__(
        self,
        directory: str,
        contender: str,
        world: int,
        leaves: int,
        leaf_bytes: int,
    ) -> None:
        self.directory = os.path.join(directory, f"{contender}-{world}")
        os.makedirs(self.directory)
        self._port = _free_port()
        self._processes = [
            subprocess.Popen(
                [sys.executable, _WORKER, contender]
                + [self._given(rank, world, leaves, leaf_bytes)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            for rank in range(world)
        ]
        self._name = contender
        self._answers("start")

    def _given(self, rank: int, world: int, leaves: int, size: int) -> str:
        return json.dumps(
            {
                "rank": rank,
                "world": world,
                "directory": self.directory,
                "port": self._port,
                "leaves": leaves,
                "leaf_bytes": size,
            }
        )

    def save(self, count: int = 1) -> list[list[list[float]]]:
        """By rank, of each save: seconds until it might go on, until it was
        durable. The step before goes, outside of the clock."""
        found = self._ask(f"save {count}")
        if count == 1:
            self._ask("clean")
        return found

    def seconds(self) -> float:
        """Of one save, until the last rank had it."""
        return max(times[0][1] for times in self.save())

    def _ask(self, what: str) -> list[Any]:
        for rank, process in enumerate(self._processes):
            assert process.stdin is not None
            try:
                process.stdin.write(what + "\n")
                process.stdin.flush()
            except BrokenPipeError:
                raise self._ended(rank, what) from None
        return self._answers(what)

    def _answers(self, what: str) -> list[Any]:
        found = []
        for rank, process in enumerate(self._processes):
            assert process.stdout is not None
            line = process.stdout.readline()
            if not line:
                raise self._ended(rank, what)
            found.append(json.loads(line))
        return found

    def _ended(self, rank: int, what: str) -> Ended:
        return Ended(f"rank {rank} of {self._name} ended at: {what}")

    def close(self) -> None:
        for process in self._processes:
            assert process.stdin is not None
            with contextlib.suppress(BrokenPipeError):
                process.stdin.close()
        for process in self._processes:
            process.wait()
        shutil.rmtree(self.directory, ignore_errors=True)


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@contextlib.contextmanager
def _jobs(
    report: Report,
    leaves: int,
    leaf_bytes: int,
    **contenders: tuple[str, int],
) -> Iterator[dict[str, Job]]:
    """By the names that the case gives them: a contender, and of how many
    processes, that have so many leaves between them. Those whose package is not
    there are left out, and said."""
    found: dict[str, Job] = {}
    with contextlib.ExitStack() as stack:
        for name, (contender, world) in contenders.items():
            package = _PEERS.get(contender.rpartition(" ")[2])
            if package and importlib.util.find_spec(package) is None:
                report.skip(f"beside {contender}", f"there is no {package}")
                continue
            each = max(1, leaves // world)
            size = min(leaf_bytes, leaf_bytes * leaves // world)
            job = Job(report.settings.directory, contender, world, each, size)
            stack.callback(job.close)
            found[name] = job
        yield found


def large(report: Report) -> None:
    """2 GiB, everything changed, over 2, 4 and 8 processes, until durable."""
    settings = report.settings
    mib = settings.mib or (256 if settings.quick else 2048)
    leaves = max(8, (mib << 20) // _LEAF_BYTES)
    size = (mib << 20) // leaves
    for world in (2, 4, 8):
        with _jobs(
            report,
            leaves,
            size,
            one=("ours", 1),
            ours=("ours", world),
            by_dcp=("ours by DCP", world),
            dcp=("DCP", world),
        ) as jobs:
            took = _in_turns(settings.repeats, jobs)
        shown = f"{mib} MiB over {world}"
        for name, what in {
            "one": "one process",
            "ours": "ranks",
            "by_dcp": "by DCP's planner",
            "dcp": "DCP",
        }.items():
            if name in took:
                rate = [(mib << 20) / 1e9 / t for t in took[name]]
                report.show(f"{shown}: {what}", rate, "GB/s")
        report.at_least(
            f"{shown}: / one process", ratios(took["one"], took["ours"]), 0.9
        )
        for name in ("ours", "by_dcp"):
            if "dcp" in took and name in took:
                what = "DCP" if name == "ours" else "DCP, by its planner"
                report.at_least(
                    f"{shown}: / {what}", ratios(took["dcp"], took[name]), 3
                )
        _beside_orbax(report, shown, leaves, size, world)


def _in_turns(repeats: int, jobs: dict[str, Job]) -> dict[str, list[float]]:
    for job in jobs.values():
        job.seconds()  # Memory is touched, stores are made.
    contenders: dict[str, Callable[[], float]] = {
        name: job.seconds for name, job in jobs.items()
    }
    return take_turns(repeats, contenders)


def _beside_orbax(
    report: Report, shown: str, leaves: int, size: int, world: int
) -> None:
    """In a run of its own: its processes take what memory the others leave, and
    where the disk is slow they may wait for each other until they end."""
    try:
        with _jobs(
            report, leaves, size, ours=("ours", world), orbax=("Orbax", world)
        ) as jobs:
            took = _in_turns(report.settings.repeats, jobs)
    except Ended as error:
        report.skip(f"{shown}: beside Orbax", str(error))
        return
    if "orbax" in took:
        rate = [leaves * size / 1e9 / t for t in took["orbax"]]
        report.show(f"{shown}: Orbax", rate, "GB/s")
        report.show(
            f"{shown}: / Orbax", ratios(took["orbax"], took["ours"]), "x"
        )


def small(report: Report) -> None:
    """64 KiB over 8 processes: a commit, and the wait in save()."""
    count = 30 if report.settings.quick else 200
    with _jobs(
        report,
        8,
        8 << 10,
        one=("ours", 1),
        apart=("apart", 8),
        ours=("ours", 8),
        by_dcp=("ours by DCP", 8),
        dcp=("DCP", 8),
    ) as jobs:
        times: dict[str, list[list[float]]] = {name: [] for name in jobs}
        for _ in range(report.settings.repeats):
            for name, job in jobs.items():
                times[name] += job.save(max(1, count // 5))[0]
    waits = {n: [w * 1e3 for w, _ in found] for n, found in times.items()}
    commits = {n: [c * 1e3 for _, c in found] for n, found in times.items()}
    for name, what in {
        "one": "one process",
        "apart": "eight processes, a store each",
        "by_dcp": "by DCP's planner",
        "dcp": "DCP",
    }.items():
        if name in commits:
            report.show(f"64 KiB over 8: {what}", commits[name], "ms")
    report.show(
        "64 KiB over 8: 99 of 100", [percentile(commits["ours"], 0.99)], "ms"
    )
    report.at_most(
        "64 KiB over 8: commit, ms", commits["ours"], 15, absolute=True
    )
    # Eight processes share the machine: beside them stands what a process waits
    # that is one of eight, each with a store of its own.
    for name, what in {
        "one": "one process",
        "apart": "eight, a store each",
        "ours": "ranks",
    }.items():
        report.show(f"64 KiB over 8: wait in save(), {what}", waits[name], "ms")
    report.at_most(
        "64 KiB over 8: wait in save() / eight, a store each",
        [median(waits["ours"]) / median(waits["apart"])],
        1.2,
    )


def leaves(report: Report) -> None:
    """20 000 leaves of 4 KiB over 8 processes, beside one."""
    settings = report.settings
    count = 4_000 if settings.quick else 20_000
    with _jobs(
        report,
        count,
        4096,
        one=("ours", 1),
        ours=("ours", 8),
        by_dcp=("ours by DCP", 8),
        dcp=("DCP", 8),
    ) as jobs:
        took = _in_turns(settings.repeats, jobs)
    shown = f"{count} leaves over 8"
    for name, what in {
        "one": "one process",
        "ours": "ranks",
        "by_dcp": "by DCP's planner",
        "dcp": "DCP",
    }.items():
        if name in took:
            rates = [count / t / 1e3 for t in took[name]]
            report.show(f"{shown}: {what}", rates, "k leaves/s")
    report.at_least(
        f"{shown}: / one process", ratios(took["one"], took["ours"]), 0.8
    )
