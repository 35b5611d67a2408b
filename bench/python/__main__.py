# SPDX-License-Identifier: Apache-2.0
"""bench/run python|orbax|ranks [--quick] [--guard] [CASE...]: measures the
package beside what the machine, the engine alone and other packages do, in the
same run.

Each case runs in a process of its own.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from typing import Callable

from measure import Report, Settings

# The program of each case is imported where it runs: it says what JAX is.
CASES = {
    "py_save": ("save_cases", "save"),
    "py_restore": ("save_cases", "restore"),
    "py_stall": ("stall_case", "stall"),
    "py_small": ("small_case", "small"),
    "py_daily": ("daily_case", "daily"),
    "py_million": ("million_case", "million"),
    "py_one": ("one_case", "one"),
    "py_reshard": ("reshard_case", "reshard"),
    "py_memory": ("memory_case", "memory"),
    "orbax_loop": ("orbax_cases", "loop"),
    "orbax_tree": ("orbax_cases", "tree"),
    "orbax_large": ("orbax_cases", "large"),
    "orbax_reopen": ("orbax_cases", "reopen"),
    "orbax_delete": ("orbax_cases", "delete"),
    "ranks_large": ("ranks_cases", "large"),
    "ranks_small": ("ranks_cases", "small"),
    "ranks_leaves": ("ranks_cases", "leaves"),
}

USAGE = """usage: bench/run python [--quick] [--guard] [--dir DIR] [--mib N]
           [CASE...]
cases: """ + " ".join(CASES)

# Exit codes of a case: floors were missed; nothing is known about some.
MISSED, NOT_MEASURED = 3, 4  # 1 is an exception.


def main(arguments: list[str]) -> int:
    options: list[str] = []
    chosen: list[str] = []
    directory = "build/bench-data"
    alone = False
    mib: int | None = None
    while arguments:
        argument = arguments.pop(0)
        if argument in ("--quick", "--guard"):
            options.append(argument)
        elif argument == "--dir" and arguments:
            directory = arguments.pop(0)
        elif argument == "--mib" and arguments:
            options += [argument, arguments[0]]
            mib = int(arguments.pop(0))
        elif argument == "--alone":
            alone = True
        elif argument in CASES:
            chosen.append(argument)
        elif argument in ("py", "orbax", "ranks"):
            chosen += [
                name for name in CASES if name.startswith(argument + "_")
            ]
        else:
            print(USAGE, file=sys.stderr)
            return 2
    settings = Settings(
        "--quick" in options, "--guard" in options, directory, mib
    )
    if alone:
        return run_case(chosen[0], settings)
    return run_all(
        chosen or [name for name in CASES if name.startswith("py_")],
        options,
        settings,
    )


def run_all(names: list[str], options: list[str], settings: Settings) -> int:
    from peers import versions

    print(f"beside: {versions()}", flush=True)
    results = {name: run_alone(name, options, settings) for name in names}
    said = {MISSED: "a floor was missed", NOT_MEASURED: "NOT ALL WAS MEASURED"}
    for name, result in results.items():
        if result != 0:
            what = said.get(result, "DID NOT RUN")
            print(f"bench/run python: {name}: {what}", file=sys.stderr)
    if set(results.values()) - {0, MISSED, NOT_MEASURED}:
        return 2
    return 1 if settings.guard and any(results.values()) else 0


def run_alone(name: str, options: list[str], settings: Settings) -> int:
    environment = dict(os.environ, JAX_PLATFORMS="cpu")
    # Its messages are not for this table.
    environment.setdefault("ABSL_MIN_LOG_LEVEL", "2")
    if name == "py_reshard":
        environment["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"
    shutil.rmtree(settings.directory, ignore_errors=True)
    os.makedirs(settings.directory)
    try:
        return subprocess.run(
            [sys.executable, os.path.dirname(os.path.abspath(__file__))]
            + ["--alone", name, "--dir", settings.directory, *options],
            env=environment,
        ).returncode
    finally:
        shutil.rmtree(settings.directory, ignore_errors=True)


def run_case(name: str, settings: Settings) -> int:
    module, function = CASES[name]
    case: Callable[[Report], None] = getattr(__import__(module), function)
    report = Report(name, settings)
    case(report)
    if not report.passed:
        return MISSED
    return NOT_MEASURED if report.not_measured else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
