# SPDX-License-Identifier: Apache-2.0
"""An S3 of this process that answers like one, and can be taken away."""

import contextlib
import socket
import threading

import pytest

KEYS = {
    "AWS_ACCESS_KEY_ID": "test",
    "AWS_SECRET_ACCESS_KEY": "test",
    "AWS_REGION": "us-east-1",
}


class Server:
    """Behind a port that can be closed, with all connections of it."""

    address = "s3://bucket"

    def __init__(self):
        import moto.server

        self._moto = moto.server.ThreadedMotoServer(
            ip_address="127.0.0.1", port=0, verbose=False
        )
        self._moto.start()
        self._behind = self._moto.get_host_and_port()
        self._open = []
        self._lock = threading.Lock()
        self._port = 0
        self._listener = None
        self.start()
        self.endpoint = f"http://127.0.0.1:{self._port}"

    def start(self):
        self._listener = socket.create_server(("127.0.0.1", self._port))
        self._port = self._listener.getsockname()[1]
        threading.Thread(
            target=self._accept, args=(self._listener,), daemon=True
        ).start()

    def stop(self):
        listener, self._listener = self._listener, None
        if listener is not None:
            listener.shutdown(socket.SHUT_RDWR)
            listener.close()
        with self._lock:
            ended, self._open = self._open, []
        for end in ended:
            _end(end)

    def close(self):
        self.stop()
        self._moto.stop()

    def _accept(self, listener):
        with contextlib.suppress(OSError):
            while True:
                ends = [listener.accept()[0]]
                ends.append(socket.create_connection(self._behind))
                with self._lock:
                    self._open += ends
                if self._listener is not listener:
                    self.stop()
                for one, other in (ends, ends[::-1]):
                    threading.Thread(
                        target=_pump, args=(one, other), daemon=True
                    ).start()


def _pump(one, other):
    with one, contextlib.suppress(OSError):
        while data := one.recv(1 << 16):
            other.sendall(data)
    _end(other)


def _end(end):
    with contextlib.suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)


@contextlib.contextmanager
def served():
    """A server with a bucket, named by the environment of this process."""
    pytest.importorskip("moto.server", reason="moto is not installed")
    boto3 = pytest.importorskip("boto3", reason="boto3 is not installed")
    server = Server()
    try:
        with pytest.MonkeyPatch.context() as patch:
            for name, value in KEYS.items():
                patch.setenv(name, value)
            patch.setenv("AWS_ENDPOINT_URL_S3", server.endpoint)
            client = boto3.client(
                "s3", endpoint_url=server.endpoint, region_name="us-east-1"
            )
            client.create_bucket(Bucket="bucket")
            yield server
    finally:
        server.close()


class Folder:
    """The same of a folder that other machines see: a share that is mounted or
    not."""

    def __init__(self, path):
        path.mkdir()
        self._path = path
        self._away = path.with_name(f"{path.name}.away")
        self.address = f"file://{path}"

    def start(self):
        if self._away.exists():
            self._away.rename(self._path)

    def stop(self):
        self._path.rename(self._away)
