# SPDX-License-Identifier: Apache-2.0
"""What people read in the files of the tree: comments, messages, docstrings and
pages, as text that knows its lines."""

import io
import re
import subprocess
import tokenize
from pathlib import Path
from typing import NamedTuple

import cpp_source

CPP = (".proto", *cpp_source.ENDINGS, *cpp_source.OTHER_ENDINGS)
# Its comments are those of C++.
SCRIPT = (".css", ".js")
PYTHON = (".py", ".pyi")
# Their comments begin with "#".
CMAKE = (".cfg", ".cmake", ".in", ".ini", ".map", ".toml", ".yaml", ".yml")
CMAKE_NAMES = re.compile(
    r"CMakeLists\.txt|requirements\w*\.txt|\.clang-\w+|\.git\w+")
# Data: nobody wrote these to be read.
DATA = re.compile(
    r"LICENSE$|tests/fuzz/corpus/|tests/format/golden/(?:format|proofs)_|tests/tools/golden/|"
    r".*\.jsonl$|.*\.json$|.*\.png$|.*\.ipynb$|.*/py\.typed$")
# nanobind.stubgen writes this file, as it is.
GENERATED = {"python/ckptree/_engine.pyi"}


class Passage(NamedTuple):
  """Words that belong together: a comment, a message, a paragraph."""
  kind: str  # "comment", "string", "docstring" or "page"
  text: str  # Lines are joined by "\n", without the marks of comments.
  line: int  # The first line.

  def line_of(self, offset: int) -> int:
    """Returns the line of the file in which `text[offset]` stands."""
    return self.line + self.text.count("\n", 0, offset)


def tracked(root: Path | str) -> list[str]:
  """Returns the paths of all files of the tree that git does not ignore; of
  all files, where the sources stand without git."""
  root = Path(root)
  done = subprocess.run(
      ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
      cwd=root, capture_output=True, text=True, check=False)
  if done.returncode == 0:
    found = done.stdout.split("\0")
  else:
    outside = {".git", ".venv", ".cache", "build", "__pycache__"}
    found = [path.relative_to(root).as_posix() for path in root.rglob("*")
             if not outside & set(path.relative_to(root).parts)]
  return sorted(path for path in found if (root / path).is_file())


def is_data(path: str) -> bool:
  """Returns whether nobody writes the file to be read, or a tool does."""
  return DATA.match(path) is not None or path in GENERATED


def is_written(path: str, root: Path | str) -> bool:
  """Returns whether people write and read the file."""
  return not is_data(path) and kind_of(path, Path(root)) is not None


def files_of_tree(root: Path) -> list[str]:
  """Returns the paths of all files that people write and read."""
  return [path for path in tracked(root) if is_written(path, root)]


def kind_of(path: str, root: Path) -> str | None:
  """Returns the language of a file: cpp, python, shell, cmake or page; None
  where it is not known."""
  name = Path(path)
  if name.name.endswith(CPP) or name.suffix in SCRIPT:
    return "cpp"
  if name.suffix in PYTHON:
    return "python"
  if name.suffix in (".md", ".html"):
    return "page"
  if name.suffix in CMAKE or CMAKE_NAMES.fullmatch(name.name):
    return "cmake"
  if name.suffix == ".sh":
    return "shell"
  if name.suffix == "":
    try:
      with open(root / path, encoding="utf-8") as file:
        first = file.readline()
    except UnicodeDecodeError:
      return None
    if first.startswith("#!"):
      return "python" if "python" in first else "shell"
  return None


def passages(kind: str, text: str) -> list[Passage]:
  """Returns all passages of a file of that kind."""
  if kind == "cpp":
    return cpp_passages(text)
  if kind == "python":
    return python_passages(text)
  if kind == "page":
    return page_passages(text)
  return script_passages(text)


