# SPDX-License-Identifier: Apache-2.0
"""Examples: every public name has one in its docstring, and all of them run.

The examples of a class begin what those of its methods go on with, each in a
folder of its own, `tmp`. Records are shown by the methods that return them.
"""

import doctest
import importlib
import importlib.util
import inspect
import pkgutil
import re
from pathlib import Path

import ckptree
import pytest

README = Path(__file__).parent.parent / "README.md"
HAS_TORCH = importlib.util.find_spec("torch") is not None
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
MODULES = sorted(
    module.name
    for module in pkgutil.walk_packages(ckptree.__path__, "ckptree.")
    if module.name != "ckptree._engine"
    and (HAS_TORCH or ".torch" not in module.name)
)
# Those that users import; the others are behind them.
PUBLIC_MODULES = [
    "ckptree",
    "ckptree.changes",
    "ckptree.decisions",
    "ckptree.errors",
    "ckptree.flax",
    "ckptree.adapters",
    "ckptree.policies",
    "ckptree.records",
    *(["ckptree.torch", "ckptree.torch.dcp"] if HAS_TORCH else []),
]
needs_torch = pytest.mark.skipif(
    not HAS_TORCH,
    reason="PyTorch could not be installed: see requirements_torch.txt",
)


def public_names():
    """Of modules, and what users import from them: name to thing."""
    found = {}
    for module_name in PUBLIC_MODULES:
        module = importlib.import_module(module_name)
        found[module_name] = module
        of_its_own = [
            name
            for name, thing in vars(module).items()
            if getattr(thing, "__module__", None) == module_name
        ]
        for name in getattr(module, "__all__", of_its_own):
            if not name.startswith("_"):
                thing = getattr(module, name)
                where = getattr(thing, "__module__", module_name)
                found[f"{where}.{name}"] = thing
    return found


def public_functions(module_name):
    """What such a module offers; nothing where its framework is not there."""
    if module_name not in PUBLIC_MODULES:
        return []
    module = importlib.import_module(module_name)
    return [getattr(module, name) for name in module.__all__]


def members(kind):
    """Public methods and properties that the package gives to a class, by
    where they are from."""
    for base in inspect.getmro(kind):
        if base.__module__.startswith("ckptree"):
            for name, member in vars(base).items():
                function = getattr(member, "__func__", member)
                if not name.startswith("_") and (
                    inspect.isfunction(function) or isinstance(member, property)
                ):
                    yield (
                        f"{base.__module__}.{base.__qualname__}.{name}",
                        member,
                    )


def wanted():
    """All that needs an example: name to docstring."""
    docs = {}
    for name, thing in public_names().items():
        is_record = name.startswith(("ckptree.changes.", "ckptree.records."))
        if not is_record:
            docs[name] = thing.__doc__
        if inspect.isclass(thing):
            for full_name, member in members(thing):
                # How the package itself makes a record of what the engine has.
                if not (is_record and full_name.endswith(".of")):
                    docs[full_name] = member.__doc__
    return docs


def public_classes():
    return [kind for kind in public_names().values() if inspect.isclass(kind)]


def beginning(owner):
    """The docstring that examples of a method of this class go on from."""
    heirs = [kind for kind in public_classes() if owner in inspect.getmro(kind)]
    for kind in [owner, *heirs]:
        if ">>> " in (kind.__doc__ or ""):
            return kind.__doc__
    return ""


def examples():
    """(name, what it begins with, docstring) of all docstrings with
    examples."""
    for module_name in ["ckptree", *MODULES]:
        module = importlib.import_module(module_name)
        for test in doctest.DocTestFinder().find(module, module_name):
            parts = test.name.removeprefix(module_name).split(".")[1:]
            first = ""
            if len(parts) == 2:
                first = beginning(getattr(module, parts[0]))
            if test.examples:
                marks = [needs_torch] if "torch" in test.name else []
                yield pytest.param(
                    module, first, test, id=test.name, marks=marks
                )


def run(doc, names, name):
    test = doctest.DocTestParser().get_doctest(doc, names, name, None, 0)
    test.globs = names  # Not a copy: what follows goes on from here.
    runner = doctest.DocTestRunner(optionflags=FLAGS, verbose=False)
    said = []
    result = runner.run(test, clear_globs=False, out=said.append)
    assert result.failed == 0, "".join(said)


@pytest.mark.parametrize("module, first, test", list(examples()))
def test_an_example_runs(module, first, test, tmp_path):
    names = {**vars(module), "tmp": tmp_path, "ckptree": ckptree}
    try:
        if first:
            run(first, names, "the example of its class")
        run(test.docstring, names, test.name)
    finally:
        for thing in list(names.values()):
            if isinstance(thing, (ckptree.Store, ckptree.CheckpointManager)):
                thing.close()


def test_every_public_name_has_an_example():
    docs = wanted()
    assert len(docs) > 120
    assert [
        name for name, doc in docs.items() if ">>> " not in (doc or "")
    ] == []


def test_the_examples_of_the_readme_run(tmp_path):
    text = README.read_text()
    blocks = re.findall(r"<!-- doctest -->\n```python\n(.*?)```", text, re.S)
    # The others are programs: torch_resume_test, torch_files_test, dcp_test,
    # torch_per_rank_test, torch_objects_test.
    programs = text.count("<!-- program: ")
    assert len(blocks) + programs == text.count("```python") == 13
    run("\n".join(blocks), {"tmp": tmp_path}, "README")


@pytest.mark.parametrize(
    "call",
    [
        ckptree.Store,
        ckptree.Store.save,
        ckptree.Store.restore,
        ckptree.CheckpointManager,
        ckptree.CheckpointManager.save,
        ckptree.CheckpointManager.restore,
        ckptree.Store.restore_or,
        *public_functions("ckptree.torch"),
        *(
            getattr(ckptree.policies, name)
            for name in ckptree.policies.__all__
            if name not in ("Policy", "PolicyStep")
            and inspect.isclass(getattr(ckptree.policies, name))
        ),
    ],
    ids=lambda call: call.__qualname__,
)
def test_every_option_is_documented(call):
    documented = set()
    for line in inspect.getdoc(call).splitlines():
        found = re.fullmatch(r"([\w, ]+?)( : .*)?,?", line)
        if found:
            documented |= set(re.findall(r"\w+", found[1]))
    named = set(inspect.signature(call).parameters) - {"self"}
    assert named - documented == set()
