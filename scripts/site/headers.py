#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes a page of each public header: its comments as text, its declarations
as code.

The comment above a declaration becomes prose under a heading; comments inside
a declaration stay in the code. What stands in namespace `internal`, private
members, forward declarations and includes are left out, and each page links to
the whole file.
"""

import re
from pathlib import Path
from typing import NamedTuple

FOLDERS = ("core/include", "schema/include")
FIRST = "ckptree/ckptree.h"
SKIPPED = re.compile(
    r"#\s*(include|ifndef|endif|define CKPTREE_\w+_H_)|namespace ckptree \{"
    r"|\}  // namespace ckptree$|(class|struct) \w+;$|// SPDX-|// NOLINT")
SPECIAL = re.compile(r"([\\*_<>\[\]{}|#$~])")
# Types that a text means when it names them: StoreOptions, not Step.
TYPE = re.compile(r"\b(?:[A-Z][a-z0-9]+){2,}\b|\bDType\b")
NAMES = (
    (re.compile(r"^(?:struct|class|enum class|enum) (\w+)"), None),
    (re.compile(r"^using (\w+) ="), None),
    (re.compile(r"^#\s*define (\w+)"), None),
    (re.compile(r"^(?:inline )?constexpr .*?\b(k\w+)\b"), None),
    (re.compile(r"\b(operator *[^\s\w(]+)\("), "{}"),
    (re.compile(r"\b(\w+)\("), "{}()"),
)


class Block(NamedTuple):
  """A comment, and the declarations below it."""
  comment: list[str]
  code: list[str]

  def name(self) -> str | None:
    """Returns what the first declaration declares."""
    code = " ".join(
        line for line in self.code if not line.startswith("template"))
    for pattern, form in NAMES:
      match = pattern.search(code)
      if match:
        return (form or "{}").format(match[1])
    return None


def bare(line: str) -> str:
  """Returns a line of C++ without its strings and its comment."""
  line = re.sub(r'"(?:[^"\\]|\\.)*"|\'(?:[^\'\\]|\\.)\'', "", line)
  return line.partition("//")[0]


def parse(text: str) -> list[Block]:
  """Returns the blocks of a header; the first is the comment at its head."""
  blocks: list[Block] = []
  comment: list[str] = []
  code: list[str] = []
  depth = 0
  hidden = 0  # The depth of braces in namespace internal.
  private = False

  def close() -> None:
    nonlocal comment, code
    if comment or code:
      blocks.append(Block(comment, code))
    comment, code = [], []

  for line in text.splitlines():
    counted = bare(line)
    change = sum(map(counted.count, "{(")) - sum(map(counted.count, "})"))
    if hidden or line == "namespace internal {":
      hidden += change
      continue
    if depth == 1 and line.strip() == "private:":
      private = True
      while code and not code[-1].strip():
        code.pop()
    private = private and depth + change > 0
    if private:
      depth += change
      continue
    if depth == 0:
      if not line.strip():
        close()
        continue
      if SKIPPED.match(line):
        continue
      if line.startswith("//"):
        if code and code[-1].rstrip().endswith((";", "}")):
          close()
        if not code:
          comment.append(line[2:].removeprefix(" "))
          continue
    code.append(line)
    depth += change
  close()
  return blocks


def prose(comment: list[str], types: dict[str, str], own: str | None) -> str:
  """Returns a comment as Markdown; known types link to what declares them."""

  def mark(text: str) -> str:
    text = SPECIAL.sub(r"\\\1", text)
    return TYPE.sub(
        lambda match: f"[{match[0]}](#{types[match[0]]})"
        if match[0] in types and match[0] != own else match[0], text)

  lines = []
  in_code = False
  for line in comment:
    is_code = line.startswith("  ") and not lines_in_list(lines)
    if is_code != in_code and line.strip():
      lines.append("```cpp" if is_code else "```")
      in_code = is_code
      if not is_code:
        lines.append("")
    if in_code:
      lines.append(line.removeprefix("  "))
      continue
    section = re.fullmatch(r"-+ (.+?) -+", line)
    if section:
      lines.append(f"**{mark(section[1][0].upper() + section[1][1:])}**\n")
      continue
    bullet = re.match(r"\s*[*-] ", line)
    rest = line[bullet.end():] if bullet else line
    parts = re.split(r"(`[^`]+`)", rest)
    lines.append((bullet[0] if bullet else "") + "".join(
        part if part.startswith("`") and len(part) > 1 else mark(part)
        for part in parts))
  if in_code:
    lines.append("```")
  return "\n".join(lines) + "\n"


def lines_in_list(lines: list[str]) -> bool:
  """Returns whether the text so far ends in a list."""
  for line in reversed(lines):
    if not line.strip():
      return False
    if re.match(r"\s*[*-] ", line):
      return True
  return False


def label(name: str, taken: set[str]) -> str:
  """Returns an anchor for `name` that nothing else has."""
  stem = "cpp-" + re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
  found, number = stem, 2
  while found in taken:
    found, number = f"{stem}-{number}", number + 1
  taken.add(found)
  return found


def page(header: str, source: str, blocks: list[Block],
         anchors: dict[tuple[str, int], str], types: dict[str, str]) -> str:
  """Returns the page of one header."""
  name = header.removeprefix("ckptree/")
  text = f"# {name}\n\n"
  text += f"```cpp\n#include \"{header}\"\n```\n\n"
  for index, block in enumerate(blocks):
    title = block.name() if block.code else None
    if title:
      text += f"({anchors[header, index]})=\n\n## {escaped(title)}\n\n"
    if block.comment:
      text += prose(block.comment, types, title) + "\n"
    if block.code:
      code = "\n".join(block.code)
      text += f"```cpp\n{code}\n```\n\n"
  depth = "../" * (2 + header.count("/"))
  text += f"[The whole file]({depth}source/{source}.md)\n"
  return text


def escaped(name: str) -> str:
  return SPECIAL.sub(r"\\\1", name)


def summary(blocks: list[Block]) -> str:
  """Returns the first sentence of a header."""
  text = " ".join(blocks[0].comment)
  return re.split(r"(?<=[.;]) ", text)[0].rstrip(".;") if text else ""


def pages(root: Path) -> tuple[dict[str, str], set[str]]:
  """Returns the pages of all public headers, and the files that they list."""
  parsed: dict[str, tuple[str, list[Block]]] = {}
  for folder in FOLDERS:
    for path in (root / folder).rglob("*.h"):
      header = path.relative_to(root / folder).as_posix()
      source = path.relative_to(root).as_posix()
      parsed[header] = source, parse(path.read_text(encoding="utf-8"))
  order = sorted(parsed, key=lambda header: (header != FIRST, header))

  anchors: dict[tuple[str, int], str] = {}
  types: dict[str, str] = {}
  taken: set[str] = set()
  for header in order:
    for index, block in enumerate(parsed[header][1]):
      name = block.name() if block.code else None
      if name:
        anchors[header, index] = label(name, taken)
        if TYPE.fullmatch(name):
          types.setdefault(name, anchors[header, index])

  made = {}
  rows = []
  for header in order:
    source, blocks = parsed[header]
    stem = f"api/cpp/{header}"
    made[f"{stem}.md"] = page(header, source, blocks, anchors, types)
    rows.append(f"| [{header}](cpp/{header}.md) | {escaped(summary(blocks))} |")
  contents = "\n".join(f"cpp/{header}" for header in order)
  made["api/cpp.md"] = (
      "# C++ API\n\n"
      "[The README](../index.md#in-a-c-trainer) explains the library by "
      "examples. These\npages list the public headers: each comment is text, "
      "each declaration is code.\n\n"
      "| header | what |\n|---|---|\n" + "\n".join(rows) +
      f"\n\n```{{toctree}}\n:hidden:\n\n{contents}\n```\n")
  return made, {source for source, _ in parsed.values()}
