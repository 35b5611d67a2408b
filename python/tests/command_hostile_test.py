# SPDX-License-Identifier: Apache-2.0
"""Names that were made to be run, to move the cursor or to end a line, through
each verb of the command: they are found by what `ls` prints, come back as they
are, and no byte of them reaches a terminal or a page as it is."""

import http.client
import json
import os
import subprocess
import sysconfig
import urllib.parse
from pathlib import Path

import ckptree
import numpy as np
import pytest

# Another build of the command than the one that is installed.
COMMAND = os.environ.get("CKPTREE_COMMAND") or (
    Path(sysconfig.get_path("scripts")) / "ckptree"
)
NAMES = {
    "line end": "a\nb",
    "only line ends": "\n\n",
    "carriage return": "a\rb",
    "tab": "a\tb",
    "colour": "\x1b[31mred\x1b[0m",
    "title of the terminal": "\x1b]0;x\x07",
    "C1": "\x9b2J",
    "delete": "\x7f\x7f",
    "backspaces": "ab\b\b",
    "nothing but a blank": " ",
    "double quotes": 'say "a" and "b"',
    "single quotes": "it's",
    "backslashes": "\\n\\x1b\\",
    "script": "</script><script>window.hacked=1</script>",
    "image": "<img src=x onerror=hacked=1>",
    "entity": "&lt;&amp;",
    "right to left": "\u202egnp.exe",
    "isolates": "\u2066x\u2069",
    "separators": "a\u2028b\u2029c",
    "no width": "a\u200bb\ufeff",
    "wide": "\u6f22\u5b57\U0001f600",
    "combining": "e" + "\u0301" * 50,
    "shell": "$(touch x); `touch x` | rm -rf / & #",
    "format": "%s%n%d",
    "option": "--help",
    "path upward": "..",
    "slash": "a/b",
    "slice": "w[0]",
    "glob": "*?[a]{b,c}",
    "pattern": "re:(",
    "step": "latest:x~1",
    "range": "1..2",
    "tag": "@x",
    "comma and equals": "a=b,c",
    "SQL": "'; drop table steps; --",
    "JSON": '{"a": [1, null]}',
    "number": "007",
    "long": "x" * 100,
}
# A step may have sixteen.
METRICS = [
    name for what, name in NAMES.items() if what not in ("long", "combining")
][:24:2] + [NAMES["SQL"]]


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    """A store of two steps whose leaves and metrics have the names."""
    path = tmp_path_factory.mktemp("hostile") / "store"
    with ckptree.Store(path) as store:
        for step in (1, 2):
            leaves = {
                name: np.array([i, step], np.float32)
                for i, name in enumerate(NAMES.values())
            }
            state = {"p": leaves}
            metrics = {f"m{name[:100]}": 0.5 for name in METRICS}
            store.save(
                step, state, metrics=metrics, note=NAMES["script"]
            ).result()
    return path


def run(*words, code=0):
    done = subprocess.run(
        [COMMAND, *map(str, words)], capture_output=True, timeout=120
    )
    assert done.returncode == code, (words, done.stderr)
    # In quotes, where it is no terminal that reads it.
    line_ends = "\r\n\t" if "csv" in words else "\n\t"
    for output in (done.stdout, done.stderr):
        text = output.decode()  # UTF-8, whatever the names are.
        assert not [
            c
            for c in text
            if (ord(c) < 32 and c not in line_ends)
            or 127 <= ord(c) < 160
            or c in "\u202e\u2066\u2069\u2028\u2029\u200b\ufeff"
        ]
    return done.stdout.decode()


def asked(*words, code=0):
    words = list(words)
    at = words.index("--") if "--" in words else len(words)
    return json.loads(run(*words[:at], "--json", *words[at:], code=code))


@pytest.fixture(scope="module")
def keys(hostile):
    """What `ls` prints for each name."""
    rows = asked("-C", hostile, "ls")["leaves"]
    assert len(rows) == len(NAMES)
    found = {}
    with ckptree.open(hostile) as store:
        for i, name in enumerate(NAMES.values()):
            texts = [
                row["key"]
                for row in rows
                if np.array_equal(store[2][row["key"]][...], [i, 2])
            ]
            assert len(texts) == 1, name
            found[name] = texts[0]
    return found


@pytest.mark.parametrize("what", NAMES)
def test_each_verb_finds_it(hostile, keys, what):
    name, at = NAMES[what], list(NAMES).index(what)
    key = keys[name]
    store = ["-C", hostile]
    got = asked(*store, "get", f"2:{key}")["leaves"]
    assert [(row["key"], row["data"]) for row in got] == [(key, [at, 2.0])]
    assert json.loads(
        run(*store, "get", f"2:{key}[1:]", "-o", "json")
    )["leaves"][0]["data"] == [2.0]
    assert asked(*store, "show", f"2:{key}")["leaves"][0]["key"] == key
    assert [r["key"] for r in asked(*store, "stat", "--", key)["arrays"]] == [
        key
    ]
    bins = asked(*store, "hist", "--bins", "2", "--", key, "1", "2")["bins"]
    assert sum(row["count.1"] for row in bins) == 2
    values = asked(*store, "history", "--", key)["values"]
    assert [row["step"] for row in values] == [2, 1]
    literal = key.replace("'", "''")
    query = f"select step, key, l2 from stats where key = '{literal}'"
    rows = asked(*store, "sql", "--", query)["rows"]
    assert [(row["step"], row["key"]) for row in rows] == [(1, key), (2, key)]
    # For people.
    run(*store, "hist", "--", key)
    run(*store, "history", "--", key)


