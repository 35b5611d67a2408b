# SPDX-License-Identifier: Apache-2.0
"""device: a state of 8 GiB (`--mib`) on an accelerator is saved: how long the
training waits, and when it is durable, beside a plain copy into pinned memory,
torch.save, DCP and Orbax; and it comes back there, out of the disk, beside
torch.load, safetensors and Orbax. Needs `nvidia-smi` and a PyTorch or JAX that
sees the device."""

from __future__ import annotations

import os
import shutil
import subprocess
from typing import Any, Callable

import ckptree
from beside import Beside
from files import forget, make_durable
from measure import NoDevice, Report, fail, seconds, take_turns

_LEAVES = 128
_MIB = 1 << 20


def device(report: Report) -> None:
    name = _name()
    mib = report.settings.mib or (512 if report.settings.quick else 8192)
    # Two frameworks have memory of the device: each takes what it needs.
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    found = 0
    for kind in (_of_torch, _of_jax):
        try:
            kind(report, name, mib)
            found += 1
        except ImportError as error:
            report.skip(kind.__name__.removeprefix("_of_"), str(error))
    if not found:
        raise NoDevice(f"neither PyTorch nor JAX sees {name}")


def _name() -> str:
    """NoDevice where nvidia-smi does not answer."""
    try:
        done = subprocess.run(
            ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"],
            capture_output=True,
            text=True,
        )
    except OSError as error:
        raise NoDevice(f"there is no nvidia-smi: {error}") from None
    if done.returncode != 0 or not done.stdout.strip():
        raise NoDevice(f"nvidia-smi says: {done.stdout}{done.stderr}".strip())
    return done.stdout.splitlines()[0].strip()


class _Saves:
    """Of one framework: each gives seconds until the training may go on, and
    until the bytes are on the disk."""

    def __init__(
        self,
        report: Report,
        tree: dict[str, Any],
        settle: Callable[[Any], Any],
    ) -> None:
        """`settle(tree)` returns when all of it is on the device."""
        self._settle = settle
        self._directory = report.settings.directory
        self.tree = tree
        self.waits: dict[str, list[float]] = {}
        self._store = ckptree.Store(os.path.join(self._directory, "ours"))
        self._step = 0

    def ours(self) -> float:
        step = self._step
        self._step += 1
        handles = []

        def work() -> None:
            waited = seconds(
                lambda: handles.append(self._store.save(step, self.tree))
            )
            self.waits.setdefault("ours", []).append(waited)
            handles[0].result()

        taken = seconds(work)
        if step > 0:
            self._store.delete(step - 1)
            self._store.collect()
        return taken

    def by(
        self, name: str, begin: Callable[[str], Callable[[], None]]
    ) -> Callable[[], float]:
        """`begin(path)` returns when the training may go on, with what waits
        for the rest."""

        def run() -> float:
            path = os.path.join(self._directory, "peer")

            def work() -> None:
                rest: list[Callable[[], None]] = []
                waited = seconds(lambda: rest.append(begin(path)))
                self.waits.setdefault(name, []).append(waited)
                rest[0]()
                make_durable(path)

            taken = seconds(work)
            shutil.rmtree(path) if os.path.isdir(path) else os.remove(path)
            return taken

        return run

    def restored(self) -> float:
        """The last step, out of the disk, onto the device."""
        forget(os.path.join(self._directory, "ours"))
        return seconds(
            lambda: self._settle(self._store.restore("latest", like=self.tree))
        )

    def restored_by(
        self,
        name: str,
        save: Callable[[str], Any],
        load: Callable[[str], Any],
    ) -> Callable[[], float]:
        """`save(path)` is done once, `load(path)` each time."""
        path = os.path.join(self._directory, f"{name} to load")
        save(path)
        make_durable(path)

        def run() -> float:
            forget(path)
            return seconds(lambda: self._settle(load(path)))

        return run

    def close(self) -> None:
        self._store.close()
        shutil.rmtree(os.path.join(self._directory, "ours"))


def _measure(
    report: Report,
    kind: str,
    saves: _Saves,
    copy: tuple[str, Callable[[], float]],
    change: Callable[[], None],
    peers: dict[str, Callable[[str], Callable[[], None]]],
    send: Callable[[], float],
    loads: dict[str, Callable[[], float]],
    nbytes: int,
) -> None:
    """`copy` and `send`: a plain copy from the device, by the name of how, and
    to it. `loads`: what restored_by() gave."""

    def changed(work: Callable[[], float]) -> Callable[[], float]:
        def run() -> float:
            change()
            return work()

        return run

    leaf = nbytes // _LEAVES
    with Beside(report.settings, _LEAVES, leaf) as beside:
        contenders = {
            "copy": copy[1],
            "disk": beside.doing("raw_write"),
            "ours": changed(saves.ours),
        }
        for name, begin in peers.items():
            contenders[name] = changed(saves.by(name, begin))
        for work in contenders.values():
            work()  # Makes the pinned memory of each.
        for waits in saves.waits.values():
            waits.clear()
        took = take_turns(report.settings.repeats, contenders)
        read = take_turns(
            report.settings.repeats,
            {
                "send": send,
                "disk": beside.doing("raw_read"),
                "ours": saves.restored,
                **loads,
            },
        )
    size = f"{kind}: {nbytes / 2**30:g} GiB"
    slower = [max(a, b) for a, b in zip(took["copy"], took["disk"])]
    report.figure(
        f"{size} durable",
        "s",
        took["ours"],
        ("the slower of the copy and a raw write", slower),
        floor=1.15,
        at_least=False,
    )
    report.figure(
        f"{size}: wait in save()",
        "s",
        saves.waits["ours"],
        (copy[0], took["copy"]),
    )
    for name in peers:
        report.figure(f"{size} durable", "s", took["ours"], (name, took[name]))
        report.figure(
            f"{size}: wait in save()",
            "s",
            saves.waits["ours"],
            (name, saves.waits[name]),
        )
    slower = [max(a, b) for a, b in zip(read["send"], read["disk"])]
    report.figure(
        f"{size} restored, out of the disk",
        "s",
        read["ours"],
        ("the slower of a copy to the device and a raw read", slower),
        at_least=False,
    )
    for name in loads:
        report.figure(
            f"{size} restored, out of the disk",
            "s",
            read["ours"],
            (name, read[name]),
        )
    saves.close()


