# SPDX-License-Identifier: Apache-2.0
"""What one C++ file includes and which libraries it names.

An include is written in one way only: `#include "x/y.h"` or `#include <x>`, at
the beginning of a line, with nothing behind it but a comment of one line. All
other spellings that a compiler takes are complaints, and so are paths with
`.` or `..`, or in quotes without a folder, and macros that stand for the name
of a file: what a test cannot read is not there.
"""

import re

# The endings of C++ files here, and those that nothing here may have.
ENDINGS = (".h", ".cc", ".inc")
OTHER_ENDINGS = (
    ".hh", ".hpp", ".hxx", ".h++", ".H", ".c", ".cpp", ".cxx", ".c++", ".C",
    ".ipp", ".inl", ".tcc", ".tpp", ".txx", ".ixx", ".cppm", ".cu", ".cuh",
    ".m", ".mm")

INCLUDE = re.compile(
    r'#\s*include (?:"([\w+-]+(?:/[\w+-]+)+\.[\w.]+)"'
    r"|<([\w+-]+(?:/[\w+-]+)*(?:\.[\w.]+)?)>)\s*(?://.*)?$")
TOKEN = re.compile(
    r'R"(?P<d>\w*)\((?P<raw>.*?)\)(?P=d)"|"(?P<string>(?:[^"\\\n]|\\.)*)"|'
    r"(?<![0-9a-fA-F])'(?:[^'\\\n]|\\.)+'|//[^\n]*|/\*.*?\*/", re.DOTALL)
# Highway includes what one of these says.
MACRO = re.compile(r'\s*#\s*define\s+\w+\s+["<]([\w./+-]+\.(?:h|cc|inc))[">]')
DIRECTIVE = re.compile(r"\s*(#|%:|\?\?=)\s*(include|include_next|import|embed)"
                       r"(?!\w)")
MODULE = re.compile(
    r'\s*(?:export\s+)?(?:import\s*["<:\w]|module\s*[;:]|module\s+\w+\s*[;:.])')
SPLICE = "\0"  # A line that goes on in the next.

# What the names of each library look like in code.
NAMESPACES = {
    "benchmark": r"\bbenchmark\s*::|\bnamespace\s+benchmark\b",
    "cli11": r"\bCLI\s*::|\bnamespace\s+CLI\b",
    "json": r"\bnlohmann\s*::|\bnamespace\s+nlohmann\b",
    "nanobind": r"\bnanobind\b|\bnb\s*::|\bPyObject\b",
    "protobuf": r"\bgoogle\s*::\s*protobuf\b|\bnamespace\s+google\b|"
                r"\bpb\s*::|\bnamespace\s+(?:\w+\s*::\s*)*pb\b",
    "rocksdb": r"\brocksdb\s*::|\bnamespace\s+rocksdb\b|\bROCKSDB_\w+|"
               r"\brocksdb_\w+_t\b",
    "tbb": r"\btbb\s*::|\bnamespace\s+(?:tbb|oneapi)\b",
}
NAMESPACES = {name: re.compile(text) for name, text in NAMESPACES.items()}
LOADED = re.compile(r"\b(?:import_|PyImport_\w+)\s*\(\s*(\"[^\"]*\")?")
RUN = re.compile(r"\bnb\s*::\s*(?:exec|eval)\b|\bPyRun_\w+|\bPyEval_\w+Code\w*")


def without_words(text):
  """Returns C++ code as the compiler takes it: comments are spaces, strings
  are empty, SPLICE stands for a line that goes on; lines keep their number."""
  def blank(match):
    token = match[0]
    lines = "".join(sign for sign in token if sign in "\n" + SPLICE)
    if token.startswith("/"):
      return " " + lines
    return (token[0] if token[0] != "R" else '"') + lines + token[-1]

  return TOKEN.sub(blank, re.sub(r"\\[ \t]*\r?\n", SPLICE, text))


def logical_lines(code):
  """Yields (number of the first line, text) of what without_words() gave."""
  number = 1
  for line in code.split("\n"):
    yield number, line.replace(SPLICE, "")
    number += 1 + line.count(SPLICE)


def includes(text, path=None):
  """Returns what a file includes, as (line, name), and complaints about
  includes that nobody could compare with a rule, as (line, what). A macro may
  stand for the file's own `path`."""
  found, wrong = [], []
  lines = text.splitlines()
  for number, line in logical_lines(without_words(text)):
    if "__has_include" in line or "__has_embed" in line:
      wrong.append((number, "asks what could be included"))
    if MODULE.match(line):
      wrong.append((number, "imports a module: write #include"))
    # A line of a comment or a string has no "#" here.
    macro = MACRO.match(lines[number - 1]) if "#" in line else None
    if macro and macro[1] != path:
      wrong.append((number, f"a macro stands for {macro[1]}"))
    match = DIRECTIVE.match(line)
    if not match:
      continue
    if match[2] == "embed":
      wrong.append((number, "embeds a file"))
      continue
    written = INCLUDE.match(lines[number - 1].strip())
    if written is None:
      wrong.append((number, 'write the include as #include "folder/file.h"'))
    else:
      found.append((number, written[1] or written[2]))
  return found, wrong


def named(text):
  """Returns the libraries whose names stand in the code of a file, each with
  the first line of it."""
  code = without_words(text).replace(SPLICE, "")
  found = {}
  for library, pattern in NAMESPACES.items():
    match = pattern.search(code)
    if match:
      found[library] = code.count("\n", 0, match.start()) + 1
  return found


def loaded_modules(text):
  """Returns what code of a binding asks Python to import, as (line, name);
  the name is empty where it is not written there, or is any text that is
  run."""
  code = TOKEN.sub(
      lambda match: match[0] if match["string"] is not None
      else "\n" * match[0].count("\n"), text)
  found = []
  for match in LOADED.finditer(code):
    found.append((code.count("\n", 0, match.start()) + 1,
                  (match[1] or "").strip('"')))
  for match in RUN.finditer(without_words(text)):
    found.append((without_words(text).count("\n", 0, match.start()) + 1, ""))
  return found
