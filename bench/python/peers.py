# SPDX-License-Identifier: Apache-2.0
"""Peers: other ways to save the same state, all with the same face.

What each of them needs is imported where it is made: ImportError where it is
not there.
"""

from __future__ import annotations

import importlib.metadata
import os
import warnings
from typing import Any, Callable, TypeVar

from measure import Report
from states import Tree, flat, tree_of


class Peer:
    name: str

    def save(self, path: str, tree: Tree) -> None:
        """Writes `path` as the peer does; what it does not sync is the
        caller's to sync."""
        raise NotImplementedError

    def restore(self, path: str, like: Tree) -> Tree:
        """The whole state."""
        raise NotImplementedError


class Orbax(Peer):
    """As its users have it: OCDBT, zstd."""

    name = "Orbax"

    def __init__(self) -> None:
        import orbax.checkpoint as ocp

        self._checkpointer = ocp.StandardCheckpointer()

    def save(self, path: str, tree: Tree) -> None:
        self.begin(path, tree)
        self.wait()

    def begin(self, path: str, tree: Tree) -> None:
        """Returns as soon as Orbax does."""
        self._checkpointer.save(os.path.abspath(path), tree)

    def wait(self) -> None:
        self._checkpointer.wait_until_finished()

    def restore(self, path: str, like: Tree) -> Any:
        return self._checkpointer.restore(os.path.abspath(path), like)


class PlainOrbax(Peer):
    """Without compression: its fastest."""

    name = "Orbax, no compression"

    def __init__(self) -> None:
        import orbax.checkpoint as ocp

        self._ocp = ocp
        self._checkpointer = ocp.PyTreeCheckpointer(use_compression=False)

    def save(self, path: str, tree: Tree) -> None:
        self._checkpointer.save(os.path.abspath(path), tree)

    def restore(self, path: str, like: Tree) -> Any:
        wanted = self._ocp.checkpoint_utils.construct_restore_args(like)
        return self._checkpointer.restore(
            os.path.abspath(path), item=like, restore_args=wanted
        )


class Safetensors(Peer):
    name = "safetensors"

    def __init__(self) -> None:
        import safetensors.numpy

        self._module = safetensors.numpy

    def save(self, path: str, tree: Tree) -> None:
        self._module.save_file(flat(tree), path)

    def restore(self, path: str, like: Tree) -> Tree:
        return _unflat(self._module.load_file(path), like)


class TorchSafetensors(Peer):
    """Of tensors: it neither copies before it writes nor reads before it
    must."""

    name = "safetensors of torch"

    def __init__(self) -> None:
        import safetensors.torch
        import torch

        self._torch = torch
        self._module = safetensors.torch

    def save(self, path: str, tree: Tree) -> None:
        named = flat(tree)
        self._module.save_file(
            {name: self._torch.from_numpy(a) for name, a in named.items()}, path
        )

    def restore(self, path: str, like: Tree) -> Tree:
        loaded = self._module.load_file(path)
        return _unflat({name: t.numpy() for name, t in loaded.items()}, like)


class TorchSave(Peer):
    name = "torch.save"

    def __init__(self) -> None:
        import torch

        self._torch = torch

    def save(self, path: str, tree: Tree) -> None:
        named = flat(tree)
        self._torch.save(
            {name: self._torch.from_numpy(a) for name, a in named.items()}, path
        )

    def restore(self, path: str, like: Tree) -> Tree:
        loaded = self._torch.load(path, weights_only=True)
        return _unflat({name: t.numpy() for name, t in loaded.items()}, like)


class Dcp(Peer):
    """torch.distributed.checkpoint of one process, into tensors that are
    there, as its users have them."""

    name = "DCP"

    def __init__(self) -> None:
        import torch
        import torch.distributed.checkpoint as dcp

        self._torch = torch
        self._module = dcp

    def save(self, path: str, tree: Tree) -> None:
        named = flat(tree)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # That it is one process.
            self._module.save(
                {name: self._torch.from_numpy(a) for name, a in named.items()},
                checkpoint_id=path,
                no_dist=True,
            )

    def restore(self, path: str, like: Tree) -> Tree:
        made = {
            name: self._torch.empty_like(self._torch.from_numpy(a))
            for name, a in flat(like).items()
        }
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self._module.load(made, checkpoint_id=path, no_dist=True)
        return _unflat({name: t.numpy() for name, t in made.items()}, like)


class H5(Peer):
    name = "h5py"

    def __init__(self) -> None:
        import h5py

        self._module = h5py

    def save(self, path: str, tree: Tree) -> None:
        with self._module.File(path, "w") as file:
            for name, array in flat(tree).items():
                file.create_dataset(name, data=array)

    def restore(self, path: str, like: Tree) -> Tree:
        with self._module.File(path, "r") as file:
            return _unflat({name: file[name][()] for name in flat(like)}, like)


class Icechunk(Peer):
    """Arrays of Zarr in a repository in the local file system, each one chunk,
    not compressed: its fastest."""

    name = "Icechunk"

    def __init__(self) -> None:
        import icechunk
        import zarr

        self._icechunk = icechunk
        self._zarr = zarr

    def _storage(self, path: str) -> Any:
        return self._icechunk.local_filesystem_storage(os.path.abspath(path))

    def save(self, path: str, tree: Tree) -> None:
        repository = self._icechunk.Repository.open_or_create(
            self._storage(path)
        )
        session = repository.writable_session("main")
        root = self._zarr.group(session.store, overwrite=True)
        for name, array in flat(tree).items():
            made = root.create_array(
                name,
                shape=array.shape,
                chunks=array.shape,
                dtype=array.dtype,
                compressors=None,
            )
            made[...] = array
        session.commit("a step")

    def restore(self, path: str, like: Tree) -> Tree:
        repository = self._icechunk.Repository.open(self._storage(path))
        session = repository.readonly_session("main")
        root = self._zarr.open_group(session.store, mode="r")
        return _unflat({name: root[name][...] for name in flat(like)}, like)


Kind = TypeVar("Kind", bound=Peer)


def there(report: Report, *kinds: Callable[[], Kind]) -> list[Kind]:
    """Those of `kinds` that can be imported; of the others the report says
    that they were not measured."""
    found = []
    for kind in kinds:
        try:
            found.append(kind())
        except ImportError as error:
            report.skip(f"beside {getattr(kind, 'name', kind)}", str(error))
    return found


def versions() -> str:
    shown = []
    for package in (
        "orbax-checkpoint",
        "safetensors",
        "torch",
        "h5py",
        "icechunk",
        "jax",
        "numpy",
    ):
        try:
            shown.append(f"{package} {importlib.metadata.version(package)}")
        except importlib.metadata.PackageNotFoundError:
            shown.append(f"{package} NOT THERE")
    return ", ".join(shown)


def _unflat(named: dict[str, Any], like: Tree) -> Tree:
    return tree_of([named[name] for name in flat(like)])