class _Run:
  """Joins the comments, or the strings, of neighbouring lines."""

  def __init__(self, kind: str, found: list[Passage]) -> None:
    self.kind, self.found = kind, found
    self.parts: list[str] = []
    self.first = self.last = 0

  def add(self, line: int, text: str) -> None:
    if self.parts and line > self.last + 1:
      self.end()
    if not self.parts:
      self.first = line
    elif line == self.last:
      self.parts[-1] += " " + text
      return
    self.parts.append(text)
    self.last = line + text.count("\n")

  def end(self) -> None:
    if self.parts:
      # Words that two lines share have one space between them.
      text = "\n".join(part.rstrip(" ") for part in self.parts)
      self.found.append(Passage(self.kind, text, self.first))
    self.parts = []


CPP_TOKEN = re.compile(
    r'R"(?P<d>\w*)\((?P<raw>.*?)\)(?P=d)"|"(?P<string>(?:[^"\\\n]|\\.)*)"|'
    r"(?<![0-9a-fA-F])'(?:[^'\\\n]|\\.)+'|//(?P<comment>[^\n]*)|"
    r"/\*(?P<block>.*?)\*/|(?P<end>[;{},])", re.DOTALL)


def cpp_passages(text: str) -> list[Passage]:
  found: list[Passage] = []
  comments, strings = _Run("comment", found), _Run("string", found)
  include = re.compile(r"\s*#\s*include")
  at = line = 0
  for match in CPP_TOKEN.finditer(text):
    line += text.count("\n", at, match.start())
    at = match.start()
    start = text.rfind("\n", 0, at) + 1
    if match["comment"] is not None:
      # A comment behind code does not go on with the one of the line above.
      if text[start:at].strip():
        comments.end()
      comments.add(line + 1, match["comment"].removeprefix(" "))
    elif match["block"] is not None:
      comments.add(line + 1, match["block"])
    elif match["end"] is not None:
      strings.end()
    elif not include.match(text, start):
      string = match["string"] if match["raw"] is None else match["raw"]
      if string is not None:
        strings.add(line + 1, string.replace("\\n", " "))
  comments.end()
  strings.end()
  return sorted(found, key=lambda passage: passage.line)


def python_passages(text: str) -> list[Passage]:
  found: list[Passage] = []
  comments, strings = _Run("comment", found), _Run("string", found)
  fresh = True  # At the beginning of a statement.
  for token in tokenize.generate_tokens(io.StringIO(text).readline):
    if token.type == tokenize.COMMENT:
      if token.line[:token.start[1]].strip():
        comments.end()
      comments.add(token.start[0], token.string[1:].removeprefix(" "))
    elif token.type == tokenize.STRING:
      quote = re.match(r"[a-zA-Z]*('''|\"\"\"|'|\")", token.string)
      inner = token.string[quote.end():-len(quote[1])]
      if fresh and len(quote[1]) == 3:
        found.append(Passage("docstring", inner, token.start[0]))
      else:
        strings.add(token.start[0], inner.replace("\\n", " "))
    elif token.type == tokenize.NEWLINE or token.string == ",":
      strings.end()
    if token.type in (tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT):
      fresh = True
    elif token.type not in (tokenize.NL, tokenize.COMMENT, tokenize.ENCODING):
      fresh = False
  comments.end()
  strings.end()
  return sorted(found, key=lambda passage: passage.line)


def script_passages(text: str) -> list[Passage]:
  """Of shell and CMake: comments, and whole lines that print something."""
  found: list[Passage] = []
  comments, strings = _Run("comment", found), _Run("string", found)
  for number, line in enumerate(text.splitlines(), 1):
    match = re.match(r"\s*#(?!!) ?(.*)", line)
    if match:
      comments.add(number, match[1])
    else:
      strings.add(number, line)
  comments.end()
  strings.end()
  return sorted(found, key=lambda passage: passage.line)


FENCE = re.compile(r"^ {0,3}(```+|~~~+)")


def page_passages(text: str) -> list[Passage]:
  """Paragraphs and rows of tables, without blocks of code."""
  found: list[Passage] = []
  prose = _Run("page", found)
  fence = None
  for number, line in enumerate(text.splitlines(), 1):
    mark = FENCE.match(line)
    if mark and fence is None:
      fence = mark[1]
    elif mark and line.strip() == fence:
      fence = None
    elif fence is None and line.strip():
      if line.startswith(("|", "#")):
        prose.end()
      prose.add(number, line)
  prose.end()
  return found
