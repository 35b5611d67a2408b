# SPDX-License-Identifier: Apache-2.0
"""Ctrl-C beside an object store that has gone silent: it ends the read, of a
program and of the command, and nothing is the worse for it.

A program of its own each; it would end by itself after a minute."""

import http.server
import importlib.util
import os
import pathlib
import signal
import subprocess
import sys
import sysconfig
import threading

import ckptree
import numpy as np
import pytest

COMMAND = os.environ.get(
    "CKPTREE_BINARY", pathlib.Path(sysconfig.get_path("scripts")) / "ckptree"
)
ADDRESS = "s3://bucket/run"
ARRAY = np.arange(1 << 20, dtype="f4")
# Less than it would wait.
PATIENCE = 40


def _server():
    folder = pathlib.Path(__file__).parents[2] / "tests" / "objects"
    path = folder / "wrong_s3.py"
    spec = importlib.util.spec_from_file_location("wrong_s3", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.Handler


@pytest.fixture
def silent(tmp_path, monkeypatch):
    """A server that has two steps; it answers no read of a segment once it
    `is_silent`, and says that one `asked`."""

    class Handler(_server()):
        objects, lock = {}, threading.Lock()
        is_silent, asked, over = (threading.Event() for _ in range(3))

        def do_GET(self):
            if "/segment/" in self.path and self.is_silent.is_set():
                self.asked.set()
                self.over.wait()
                return self.fail(503, "SlowDown")
            return super().do_GET()

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    for name, value in {
        "AWS_ENDPOINT_URL_S3": f"http://127.0.0.1:{server.server_port}",
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
    }.items():
        monkeypatch.setenv(name, value)
    with ckptree.Store(
        tmp_path / "run", remote=ADDRESS, local_keep="latest(1)"
    ) as store:
        for step in (1, 2):
            store.save(step, {"w": ARRAY + step, "n": step}).result()
    try:
        yield Handler
    finally:
        Handler.over.set()
        server.shutdown()
        server.server_close()


def _interrupted(silent, words, **options):
    """What a program says that is interrupted once it waits, and its code."""
    silent.is_silent.set()
    with subprocess.Popen(
        words,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    ) as process:
        try:
            assert silent.asked.wait(120)
            process.send_signal(signal.SIGINT)
            _, said = process.communicate(timeout=PATIENCE)
        finally:
            process.kill()
    silent.is_silent.clear()
    silent.asked.clear()
    silent.over.set()
    return process.returncode, said


BEGIN = """
import signal, sys, ckptree
signal.signal(signal.SIGINT, signal.default_int_handler)
store = ckptree.open(sys.argv[1])
"""
READS = {
    "restore": "store.restore(1)",
    "leaf": "store[1]['w'][:4]",
    "verify": "store.verify()",
}


@pytest.mark.parametrize("read", ["restore", "leaf", "verify"])
@pytest.mark.parametrize("where", ["address", "directory"])
def test_a_program(tmp_path, silent, where, read):
    store = ADDRESS if where == "address" else str(tmp_path / "run")
    _, said = _interrupted(
        silent, [sys.executable, "-c", BEGIN + READS[read], store]
    )
    assert said.rstrip().endswith("KeyboardInterrupt"), said
    with ckptree.open(store) as again:
        assert (again[1]["w"][:] == ARRAY + 1).all()
        assert not again.verify().findings


def test_the_read_of_a_program_goes_on(tmp_path, silent):
    """After it, in the same process."""
    code = BEGIN + """
try:
    store.restore(1)
except KeyboardInterrupt:
    print("interrupted", flush=True)
input()
print((store.restore(1)["w"][:3] == [1, 2, 3]).all())
"""
    silent.is_silent.set()
    with subprocess.Popen(
        [sys.executable, "-c", code, ADDRESS],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert silent.asked.wait(120)
        process.send_signal(signal.SIGINT)
        assert process.stdout.readline() == "interrupted\n"
        silent.is_silent.clear()
        silent.over.set()
        out, _ = process.communicate("go on\n", timeout=PATIENCE)
    assert out == "True\n"


@pytest.mark.parametrize(
    "words",
    [
        ["get", "1:w[:4]"],
        ["verify"],
        ["verify", "--deep"],
        ["diff", "1", "2", "--values"],
        ["export", "1", "out.npz"],
        ["copy"],
    ],
    ids=" ".join,
)
@pytest.mark.parametrize("where", ["address", "directory"])
def test_the_command(tmp_path, silent, where, words):
    store = ADDRESS if where == "address" else str(tmp_path / "run")
    words = (
        ["copy", store, str(tmp_path / "copy")]
        if words == ["copy"]
        else ["-C", store, *words]
    )
    code, said = _interrupted(silent, [COMMAND, *words], cwd=tmp_path)
    assert code == 130, said
    assert not (tmp_path / "out.npz").exists()
    again = subprocess.run([COMMAND, *words], cwd=tmp_path, check=False)
    assert again.returncode in (0, 1)  # What differs is 1.
