# SPDX-License-Identifier: Apache-2.0
"""store.report(): the page, from Python. report_page_test looks at it in a
browser."""

import os
import re
import resource
import stat
import subprocess

import ckptree
import numpy as np
import pytest


@pytest.fixture
def store(tmp_path):
    with ckptree.Store(tmp_path / "run") as store:
        for step in (1, 2):
            state = {"params": {"w": np.full(4, step, np.float32)}, "lr": 0.5}
            store.save(step, state, metrics={"loss": 1 / step}).result()
        yield store


def test_it_is_a_page_and_a_file(store, tmp_path):
    report = store.report()
    assert report.page.startswith("<!DOCTYPE html>")
    report.save(tmp_path / "run.html")
    assert (tmp_path / "run.html").read_text() == report.page
    assert repr(report) == "<Report of 'run'>"


def test_a_page_that_cannot_be_written_leaves_the_one_before(
    store, tmp_path
):
    report, path = store.report(), tmp_path / "run.html"
    path.write_text("before")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, before[1]))
    try:
        with pytest.raises(OSError, match="too large"):
            report.save(path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert path.read_text() == "before"
    assert sorted(os.listdir(tmp_path)) == ["run", "run.html"]
    report.save(str(path))
    assert path.read_text() == report.page


def test_a_page_where_a_link_leads_and_to_a_pipe(store, tmp_path):
    report = store.report()
    (tmp_path / "link.html").symlink_to(tmp_path / "run.html")
    report.save(tmp_path / "link.html")
    assert (tmp_path / "link.html").is_symlink()
    assert (tmp_path / "run.html").read_text() == report.page
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with (
        open(tmp_path / "read", "wb") as read,
        subprocess.Popen(["cat", pipe], stdout=read),
    ):
        report.save(pipe)
    assert (tmp_path / "read").read_text() == report.page
    assert stat.S_ISFIFO(pipe.stat().st_mode)


def test_a_notebook_shows_it_in_a_frame_of_its_own(store):
    shown = store.report()._repr_html_()
    assert re.match(r'<iframe sandbox="allow-scripts" title="run" ', shown)
    # Nothing of the page stands outside of the attribute.
    assert shown.count("<") == 2 and shown.count('srcdoc="') == 1


def test_a_reader_has_one_too(store):
    with ckptree.open(store.path) as reader:
        assert "<!DOCTYPE html>" in reader.report(keys=["params/**"]).page


@pytest.mark.parametrize(
    "arguments, error, says",
    [
        ({"branch": "nobody"}, ckptree.NotFoundError, "nobody"),
        ({"histograms": ["nobody"]}, ckptree.NotFoundError, "nobody"),
        ({"keys": ["a//b"]}, ckptree.InvalidArgumentError, "a//b"),
        ({"keys": "params"}, TypeError, "keys"),
        ({"keys": [1]}, TypeError, "keys"),
        ({"branch": 1}, TypeError, "branch"),
    ],
)
def test_what_cannot_be_is_said_by_name(store, arguments, error, says):
    with pytest.raises(error, match=re.escape(says)):
        store.report(**arguments)


def test_a_glob_that_looks_like_a_flag_is_a_glob(store):
    with pytest.raises(ckptree.NotFoundError, match="--version"):
        store.report(histograms=["--version"])


def test_a_store_without_steps_has_none(tmp_path):
    with ckptree.Store(tmp_path / "empty") as store:
        with pytest.raises(ckptree.NotFoundError, match="no steps"):
            store.report()
