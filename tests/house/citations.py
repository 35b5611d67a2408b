# SPDX-License-Identifier: Apache-2.0
"""What the comments, docstrings and pages of the tree name, and whether it is
there: pages and their sections, files, folders, tests, variables, links."""

import os
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import prose

ROOMS = "base|bench|core|kv|python|schema|scripts|tests|tools"
PAGE = re.compile(
    r"(?<![\w./*-])((?:\.\./)*(?:[\w*][\w.*-]*/)*[\w*-]+\.md)\b(?!/)")
PLACE = re.compile(
    r"(?<![\w./*$-])((?:" + ROOMS + r")/[\w./*-]*[\w*/])(?![\w$<{])")
# A file by its name, with or without a folder.
FILE = re.compile(
    r"(?<![\w./*$<>{}~-])((?:[\w*][\w.*-]*/)*[\w*]+\."
    r"(?:cc|h|inc|py|pyi|proto|cmake|jsonl|map|toml|txt))\b(?![/\w(*-])")
BROKEN = re.compile(r"(?<![\w/])(?:" + ROOMS + r"|ckptree)/(?:\w+/)*\n\w+\.\w")
TEST = re.compile(r"(?<![\w./*$<{-])(\w+_(?:test|fuzz))\b(?!\.\w|[\w(/*-])")
VARIABLE = re.compile(r"(?<![\w.$<{])(CKPTREE_\w+)(?![\w*<{])")
NUMBERED = re.compile(
    r"\(?\bD\d{1,2}\b(?:, D\d{1,2})*\)?|\bpart \d+\.\d+|\bDESIGN\b(?!\.md)|"
    r"(?<![\w/])/?(?:work/)?shared/[\w.]+|\b[Ii]ssues? #?\d+|"
    r"\b[Ff]inding [A-Z]?\d+|(?<![\w#&/])#\d+\b|"
    r"\bcommit (?=[0-9a-f]*\d)[0-9a-f]{7,40}\b")
# "FORMAT.md, sections 3 and 9", "section 9 of schema/FORMAT.md".
SECTION = re.compile(
    r"\bFORMAT(?:\.md)?`?,? (?:sections? |parts? )?((?:\d+(?:\.\d+)*"
    r"(?:, | and | to )?)+)|"
    r"\bsections? ((?:\d+(?:\.\d+)*(?:, | and | to )?)+) of "
    r"`?(?:schema/)?FORMAT\b")
HEADING = re.compile(
    r'((?:[\w.-]+/)*\w+)(\.md)?`?(?:\]\([^()]*\))?,? '
    r'(?:part |section )?"([^"]+)"')
LINK = re.compile(
    r"""\]\(\s*<?([^()\s>]+)>?(?:\s+(?:"[^"]*"|'[^']*'))?\s*\)|"""
    r"""^\s{0,3}\[[^\]]+\]:\s*<?([^\s>]+)|"""
    r"""<(?:a|img|link|source)\b[^>]*?\b(?:href|src)\s*=\s*["']([^"']+)""",
    re.MULTILINE | re.IGNORECASE)
CODE = re.compile(r"(`+)(?:(?!\1).)*?\1", re.DOTALL)
# Built, or made by a tool: not in the repository.
MADE = re.compile(r".*\.pb\.h$|build/|.*\.so$")
# What stands in other projects, and what a user has.
ELSEWHERE = {
    "db/import_column_family_job.cc": "RocksDB",
    "table/format.cc": "RocksDB",
    "table/meta_blocks.cc": "RocksDB",
    "fs/ext4/ext4.h": "Linux",
    "foreach_target.h": "Highway",
    "preservation_policy.py": "Orbax",
    "save_decision_policy.py": "Orbax",
}
# Files that make examples of names, or quote what they find.
QUOTES_NAMES = {"tests/house/words_test.py", "tests/house/citations.py",
                "tests/house/layering_test.py", "tests/house/cpp_source.py"}


def as_staged(path: str) -> str:
  """Returns where a page stands for its links: scripts/site/stage.py copies
  some pages to the root of the site."""
  return path.removeprefix("scripts/site/pages/")


def _names_of_test(path: str, root: Path) -> Iterator[str]:
  """The names by which tests are called: that of a file (`lease_test`), and
  that of its program and its ctest (`kv_lease_test`)."""
  file = Path(path)
  if file.name == "CMakeLists.txt":
    text = re.sub(r"#.*", "", (root / path).read_text(encoding="utf-8"))
    yield from re.findall(r"\b\w+_(?:test|fuzz)\b", text)
  elif file.stem.endswith(("_test", "_fuzz")):
    yield file.stem
    yield f"{file.parent.name}_{file.stem}"


