# SPDX-License-Identifier: Apache-2.0
"""Every verb's --json has the shape that its schema in tools/schemas says."""

import json
import os
import re
import subprocess
import sys
import sysconfig
from pathlib import Path

import jsonschema
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
