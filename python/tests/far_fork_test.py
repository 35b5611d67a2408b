# SPDX-License-Identifier: Apache-2.0
"""Children made by fork(), as the workers of a DataLoader are, of a process
that reads in an object store."""

import ckptree
import numpy as np
import pytest
from program import run
from s3_server import Folder, served


@pytest.fixture(params=["file", "s3"])
def run_with_far_bytes(request, tmp_path, monkeypatch):
    """A directory whose first step is at the address alone, and that."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    if request.param == "file":
        yield saved(tmp_path / "run", Folder(tmp_path / "far").address)
    else:
        with served() as server:
            yield saved(tmp_path / "run", f"{server.address}/{tmp_path.name}")


def saved(directory, address):
    with ckptree.Store(
        directory, remote=address, local_keep="latest(1)"
    ) as store:
        for n in (1, 2):
            w = np.random.default_rng(n).integers(0, 255, 3 << 20, "u1")
            store.save(n, {"w": w, "v": w[::-1].copy()})
    with ckptree.open(directory) as store:
        assert store.info().far_nbytes > 4 << 20
    return directory, address


SUM = """
import os, sys, ckptree, numpy as np

def wanted(n, name):
    w = np.random.default_rng(n).integers(0, 255, 3 << 20, "u1")
    return w if name == "w" else w[::-1]

def reads(where, n=1, name="w"):
    with ckptree.open(where) as store:
        return bool((store[n][name][:] == wanted(n, name)).all())
"""


def test_a_child_reads_what_is_far(run_with_far_bytes):
    """By a store of its own; with its parent's it is told that it may not."""
    code = SUM + """
stores = [ckptree.open(where) for where in sys.argv[1:]]
steps = [store[1] for store in stores]
leaves = [step["v"] for step in steps]
for step in steps:  # Connections are open, and threads wait for more.
    assert (step["w"][:] == wanted(1, "w")).all()
child = os.fork()
if child == 0:
    for leaf in leaves:
        try:
            print(leaf[:].sum())
        except ckptree.StateError as error:
            print("fork()" in str(error))
    for where in sys.argv[1:]:
        print(reads(where), reads(where, 1, "v"), reads(where, 2))
    sys.stdout.flush()
    os._exit(7)
assert os.WEXITSTATUS(os.waitpid(child, 0)[1]) == 7
print([bool((leaf[:] == wanted(1, "v")).all()) for leaf in leaves])
"""
    done = run(code, *run_with_far_bytes)
    assert done.stderr == "" and done.returncode == 0
    assert done.stdout.split("\n")[:-1] == [
        *["True"] * 2,
        *["True True True"] * 2,
        "[True, True]",
    ]


def test_workers_of_a_data_loader(run_with_far_bytes):
    pytest.importorskip(
        "torch",
        reason="PyTorch could not be installed: see requirements_torch.txt",
    )
    code = SUM + """
from torch.utils.data import DataLoader, Dataset

class Opened(Dataset):
    def __init__(self, where, store=None):
        self._where, self._store = where, store

    def __len__(self):
        return 4

    def __getitem__(self, i):
        # Each worker once.
        self._store = self._store or ckptree.open(self._where)
        return self._store[1]["wv"[i % 2]][i : i + 3].tolist()

for where in sys.argv[1:]:
    with ckptree.open(where) as here:
        assert (here[1]["w"][:] == wanted(1, "w")).all()
        for store in (None, here):
            loader = DataLoader(
                Opened(where, store), batch_size=None, num_workers=2,
                multiprocessing_context="fork", timeout=60,
            )
            try:
                found = list(loader)
            except Exception as error:
                print("StateError" in str(error), "fork()" in str(error))
            else:
                print([
                    part == wanted(1, "wv"[i % 2])[i : i + 3].tolist()
                    for i, part in enumerate(found)
                ])
"""
    done = run(code, *run_with_far_bytes)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split("\n")[:-1] == ["[True, True, True, True]",
                                            "True True"] * 2
