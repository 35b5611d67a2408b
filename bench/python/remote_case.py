# SPDX-License-Identifier: Apache-2.0
"""The same state in the same S3, by ckptree and by its peers, in turns. The
server is in the environment: tests/objects/servers.py starts one."""

from __future__ import annotations

import itertools
import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import ckptree
from measure import Report, Settings, fail, seconds, take_turns
from peers import Peer, there
from states import NumpyState, Tree, flat, same, tree_of

LEAF_BYTES = 16 << 20
# What boto3's own transfers have.
_THREADS = 10


class Server:
    """Where the peers find it."""

    def __init__(self) -> None:
        wanted = ("CKPTREE_TEST_S3", "CKPTREE_TEST_BUCKET", "AWS_REGION")
        lacking = [name for name in wanted if not os.environ.get(name)]
        if lacking:
            fail(f"{lacking[0]} is not set: bench/run remote starts a server")
        self.endpoint, self.bucket, self.region = (
            os.environ[name] for name in wanted
        )
        self.key = os.environ["AWS_ACCESS_KEY_ID"]
        self.secret = os.environ["AWS_SECRET_ACCESS_KEY"]
        os.environ["AWS_ENDPOINT_URL_S3"] = self.endpoint


class S3Safetensors(Peer):
    """A file in memory, as one object: multipart, ten parts at once."""

    name = "safetensors + boto3"

    def __init__(self, server: Server) -> None:
        import boto3
        import botocore.config
        import safetensors.numpy

        self._module = safetensors.numpy
        self._bucket = server.bucket
        self._client = boto3.client(
            "s3",
            endpoint_url=server.endpoint,
            config=botocore.config.Config(max_pool_connections=2 * _THREADS),
        )

    def save(self, path: str, tree: Tree) -> None:
        import io

        self._client.upload_fileobj(
            io.BytesIO(self._module.save(flat(tree))), self._bucket, path
        )

    def restore(self, path: str, like: Tree) -> Tree:
        import io

        file = io.BytesIO()
        self._client.download_fileobj(self._bucket, path, file)
        loaded = self._module.load(file.getvalue())
        return tree_of([loaded[name] for name in flat(like)])


class S3Dcp(Peer):
    """torch.distributed.checkpoint with its writer and reader of fsspec."""

    name = "DCP, fsspec"

    def __init__(self, server: Server) -> None:
        import s3fs  # noqa: F401
        import torch
        import torch.distributed.checkpoint as dcp
        from torch.distributed.checkpoint import _fsspec_filesystem

        self._torch, self._dcp, self._files = torch, dcp, _fsspec_filesystem
        self._bucket = server.bucket
        self._options = {
            "key": server.key,
            "secret": server.secret,
            "endpoint_url": server.endpoint,
        }

    def save(self, path: str, tree: Tree) -> None:
        self._dcp.save(
            {n: self._torch.from_numpy(a) for n, a in flat(tree).items()},
            storage_writer=self._files.FsspecWriter(
                f"s3://{self._bucket}/{path}", **self._options
            ),
            no_dist=True,
        )

    def restore(self, path: str, like: Tree) -> Tree:
        made = {
            name: self._torch.empty_like(self._torch.from_numpy(a))
            for name, a in flat(like).items()
        }
        self._dcp.load(
            made,
            storage_reader=self._files.FsspecReader(
                f"s3://{self._bucket}/{path}", **self._options
            ),
            no_dist=True,
        )
        return tree_of([made[name].numpy() for name in flat(like)])


class S3Icechunk(Peer):
    """Arrays of Zarr, each in one chunk, not compressed."""

    name = "Icechunk"

    def __init__(self, server: Server) -> None:
        import icechunk
        import zarr

        self._icechunk, self._zarr, self._server = icechunk, zarr, server

    def _storage(self, path: str) -> Any:
        return self._icechunk.s3_storage(
            bucket=self._server.bucket,
            prefix=path,
            region=self._server.region,
            endpoint_url=self._server.endpoint,
            allow_http=True,
            force_path_style=True,
            from_env=True,
        )

    def save(self, path: str, tree: Tree) -> None:
        repository = self._icechunk.Repository.create(self._storage(path))
        session = repository.writable_session("main")
        root = self._zarr.group(session.store, overwrite=True)

        def put(item: tuple[str, Any]) -> None:
            name, array = item
            root.create_array(
                name,
                shape=array.shape,
                chunks=array.shape,
                dtype=array.dtype,
                compressors=None,
            )[...] = array

        with ThreadPoolExecutor(_THREADS) as pool:
            list(pool.map(put, flat(tree).items()))
        session.commit("a step")

    def restore(self, path: str, like: Tree) -> Tree:
        repository = self._icechunk.Repository.open(self._storage(path))
        session = repository.readonly_session("main")
        root = self._zarr.open_group(session.store, mode="r")
        with ThreadPoolExecutor(_THREADS) as pool:
            return tree_of(
                list(pool.map(lambda name: root[name][...], flat(like)))
            )