def test_each_verb_lists_them(hostile, keys):
    store = ["-C", hostile]
    found = asked(*store, "find", "l2>=0")["found"]
    assert {row["key"] for row in found} == set(keys.values())
    changes = asked(*store, "diff", "1..2", code=1)
    assert {row["key"] for row in changes["changes"]} == set(keys.values())
    for words, code in (
        (["find", "l2>=0"], 0),
        (["diff", "1..2", "--values"], 1),
        (["blame"], 0),
        (["du", "2"], 0),
        (["log"], 0),
        (["log", "--graph", "--spark"], 0),
        (["show", "2"], 0),
        (["stat"], 0),
        (["get", "2:**"], 0),
        (["show", "2:**"], 0),
        (["sql", "select key, name from stats, metrics"], 0),
        (["verify"], 0),
        (["doctor"], 0),
    ):
        for form in ([], ["--json"], ["-o", "csv"], ["-o", "md"]):
            if form and words[0] in ("show", "get"):
                continue  # Not as tables.
            run(*store, *words, *form, code=code)


@pytest.fixture(scope="module")
def copied(hostile, tmp_path_factory):
    folder = tmp_path_factory.mktemp("copied")
    run("copy", hostile, folder / "copy")
    return folder / "copy"


def test_a_copy_has_them(copied, keys):
    rows = asked("-C", copied, "ls")["leaves"]
    assert {row["key"] for row in rows} == set(keys.values())
    run("-C", copied, "verify", "--deep")


def test_they_go_out_and_come_in(hostile, tmp_path):
    safetensors = pytest.importorskip("safetensors.numpy")
    out = tmp_path / "out.safetensors"
    run("-C", hostile, "export", 2, out)
    found = safetensors.load_file(out)
    assert {int(value[0]): name for name, value in found.items()} == {
        i: f"p.{name}" for i, name in enumerate(NAMES.values())
    }
    store = tmp_path / "store"
    run("-C", store, "import", out, "--step", 2)
    with ckptree.open(store) as opened:
        assert len(opened[2]) == len(NAMES)
    assert "no difference" in run("-C", store, "diff", "2", out)
    # Where a name is a path, nothing is written beside the folder.
    place = tmp_path / "place"
    place.mkdir()
    for form in ("npz", "npy", "raw"):
        words = ["export", 2, place / form, "--format", form,
                 "--skip", "--strip", "p"]
        run("-C", hostile, *words)
    assert {path.name for path in place.iterdir()} == {"npz", "npy", "raw"}
    with np.load(place / "npz") as arrays:
        assert "it's" in arrays.files and ".." not in arrays.files


@pytest.mark.parametrize("size", [65_536, 1_000_000])
def test_a_name_that_is_too_long_is_refused_by_its_file(tmp_path, size):
    safetensors = pytest.importorskip("safetensors.numpy")
    path = tmp_path / "long.safetensors"
    safetensors.save_file({"y" * size: np.ones(2, np.float32)}, path)
    for words in (["import", path, "--step", 1], ["ls", path]):
        done = subprocess.run(
            [COMMAND, "-C", tmp_path / "none", *map(str, words)],
            capture_output=True,
        )
        assert done.returncode == 2
        assert b"long.safetensors" in done.stderr
        assert len(done.stderr) < 1000
    assert not (tmp_path / "none").exists()


def test_a_report_has_them_as_data_alone(hostile, tmp_path):
    done = subprocess.run(
        [COMMAND, "-C", hostile, "report", "-o", tmp_path / "a.html"],
        capture_output=True,
        text=True,
    )
    if "libjs-chart.js" in done.stderr:
        pytest.skip("built without Chart.js (libjs-chart.js)")
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "a.html").read_text()
    for name in ("hacked", "\x1b", "\u202e", "drop table", "touch x"):
        assert name not in page


def test_a_server_says_them_as_data_alone(hostile):
    serving = subprocess.Popen(
        [COMMAND, "-C", hostile, "-q", "serve", "--port", "0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        address = serving.stdout.readline().strip()
        if not address:
            pytest.skip(serving.stderr.readline())
        parts = urllib.parse.urlsplit(address)
        for path in ("/", "/data", "/version", "/metrics"):
            client = http.client.HTTPConnection(parts.netloc, timeout=60)
            client.request("GET", f"{path}?{parts.query}")
            answer = client.getresponse()
            assert answer.status == 200
            body = answer.read()
            if path == "/metrics":
                lines = body.decode().split("\n")
                for line in filter(None, lines):
                    assert line.startswith(("#", "ckptree_")), line
                assert len([x for x in lines if "ckptree_metric{" in x]) == len(
                    METRICS
                )
            elif path == "/":
                assert b"hacked" not in body and b"\x1b" not in body
            client.close()
    finally:
        serving.terminate()
        assert serving.wait(60) == 143
        serving.stdout.close()
        serving.stderr.close()
