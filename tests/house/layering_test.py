#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares every #include line, and every import of the Python package, with
the arrows that are allowed between the folders, and every file with the rules
on size and name."""

import os
import re
import sys
import tempfile

import python_imports

ROOT = os.path.dirname(
    os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
MAX_LINES = 600
FORBIDDEN_STEMS = {
    "common", "helper", "helpers", "misc", "types", "util", "utils",
}
# Users of Orbax import these by their names.
NAMES_OF_ORBAX = {"python/ckptree/orbax/utils.py"}
SOURCES = (".h", ".cc")
SCRIPTS = (".py", ".proto", ".txt", ".cmake")

STD = set("""
algorithm any array atomic barrier bit bitset cassert cctype cerrno cfenv
cfloat charconv chrono cinttypes ciso646 climits clocale cmath compare complex
concepts condition_variable coroutine csetjmp csignal cstdarg cstddef cstdint
cstdio cstdlib cstring ctime cuchar cwchar cwctype deque exception execution
filesystem forward_list fstream functional future initializer_list iomanip ios
iosfwd iostream istream iterator latch limits list locale map memory
memory_resource mutex new numbers numeric optional ostream queue random ranges
ratio regex scoped_allocator semaphore set shared_mutex source_location span
sstream stack stdexcept stop_token streambuf string string_view
syncstream system_error thread tuple type_traits typeindex typeinfo
unordered_map unordered_set utility valarray variant vector version
stddef.h stdint.h
""".split())

# What each library is included as.
LIBRARIES = {
    "absl": r"absl/",
    "benchmark": r"benchmark/",
    "cli11": r"CLI/",
    "gtest": r"(gtest|gmock)/",
    "highway": r"hwy/",
    "json": r"nlohmann/",
    "nanobind": r"nanobind/",
    "protobuf": r"google/protobuf/|.*\.pb\.h$",
    "rocksdb": r"rocksdb/",
    "tbb": r"(tbb|oneapi)/",
    "xxhash": r"xxhash\.h$",
}

OURS = ("base", "bench", "ckptree", "core", "kv", "python", "schema", "tests",
        "tools")

# Input, output, threads and clocks, which schema/ does without.
IMPURE = (
    r"(atomic|barrier|chrono|condition_variable|filesystem|fstream|future|"
    r"iostream|latch|mutex|semaphore|shared_mutex|stop_token|thread)$|"
    r"absl/(log|synchronization|time)/"
)


class Rule:
  """What the files whose path matches `files` may include."""

  def __init__(self, files, ours, libraries, system=False, never=None):
    self.files = re.compile(files + "$")
    self.ours = [re.compile(pattern + "$") for pattern in ours]
    self.libraries = set(libraries)
    self.system = system  # <unistd.h> and the like.
    self.never = re.compile(never) if never else None


# The rooms of core, and which others each of them may include.
CORE = {
    "process": "",
    "array": "process",
    "version": "process array",
    "policy": "process array version",
    "verify": "process array version",
    "collect": "process array version policy verify",
    "save": "process array version policy verify collect",
    "engine": "process array version policy verify collect save",
    "manage": "process array version policy verify collect save engine",
    "repair": "process array version policy verify collect save engine",
}
# Likewise of kv: what stands in kv/ itself is its face, which core sees.
KV = {"files": "", "journal": "files", "rocks": "files journal"}
FORMAT_TYPES = r"ckptree/(dtype|entry_kind|export|path|statistics)\.h"
TOOLS = {"output": "", "line": "output", "verbs": "output line"}
TESTS = {
    "fault": "",
    "model": "fault",
    "trial": "fault model",
    "judge": "fault model trial",
}


def rooms_rules(folder, rooms, *rule, **more):
  """One rule for each of `rooms` of `folder`; `rule` and `more` as Rule's."""
  rules = []
  for room, below in rooms.items():
    inside = "|".join([room, *below.split()])
    ours = [rf"{folder}/({inside})/.*", *rule[0]]
    rules.append(Rule(rf"{folder}/{room}/.*", ours, *rule[1:], **more))
  return rules


