# SPDX-License-Identifier: Apache-2.0
"""One rank of a contender of bench/run ranks: a process that saves when it is
told to, and answers with the seconds that it took."""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import signal
import sys
import time
from typing import Any, Iterator

import numpy as np

_EVERY = 1 << 20  # A word of each run of so many bytes is changed.


class Given:
    """What the parent says: who this is, where, and how much it has."""

    def __init__(self, text: str) -> None:
        given = json.loads(text)
        self.rank: int = given["rank"]
        self.world: int = given["world"]
        self.directory: str = given["directory"]
        self.port: int = given["port"]
        # Of this rank; all ranks have as many.
        self.leaves: int = given["leaves"]
        self.leaf_bytes: int = given["leaf_bytes"]

    def arrays(self) -> list[np.ndarray[Any, Any]]:
        random = np.random.default_rng(self.rank)
        words = self.leaf_bytes // 4
        return [
            random.integers(0, 1 << 32, words, np.uint32).view(np.float32)
            for _ in range(self.leaves)
        ]


class Contender:
    """`begin()` returns when the trainer may go on; wait() when the step is
    durable; `clean()` removes the step before, outside of the clock."""

    def __init__(self, given: Given) -> None:
        self.given = given
        self.arrays = given.arrays()
        self._salt = 0

    def change(self) -> None:
        self._salt += 1
        for array in self.arrays:
            array.view(np.uint32)[:: _EVERY // 4] = self._salt

    def begin(self, step: int) -> None:
        raise NotImplementedError

    def wait(self) -> None:
        pass

    def clean(self, step: int) -> None:
        pass

    def close(self) -> None:
        pass


class Ours(Contender):
    """Store(path, ranks=...)."""

    def __init__(self, given: Given) -> None:
        super().__init__(given)
        import ckptree

        ranks = ckptree.Ranks(given.rank, given.world, job="bench")
        self._store = ckptree.Store(
            given.directory,
            ranks=ranks if given.world > 1 else None,
            collect=False,
        )
        own = {f"w_{i:05d}": array for i, array in enumerate(self.arrays)}
        self._state = {"params": {str(given.rank): own}}
        self._options = {"per_rank": ["params"]} if given.world > 1 else {}
        self._handle: Any = None

    def begin(self, step: int) -> None:
        self._handle = self._store.save(step, self._state, **self._options)

    def wait(self) -> None:
        self._handle.result()

    def clean(self, step: int) -> None:
        if self.given.rank == 0 and step > 0:
            self._store.delete(step - 1)
            self._store.collect()

    def close(self) -> None:
        self._store.close()


class Apart(Ours):
    """As many processes, each with a store of its own: what sharing the
    machine costs, and no more."""

    def __init__(self, given: Given) -> None:
        own = dict(vars(given))
        own["directory"] = os.path.join(given.directory, str(given.rank))
        super().__init__(Given(json.dumps({**own, "rank": 0, "world": 1})))


class OfTorch(Contender):
    """The same arrays as DTensors over all ranks."""

    def __init__(self, given: Given) -> None:
        super().__init__(given)
        import torch
        import torch.distributed as dist
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.tensor import DTensor, Shard

        torch.set_num_threads(1)
        dist.init_process_group(
            "gloo",
            init_method=f"tcp://127.0.0.1:{given.port}",
            rank=given.rank,
            world_size=given.world,
        )
        mesh = init_device_mesh("cpu", (given.world,))
        self._dist = dist
        self.state = {
            f"w_{i:05d}": DTensor.from_local(
                torch.from_numpy(array), mesh, [Shard(0)], run_check=False
            )
            for i, array in enumerate(self.arrays)
        }

    def close(self) -> None:
        self._dist.destroy_process_group()


class OursByDcp(OfTorch):
    def __init__(self, given: Given) -> None:
        super().__init__(given)
        from ckptree.torch.dcp import StoreWriter

        self._writer = StoreWriter(given.directory)

    def begin(self, step: int) -> None:
        import torch.distributed.checkpoint as dcp

        dcp.save(self.state, checkpoint_id=step, storage_writer=self._writer)

    def clean(self, step: int) -> None:
        if self.given.rank == 0 and step > 0:
            store = self._writer._store.to_write()
            store.delete(step - 1)
            store.collect()

    def close(self) -> None:
        self._writer.close()
        super().close()


class Dcp(OfTorch):
    """FileSystemWriter at its defaults, which syncs its files."""

    def begin(self, step: int) -> None:
        import torch.distributed.checkpoint as dcp

        dcp.save(self.state, checkpoint_id=self._path(step))

    def clean(self, step: int) -> None:
        if self.given.rank == 0 and step > 0:
            shutil.rmtree(self._path(step - 1))

    def _path(self, step: int) -> str:
        return os.path.join(self.given.directory, str(step))


class Orbax(Contender):
    """The same arrays as jax.Arrays over all processes."""

    def __init__(self, given: Given) -> None:
        super().__init__(given)
        import jax
        from jax.sharding import Mesh, NamedSharding, PartitionSpec

        jax.config.update("jax_cpu_collectives_implementation", "gloo")
        jax.distributed.initialize(
            coordinator_address=f"127.0.0.1:{given.port}",
            num_processes=given.world,
            process_id=given.rank,
            # The disk is busy, and so are all processors.
            heartbeat_timeout_seconds=1800,
        )
        import orbax.checkpoint as ocp

        self._jax = jax
        mesh = Mesh(np.array(jax.devices()), ("x",))
        self._sharding = NamedSharding(mesh, PartitionSpec("x"))
        self._checkpointer = ocp.StandardCheckpointer()
        self._state: dict[str, Any] = {}

    def change(self) -> None:
        super().change()
        make = self._jax.make_array_from_process_local_data
        self._state = {
            f"w_{i:05d}": make(self._sharding, array.copy())
            for i, array in enumerate(self.arrays)
        }
        self._jax.block_until_ready(self._state)

    def begin(self, step: int) -> None:
        self._checkpointer.save(self._path(step), self._state)

    def wait(self) -> None:
        self._checkpointer.wait_until_finished()

    def clean(self, step: int) -> None:
        if self.given.rank == 0 and step > 0:
            shutil.rmtree(self._path(step - 1))

    def _path(self, step: int) -> str:
        return os.path.join(os.path.abspath(self.given.directory), str(step))


CONTENDERS = {
    "ours": Ours,
    "apart": Apart,
    "ours by DCP": OursByDcp,
    "DCP": Dcp,
    "Orbax": Orbax,
}


def saves(contender: Contender, count: int, first: int) -> Iterator[Any]:
    for step in range(first, first + count):
        contender.change()
        start = time.perf_counter()
        contender.begin(step)
        waited = time.perf_counter() - start
        contender.wait()
        yield [waited, time.perf_counter() - start]


def _end_with_parent() -> None:
    """A rank that waits for others inside a library does not read that the
    benchmark was stopped."""
    end = 1  # PR_SET_PDEATHSIG
    ctypes.CDLL(None, use_errno=True).prctl(end, int(signal.SIGKILL), 0, 0, 0)


def main() -> None:
    # What others print is not for the parent.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def say(value: Any) -> None:
        answers.write(json.dumps(value) + "\n")
        answers.flush()

    _end_with_parent()
    contender = CONTENDERS[sys.argv[1]](Given(sys.argv[2]))
    say("ready")
    step = 0
    for line in sys.stdin:
        if line.startswith("save "):
            count = int(line.split()[1])
            say(list(saves(contender, count, step)))
            step += count
        elif line.startswith("clean"):
            contender.clean(step - 1)
            say("cleaned")
    contender.close()
    say("closed")
    answers.close()
    os._exit(0)  # Nothing here waits for a rank that is gone.


if __name__ == "__main__":
    main()