class Tree:
  """The files of the repository, as the citations name them."""

  def __init__(self, root: Path, files: list[str]) -> None:
    self.root = root
    self.files = set(files)
    self.folders = {
        parent.as_posix() for path in files for parent in Path(path).parents}
    self.names = {Path(path).name for path in files}
    self.anchors: dict[str, set[str]] = {}
    self.tests = {
        name for path in files for name in _names_of_test(path, root)}
    self._variables: set[str] = set()

  def variables(self) -> set[str]:
    """Returns all names CKPTREE_… that stand in what is no page."""
    if not self._variables:
      for path in self.files:
        if path.endswith(".md") or path in QUOTES_NAMES or \
            not prose.is_written(path, self.root):
          continue
        text = (self.root / path).read_text(encoding="utf-8")
        self._variables |= set(re.findall(r"CKPTREE_\w+", text))
    return self._variables

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
    if path in ELSEWHERE:
      return True
    if "/" not in path:
      return path in self.names or MADE.match(path) is not None or (
          "*" in path and self.has("**" + path))
    if path.startswith("../"):
      return self.has(os.path.normpath(
          os.path.join(os.path.dirname(as_staged(source)), path)))
    if self.has(path) or any(
        self.has(f"{folder.as_posix()}/{path}".removeprefix("./"))
        for folder in Path(source).parents):
      return True
    if "*" in path:
      return self.has("**/" + path)
    return any(("/" + file).endswith("/" + path) for file in self.files)

  def headings_of(self, name: str) -> set[str]:
    """Returns the headings of all pages of that name, and the words in bold
    that begin their paragraphs and rows."""
    found: set[str] = set()
    for path in self.files:
      if ("/" + path).endswith("/" + name):
        text = (self.root / path).read_text(encoding="utf-8")
        found |= set(re.findall(r"^#+ (.*?)\s*$", text, re.MULTILINE))
        found |= set(re.findall(r"^\W*\*\*(.+?)[.:]?\*\*", text, re.MULTILINE))
    return {heading.replace("`", "") for heading in found}

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


def _of_all_texts(passage: prose.Passage, path: str,
                  tree: Tree) -> Iterator[tuple[int, str]]:
  """Yields what is wrong with pages that are named, with the place."""
  flat = passage.text.replace("\n", " ")
  for match in PAGE.finditer(passage.text):
    if not tree.finds(match[1], path):
      yield match.start(), f"there is no page {match[1]}"
  for match in HEADING.finditer(flat):
    page = match[1] + ".md"
    if (match[2] or match[1].isupper()) and tree.finds(page, path) and \
        not any(heading.startswith(match[3])
                for heading in tree.headings_of(page)):
      yield match.start(), f'{page} has no "{match[3]}"'


def _of_comments(passage: prose.Passage, path: str,
                 tree: Tree) -> Iterator[tuple[int, str]]:
  """Yields what is wrong with files, tests and numbers that are named; paths
  in strings are data as often as not."""
  text, flat = passage.text, passage.text.replace("\n", " ")
  for pattern in (PLACE, FILE):
    for match in pattern.finditer(text):
      name = match[1].rstrip(".")
      if not name.endswith(".md") and not tree.finds(name, path):
        yield match.start(), f"there is no {name}"
  for match in BROKEN.finditer(text):
    yield match.start(), "a path that is broken over two lines"
  for match in TEST.finditer(text):
    if match[1] not in tree.tests:
      yield match.start(), f"there is no test {match[1]}"
  for match in VARIABLE.finditer(text):
    if passage.kind == "page" and match[1] not in tree.variables():
      yield match.start(), f"there is no {match[1]}"
  for match in NUMBERED.finditer(flat):
    yield match.start(), f"'{match[0]}' is not in the repository"
  for match in SECTION.finditer(flat):
    for number in re.findall(r"\d+(?:\.\d+)*", match[1] or match[2]):
      if number not in tree.sections():
        yield match.start(), f"FORMAT.md has no section {number}"


def _of_links(passage: prose.Passage, path: str,
              tree: Tree) -> Iterator[tuple[int, str]]:
  """Yields the links of a page that lead nowhere."""
  prose_only = CODE.sub(lambda match: re.sub(r"[^\n]", " ", match[0]),
                        passage.text)
  for match in LINK.finditer(prose_only):
    link = match[1] or match[2] or match[3]
    target, _, anchor = link.partition("#")
    if re.match(r"[a-z]+:", target):
      continue
    page = path
    if target:
      page = os.path.normpath(
          os.path.join(os.path.dirname(as_staged(path)), target))
      if page == "index.md":
        page = "README.md"
      if not tree.has(page):
        yield match.start(), f"the link {link} is dead"
        continue
    if anchor and page.endswith(".md") and \
        anchor not in tree.anchors_of(page):
      yield match.start(), f"there is no anchor {link}"


def wrong(path: str, passages: list[prose.Passage],
          tree: Tree) -> Iterator[tuple[int, str]]:
  """Yields (line, what) for each name of what is not in the repository."""
  if path in QUOTES_NAMES:
    return
  for passage in passages:
    if passage.kind == "string" and path.startswith("scripts/site/"):
      continue  # The names of pages of the site.
    found = [*_of_all_texts(passage, path, tree)]
    if passage.kind != "string":
      found += _of_comments(passage, path, tree)
    if path.endswith((".md", ".html")):
      found += _of_links(passage, path, tree)
    for offset, what in dict.fromkeys(found):
      yield passage.line_of(offset), what
