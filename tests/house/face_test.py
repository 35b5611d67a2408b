#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Counts how much the public headers explain, and the words of the glossary.

The share of comments is that of lines which are nothing but a comment, among
all lines that are not blank. The line of the licence does not count. The
glossary is the table in core/README.md under "Words": it has at most MAX_WORDS
rows, and the headers or the pages use each of its words.
"""

import re
import sys
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("core/include/ckptree", "schema/include/ckptree")
# Per cent of all public headers together; only whole lines of comment count.
FLOOR = 40.0
MAX_WORDS = 25
GLOSSARY = "core/README.md"
HEADING = "Words"
# Where a word of the glossary may be used.
PAGES = ("README.md", "core/**/*.md", "kv/**/*.md", "schema/FORMAT.md",
         "python/README.md")


class Count(NamedTuple):
  """The lines of a header that are not blank."""
  comments: int
  lines: int

  def share(self) -> float:
    return 100 * self.comments / self.lines if self.lines else 0.0


def count(text: str) -> Count:
  """Counts the lines of one header."""
  lines = [line.strip() for line in text.splitlines()
           if line.strip() and "SPDX-License-Identifier" not in line]
  return Count(sum(line.startswith("//") for line in lines), len(lines))


def table(counts: dict[str, Count]) -> tuple[Count, str]:
  """Returns the sum of all headers, and the counts as a table."""
  total = Count(sum(c.comments for c in counts.values()),
                sum(c.lines for c in counts.values()))
  width = max(map(len, [*counts, "all headers"]))
  rows = [f"{'header':{width}}  comments  lines  share"]
  for name, one in [*sorted(counts.items()), ("all headers", total)]:
    rows.append(f"{name:{width}}  {one.comments:8}  {one.lines:5}"
                f"  {one.share():4.1f}%")
  return total, "\n".join(rows)


def glossary(text: str) -> list[str] | None:
  """Returns the words of the glossary; None where there is no such table."""
  match = re.search(rf"^## {HEADING}\n(.*?)(?=^#|\Z)", text,
                    re.MULTILINE | re.DOTALL)
  rows = re.findall(r"^\| *([^|]+?) *\|.*\|$", match[1] if match else "",
                    re.MULTILINE)
  return rows[2:] if len(rows) > 2 else None


def check_glossary(text: str, used_in: str) -> list[str]:
  """Returns the complaints about the glossary in `text`; `used_in`: all that
  headers and pages say, without the glossary."""
  words = glossary(text)
  if words is None:
    return [f"{GLOSSARY} has no table of words under '{HEADING}'"]
  complaints = []
  if len(words) > MAX_WORDS:
    complaints.append(
        f"{GLOSSARY} has {len(words)} words, at most {MAX_WORDS}")
  complaints += [
      f"{GLOSSARY} has '{word}' twice" for word in sorted(set(words))
      if words.count(word) > 1]
  for word in words:
    stem = re.escape(word).replace(r"\ ", r"\s+")
    if not re.search(rf"(?i)(?<![a-z]){stem}(?![a-df-rt-z])", used_in):
      complaints.append(
          f"{GLOSSARY}: neither a header nor a page uses '{word}'")
  return complaints


def without_glossary(text: str) -> str:
  return re.sub(rf"^## {HEADING}\n(\n|\|.*\n)*", "", text, flags=re.MULTILINE)


def check_floor(total: Count) -> list[str]:
  """Returns the complaint about too few comments, if there is one."""
  if total.share() >= FLOOR:
    return []
  return [f"{total.share():.1f} % of the lines of the public headers are "
          f"comments, less than the floor of {FLOOR} %: say what is new"]


def self_test() -> list[str]:
  """Returns what this test would not notice, or wrongly notices."""
  faults = []
  counted = count("// SPDX-License-Identifier: Apache-2.0\n// A.\n\n"
                  "int a;  // B.\n  // C.\nint b;\n")
  if counted != Count(2, 4):
    faults.append(f"wrongly counted: {counted}")
  if not check_floor(Count(1, 10)) or check_floor(Count(9, 10)):
    faults.append("the floor is not seen")
  head = f"## {HEADING}\n\n| word | what |\n|---|---|\n"
  for rows, used, planted in (
      ("| leaf | a |\n", "The leaves, a leaf.", False),
      ("| dead list | a |\n", "the dead\nlists", False),
      ("| leaf | a |\n", "Leafless.", True),
      ("| leaf | a |\n| leaf | b |\n", "leaf", True),
      ("| leaf | a |\n" * (MAX_WORDS + 1), "leaf", True),
      ("", "leaf", True)):
    if bool(check_glossary(head + rows, used)) != planted:
      faults.append(f"{'missed' if planted else 'wrongly found'}: {rows}")
  if check_glossary("# No table\n", "leaf") == []:
    faults.append("missed: a glossary that is not there")
  if "leaf" in without_glossary(head + "| leaf | a |\n\n## More\n"):
    faults.append("the glossary counts as a use of its words")
  return faults


def main() -> int:
  faults = self_test()
  texts = {
      path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8")
      for folder in FOLDERS for path in (ROOT / folder).glob("*.h")}
  total, rows = table({name: count(text) for name, text in texts.items()})
  readme = (ROOT / GLOSSARY).read_text(encoding="utf-8")
  pages = [without_glossary(path.read_text(encoding="utf-8"))
           for pattern in PAGES for path in ROOT.glob(pattern)]
  complaints = check_floor(total)
  complaints += check_glossary(readme, "\n".join([*texts.values(), *pages]))
  print(rows)
  print(f"floor {FLOOR} %; "
        f"{len(glossary(readme) or [])} words, at most {MAX_WORDS}")
  for line in faults + complaints:
    print(line)
  if len(texts) < 10:
    print(f"{ROOT} does not look like the source tree")
    return 1
  return 1 if faults or complaints else 0


if __name__ == "__main__":
  sys.exit(main())
