# SPDX-License-Identifier: Apache-2.0
"""What the figures are of: the machine, the system, the libraries, the
commit."""

from __future__ import annotations

import datetime
import json
import os
import platform
import subprocess
from typing import Any

# Debian packages whose code is linked, by what people call them.
_LIBRARIES = {
    "RocksDB": "librocksdb-dev",
    "oneTBB": "libtbb-dev",
    "Abseil": "libabsl-dev",
    "protobuf": "libprotobuf-dev",
    "xxHash": "libxxhash-dev",
    "Highway": "libhwy-dev",
    "GCC": "g++",
}
PEERS = (
    "numpy",
    "jax",
    "flax",
    "orbax-checkpoint",
    "tensorstore",
    "safetensors",
    "torch",
    "h5py",
    "icechunk",
    "zarr",
)
# Of stores in an object store alone.
S3_PEERS = ("boto3", "s3fs")


def machine(directory: str) -> dict[str, Any]:
    """What must be alike where figures are compared. `directory` is where the
    data of the benchmark go."""
    device, kind = _file_system(directory)
    return {
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(
            os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30
        ),
        "file_system": f"{kind} on {device}",
        "device": _accelerator(),
    }


def text(found: dict[str, Any]) -> str:
    parts = [
        str(found["processor"]),
        f"{found['cores']} cores",
        f"{found['memory_gib']} GiB",
        str(found["file_system"]),
    ]
    return ", ".join(parts + ([found["device"]] if found["device"] else []))


def run(interpreter: str | None) -> dict[str, Any]:
    """What may differ from run to run; `interpreter` has the peers."""
    return {
        "date": datetime.datetime.now(datetime.timezone.utc).strftime(
            "%Y-%m-%dT%H:%M:%SZ"
        ),
        **_commit(),
        "system": _system(),
        "kernel": platform.release(),
        "versions": versions(interpreter),
    }


def versions(interpreter: str | None) -> dict[str, str]:
    said = _said(
        ["dpkg-query", "-W", "-f", "${Package} ${Version}\n"]
        + list(_LIBRARIES.values())
    )
    known = dict(row.split() for row in said.splitlines())
    found = {
        name: known[package].split(":")[-1].split("-")[0].split("+")[0]
        for name, package in _LIBRARIES.items()
        if package in known
    }
    if interpreter is not None:
        code = (
            "import importlib.metadata as m, json, platform, sys\n"
            "found = {'Python': platform.python_version()}\n"
            "for name in sys.argv[1:]:\n"
            "    try: found[name] = m.version(name)\n"
            "    except m.PackageNotFoundError: pass\n"
            "print(json.dumps(found))"
        )
        said = _said([interpreter, "-c", code, *PEERS, *S3_PEERS])
        if said:
            found |= json.loads(said)
    return found


def _commit() -> dict[str, Any]:
    return {
        "commit": _said(["git", "rev-parse", "--short=12", "HEAD"]),
        "changed": bool(
            _said(["git", "status", "--porcelain", "--untracked-files=no"])
        ),
    }


def _said(command: list[str]) -> str:
    """What a command prints; nothing where it cannot be run or fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True)
    except OSError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def _processor() -> str:
    with open("/proc/cpuinfo") as file:
        for row in file:
            if row.startswith("model name"):
                return row.partition(":")[2].strip()
    return platform.machine()


def _system() -> str:
    try:
        return platform.freedesktop_os_release()["PRETTY_NAME"]
    except (OSError, KeyError):
        return platform.system()


def _file_system(directory: str) -> tuple[str, str]:
    """The device and the kind of the file system that `directory` is on."""
    path = os.path.realpath(directory)
    best = ("", "unknown", "unknown")
    with open("/proc/self/mounts") as file:
        for row in file:
            device, mount, kind = row.split()[:3]
            inside = path == mount or path.startswith(mount.rstrip("/") + "/")
            # Of two at one place the later one is seen.
            if inside and len(mount) >= len(best[0]):
                best = (mount, device, kind)
    return best[1], best[2]


def _accelerator() -> str:
    said = _said(["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"])
    return said.splitlines()[0] if said else ""
