# SPDX-License-Identifier: Apache-2.0
"""The short examples: each runs, is stopped, and goes on where it was."""

import ast
import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import ckptree
import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"


def run(name, *arguments):
    return subprocess.run(
        [sys.executable, EXAMPLES / name, *map(str, arguments)],
        capture_output=True,
        text=True,
        check=True,
    ).stdout


@pytest.mark.parametrize(
    "name, needed",
    [
        ("numpy_loop.py", "numpy"),
        ("torch_loop.py", "torch"),
        ("linen_loop.py", "flax"),
    ],
)
def test_a_loop_goes_on_where_it_was(tmp_path, name, needed):
    if importlib.util.find_spec(needed) is None:
        pytest.skip(f"{needed} is not installed")
    parts, whole = tmp_path / "parts", tmp_path / "whole"
    assert run(name, parts, 7) == "begins at step 0\n"
    assert run(name, parts, 20) == "begins at step 7\n"
    run(name, whole, 20)
    with ckptree.open(parts) as a, ckptree.open(whole) as b:
        assert a.step_info().step == b.step_info().step == 19
        assert a.step_info().digest == b.step_info().digest
        assert a.step_info().metrics == b.step_info().metrics


def test_a_sweep_has_branches_that_share_bytes(tmp_path):
    said = run("sweep.py", tmp_path / "s")
    assert said.endswith("the best is middle\n")
    # Again: nothing is left to do, and nothing is lost.
    assert run("sweep.py", tmp_path / "s") == said
    with ckptree.open(tmp_path / "s") as store:
        assert len(store) == 10
        assert [b.name for b in store.branches()] == [
            *("", "small", "middle", "large")
        ]
        assert len(store.steps("small")) == 20
        # What never changes is that of the first step.
        for branch in ("small", "middle", "large"):
            assert store[f"{branch}/latest"]["target"].since_step == 0
            assert store[f"{branch}/latest"].info.new_bytes < 16000


def test_every_cell_of_the_notebook_runs(tmp_path):
    run("numpy_loop.py", tmp_path / "s", 60)
    cells = json.loads((EXAMPLES / "looking.ipynb").read_text())["cells"]
    names = {"path": str(tmp_path / "s")}
    shown = []
    for cell in cells:
        if cell["cell_type"] != "code":
            continue
        assert not cell["outputs"]
        program = ast.parse("".join(cell["source"]))
        last = program.body[-1]
        exec(compile(ast.Module(program.body[:-1], []), "cell", "exec"), names)
        if isinstance(last, ast.Expr):
            shows = ast.Expression(last.value)
            value = eval(compile(shows, "cell", "eval"), names)
            if hasattr(value, "_repr_html_"):
                assert "<table>" in value._repr_html_()
            shown.append(value)
    assert len(shown) == 8
    assert shown[1]["loss"] < 0.1 and shown[3].shape == (2,)
    assert names["run"].closed
