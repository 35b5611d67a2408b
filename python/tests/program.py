# SPDX-License-Identifier: Apache-2.0
"""Programs of their own, for what only the end of a process shows."""

import json
import subprocess
import sys


def run(code, *arguments, timeout=120, **options):
    """Runs a program of Python; returns what subprocess says of it."""
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=timeout,
        **options,
    )


# What a program of several ranks begins with: `say(...)` is what it tells,
# `caught(call)` the error of a call, and `interrupted(call)` ends one.
RANK = """
import json, os, signal, sys, ckptree, numpy as np
rank, world, path, *rest = sys.argv[1:]
rank, world = int(rank), int(world)

# Nobody else writes there: libraries of C++ have lines of their own for 1.
_answers = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)

def say(*values):
    print(json.dumps(values), file=_answers, flush=True)

def caught(call):
    try:
        return ["no error", str(call())]
    except Exception as error:
        return [type(error).__name__, str(error)]

def interrupted(call):
    # As Ctrl-C does, while it waits.
    signal.signal(signal.SIGALRM, signal.default_int_handler)
    signal.setitimer(signal.ITIMER_REAL, 0.3)
    try:
        return str(call())
    except KeyboardInterrupt:
        return "interrupted"
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)

def opened(deadline=60, job="test", open_deadline=60, **options):
    ranks = ckptree.Ranks(rank, world, job, deadline, open_deadline)
    return ckptree.Store(path, ranks=ranks, **options)
"""
# None of them goes on before all have come as far as this.
MEET = """
say("ready")
sys.stdin.readline()
"""


def run_ranks(
    code, world, *arguments, ranks=None, killed=(), begin=RANK, timeout=120
):
    """Runs a program as each rank at once, of `ranks` or all; returns by rank
    what it said. Those of `killed` do not end by themselves."""
    started = {
        rank: subprocess.Popen(
            [sys.executable, "-c", begin + MEET + code]
            + list(map(str, [rank, world, *arguments])),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in (range(world) if ranks is None else ranks)
    }
    try:
        for rank, process in started.items():
            if process.stdout.readline() != '["ready"]\n':
                raise AssertionError(f"rank {rank}: {process.stderr.read()}")
        for process in started.values():
            process.stdin.write("go\n")
            process.stdin.flush()
        said = {}
        for rank, process in started.items():
            out, err = process.communicate(timeout=timeout)
            expected = -9 if rank in killed else 0
            assert process.returncode == expected, f"rank {rank}: {out}{err}"
            said[rank] = [json.loads(line) for line in out.splitlines()]
        return said
    finally:
        for process in started.values():
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout, process.stderr):
                pipe.close()
