# SPDX-License-Identifier: Apache-2.0
"""Measures the package beside what the machine, the engine alone and other
packages do, in the same run; `bench/run` calls it. Each case runs in a process
of its own.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from typing import Callable

from measure import NoDevice, Report, Settings

# The program of each case is imported where it runs: it says what JAX is.
CASES = {
    "py_save_numpy": ("save_cases", "of_numpy"),
    "py_save_jax": ("save_cases", "of_jax"),
    "py_restore_numpy": ("restore_cases", "of_numpy"),
    "py_restore_torch": ("restore_cases", "of_torch"),
    "py_restore_jax": ("restore_cases", "of_jax"),
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
    "remote_peers": ("remote_case", "peers"),
    "soak": ("soak_case", "soak"),
    "device": ("device_case", "device"),
}

USAGE = """usage: bench/python [--quick] [--guard] [--json] [--dir DIR]
           [--mib N] [--minutes N] [CASE...]
       bench/python --list
cases: """ + " ".join(CASES)

# Exit codes of a case: floors were missed; nothing is known about some; there
# is no accelerator.
MISSED, NOT_MEASURED = 3, 4  # 1 is an exception.
NO_DEVICE = 5


def main(arguments: list[str]) -> int:
    options: list[str] = []
    chosen: list[str] = []
    directory = "build/bench-data"
    alone = False
    mib: int | None = None
    minutes = 30.0
    while arguments:
        argument = arguments.pop(0)
        if argument in ("--quick", "--guard", "--json"):
            options.append(argument)
        elif argument == "--dir" and arguments:
            directory = arguments.pop(0)
        elif argument == "--mib" and arguments:
            options += [argument, arguments[0]]
            mib = int(arguments.pop(0))
        elif argument == "--minutes" and arguments:
            options += [argument, arguments[0]]
            minutes = float(arguments.pop(0))
        elif argument == "--list":
            print("\n".join(CASES))
            return 0
        elif argument == "--alone":
            alone = True
        elif argument in CASES:
            chosen.append(argument)
        elif argument in ("py", "orbax", "ranks", "remote"):
            chosen += [
                name for name in CASES if name.startswith(argument + "_")
            ]
        else:
            print(USAGE, file=sys.stderr)
            return 2
    settings = Settings(
        "--quick" in options, "--guard" in options, directory, mib, minutes
    )
    if alone:
        return run_case(chosen[0], settings, "--json" in options)
    return run_all(
        chosen or [name for name in CASES if name.startswith("py_")],
        options,
        settings,
    )


def run_all(names: list[str], options: list[str], settings: Settings) -> int:
    if "--json" not in options:
        from peers import versions

        print(f"beside: {versions()}", flush=True)
    results = {name: run_alone(name, options, settings) for name in names}
    if set(results.values()) == {NO_DEVICE}:
        return NO_DEVICE
    said = {
        MISSED: "a floor was missed",
        NOT_MEASURED: "NOT ALL WAS MEASURED",
        NO_DEVICE: "there is no accelerator",
    }
    for name, result in results.items():
        if result != 0:
            what = said.get(result, "DID NOT RUN")
            print(f"bench/python: {name}: {what}", file=sys.stderr)
    if set(results.values()) - {0, MISSED, NOT_MEASURED, NO_DEVICE}:
        return 2
    return 1 if settings.guard and any(results.values()) else 0


def run_alone(name: str, options: list[str], settings: Settings) -> int:
    environment = dict(os.environ)
    if name != "device":
        environment["JAX_PLATFORMS"] = "cpu"
    # Its messages are not for this table.
    environment.setdefault("ABSL_MIN_LOG_LEVEL", "2")
    environment.setdefault("ICECHUNK_LOG", "error")
    if name in ("py_reshard", "py_restore_jax"):
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


def run_case(name: str, settings: Settings, as_json: bool) -> int:
    module, function = CASES[name]
    case: Callable[[Report], None] = getattr(__import__(module), function)
    report = Report(name, settings, as_json)
    try:
        case(report)
    except NoDevice as error:
        print(f"bench/python: {name}: {error}", file=sys.stderr)
        return NO_DEVICE
    if not report.passed:
        return MISSED
    return NOT_MEASURED if report.not_measured else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