# The first rule that matches a file is the one that holds for it.
RULES = [
    Rule(r"base/.*\.cc", [r"base/.*"], ["absl", "xxhash"], never=IMPURE),
    Rule(r"base/.*\.h", [r"base/.*"], ["absl"], never=IMPURE),
    # The types that the public face shares with the format.
    Rule(r"schema/include/.*\.h", [FORMAT_TYPES], ["absl"], never=IMPURE),
    Rule(r"schema/.*\.cc", [r"(base|schema)/.*", FORMAT_TYPES],
         ["absl", "protobuf"], never=IMPURE),
    # Protobuf and the hash stay behind the room's own types.
    Rule(r"schema/.*\.h", [r"(base|schema)/.*", FORMAT_TYPES], ["absl"],
         never=IMPURE),
    Rule(r"kv/[^/]*\.h", [r"base/.*", r"kv/[^/]*", r"schema/spaces\.h"],
         ["absl"], system=True),
    Rule(r"kv/testing/.*\.h", [r"(base|kv)/.*", r"schema/spaces\.h"], ["absl"]),
    Rule(r"kv/[^/]*/.*\.h",
         [r"base/.*", r"kv/.*", r"schema/spaces\.h"], ["absl"], system=True),
    Rule(r"kv/testing/.*\.cc",
         [r"(base|kv)/.*", r"schema/spaces\.h"], ["absl", "rocksdb"],
         system=True),
    Rule(r"kv/[^/]*\.cc", [r"base/.*", r"kv/[^/]*", r"schema/spaces\.h"],
         ["absl"]),
    *rooms_rules("kv", KV, [r"base/.*", r"kv/[^/]*", r"schema/spaces\.h"],
                 ["absl", "rocksdb", "xxhash"], system=True),
    Rule(r"core/include/.*\.h", [r"ckptree/.*"], ["absl"]),
    *rooms_rules("core", CORE,
                 [r"base/.*", r"ckptree/.*", r"kv/[^/]*", r"schema/.*"],
                 ["absl", "highway", "tbb"], system=True),
    *rooms_rules("tools", TOOLS,
                 [r"base/.*", r"ckptree/.*", r"core/.*", r"schema/.*"],
                 ["absl", "cli11", "json"], system=True),
    Rule(r"tools/ckptree\.cc", [r"tools/(line|output)/.*"], ["absl"],
         system=True),
    Rule(r"bench/.*",
         [r"(base|bench|ckptree|core|kv|schema)/.*"],
         ["absl", "benchmark"], system=True),
    Rule(r"python/src/.*",
         [r"python/src/.*", r"ckptree/.*"],
         ["absl", "nanobind"], system=True),
    # The program of somebody else sees what is installed.
    Rule(r"tests/consumer/.*", [r"ckptree/.*"], ["absl"]),
    # An example is a user: it sees what a user sees.
    Rule(r"tests/examples/.*",
         [r"ckptree/.*", r"tests/examples/.*", r"tests/testutil/.*"],
         ["absl", "gtest"], system=True),
    # What reads bytes or text from outside, and nothing that opens a store.
    Rule(r"tests/fuzz/.*",
         [r"(base|schema)/.*", r"kv/write_batch\.h",
          r"kv/journal/(preface|record)\.h",
          r"ckptree/(preservation|selector|tensor)\.h", FORMAT_TYPES,
          r"tools/.*",
          r"tests/fuzz/.*", r"tests/schema/samples\.h"], ["absl", "json"]),
    Rule(r"tests/fault/fs[^/]*",
         [r"(base|kv|schema)/.*", r"tests/(fault|testutil)/.*"],
         ["absl", "gtest", "rocksdb"], system=True),
    *rooms_rules("tests", TESTS,
                 [r"(base|ckptree|core|kv|schema)/.*", r"tests/testutil/.*"],
                 [name for name in LIBRARIES if name != "rocksdb"],
                 system=True),
    Rule(r"tests/.*",
         [r"(base|bench|ckptree|core|kv|schema|tests|tools)/.*"],
         [name for name in LIBRARIES if name != "rocksdb"], system=True),
]

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')


