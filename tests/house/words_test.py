#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Reads every text file of the tree for four things.

phrases    Comments, messages, docstrings and pages have none of the phrases in
           PHRASES, which are no plain English.
citations  What a text names is there: pages (`foo/bar.md`), sections of
           FORMAT.md, headings, files with or without their folder, folders,
           tests, and the targets and anchors of links in pages. Numbers of
           lists that are not in the repository (D12, part 8.11, issue 14) are
           never named. Names of functions are not looked for.
columns    No line of code, comment or script is longer than 80 columns. Pages
           may have longer ones. So may a line without a space to break it at, a
           stub that is generated, and the data of tests; a URL and a `type:
           ignore` are not counted, and a tab is.
licences   The first comment line of each source file and script, after a
           shebang, is SPDX-License-Identifier: Apache-2.0. A file of a kind
           that is not known is a complaint, so that no kind is passed over.

Run it with paths to read these files only. The exit code is 1 where something
was found, or where something that is planted was not.
"""

import re
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import citations
import prose

ROOT = Path(__file__).resolve().parents[2]

# Rules whose findings are printed, and do not fail the test yet.
REPORT_ONLY: set[str] = set()

COLUMNS = 80
LICENCE = "SPDX-License-Identifier: Apache-2.0"
UNBREAKABLE = re.compile(r"^\s*\S+$")
NOT_COUNTED = re.compile(r"https?://\S+|  # type: ignore(?:\[[\w, -]+\])?$")

# (pattern, what to write instead). Passages are one line when they are matched.
PHRASES = [
    (r"\b(?:is|are|was|were|be|been) (?:(?:not|no longer|only|still) )?"
     r"\W?wanted\b", "say who needs it, or what it must be"),
    # "It has not" goes on with a participle; those that end otherwise are here.
    (r"\b(?:has|have|had) not\b(?! (?:(?:\w+ly|yet|even|always|itself) )?"
     r"(?:\w+(?:ed|en)|been|begun|bound|brought|built|come|cut|done|found|gone|"
     r"got|grown|had|heard|held|hit|kept|known|laid|left|let|lost|made|met|paid|"
     r"put|read|run|said|sent|set|shown|told|become)\b)", "does not have"),
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


class Finding(NamedTuple):
  rule: str
  where: str
  what: str


def phrases(path: str, passages: list[prose.Passage]) -> list[Finding]:
  """Finds the phrases that are not plain English."""
  found = []
  for passage in passages:
    if path in QUOTES_THEM:
      break
    text = citations.CODE.sub(lambda match: "x" * len(match[0]), passage.text) \
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


def columns(path: str, kind: str, text: str) -> list[Finding]:
  """Finds the lines that are too long."""
  if kind == "page":
    return []
  return [
      Finding("columns", f"{path}:{number}", f"{len(line)} columns")
      for number, line in enumerate(text.expandtabs().splitlines(), 1)
      if len(NOT_COUNTED.sub("", line)) > COLUMNS
      and not UNBREAKABLE.search(line)]


def licences(path: str, kind: str, text: str) -> list[Finding]:
  """Finds a source file that does not begin with its licence."""
  if kind == "page" or not text.strip():
    return []
  lines = text.splitlines()
  if lines[0].startswith("#!"):
    del lines[0]
  mark = "//" if kind == "cpp" else "#"
  wanted = f"{mark} {LICENCE}"
  if path.endswith(".css"):
    wanted = f"/* {LICENCE} */"
  if lines and lines[0] == wanted:
    return []
  return [Finding("licences", f"{path}:1", f"begins without {LICENCE}")]


def check_file(path: str, kind: str, text: str,
               tree: citations.Tree) -> list[Finding]:
  """Returns all findings of one file."""
  passages = prose.passages(kind, text)
  return [
      *phrases(path, passages),
      *(Finding("citations", f"{path}:{line}", what)
        for line, what in citations.wrong(path, passages, tree)),
      *columns(path, kind, text), *licences(path, kind, text)]


def check_tree(root: Path, only: set[str]) -> tuple[int, list[Finding]]:
  """Returns (number of files, findings); `only`: of these files, if any."""
  files = prose.tracked(root)
  tree = citations.Tree(root, files)
  found, count = [], 0
  for path in files:
    if only and path not in only or prose.is_data(path):
      continue
    kind = prose.kind_of(path, root)
    if kind is None:
      found.append(Finding("licences", f"{path}:1",
                           "what this is, prose.py does not know"))
      continue
    text = (root / path).read_text(encoding="utf-8")
    found += check_file(path, kind, text, tree)
    count += 1
  return count, found


HEAD = f"// {LICENCE}\n"
# (rule, path, text): each text has one fault.
PLANTED = [
    ("phrases", "core/a.cc", HEAD + "// A path is wanted here.\n"),
    ("phrases", "core/a.cc", HEAD + "// It has\n// not a path.\n"),
    ("phrases", "core/a.cc", HEAD + 'Fail("a store has not "\n "the step");'),
    ("phrases", "core/a.cc", HEAD + "int a;  // What the store has not.\n"),
    ("phrases", "core/a.cc", HEAD + "// It has not tags.\n"),
    ("phrases", "core/a.cc", HEAD + "// It has been wanted.\n"),
    ("phrases", "core/a.cc", HEAD + "// What is no longer wanted.\n"),
    ("phrases", "core/a.cc", HEAD + "// It is *wanted*.\n"),
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
    ("citations", "core/a.cc", HEAD + "// See restore.h.\n"),
    ("citations", "core/a.cc", HEAD + "// As restore.cc and here.h do.\n"),
    ("citations", "core/a.cc", HEAD + "// See ckptree/gone.h.\n"),
    ("citations", "core/a.cc", HEAD + "// See core/array/gone*.h.\n"),
    ("citations", "core/a.cc", HEAD + "// See core/\n// here.h.\n"),
    ("citations", "core/a.cc", HEAD + "// See ckptree/\n// here.h.\n"),
    ("citations", "core/a.cc", HEAD + "// Held by core_gone_test.\n"),
    ("citations", "core/a.cc", HEAD + "// As gone_fuzz makes it.\n"),
    ("citations", "core/a.cc", HEAD + "// See sections 2 and 99 of\n"
     "// schema/FORMAT.md.\n"),
    ("citations", "core/a.cc", HEAD + "// FORMAT.md, sections 2 and 99.\n"),
    ("citations", "core/a.cc", HEAD + "// FORMAT.md 2.77 says so.\n"),
    ("citations", "core/a.cc", HEAD + '// See b.md, "No Such Section".\n'),
    ("citations", "core/a.cc", HEAD + '// See b.md,\n// part "Gone".\n'),
    ("citations", "core/a.cc", HEAD + "// As decision D12 says.\n"),
    ("citations", "core/a.cc", HEAD + "// See issue 14.\n"),
    ("citations", "core/a.cc", HEAD + "// As #14 has it.\n"),
    ("citations", "core/a.cc", HEAD + "// See shared/notes.\n"),
    ("citations", "core/a.cc", HEAD + "// As of commit deadbeef1.\n"),
    ("citations", "a.py", f"# {LICENCE}\n" + '"""See rules.py."""\n'),
    ("citations", "a.md", "Set `CKPTREE_GONE`.\n"),
    ("citations", "a.md", "See [this](gone.txt \"a title\").\n"),
    ("citations", "a.md", "See [this][b].\n\n[b]: gone.txt\n"),
    ("citations", "a.md", 'See <a class="b" href="gone.txt">this</a>.\n'),
    ("citations", "a.md", "![A picture](gone.png)\n"),
    ("citations", "a.html", "<img src='gone.png'>\n"),
    ("columns", "core/a.cc", HEAD + "// " + "x" * 78 + "\n"),
    ("columns", "core/a.cc", HEAD + "\t" * 10 + "int a;\n"),
    ("columns", "core/a.cc", HEAD + "// http://a " + "x " * 40 + "\n"),
    ("columns", "a.py",
     f"# {LICENCE}\nx = {'1 + ' * 20}1  # type: ignore[misc]\n"),
    ("columns", "a.pc.in", f"# {LICENCE}\n# " + "x " * 40 + "\n"),
    ("columns", "CMakeLists.txt", f"# {LICENCE}\n# " + "x " * 40 + "\n"),
    ("licences", "core/a.cc", "// A file.\n"),
    ("licences", "a.css", "/* A file. */\n"),
    ("licences", "a.js", "/* " + LICENCE + " */\n"),
    *(("licences", f"a{name}", "# A file.\n") for name in (
        ".pc.in", ".map", ".yml", ".sh", ".toml", "/requirements.txt",
        "/.clang-format", "/.gitignore")),
    ("licences", "core/a.cpp", "// A file.\n"),
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
    ("core/a.cc", HEAD + "// See https://example.com/" + "x" * 80 + "\n"),
    ("core/a.cc", HEAD + "// here.h, core/h*.h and there.so are read by\n"
     "// core_here_test; see section 2 of FORMAT.md and core/\n// too.\n"
     '// b.md, "A title" says why. A list has #include and a#1.\n'),
    ("a.md", "[b](b.md \"A title\"), [c][c], [d](https://a/gone).\n\n"
     "[c]: b.md#a-title\n\nSet `CKPTREE_HERE`; `<gone.h>`.\n"),
    ("a.py", f"# {LICENCE}\nx = {'1 + ' * 15}1  # type: ignore[misc, arg]\n"),
    ("tests/run", f"#!/bin/bash\n# {LICENCE}\nfor who in a b; do :; done\n"),
]


def self_test() -> list[str]:
  """Returns what this test would not notice, or wrongly notices."""
  faults = []
  with tempfile.TemporaryDirectory() as name:
    root = Path(name)
    for path, text in (
        ("core/here.h", HEAD + "int CKPTREE_HERE;"), ("b.md", "# A title\n"),
        ("core/CMakeLists.txt", "ckptree_test(core_here_test)"),
        ("schema/FORMAT.md", "## 2. Spaces\n"), ("tests/run", "")):
      (root / path).parent.mkdir(exist_ok=True)
      (root / path).write_text(text, encoding="utf-8")

    def findings(path: str, text: str) -> list[Finding]:
      (root / path).parent.mkdir(exist_ok=True)
      (root / path).write_text(text, encoding="utf-8")
      kind = prose.kind_of(path, root) or ""
      tree = citations.Tree(root, prose.tracked(root))
      return check_file(path, kind, text, tree)

    for rule, path, text in PLANTED:
      rules = {finding.rule for finding in findings(path, text)}
      if rules != {rule}:
        faults.append(f"planted {rule}, found {rules}: {text}")
    for path, text in CLEAN:
      faults += [f"wrongly found: {line}" for line in findings(path, text)]
    # A kind that is not known is not passed over.
    (root / "a.strange").write_text("besides", encoding="utf-8")
    found = check_tree(root, {"a.strange"})[1]
    if [finding.rule for finding in found] != ["licences"]:
      faults.append(f"a file of an unknown kind: {found}")
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
