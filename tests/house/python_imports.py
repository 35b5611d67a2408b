# SPDX-License-Identifier: Apache-2.0
"""Who imports whom in python/ckptree: no circle, and only arrows that are
allowed between its rooms.

Every import counts, wherever it stands: at the top of a file, in a function
and under TYPE_CHECKING. Three things are no arrows. Python itself imports the
package that a module lies in before the module. `from ckptree.x import y` is
one to the module ckptree.x.y where there is such a module, and to ckptree.x
else. And ckptree/adapters/__init__.py, which alone may load modules by their
names, loads the adapters so. `ckptree.x.y` in an expression is an arrow like an
import of it, for Python finds whatever somebody else has imported.

What nobody could read as an import is refused: other loaders, `exec`, and `sys`
under another name. Not seen: a name that is put together from text and asked of
a module by getattr().
"""

import ast
import os
import re
import sys

FOLDER = "python/ckptree"
# Rooms of the package from the ground up: its modules, and the rooms that they
# may import.
ROOMS = {
    "ground": (
        r"_engine|_command|advice|arguments|beside|closing|errors|forking|garbage|"
        r"hints|lending|logs|metadata|options|paths|progress",
        ""),
    "arrays": (r"arrays(\..*)?", "ground"),
    "adapters": (r"adapters(\..*)?", "ground arrays"),
    "rules": (r"_rules", "ground arrays adapters"),
    "ranks": (r"ranks", "ground adapters"),
    "records": (
        r"changes|decisions|html|plots|policies|policy_argument|policy_step|"
        r"records|report|selector|table",
        "ground arrays"),
    "restoring": (
        r"restoring(\..*)?", "ground arrays adapters records rules"),
    "reading": (
        r"history|leaf|leaves|step|view",
        "ground arrays adapters records restoring"),
    "stores": (
        r"catalog|comparing|forks|handle|holding|manager|manager_reading|removing|"
        r"sharing|store|stores|unmeasured|upkeep",
        "ground arrays rules ranks records restoring reading"),
    "face": (r"", "ground ranks records reading stores"),
    "orbax": (
        r"orbax(\..*)?",
        "ground arrays adapters rules records restoring reading stores face"),
    "flax": (
        r"flax(\..*)?", "ground records reading stores face orbax"),
    "torch": (
        r"torch(\..*)?",
        "ground arrays adapters rules ranks records restoring reading stores "
        "face"),
}
# Who may import a framework, or look whether somebody else has.
KNOW_FRAMEWORKS = ("adapters", "orbax", "flax", "torch")
# All else that each room may import; a name without rooms is for all of them.
OUTSIDE = {
    "numpy": None,
    "typing_extensions": None,
    "matplotlib": ("records",),  # Where a plot is asked for.
    "ml_dtypes": ("arrays",),
    "flax": KNOW_FRAMEWORKS,
    "jax": KNOW_FRAMEWORKS,
    "msgpack": ("orbax",),
    "tensorstore": ("orbax",),  # Orbax's, asked which types it knows.
    "orbax": ("orbax",),
    "pandas": ("records",),  # Where a frame is asked for.
    "safetensors": ("orbax", "torch"),  # Where such a file is read.
    "tqdm": ("ground",),  # Where a bar is asked for.
    "torch": KNOW_FRAMEWORKS,
}
# What loads modules by their names.
LOADERS = ("builtins", "imp", "importlib", "pkgutil", "pydoc", "runpy",
           "zipimport")
LOADING = ("__builtins__", "__import__", "__loader__", "__spec__", "eval",
           "exec", "exec_module", "import_module", "load_module")
OF_SYS = ("__dict__", "meta_path", "modules", "path_hooks",
          "path_importer_cache")
REGISTRY = f"{FOLDER}/adapters/__init__.py"
# Looks whether anybody has imported logging, which it does only where there is
# something to say.
LOGS = f"{FOLDER}/logs.py"
# Who asks for what is half imported by its name.
FORKING = f"{FOLDER}/forking.py"


def module_of(path):
  """Returns the name of the module in the file `path`."""
  name = path[len("python/"):].rsplit(".", 1)[0].replace("/", ".")
  return re.sub(r"\.__init__$", "", name)


def room_of(module):
  inside = module.partition(".")[2]
  for room, (pattern, _) in ROOMS.items():
    if re.fullmatch(pattern, inside):
      return room
  return None


def targets(node, modules):
  """Yields what an import statement imports, as whole names."""
  if isinstance(node, ast.Import):
    for alias in node.names:
      yield alias.name
  elif node.level:
    yield "." * node.level + (node.module or "")
  else:
    for alias in node.names:
      inner = f"{node.module}.{alias.name}"
      yield inner if inner in modules else node.module