class S3TensorStore(Peer):
    """Arrays of Zarr 3, each in one chunk, all at once."""

    name = "TensorStore"

    def __init__(self, server: Server) -> None:
        import tensorstore

        self._module, self._server = tensorstore, server

    def _spec(self, path: str, name: str) -> dict[str, Any]:
        return {
            "driver": "zarr3",
            "kvstore": {
                "driver": "s3",
                "bucket": self._server.bucket,
                "path": f"{path}/{name}/",
                "endpoint": self._server.endpoint,
                "aws_region": self._server.region,
                "aws_credentials": {"type": "environment"},
            },
        }

    def save(self, path: str, tree: Tree) -> None:
        made = {
            name: self._module.open(
                self._spec(path, name),
                create=True,
                dtype=array.dtype,
                shape=array.shape,
                chunk_layout=self._module.ChunkLayout(chunk_shape=array.shape),
            )
            for name, array in flat(tree).items()
        }
        written = [
            made[name].result().write(array)
            for name, array in flat(tree).items()
        ]
        for one in written:
            one.result()

    def restore(self, path: str, like: Tree) -> Tree:
        opened = [
            self._module.open(self._spec(path, name), open=True)
            for name in flat(like)
        ]
        read = [one.result().read() for one in opened]
        return tree_of([one.result() for one in read])


class Ckptree(Peer):
    """A store that is open, as in a run: each save is another step of it, on
    this disk and durable there. A restore opens it by its address."""

    name = "ckptree"

    def __init__(self, server: Server, settings: Settings) -> None:
        self._bucket, self._directory = server.bucket, settings.directory
        os.environ["XDG_CACHE_HOME"] = os.path.abspath(
            os.path.join(settings.directory, "cache")
        )
        self._run = f"peers-{os.getpid()}/run"
        self._store = self._open(self._run)
        self._steps: dict[str, int] = {}

    def _open(self, path: str) -> ckptree.Store:
        return ckptree.Store(
            os.path.join(self._directory, path.replace("/", "-")),
            remote=f"s3://{self._bucket}/{path}",
            durable="remote",
            coding="none",
        )

    def save(self, path: str, tree: Tree) -> None:
        self._steps[path] = len(self._steps)
        self._store.save(self._steps[path], tree)
        self._store.flush()

    def save_alone(self, path: str, tree: Tree) -> None:
        """Into a store of its own, which is made and closed for it."""
        with self._open(path) as store:
            store.save(0, tree)

    def restore(self, path: str, like: Tree) -> Tree:
        with ckptree.Store(
            f"s3://{self._bucket}/{self._run}", mode="read"
        ) as store:
            return store.restore(self._steps[path])

    def close(self) -> None:
        self._store.close()


def peers(report: Report) -> None:
    server, settings = Server(), report.settings
    mib = settings.mib or (64 if settings.quick else 256)
    state = NumpyState(max(1, (mib << 20) // LEAF_BYTES), LEAF_BYTES)
    gigabytes = state.nbytes / 1e9
    found = there(
        report,
        *(
            _named(kind, server)
            for kind in (S3Safetensors, S3Dcp, S3Icechunk, S3TensorStore)
        ),
    )
    ours = Ckptree(server, settings)
    count = itertools.count()
    last: dict[str, str] = {}
    kinds: list[Peer] = [ours, *found]

    def save(peer: Peer) -> float:
        tree = state.change(0)
        path = f"peers-{os.getpid()}/{next(count)}"
        last[peer.name] = path
        return gigabytes / seconds(lambda: peer.save(path, tree))

    def restore(peer: Peer) -> float:
        got: list[Tree] = []
        shutil.rmtree(os.environ["XDG_CACHE_HOME"], ignore_errors=True)
        took = seconds(
            lambda: got.append(peer.restore(last[peer.name], state.tree))
        )
        if not same(state.tree, got[0]):
            fail(f"{peer.name} gave other values")
        return gigabytes / took

    # A peer that cannot, with this server, is named; the others go on.
    for peer in list(kinds):
        try:
            save(peer)
            restore(peer)
        except Exception as error:  # Whatever it raises.
            if peer is ours:
                raise
            kinds.remove(peer)
            lines = [line for line in str(error).split("\n") if line.strip()]
            why = f"{type(error).__name__}: {' '.join(lines)}"
            report.skip(f"beside {peer.name}", why[:200])
    repeats = settings.repeats
    saved = take_turns(
        repeats, {peer.name: (lambda p=peer: save(p)) for peer in kinds}
    )
    alone = [
        gigabytes
        / seconds(
            lambda: ours.save_alone(
                f"peers-{os.getpid()}/{next(count)}", state.change(0)
            )
        )
        for _ in range(repeats)
    ]
    tree = state.change(0)
    for peer in kinds:
        last[peer.name] = f"peers-{os.getpid()}/{next(count)}"
        peer.save(last[peer.name], tree)
    restored = take_turns(
        repeats, {peer.name: (lambda p=peer: restore(p)) for peer in kinds}
    )
    ours.close()
    report.figure(
        f"{mib} MiB saved into a store that is made and closed for it",
        "GB/s",
        alone,
    )
    for what, figures in (
        ("saved, durable there", saved),
        ("restored from there", restored),
    ):
        for peer in kinds:
            if peer is ours:
                continue
            report.figure(
                f"{mib} MiB {what}",
                "GB/s",
                figures[ours.name],
                (peer.name, figures[peer.name]),
            )
        if len(kinds) == 1:
            report.figure(f"{mib} MiB {what}", "GB/s", figures[ours.name])


def _named(kind: Any, server: Server) -> Any:
    def make() -> Any:
        return kind(server)

    make.name = kind.name  # type: ignore[attr-defined]
    return make
