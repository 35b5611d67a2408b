# SPDX-License-Identifier: Apache-2.0
"""A reader follows whoever writes: also one that begins after another was
killed."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

import ckptree

WRITER = """
import sys, numpy as np, ckptree
store = ckptree.Store(sys.argv[1])
print("open", flush=True)
for line in sys.stdin:
    store.save(int(line), {"w": np.full(20_000, int(line))}).result()
    print(line, end="", flush=True)
"""


class Writer:
    def __init__(self, path):
        self._process = subprocess.Popen(
            [sys.executable, "-c", WRITER, path],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout.readline() == "open\n"

    def save(self, step):
        self._process.stdin.write(f"{step}\n")
        self._process.stdin.flush()
        assert self._process.stdout.readline() == f"{step}\n"

    def kill(self):
        self._process.kill()
        self._process.communicate()

    def close(self):
        self._process.communicate()
        assert self._process.returncode == 0


def made_ahead(path) -> bool:
    """Whether the last file of the journal waits to be used."""
    last = max((path / "journal").glob("a-*"))
    return not any(last.read_bytes()[:4096])


@pytest.mark.parametrize("looks_between", [True, False])
def test_every_save_is_seen_at_once(tmp_path, looks_between):
    path = tmp_path / "run"
    first = Writer(path)
    first.save(1)
    with ckptree.open(path) as reader:
        step = 1
        for _ in range(50):
            step += 1
            first.save(step)
            reader.refresh()
            assert reader["latest"].step == step
            if made_ahead(path):
                break
        else:
            pytest.fail("no file was made ahead")
        first.kill()
        second = Writer(path)
        if looks_between:
            reader.refresh()
            assert reader["latest"].step == step
        for _ in range(20):
            step += 1
            second.save(step)
            reader.refresh()
            assert reader["latest"].step == step
            assert (reader["latest"]["w"][:] == step).all()
        second.close()
        reader.refresh()
        assert [info.step for info in reader.steps()] == list(
            range(1, step + 1)
        )