def chain(node):
  """Returns `ckptree.x.y` for the attribute of that name, or None."""
  names = []
  while isinstance(node, ast.Attribute):
    names.append(node.attr)
    node = node.value
  if not isinstance(node, ast.Name):
    return None
  return ".".join([node.id, *reversed(names)])


def check_node(node, path, room):
  """Returns what one node says that only some rooms may say."""
  if isinstance(node, ast.Attribute) and chain(node) in [
      f"sys.{name}" for name in OF_SYS]:
    if node.attr != "modules":
      return f"sys.{node.attr} is for nobody here"
    if room not in KNOW_FRAMEWORKS and path not in (LOGS, FORKING):
      return "sys.modules is for adapters and drop-ins"
  if isinstance(node, ast.Attribute) and node.attr == "sys":
    return "sys is imported by its name"
  name = getattr(node, "attr", getattr(node, "id", ""))
  if name in LOADING and path not in (REGISTRY, FORKING):
    return "modules are loaded by their names in the registry of adapters"
  return None


def nodes_of(tree):
  """Yields all nodes, those of annotations that are written as text, too."""
  for node in ast.walk(tree):
    yield node
    for field in ("annotation", "returns"):
      for inner in ast.walk(getattr(node, field, None) or ast.Pass()):
        if isinstance(inner, ast.Constant) and isinstance(inner.value, str):
          try:
            parsed = ast.parse(inner.value, mode="eval")
          except SyntaxError:
            continue  # Literal["a word or two"]
          for found in ast.walk(parsed):
            yield ast.copy_location(found, inner)


def bare_names(tree, names):
  """Yields each use of a module in `names` that asks for none of its
  attributes: it is passed on, or gets another name. `type(sys)` does not."""
  within = set()
  for node in ast.walk(tree):
    if isinstance(node, ast.Attribute):
      within.add(id(node.value))
    elif isinstance(node, ast.Call) and chain(node.func) == "type":
      within |= {id(argument) for argument in node.args}
  for node in ast.walk(tree):
    if isinstance(node, ast.Name) and node.id in names and \
        id(node) not in within:
      yield node


def check_outside(target, path, room):
  """Returns why `path` may not import the module `target` of others."""
  top = target.split(".")[0]
  if top in LOADERS:
    return None if path in (REGISTRY, FORKING) else \
        "modules are loaded by their names in the registry of adapters"
  if top in sys.stdlib_module_names:
    return None
  if top not in OUTSIDE:
    return "this library is not known here; see tests/house"
  if OUTSIDE[top] is not None and room not in OUTSIDE[top]:
    return f"only {', '.join(OUTSIDE[top])} may know it"
  return None


def check_names(node):
  """Returns why an import may not give the names that it gives, or None."""
  if isinstance(node, ast.Import):
    for alias in node.names:
      if alias.asname and alias.name in ("sys", "importlib", "ckptree"):
        return f"{alias.name} has no other name here"
  elif any(alias.name in ("sys", "importlib") for alias in node.names):
    return "a module of Python is imported by its name"
  elif node.module == "sys" and {a.name for a in node.names} & {*OF_SYS, "*"}:
    return "write sys.modules"
  return None


def read(path, text, modules):
  """Returns the modules of the package that a file imports, with lines, and
  the complaints about the file alone."""
  arrows, complaints = {}, []
  room = room_of(module_of(path))
  tree = ast.parse(text)
  for node in nodes_of(tree):
    reason = check_node(node, path, room)
    if reason:
      complaints.append(f"{path}:{node.lineno}: {reason}")
    if isinstance(node, ast.Attribute):
      name = chain(node) or ""
      if name.startswith("ckptree."):
        while name not in modules and "." in name:
          name = name.rpartition(".")[0]
        arrows.setdefault(name, f"{path}:{node.lineno}: names {name}")
    if not isinstance(node, (ast.Import, ast.ImportFrom)):
      continue
    reason = check_names(node)
    if reason:
      complaints.append(f"{path}:{node.lineno}: {reason}")
    for target in targets(node, modules):
      where = f"{path}:{node.lineno}: imports {target}"
      if target.startswith("."):
        complaints.append(f"{where}: write the whole name")
      elif target in modules:
        arrows.setdefault(target, where)
      elif target.split(".")[0] == "ckptree":
        complaints.append(f"{where}: there is no such module")
      else:
        reason = check_outside(target, path, room)
        if reason:
          complaints.append(f"{where}: {reason}")
  complaints += [
      f"{path}:{node.lineno}: {node.id} without an attribute of it"
      for node in bare_names(tree, ("ckptree", "sys", "importlib"))]
  return arrows, complaints


