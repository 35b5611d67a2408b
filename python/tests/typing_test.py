"""The types that are promised: stubs, mypy, docstrings and their examples."""

import doctest
import importlib
import inspect
import pkgutil
import re
import subprocess
import sys
from pathlib import Path

import ckptree
import pytest

SOURCES = Path(__file__).parent.parent
MODULES = sorted(
    module.name
    for module in pkgutil.iter_modules(ckptree.__path__, "ckptree.")
    if module.name != "ckptree._engine"
)


def test_the_stubs_are_those_of_the_extension(tmp_path):
    made = tmp_path / "_engine.pyi"
    command = [sys.executable, "-m", "nanobind.stubgen", "-q"]
    command += ["--exclude-values", "-m", "ckptree._engine", "-o", str(made)]
    subprocess.run(command, check=True, cwd=tmp_path)
    committed = SOURCES / "ckptree" / "_engine.pyi"
    assert made.read_text() == committed.read_text(), (
        "write the stubs anew, in python/: " + " ".join(command[1:-1])
        + " ckptree/_engine.pyi"
    )


def test_mypy_is_content(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--cache-dir", str(tmp_path)],
        cwd=SOURCES,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert (SOURCES / "ckptree" / "py.typed").exists()


@pytest.mark.parametrize("name", ["ckptree", *MODULES])
def test_the_examples_run(name, tmp_path):
    module = importlib.import_module(name)
    finder = doctest.DocTestFinder(exclude_empty=True)
    runner = doctest.DocTestRunner(
        optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    )
    for i, test in enumerate(finder.find(module, name)):
        here = tmp_path / str(i)
        here.mkdir()
        test.globs["tmp"] = here
        runner.run(test)
    assert runner.summarize(verbose=False).failed == 0


def test_the_examples_of_the_readme_run(tmp_path):
    text = (SOURCES / "README.md").read_text()
    blocks = re.findall(r"<!-- doctest -->\n```python\n(.*?)```", text, re.S)
    assert len(blocks) == text.count("```python") == 3
    names = {"tmp": tmp_path}
    parser = doctest.DocTestParser()
    test = parser.get_doctest("\n".join(blocks), names, "README", None, 0)
    flags = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
    runner = doctest.DocTestRunner(optionflags=flags)
    runner.run(test)
    assert runner.summarize(verbose=False).failed == 0


def test_every_public_name_says_what_it_is():
    for name in ckptree.__all__:
        thing = getattr(ckptree, name)
        if not name.startswith("__"):
            assert inspect.getdoc(thing), name
    for kind in (
        ckptree.Store,
        ckptree.Step,
        ckptree.SaveHandle,
        ckptree.Leaf,
        ckptree.CheckpointManager,
        ckptree.policies,
    ):
        assert ">>> " in (inspect.getdoc(kind) or ""), kind


def test_there_is_an_example_at_all():
    assert len(MODULES) > 10