def _of_torch(report: Report, name: str, mib: int) -> None:
    import safetensors.torch as safetensors
    import torch
    import torch.distributed.checkpoint as dcp

    if not torch.cuda.is_available():
        raise ImportError(f"PyTorch {torch.__version__} does not see {name}")
    words = (mib << 20) // _LEAVES // 4
    tree = {
        f"w{i:03d}": torch.randn(words, device="cuda") for i in range(_LEAVES)
    }
    pinned = [torch.empty(words, pin_memory=True) for _ in range(2)]

    def copy() -> float:
        def work() -> None:
            for i, tensor in enumerate(tree.values()):
                pinned[i % 2].copy_(tensor, non_blocking=True)
            torch.cuda.synchronize()

        return seconds(work)

    def change() -> None:
        for tensor in tree.values():
            tensor.add_(1)
        torch.cuda.synchronize()

    def by_torch(path: str) -> Callable[[], None]:
        torch.save(tree, path)
        return lambda: None

    def by_dcp(path: str) -> Callable[[], None]:
        future = dcp.async_save(tree, checkpoint_id=path, no_dist=True)

        def wait() -> None:
            future.result()

        return wait

    def send() -> float:
        def work() -> None:
            for i, tensor in enumerate(tree.values()):
                tensor.copy_(pinned[i % 2], non_blocking=True)
            torch.cuda.synchronize()

        return seconds(work)

    saves = _Saves(report, tree, lambda _: torch.cuda.synchronize())
    _measure(
        report,
        f"{name}, PyTorch",
        saves,
        ("a plain copy into pinned memory", copy),
        change,
        {"torch.save": by_torch, "DCP, asynchronous": by_dcp},
        send,
        {
            "torch.load": saves.restored_by(
                "torch",
                lambda path: torch.save(tree, path),
                lambda path: torch.load(path, map_location="cuda"),
            ),
            "safetensors": saves.restored_by(
                "safetensors",
                lambda path: safetensors.save_file(tree, path),
                lambda path: safetensors.load_file(path, "cuda"),
            ),
        },
        mib << 20,
    )


def _of_jax(report: Report, name: str, mib: int) -> None:
    import jax
    import orbax.checkpoint as ocp

    accelerators = [d for d in jax.devices() if d.platform != "cpu"]
    if not accelerators:
        raise ImportError(f"JAX {jax.__version__} does not see {name}")
    words = (mib << 20) // _LEAVES // 4
    key = jax.random.key(7)
    with jax.default_device(accelerators[0]):
        tree = {
            f"w{i:03d}": jax.random.normal(jax.random.fold_in(key, i), (words,))
            for i in range(_LEAVES)
        }
    saves = _Saves(
        report, jax.block_until_ready(tree), jax.block_until_ready
    )
    add = jax.jit(lambda t: jax.tree.map(lambda a: a + 1, t), donate_argnums=0)

    def change() -> None:
        # Arrays of JAX keep what was once copied to the host: new ones do not.
        saves.tree = jax.block_until_ready(add(saves.tree))

    def copy() -> float:
        change()

        def work() -> None:
            for array in saves.tree.values():
                array.copy_to_host_async()
            if len(jax.device_get(saves.tree)) != _LEAVES:
                fail("the copy lacks arrays")

        return seconds(work)

    def send() -> float:
        host = jax.device_get(saves.tree)
        return seconds(
            lambda: jax.block_until_ready(
                jax.device_put(host, accelerators[0])
            )
        )

    checkpointer = ocp.AsyncCheckpointer(ocp.StandardCheckpointHandler())

    def by_orbax(path: str) -> Callable[[], None]:
        checkpointer.save(
            os.path.abspath(path), args=ocp.args.StandardSave(saves.tree)
        )
        return checkpointer.wait_until_finished

    _measure(
        report,
        f"{name}, JAX",
        saves,
        ("jax.device_get", copy),
        change,
        {"Orbax, asynchronous": by_orbax},
        send,
        {
            "Orbax": saves.restored_by(
                "orbax",
                lambda path: by_orbax(path)(),
                lambda path: checkpointer.restore(
                    os.path.abspath(path),
                    args=ocp.args.StandardRestore(saves.tree),
                ),
            )
        },
        mib << 20,
    )