def circles(graph):
  """Returns the circles of a graph: lists of nodes, each of which reaches all
  of its list."""
  def reached(start):
    seen, todo = set(), [start]
    while todo:
      for node in graph.get(todo.pop(), ()):
        if node not in seen:
          seen.add(node)
          todo.append(node)
    return seen

  reach = {node: reached(node) for node in graph}
  found = {
      tuple(sorted(other for other in reach[node]
                   if node in reach.get(other, ())))
      for node in graph if node in reach[node]}
  return sorted(map(list, found))


def check(files):
  """Returns the complaints about `files`: texts by their paths."""
  modules = {module_of(path) for path in files}
  graph, complaints = {}, []
  for path, text in sorted(files.items()):
    module = module_of(path)
    room = room_of(module)
    if room is None:
      complaints.append(f"{path}: in no room; see tests/house")
      continue
    arrows, wrong = read(path, text, modules)
    complaints += wrong
    graph[module] = set(arrows) - {module}
    allowed = {room, *ROOMS[room][1].split()}
    complaints += [
        f"{where}: no arrow from {room} to {room_of(target)}"
        for target, where in sorted(arrows.items())
        if room_of(target) not in allowed]
  complaints += [
      "a circle of imports: " + ", ".join(circle) for circle in circles(graph)]
  return complaints


def files_below(root):
  """Returns the texts of the package by their paths below `root`."""
  found = {}
  for parent, folders, names in os.walk(os.path.join(root, FOLDER)):
    folders[:] = sorted(f for f in folders if f != "__pycache__")
    for name in sorted(names):
      if name.endswith((".py", ".pyi")):
        full = os.path.join(parent, name)
        with open(full, encoding="utf-8") as file:
          found[os.path.relpath(full, root)] = file.read()
  return found


def documentation_lines(text):
  """Returns how many lines of a Python file are docstrings of what it
  defines."""
  count = 0
  for node in ast.walk(ast.parse(text)):
    if isinstance(node, (ast.ClassDef, ast.FunctionDef)):
      first = node.body[0]
      if ast.get_docstring(node) is not None:
        count += first.end_lineno - first.lineno + 1
  return count