def library_of(name):
  for library, pattern in LIBRARIES.items():
    if re.match(pattern, name):
      return library
  return None


def why_not(rule, name):
  """Returns why a file under `rule` may not include `name`, or None."""
  if rule.never and rule.never.match(name):
    return "input, output, threads and clocks are not for this folder"
  library = library_of(name)
  if library:
    if library in rule.libraries:
      return None
    return f"{library} is not for this folder"
  if name.split("/")[0] in OURS:
    if any(pattern.match(name) for pattern in rule.ours):
      return None
    return "there is no such arrow"
  if name in STD:
    return None
  if re.match(r"[a-z0-9_]+\.h$|(sys|linux|arpa|netinet|bits)/", name):
    return None if rule.system else "the system is not for this folder"
  return "this library is not known here; see tests/house/layering_test.py"


def check_file(path, text):
  """Returns the complaints about one file; `path` is below the root."""
  complaints = []
  stem = os.path.basename(path).split(".")[0]
  if stem in FORBIDDEN_STEMS and path not in NAMES_OF_ORBAX:
    complaints.append(f"{path}: a file is named after what it holds")
  lines = text.count("\n")
  if lines > MAX_LINES and path.startswith(python_imports.FOLDER):
    # The face of a class is as long as what is said of it.
    lines -= python_imports.documentation_lines(text)
  if lines > MAX_LINES:
    complaints.append(f"{path}: {lines} lines, at most {MAX_LINES}")
  if not path.endswith(SOURCES):
    return complaints
  rule = next((rule for rule in RULES if rule.files.match(path)), None)
  if rule is None:
    complaints.append(f"{path}: no rule for this folder")
    return complaints
  for number, line in enumerate(text.splitlines(), 1):
    match = INCLUDE.match(line)
    if not match:
      continue
    reason = why_not(rule, match.group(2))
    if reason:
      complaints.append(
          f"{path}:{number}: includes {match.group(2)}: {reason}")
  return complaints


def check_tree(root):
  """Returns (number of files, complaints) of all folders below `root`."""
  complaints = []
  count = 0
  for folder in sorted(os.listdir(root)):
    if folder not in OURS or not os.path.isdir(os.path.join(root, folder)):
      continue
    for parent, folders, files in os.walk(os.path.join(root, folder)):
      folders[:] = sorted(f for f in folders if f != "__pycache__")
      for name in sorted(files):
        if not name.endswith(SOURCES + SCRIPTS):
          continue
        full = os.path.join(parent, name)
        with open(full, encoding="utf-8") as file:
          complaints += check_file(os.path.relpath(full, root), file.read())
        count += 1
  return count, complaints


