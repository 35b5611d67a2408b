# SPDX-License-Identifier: Apache-2.0
"""Processes of torch.distributed, by gloo, for tests: each runs a function of
the test file, which says what it found by returning it."""

import multiprocessing
import os
import pickle
from datetime import timedelta

import torch
import torch.distributed as dist
import torch.multiprocessing

# A process that waits for one that was killed gives up.
TIMEOUT = timedelta(seconds=120)

# They are forked from one that has imported what takes each of them 5 s.
multiprocessing.set_forkserver_preload(
    ["ckptree.torch.dcp", "pytest", "torch.distributed.checkpoint.state_dict",
     "torch.distributed.fsdp", "torch.distributed.tensor"]
)


def run(folder, world, body, *arguments):
    """What `body(rank, *arguments)` returned on each of `world` processes;
    "killed" of one that a signal ended. The first exception is raised here."""
    meeting = folder / f"meeting-{len(os.listdir(folder))}"
    meeting.mkdir()
    started = torch.multiprocessing.start_processes(
        _rank,
        (world, meeting, dict(os.environ), body, arguments),
        nprocs=world,
        join=False,
        start_method="forkserver",
    )
    for process in started.processes:
        process.join()
    found = []
    for rank, process in enumerate(started.processes):
        if process.exitcode < 0:
            found.append("killed")
            continue
        path = meeting / f"result-{rank}"
        if not path.exists():
            with open(started.error_files[rank], "rb") as file:
                raise AssertionError(f"rank {rank}: {pickle.load(file)}")
        found.append(pickle.loads(path.read_bytes()))
    return found


def _rank(rank, world, meeting, environment, body, arguments):
    os.environ.clear()  # What it had when the first of all was started.
    os.environ.update(environment)
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo",
        init_method=f"file://{meeting}/store",
        rank=rank,
        world_size=world,
        timeout=TIMEOUT,
    )
    found = body(rank, *arguments)
    (meeting / f"result-{rank}").write_bytes(pickle.dumps(found))
    # Ranks that lost another one cannot say goodbye to it.
    os._exit(0)
