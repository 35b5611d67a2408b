# SPDX-License-Identifier: Apache-2.0
"""Who imports whom in python/ckptree: no circle, and only arrows that are
allowed between its rooms.

Every import counts, wherever it stands: at the top of a file, in a function
and under TYPE_CHECKING. Three things are no arrows. Python itself imports the
package that a module lies in before the module. `from ckptree.x import y` is
one to the module ckptree.x.y where there is such a module, and to ckptree.x
else. And ckptree/adapters/__init__.py, which alone may load modules by their
names, loads the adapters so.
"""

import ast
import os
import re

FOLDER = "python/ckptree"
# Rooms of the package from the ground up: its modules, and the rooms that they
# may import.
ROOMS = {
    "ground": (r"_engine|_command|closing|errors|metadata|options|paths", ""),
    "arrays": (r"arrays(\..*)?", "ground"),
    "adapters": (r"adapters(\..*)?", "ground arrays"),
    "rules": (r"_rules", "ground arrays adapters"),
    "records": (
        r"changes|decisions|html|policies|records|selector|table",
        "ground arrays"),
    "restoring": (r"restoring(\..*)?", "ground arrays adapters rules"),
    "reading": (
        r"history|leaf|step", "ground arrays adapters records restoring"),
    "stores": (
        r"handle|manager|store",
        "ground arrays rules records restoring reading"),
    "face": (r"", "ground records reading stores"),
    "orbax": (
        r"orbax(\..*)?",
        "ground arrays adapters rules records restoring reading stores face"),
    "flax": (
        r"flax(\..*)?", "ground records reading stores face orbax"),
}
# Who may import a framework, or look whether somebody else has.
KNOW_FRAMEWORKS = ("adapters", "orbax", "flax")
FRAMEWORKS = ("flax", "jax", "jaxlib", "optax", "orbax", "torch")
REGISTRY = f"{FOLDER}/adapters/__init__.py"


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


def check_node(node, path, room):
  """Returns what one node says that only some rooms may say."""
  if isinstance(node, ast.Attribute) and node.attr == "modules":
    looks = isinstance(node.value, ast.Name) and node.value.id == "sys"
    if looks and room not in KNOW_FRAMEWORKS:
      return "sys.modules is for adapters and drop-ins"
  name = getattr(node, "attr", getattr(node, "id", ""))
  if name in ("import_module", "__import__") and path != REGISTRY:
    return "modules are loaded by their names in the registry of adapters"
  return None


def read(path, text, modules):
  """Returns the modules of the package that a file imports, with lines, and
  the complaints about the file alone."""
  arrows, complaints = {}, []
  room = room_of(module_of(path))
  for node in ast.walk(ast.parse(text)):
    reason = check_node(node, path, room)
    if reason:
      complaints.append(f"{path}:{node.lineno}: {reason}")
    if not isinstance(node, (ast.Import, ast.ImportFrom)):
      continue
    for target in targets(node, modules):
      where = f"{path}:{node.lineno}: imports {target}"
      if target.startswith("."):
        complaints.append(f"{where}: write the whole name")
      elif target.split(".")[0] in FRAMEWORKS:
        if room not in KNOW_FRAMEWORKS:
          complaints.append(f"{where}: only adapters and drop-ins know it")
      elif target in modules:
        arrows.setdefault(target, where)
      elif target.split(".")[0] == "ckptree":
        complaints.append(f"{where}: there is no such module")
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
    # Frameworks, and modules by their names.
    {"store.py": "def f():\n  import jax"},
    {"restoring/plain.py": "from torch import Tensor"},
    {"_rules.py": "import sys\nhere = 'jax' in sys.modules"},
    {"store.py": "import importlib\nimportlib.import_module('ckptree.flax')"},
    # What this test does not understand.
    {"store.py": "from . import step", "step.py": ""},
    {"store.py": "from ckptree.gone import Step"},
    {"extra.py": ""},
]
CLEAN = [
    {"store.py": "from ckptree import _engine\nfrom ckptree.step import Step",
     "step.py": "from ckptree.leaf import Leaf", "leaf.py": "import numpy",
     "_engine.pyi": "import numpy.typing"},
    {"adapters/__init__.py":
     "import importlib\nimportlib.import_module('ckptree.adapters.jax')\n"
     "if TYPE_CHECKING:\n  from ckptree.adapters import jax",
     "adapters/jax.py": "import jax"},
    {"__init__.py": "from ckptree.store import Store", "store.py": "",
     "orbax/args.py": "import ckptree, jax, sys\n'jax' in sys.modules",
     "flax/__init__.py": "from ckptree.orbax import args"},
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