PLANTED = [
    ("schema/keys.h", '#include "kv/database.h"'),
    ("schema/keys.h", '#include "schema/checkpoint.pb.h"'),
    ("schema/path.cc", "#include <mutex>"),
    ("schema/path.cc", "#include <unistd.h>"),
    ("schema/path.cc", '#include "absl/time/clock.h"'),
    ("base/digest.h", "#include <xxhash.h>"),
    ("kv/database.h", "#include <rocksdb/db.h>"),
    ("kv/rocks/database.cc", '#include "schema/keys.h"'),
    ("kv/rocks/database.cc", '#include "core/engine/engine.h"'),
    ("kv/rocks/database.cc", "#include <tbb/task_group.h>"),
    ("core/engine/engine.cc", '#include "rocksdb/db.h"'),
    ("core/engine/engine.cc", '  #  include "tools/output/npy.h"'),
    ("core/engine/engine.cc", '#include "schema/checkpoint.pb.h"'),
    ("core/include/ckptree/store.h", '#include "kv/database.h"'),
    ("core/include/ckptree/store.h", '#include "schema/keys.h"'),
    ("schema/include/ckptree/path.h", '#include "schema/keys.h"'),
    ("schema/keys.h", '#include "ckptree/store.h"'),
    ("kv/rocks/database_open.h", "#include <rocksdb/db.h>"),
    ("kv/journal/reader.cc", '#include "kv/rocks/instance.h"'),
    ("core/save/save.cc", '#include "core/engine/engine.h"'),
    ("core/policy/retention.cc", '#include "core/verify/row_check.h"'),
    ("tools/output/table.cc", '#include "tools/line/address.h"'),
    ("tests/consumer/project/consumer.cc", '#include "kv/database.h"'),
    ("tests/fault/plan.cc", '#include "tests/model/state.h"'),
    ("core/include/ckptree/store.h", "#include <oneapi/tbb/task_group.h>"),
    ("tools/verbs/log.cc", '#include "kv/database.h"'),
    ("bench/full_save.cc", "#include <rocksdb/db.h>"),
    ("tests/engine_test.cc", "#include <rocksdb/db.h>"),
    ("tests/examples/char_lm.cc", '#include "core/engine/engine.h"'),
    ("tests/fuzz/journal_fuzz.cc", '#include "kv/database.h"'),
    ("tests/fuzz/tree_fuzz.cc", "#include <gtest/gtest.h>"),
    ("core/engine/engine.cc", "#include <boost/any.hpp>"),
    ("extra/engine.cc", "#include <string>"),
    ("core/util.cc", "#include <string>"),
    ("tools/helpers.py", ""),
    ("core/engine/engine.cc", "\n" * 601),
    ("python/ckptree/store.py", "a = 1\n" * 601),
]

CLEAN = [
    ("schema/keys.h", '#include "absl/status/statusor.h"\n#include <string>'),
    ("schema/step_record.cc", '#include "schema/checkpoint.pb.h"'),
    ("base/digest.cc", "#include <xxhash.h>"),
    ("kv/rocks/database.cc", '#include "rocksdb/db.h"\n#include <fcntl.h>'),
    ("kv/rocks/segment_writer.cc", '#include "schema/spaces.h"'),
    ("core/engine/engine.cc",
     '#include "kv/database.h"\n#include <tbb/task_arena.h>'),
    ("core/include/ckptree/store.h", '#include "ckptree/path.h"'),
    ("tools/verbs/show.cc",
     "#include <nlohmann/json.hpp>\n#include <CLI/CLI.hpp>"),
    ("tests/fault/fs.cc", "#include <rocksdb/file_system.h>"),
    ("tests/engine_test.cc", '#include "core/engine/engine.h"\n// util.h'),
    ("tests/fuzz/journal_fuzz.cc", '#include "kv/journal/record.h"'),
    ("core/engine/engine.cc", "\n" * 600),
    ("python/ckptree/store.py",
     'class Store:\n  """A\n' + "\n" * 300 + '"""\n' + "  a = 1\n" * 400),
]


def self_test():
  """Returns what this test would fail to notice, or wrongly notices."""
  faults = []
  for path, text in PLANTED:
    if not check_file(path, text):
      faults.append(f"planted and not found: {path}: {text.strip()[:60]}")
  for path, text in CLEAN:
    faults += [f"wrongly found: {line}" for line in check_file(path, text)]
  with tempfile.TemporaryDirectory() as root:
    os.makedirs(os.path.join(root, "core", "deep"))
    with open(os.path.join(root, "core", "deep", "a.cc"), "w") as file:
      file.write('#include "rocksdb/db.h"\n')
    count, complaints = check_tree(root)
    if (count, len(complaints)) != (1, 1):
      faults.append(f"a planted tree gave {count} files, {complaints}")
  return faults


def main():
  faults = self_test()
  count, complaints = check_tree(ROOT)
  package = python_imports.files_below(ROOT)
  complaints += python_imports.check(package)
  faults += python_imports.self_test()
  planted = len(PLANTED) + len(python_imports.PLANTED)
  for line in faults + complaints:
    print(line)
  print(f"{count} files, {len(complaints)} complaints; "
        f"{planted} planted violations, {len(faults)} missed")
  if count < 20 or len(package) < 20:
    print(f"{ROOT} does not look like the source tree")
    return 1
  return 1 if faults or complaints else 0


if __name__ == "__main__":
  sys.exit(main())
