# SPDX-License-Identifier: Apache-2.0
"""store.report(): the page, from Python. report_page_test looks at it in a
browser."""

import re

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
