# SPDX-License-Identifier: Apache-2.0
"""Every verb's --json has the shape that its schema in tools/schemas says."""

import json
import os
import re
import subprocess
import sys
import sysconfig
from pathlib import Path

import ckptree
import jsonschema
import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "tools"))
from command_documents import DOCUMENTS  # noqa: E402

SCHEMAS = ROOT / "tools" / "schemas"
# Another build of the command, as of a tree that is being worked on.
COMMAND = os.environ.get(
    "CKPTREE_BINARY", Path(sysconfig.get_path("scripts")) / "ckptree"
)


def run(*words):
    return subprocess.run([COMMAND, *words], capture_output=True, text=True)


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    store = tmp_path_factory.mktemp("demo") / "store"
    assert run("demo", str(store)).returncode == 0
    return store


def schema_of(name):
    return json.loads((SCHEMAS / f"{name}.json").read_text())


@pytest.mark.parametrize("name", sorted(DOCUMENTS))
def test_documents_have_their_shape(demo, tmp_path, name):
    schema = schema_of(name)
    jsonschema.Draft202012Validator.check_schema(schema)
    check = jsonschema.Draft202012Validator(schema)
    file = tmp_path / "file.safetensors"
    assert run("-C", demo, "export", "latest:params", file).returncode == 0
    places = {"STORE": demo, "NEW": tmp_path / "new", "FILE": file}
    for words in DOCUMENTS[name]:
        words = [str(places.get(word, word)) for word in words]
        words = [word.replace("FILE:", f"{file}:") for word in words]
        # `copy` is told both of its stores.
        store = [] if words[0] == "copy" else ["-C", str(demo)]
        done = run(*store, *words, "--json")
        assert done.returncode in (0, 1), done.stderr
        document = json.loads(done.stdout)  # One document, whatever is asked.
        check.validate(document)
        assert document["schema"] == schema["$id"]


def test_rows_are_as_the_whole_document_says(demo):
    """What --columns leaves is what would be there without."""
    for words in DOCUMENTS["rows"]:
        at = words.index("--columns")
        if words[0] in ("import", "verify"):
            continue  # Changes something; has no rows.
        cut, whole = (
            json.loads(run("-C", str(demo), *said, "--json").stdout)
            for said in (words, words[:at] + words[at + 2 :])
        )
        assert cut["of"] == whole["schema"]
        assert cut["columns"] == words[at + 1].split(",")
        (name,) = [k for k, v in whole.items() if k in cut and type(v) is list]
        schema = next(
            schema_of(path.stem)
            for path in SCHEMAS.glob("*.json")
            if schema_of(path.stem)["$id"] == cut["of"]
        )
        known = schema["properties"][name]["items"]["properties"]
        assert len(cut[name]) == len(whole[name]) > 0
        for row, full in zip(cut[name], whole[name]):
            assert list(row) == cut["columns"]
            for column, value in row.items():
                if column in full:
                    assert value == full[column]
                if column in known:
                    jsonschema.validate(value, known[column])


def check_lines(lines):
    """Each is a row of the document of `log`, and nothing else."""
    rows = schema_of("log")["properties"]["steps"]
    found = [json.loads(line) for line in lines]
    jsonschema.Draft202012Validator(rows).validate(found)
    return found


def test_lines_of_a_log_that_follows(demo):
    words = ["log", "-f", "--until", "2000", "-n", "20"]
    for form in (["--json"], ["-o", "ndjson"]):
        done = run("-C", demo, *words, *form)
        assert done.returncode == 0, done.stderr
        found = check_lines(done.stdout.splitlines())
        whole = json.loads(run("-C", demo, "log", "--json").stdout)["steps"]
        assert found == whole[::-1]
    done = run("-C", demo, *words, "--json", "--columns", "step,loss,tags")
    assert [list(json.loads(line)) for line in done.stdout.splitlines()] == [
        ["step", "loss", "tags"]
    ] * 20


def test_lines_of_steps_that_come_while_it_follows(tmp_path):
    """Metrics that no step had before, NaN among them, and an alert whose
    program prints: each line is an object of the same shape."""
    path = tmp_path / "store"
    state = {"w": np.zeros(3, np.float32)}
    with ckptree.Store(path) as store:
        store.save(1, state, metrics={"loss": 0.5}).result()
        words = ["-C", path, "log", "-f", "--json", "--until", "4"]
        words += ["--alert", "loss>10", "--exec", "echo noise"]
        with subprocess.Popen(
            [COMMAND, *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as follow:
            first = follow.stdout.readline()
            store.save(2, state, metrics={"loss": 20.0, "acc": 1.0}).result()
            state["w"][1] = np.nan
            store.save(3, state, metrics={"loss": float("nan")}).result()
            store.save(4, state, metrics={}, note="two\nlines").result()
            rest, said = follow.communicate()
    assert follow.returncode == 0, said
    found = check_lines([first, *rest.splitlines()])
    assert [row["step"] for row in found] == [1, 2, 3, 4]
    assert [row["metrics"] for row in found] == [
        {"loss": 0.5}, {"loss": 20.0, "acc": 1.0}, {"loss": "NaN"}, {}
    ]
    assert found[2]["nan"] == 1 and found[3]["note"] == "two\nlines"
    assert "alert: step 2: loss>10" in said and "noise" in said


def test_each_has_one_that_help_lists():
    ids = {schema_of(path.stem)["$id"] for path in SCHEMAS.glob("*.json")}
    help_text = run("help", "json").stdout
    listed = set(re.findall(r"^(ckptree\.\S+)", help_text, re.M))
    assert ids == listed
    assert {path.stem for path in SCHEMAS.glob("*.json")} == set(DOCUMENTS)


def test_each_verb_with_json_has_one():
    verbs = re.findall(r"^  ([a-z]+)  ", run("help").stdout, re.M)
    assert len(verbs) > 20
    tried = {words[0] for lines in DOCUMENTS.values() for words in lines}
    for verb in verbs:
        if re.search(r"--json\b", run("help", verb).stdout):
            assert verb in tried, f"ckptree {verb} --json has no schema"


def test_a_document_of_another_shape_is_refused(demo):
    document = json.loads(run("-C", str(demo), "log", "--json").stdout)
    document["steps"][0]["more"] = 1
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(document, schema_of("log"))
    del document["steps"][0]["more"], document["steps"][0]["step"]
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(document, schema_of("log"))
