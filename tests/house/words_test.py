#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Reads every text file of the tree for four things.

phrases    Comments, messages, docstrings and pages have none of the phrases in
           PHRASES, which are no plain English.
citations  What a text names is there: pages (`foo/bar.md`), sections of
           FORMAT.md, files and folders of the repository, and the targets and
           anchors of links in pages. Numbers of lists that are not in the
           repository (D12, part 8.11) are never named.
columns    No line of code, comment or script is longer than 80 columns. Pages
           may have longer ones. So may a line with a URL or a `type: ignore`, a
           line without a space to break it at, a stub that is generated, and
           the data of tests.
licences   The first comment line of each source file and script, after a
           shebang, is SPDX-License-Identifier: Apache-2.0.

Run it with paths to read these files only. The exit code is 1 where something
was found, or where something that is planted was not.
"""

import os
import re
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import prose

ROOT = Path(__file__).resolve().parents[2]

# Rules whose findings are printed, and do not fail the test yet.
REPORT_ONLY: set[str] = set()

COLUMNS = 80
LICENCE = "SPDX-License-Identifier: Apache-2.0"
UNBREAKABLE = re.compile(r"https?://|  # type: ignore|^\s*\S+$")

# (pattern, what to write instead). Passages are one line when they are matched.
PHRASES = [
    (r"\b(?:is|are|was|were) (?:not )?wanted\b",
     "say who needs it, or what it must be"),
    (r"\b(?:has|have|had) not(?= (?:an?|the|all|any|its|their|enough|one|of)\b"
     r"|\s*[:;.,)]|\s*$)", "does not have"),
    (r"\bof the store's(?=\s*(?:[.,;:)]|$))", "of the store"),
    (r"(?<!\bas \w{3} )(?<!\bas \w{4} )(?<!\bas \w{5} )\bas that"
     r"(?=\s*(?:[.,;:)]|$))", "like that"),
    (r"\bfor who\b(?! in\b)", "for the one that"),
    (r"\bbesides\b", "also, in addition, apart from"),
    (r"\bmeanwhile\b", "in the meantime, since then, until then"),
    # "there is none" is English; "the key is none" is not.
    (r"(?<!\bthere )\b(?:is|are) none\b(?! of the)", "is not one"),
]
# Names of rules in this file and in the tests of it.
QUOTES_THEM = {"tests/house/words_test.py"}

ROOMS = ("base|bench|core|kv|python|schema|scripts|tests|tools")
PAGE = re.compile(
    r"(?<![\w./*-])((?:\.\./)*(?:[\w*][\w.*-]*/)*[\w*-]+\.md)\b(?!/)")
PLACE = re.compile(
    r"(?<![\w./*$-])((?:" + ROOMS + r")/[\w./*-]*[\w*/])(?![\w$<{])")
NUMBERED = re.compile(
    r"\((?:D\d{1,2}(?:, )?)+\)|,? \bD\d{1,2}$|\bpart \d+\.\d+|"
    r"\bDESIGN\b|(?<![\w/])shared/[a-z]+/")
SECTION = re.compile(r"\bFORMAT(?:\.md)?`?,? (section |part |)(\d+)\b")
LINK = re.compile(r"\[[^\]\[]*\]\(([^()\s]+)\)")
CODE = re.compile(r"(`+)(?:(?!\1).)*?\1")
# Built, or made by a tool: not in the repository.
MADE = re.compile(r".*\.pb\.h$|build/|.*\.so$")


class Finding(NamedTuple):
  rule: str
  where: str
  what: str


def as_staged(path: str) -> str:
  """Returns where a page stands for its links: scripts/site/stage.py copies
  some pages to the root of the site."""
  return path.removeprefix("scripts/site/pages/")


class Tree:
  """The files of the repository, as the citations name them."""

  def __init__(self, root: Path, files: list[str]) -> None:
    self.root = root
    self.files = set(files)
    self.folders = {
        parent.as_posix() for path in files for parent in Path(path).parents}
    self.names = {Path(path).name for path in files}
    self.anchors: dict[str, set[str]] = {}

  def has(self, path: str) -> bool:
    """Returns whether `path`, below the root, names a file or a folder."""
    path = path.rstrip("/")
    if path in self.files or path in self.folders or MADE.match(path):
      return True
    if "*" in path:
      pattern = re.compile(
          re.escape(path).replace(r"\*\*", ".*").replace(r"\*", "[^/]*") + "$")
      return any(map(pattern.match, self.files | self.folders))
    # `kv/rocks/instance` is instance.h and instance.cc.
    return any(path + suffix in self.files for suffix in (".h", ".cc", ".py"))

  def finds(self, path: str, source: str) -> bool:
    """Returns whether `path` is there, as a text in `source` may name it."""
    if "/" not in path:
      return path in self.names
    if path.startswith("../"):
      return self.has(os.path.normpath(
          os.path.join(os.path.dirname(as_staged(source)), path)))
    if self.has(path) or any(
        self.has(f"{folder.as_posix()}/{path}".removeprefix("./"))
        for folder in Path(source).parents):
      return True
    return any(("/" + file).endswith("/" + path) for file in self.files)

  def anchors_of(self, page: str) -> set[str]:
    """Returns the anchors of a page, as GitHub and MyST make them."""
    if page not in self.anchors:
      found: set[str] = set()
      count: Counter[str] = Counter()
      text = (self.root / page).read_text(encoding="utf-8")
      for passage in prose.page_passages(text):
        match = re.match(r"#{1,6} (.*)", passage.text.split("\n")[0])
        if match:
          slug = re.sub(r"[^\w\- ]", "", match[1].lower()).replace(" ", "-")
          found.add(slug + (f"-{count[slug]}" if count[slug] else ""))
          count[slug] += 1
      self.anchors[page] = found
    return self.anchors[page]

  def sections(self) -> set[str]:
    """Returns the numbers of the sections of FORMAT.md."""
    path = self.root / "schema/FORMAT.md"
    if not path.is_file():
      return set()
    return set(re.findall(r"^## (\d+)\.", path.read_text(encoding="utf-8"),
                          re.MULTILINE))


def phrases(path: str, passages: list[prose.Passage]) -> list[Finding]:
  """Finds the phrases that are not plain English."""
  found = []
  for passage in passages:
    if path in QUOTES_THEM:
      break
    text = CODE.sub(lambda match: "x" * len(match[0]), passage.text) \
        if passage.kind == "page" else passage.text
    lines = [line.strip() for line in text.split("\n")]
    text = " ".join(lines)
    for pattern, instead in PHRASES:
      for match in re.finditer(pattern, text, re.IGNORECASE):
        if match[0].endswith(" None"):
          continue
        before, end = -1, 0
        while end <= match.start():
          before += 1
          end += len(lines[before]) + 1
        found.append(Finding(
            "phrases", f"{path}:{passage.line + before}",
            f"'{match[0]}': write {instead}"))
  return found


def citations(path: str, passages: list[prose.Passage],
              tree: Tree) -> list[Finding]:
  """Finds the names of what is not in the repository."""
  found = []
  is_page = path.endswith(".md")

  def complain(passage: prose.Passage, offset: int, what: str) -> None:
    found.append(Finding(
        "citations", f"{path}:{passage.line_of(offset)}", what))

  for passage in passages:
    if path in QUOTES_THEM:
      break
    text = passage.text
    if passage.kind == "string" and path.startswith("scripts/site/"):
      continue  # The names of pages of the site.
    for match in PAGE.finditer(text):
      if not tree.finds(match[1], path):
        complain(passage, match.start(), f"there is no page {match[1]}")
    if passage.kind == "string":
      continue  # Paths in strings are data as often as not.
    for match in PLACE.finditer(text):
      name = match[1].rstrip(".")
      if not name.endswith(".md") and not tree.finds(name, path):
        complain(passage, match.start(), f"there is no {name}")
    for match in NUMBERED.finditer(text):
      complain(passage, match.start(),
               f"'{match[0]}' is not in the repository")
    for match in SECTION.finditer(text):
      if match[2] not in tree.sections():
        complain(passage, match.start(),
                 f"FORMAT.md has no section {match[2]}")
    if not is_page:
      continue
    prose_only = CODE.sub(lambda match: " " * len(match[0]), text)
    for match in LINK.finditer(prose_only):
      target, _, anchor = match[1].partition("#")
      if re.match(r"[a-z]+:", target):
        continue
      page = path
      if target:
        page = os.path.normpath(
            os.path.join(os.path.dirname(as_staged(path)), target))
        if page == "index.md":
          page = "README.md"
        if not tree.has(page):
          complain(passage, match.start(), f"the link {match[1]} is dead")
          continue
      if anchor and page.endswith(".md") and \
          anchor not in tree.anchors_of(page):
        complain(passage, match.start(), f"there is no anchor {match[1]}")
  return found


def columns(path: str, kind: str, text: str) -> list[Finding]:
  """Finds the lines that are too long."""
  if kind == "page":
    return []
  return [
      Finding("columns", f"{path}:{number}", f"{len(line)} columns")
      for number, line in enumerate(text.splitlines(), 1)
      if len(line) > COLUMNS and not UNBREAKABLE.search(line)]


def licences(path: str, kind: str, text: str) -> list[Finding]:
  """Finds a source file that does not begin with its licence."""
  if kind == "page" or not text.strip():
    return []
  lines = text.splitlines()
  if lines[0].startswith("#!"):
    del lines[0]
  mark = "//" if kind == "cpp" else "#"
  if lines and lines[0] == f"{mark} {LICENCE}":
    return []
  return [Finding("licences", f"{path}:1", f"begins without {LICENCE}")]


def check_file(path: str, kind: str, text: str, tree: Tree) -> list[Finding]:
  """Returns all findings of one file."""
  passages = prose.passages(kind, text)
  return [
      *phrases(path, passages), *citations(path, passages, tree),
      *columns(path, kind, text), *licences(path, kind, text)]


def check_tree(root: Path, only: set[str]) -> tuple[int, list[Finding]]:
  """Returns (number of files, findings); `only`: of these files, if any."""
  files = prose.files_of_tree(root)
  tree = Tree(root, all_files(root))
  found, count = [], 0
  for path in files:
    if only and path not in only:
      continue
    text = (root / path).read_text(encoding="utf-8")
    found += check_file(path, prose.kind_of(path, root) or "", text, tree)
    count += 1
  return count, found


def all_files(root: Path) -> list[str]:
  """Returns the paths of all files below `root`, of data, too."""
  outside = {".git", ".venv", ".cache", "build", "__pycache__"}
  return [
      path.relative_to(root).as_posix() for path in root.rglob("*")
      if path.is_file()
      and not outside & set(path.relative_to(root).parts)]


HEAD = f"// {LICENCE}\n"
# (rule, path, text): each text has one fault.
PLANTED = [
    ("phrases", "core/a.cc", HEAD + "// A path is wanted here.\n"),
    ("phrases", "core/a.cc", HEAD + "// It has\n// not a path.\n"),
    ("phrases", "core/a.cc", HEAD + 'Fail("a store has not "\n "the step");'),
    ("phrases", "core/a.cc", HEAD + "int a;  // What the store has not.\n"),
    ("phrases", "core/a.cc", HEAD + "// A folder of the store's.\n"),
    ("phrases", "core/a.cc", HEAD + "// It is kept as that.\n"),
    ("phrases", "core/a.cc", HEAD + "// For who reads.\n"),
    ("phrases", "core/a.cc", HEAD + "/* Removed meanwhile. */\n"),
    ("phrases", "a.md", "# A\n\nThe steps and besides\nthe tags.\n"),
    ("phrases", "a.py", f"# {LICENCE}\n" + '"""A leaf; this is none."""\n'),
    ("phrases", "a.py", f"# {LICENCE}\n" + 'E(\n  f"{a}: it is "\n  "none")\n'),
    ("phrases", "tests/run", f"#!/bin/bash\n# {LICENCE}\necho 'X is wanted'\n"),
    ("citations", "core/a.cc", HEAD + "// See core/gone.h.\n"),
    ("citations", "core/a.cc", HEAD + "// See DESIGN.md.\n"),
    ("citations", "core/a.cc", HEAD + "// See notes/rocksdb.md.\n"),
    ("citations", "core/a.cc", HEAD + "// As part 8.11 has it (a row).\n"),
    ("citations", "core/a.cc", HEAD + "// NaN is no metric (D3).\n"),
    ("citations", "core/a.cc", HEAD + "// FORMAT.md, section 9.\n"),
    ("citations", "a.md", "See `core/there/`.\n"),
    ("citations", "a.md", "See [this](gone.txt).\n"),
    ("citations", "a.md", "See [this](b.md#nowhere).\n"),
    ("citations", "a.md", "# A\n\nSee [this](#nowhere).\n"),
    ("citations", "a.py", f"# {LICENCE}\n" + '"""As tests/gone_test.py."""\n'),
    ("columns", "core/a.cc", HEAD + "// " + "x" * 78 + "\n"),
    ("columns", "CMakeLists.txt", f"# {LICENCE}\n# " + "x " * 40 + "\n"),
    ("licences", "core/a.cc", "// A file.\n"),
    ("licences", "a.py", '#!/usr/bin/env python3\n"""A file."""\n'),
]
CLEAN = [
    ("core/a.cc", HEAD + "// It has not been read; there is none. As that\n"
     "// reads nothing, the store's directory is for others.\n"),
    ("core/a.cc", HEAD + '// See core/here.h and schema/FORMAT.md, section 2.\n'
     'Load("core/gone.h");\n// core/* is the engine, core/here its header.\n'),
    ("a.md", "# A\n\nSee [b](b.md#a-title), [here](#a) and `core/here.h`; "
     "`x is none`.\n"),
    ("a.py", f"# {LICENCE}\nx = y is None\nfor who in z:\n  pass\n"),
    ("core/a.cc", HEAD + "// https://example.com/" + "x" * 80 + "\n"),
    ("tests/run", f"#!/bin/bash\n# {LICENCE}\nfor who in a b; do :; done\n"),
]


def self_test() -> list[str]:
  """Returns what this test would not notice, or wrongly notices."""
  faults = []
  with tempfile.TemporaryDirectory() as name:
    root = Path(name)
    for path, text in (
        ("core/here.h", HEAD), ("b.md", "# A title\n"),
        ("schema/FORMAT.md", "## 2. Spaces\n"), ("tests/run", "")):
      (root / path).parent.mkdir(exist_ok=True)
      (root / path).write_text(text, encoding="utf-8")

    def findings(path: str, text: str) -> list[Finding]:
      (root / path).write_text(text, encoding="utf-8")
      kind = prose.kind_of(path, root) or ""
      return check_file(path, kind, text, Tree(root, all_files(root)))

    for rule, path, text in PLANTED:
      rules = {finding.rule for finding in findings(path, text)}
      if rules != {rule}:
        faults.append(f"planted {rule}, found {rules}: {text}")
    for path, text in CLEAN:
      faults += [f"wrongly found: {line}" for line in findings(path, text)]
  return faults


def main() -> int:
  faults = self_test()
  count, found = check_tree(ROOT, set(sys.argv[1:]))
  for line in faults:
    print(line)
  for finding in found:
    print(f"{finding.where}: {finding.rule}: {finding.what}")
  sums = Counter(finding.rule for finding in found)
  rules = ("phrases", "citations", "columns", "licences")
  print(f"{count} files: " + ", ".join(f"{sums[r]} {r}" for r in rules) +
        f"; {len(PLANTED)} planted, {len(faults)} faults of this test")
  if REPORT_ONLY:
    print("reported only, for now:", ", ".join(sorted(REPORT_ONLY)))
  if count < 20 and len(sys.argv) == 1:
    print(f"{ROOT} does not look like the source tree")
    return 1
  return 1 if faults or any(r not in REPORT_ONLY for r in sums) else 0


if __name__ == "__main__":
  sys.exit(main())
