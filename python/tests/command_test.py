# SPDX-License-Identifier: Apache-2.0
"""The `ckptree` command that the package installs."""

import json
import subprocess
import sys
import sysconfig
from pathlib import Path

import ckptree
import numpy as np
import pytest


def command():
    path = Path(sysconfig.get_path("scripts")) / "ckptree"
    if path.exists():
        return [path]
    # Run by a Python that only sees the package.
    return [sys.executable, "-c", "from ckptree._command import main; main()"]


def run(*arguments):
    return subprocess.run(
        [*command(), *arguments], capture_output=True, text=True
    )


def test_it_is_of_the_version_of_the_package():
    done = run("--version")
    assert done.returncode == 0
    assert ckptree.__version__ in done.stdout


def test_it_reads_what_the_package_saved(tmp_path):
    with ckptree.Store(tmp_path / "run") as store:
        store.save(3, {"w": np.arange(4.0)}).result()
    done = run("-C", str(tmp_path / "run"), "get", "3:w")
    assert (done.returncode, done.stdout) == (0, "[0.0 1.0 2.0 3.0]\n")


def test_ints_of_any_size(tmp_path):
    """As random generators have them in their state."""
    state = np.random.default_rng(1).bit_generator.state
    ints = [2**63, -(2**63) - 1, 2**64, 10**36, -(10**36), 7**1000]
    with ckptree.Store(tmp_path / "run") as store:
        store.save(1, {"rng": state, "i": ints}).result()
    for key, value in [
        *((f"rng/state/{name}", n) for name, n in state["state"].items()),
        *((f"i/[{i}]", n) for i, n in enumerate(ints)),
    ]:
        here = ("-C", str(tmp_path / "run"))
        done = run(*here, "get", f"1:{key}")
        assert (done.returncode, done.stdout) == (0, f"{value}\n"), key
        for how in ("csv", "tsv"):
            done = run(*here, "get", f"1:{key}", "-o", how)
            assert done.stdout == f"{value}\n", (key, how)
        shown = json.loads(run(*here, "show", f"1:{key}", "--json").stdout)
        (about,) = shown["leaves"]
        assert about["kind"] == "int" and about["dtype"] is None, about
        assert about["shape"] is about["statistics"] is None
        assert run(*here, "get", f"1:{key}", "-o", "npy").returncode == 2
    found = run(*here, "find", "kind=='int'", "--json").stdout
    assert all(f'"i/[{i}]"' in found for i in range(len(ints))), found
    with ckptree.open(tmp_path / "run") as store:
        leaf = store[1]["i/[0]"]
        assert (leaf.kind, leaf.value()) == ("int", ints[0])
        assert repr(leaf) == "<Leaf i/[0]: int>"
        with pytest.raises(TypeError, match="kind int"):
            leaf[...]
        assert not [row for row in store[1].stats() if row.name == leaf.name]


def test_a_text_is_a_cell_of_csv_and_tsv(tmp_path):
    text = '\x1b[31m"a",\r\n\tb\x7f'
    with ckptree.Store(tmp_path / "run") as store:
        store.save(1, {"t": text, "p": "plain"}).result()
    here = ("-C", str(tmp_path / "run"), "get")
    assert run(*here, "1:p", "-o", "tsv").stdout == "plain\n"
    assert run(*here, "1:t", "-o", "tsv").stdout == (
        '\\x1b[31m"a",\\r\\n\\tb\\x7f\n'
    )
    done = subprocess.run(
        [*command(), *here, "1:t", "-o", "csv"], capture_output=True
    )
    assert done.stdout.decode() == '"\\x1b[31m""a"",\r\n\tb\\x7f"\n'


def test_its_exit_code_is_that_of_the_program(tmp_path):
    assert run("-C", str(tmp_path), "log").returncode == 3