# Each tree is more than one file, by what follows FOLDER.
PLANTED = [
    # Circles: at the top, in functions, under TYPE_CHECKING, over three files,
    # between a package and what lies in it.
    {"step.py": "from ckptree import leaf", "leaf.py": "import ckptree.step"},
    {"step.py": "def f():\n  from ckptree.leaf import Leaf",
     "leaf.py": "def f():\n  from ckptree import step"},
    {"step.py": "from ckptree.leaf import Leaf",
     "leaf.py": "if TYPE_CHECKING:\n  from ckptree.step import Step"},
    {"step.py": "import ckptree.leaf", "leaf.py": "import ckptree.history",
     "history.py": "import ckptree.step"},
    {"orbax/__init__.py": "from ckptree.orbax import args",
     "orbax/args.py": "from ckptree.orbax import Composite"},
    # Arrows that run up.
    {"arrays/values.py": "from ckptree import records", "records.py": ""},
    {"adapters/jax.py": "from ckptree import _rules", "_rules.py": ""},
    {"_rules.py": "from ckptree.restoring import plain",
     "restoring/__init__.py": "", "restoring/plain.py": ""},
    {"records.py": "if TYPE_CHECKING:\n  from ckptree.step import Step",
     "step.py": ""},
    {"step.py": "def f():\n  from ckptree.store import open",
     "store.py": ""},
    {"manager.py": "import ckptree", "__init__.py": ""},
    {"__init__.py": "from ckptree import orbax", "orbax/__init__.py": ""},
    {"orbax/args.py": "import ckptree.flax", "flax/__init__.py": ""},
    {"store.py": "def f():\n  import ckptree.torch", "torch/__init__.py": ""},
    {"adapters/torch.py": "from ckptree.torch import save",
     "torch/__init__.py": ""},
    {"torch/__init__.py": "from ckptree.orbax import args",
     "orbax/__init__.py": "", "orbax/args.py": ""},
    # Frameworks, and modules by their names.
    {"store.py": "def f():\n  import jax"},
    {"restoring/plain.py": "from torch import Tensor"},
    {"_rules.py": "import sys\nhere = 'jax' in sys.modules"},
    {"store.py": "import importlib\nimportlib.import_module('ckptree.flax')"},
    {"store.py": "from importlib import import_module as load"},
    {"store.py": "import importlib\ngetattr(importlib, 'import_' + 'module')"},
    {"store.py": "import importlib.util as u\nu.find_spec('ckptree.flax')"},
    {"adapters/__init__.py": "import importlib as i\ni.reload"},
    {"adapters/__init__.py": "import importlib\nf(importlib)"},
    {"store.py": "exec('import jax')"},
    {"store.py": "x = eval"},
    {"store.py": "__builtins__['__import__']('jax')"},
    {"store.py": "import builtins\ngetattr(builtins, '__imp' + 'ort__')"},
    {"store.py": "import pkgutil\npkgutil.resolve_name('ckptree.flax:f')"},
    {"store.py": "import runpy\nrunpy.run_module('ckptree.flax')"},
    {"store.py": "import pydoc\npydoc.locate('ckptree.flax.f')"},
    {"store.py": "from ckptree import _engine\n_engine.__loader__"},
    {"store.py": "from sys import modules\nmodules['jax']"},
    {"store.py": "from sys import *"},
    {"store.py": "import sys as s\ns.modules['jax']"},
    {"store.py": "import sys\nvars(sys)['modules']"},
    {"store.py": "import sys\nsys.__dict__['modules']"},
    {"store.py": "import sys\ns = sys"},
    {"store.py": "import os\nos.sys.modules['jax']"},
    {"store.py": "from os import sys"},
    {"orbax/args.py": "import ckptree\nvars(ckptree)['flax']",
     "__init__.py": ""},
    {"orbax/args.py": "import sys\nsys.meta_path.append(f)"},
    {"store.py": "import tensorflow"},
    {"orbax/args.py": "import pandas"},
    {"restoring/plain.py": "import ml_dtypes"},
    {"flax/__init__.py": "import orbax.checkpoint"},
    # Names that somebody else has imported.
    {"records.py": "import ckptree.paths\nx = ckptree.store.Store",
     "paths.py": "", "store.py": ""},
    {"records.py": "import ckptree.paths\ndef f():\n  return ckptree.Store",
     "paths.py": "", "__init__.py": ""},
    {"records.py": "import ckptree.paths\nx: 'ckptree.store.Store'",
     "paths.py": "", "store.py": ""},
    {"records.py": "def f() -> 'list[ckptree.store.Store]':\n  pass",
     "store.py": ""},
    {"orbax/args.py": "import ckptree as c\nc.flax.checkpoints",
     "__init__.py": ""},
    {"records.py": "from ckptree.store import *", "store.py": ""},
    # What this test does not understand.
    {"store.py": "from . import step", "step.py": ""},
    {"store.py": "from ckptree.gone import Step"},
    {"extra.py": ""},
]
CLEAN = [
    {"store.py": "from ckptree import _engine\nfrom ckptree.step import Step",
     "step.py": "from ckptree.leaf import Leaf", "leaf.py": "import numpy",
     "_engine.pyi": "import numpy.typing"},
    {"arrays/dtypes.py":
     "import re, sys, ml_dtypes\nfrom sys import byteorder\n"
     "re.compile('x')\nsys.platform\ntype(sys)"},
    {"adapters/__init__.py":
     "import importlib\nimportlib.import_module('ckptree.adapters.jax')\n"
     "if TYPE_CHECKING:\n  from ckptree.adapters import jax",
     "adapters/jax.py": "import jax"},
    {"__init__.py": "from ckptree.store import Store", "store.py": "",
     "orbax/args.py": "import ckptree, jax, sys\n'jax' in sys.modules\n"
     "x: ckptree.Store = ckptree.store.open()",
     "flax/__init__.py": "from ckptree.orbax import args"},
    {"torch/__init__.py": "import torch\nfrom ckptree import _rules\n"
     "from ckptree.store import Store", "_rules.py": "", "store.py": ""},
]


def self_test():
  """Returns what check() would fail to notice, or wrongly notices."""
  faults = []
  for tree in PLANTED + CLEAN:
    files = {f"{FOLDER}/{name}": text for name, text in tree.items()}
    complaints = check(files)
    if tree in PLANTED and not complaints:
      faults.append(f"planted and not found: {tree}")
    if tree in CLEAN:
      faults += [f"wrongly found: {line}" for line in complaints]
  if documentation_lines('class A:\n  """B\n\n  C\n  """\n') != 4:
    faults.append("lines of docstrings are not counted")
  return faults
