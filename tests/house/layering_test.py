#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares every #include line, and every import of the Python package, with
the arrows that are allowed between the folders, and every file with the rules
on size and name.

Every tracked C++ file is read, in whichever folder it stands. What the code of
a file names of a library (`rocksdb::`, or a forward declaration) is held to the
same list as what it includes; FORWARD names the headers that may do no more
than declare. Headers include each other in no circle. Two units (x.h with x.cc)
may where one would not be whole without the other; these are in PAIRS.

Not seen: a class of another room that is declared and not included, and what a
program does with names that it puts together while it runs.
"""

import os
import re
import sys
import tempfile

import cpp_source
import prose
import python_imports

ROOT = os.path.dirname(
    os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
MAX_LINES = 600
FORBIDDEN_STEMS = {
    "common", "helper", "helpers", "misc", "types", "util", "utils",
}
# Users of Orbax import these by their names.
NAMES_OF_ORBAX = {"python/ckptree/orbax/utils.py"}

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
    "curl": r"curl/",
    "gtest": r"(gtest|gmock)/",
    "highway": r"hwy/",
    "httplib": r"httplib\.h$",
    "json": r"nlohmann/",
    "nanobind": r"nanobind/",
    "openssl": r"openssl/",
    "protobuf": r"google/protobuf/|.*\.pb\.h$",
    "pugixml": r"pugixml\.hpp$",
    "rados": r"rados/",
    "rocksdb": r"rocksdb/",
    "sqlite": r"sqlite3\.h$",
    "tbb": r"(tbb|oneapi)/",
    "xxhash": r"xxhash\.h$",
    "zip": r"zip\.h$",
    "zlib": r"zlib\.h$",
    "zstd": r"zstd\.h$",
}

OURS = ("base", "bench", "ckptree", "core", "kv", "python", "schema", "scripts",
        "tests", "tools")

# Input, output, threads and clocks, which schema/ does without.
IMPURE = (
    r"(atomic|barrier|chrono|condition_variable|csignal|cstdio|ctime|execution|"
    r"filesystem|fstream|future|iomanip|ios|iosfwd|iostream|istream|latch|"
    r"locale|mutex|ostream|print|random|semaphore|shared_mutex|sstream|"
    r"stop_token|streambuf|syncstream|thread)$|"
    r"absl/(debugging|flags|log|random|synchronization|time)/"
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
    "coding": "",
    "version": "process array coding",
    "policy": "process array version",
    "remote": "process version",
    "verify": "process array coding version",
    "collect": "process array coding version policy verify",
    "save": "process array coding version policy verify collect",
    "engine": "process array coding version policy verify collect save remote",
    "ranks": "process array version policy verify collect save engine remote",
    "manage": "process array version policy verify collect save engine ranks",
    "repair": "process array version policy verify collect save engine",
}
# What each of them sees of the public face, apart from FORMAT_TYPES; all else
# there is for users, and for the rooms that are the engine's own face.
FACE = {
    "process": "options",
    "array": "",
    "coding": "",
    "version": "selector step store tensor",
    "policy": "policy preservation save_decision",
    "remote": "options version",
    "verify": "store",
    "collect": "collect",
    "save": "options save tensor version",
    "engine": r"\w+",
    "manage": "manager policy ranks save_decision",
    "repair": "copy local_path options recover repair step store",
    "ranks": "local_path options ranks save store",
}
# Likewise of kv: what stands in kv/ itself is its face, which core sees.
KV = {"files": "", "journal": "files", "rocks": "files journal"}
FORMAT_TYPES = r"ckptree/(dtype|entry_kind|export|path|statistics)\.h"
TOOLS = {"output": "", "files": "output", "line": "output files",
         "report": "output", "verbs": "output files line report"}
TESTS = {
    "fault": "",
    "model": "fault",
    "trial": "fault model",
    "judge": "fault model trial",
}


def rooms_rules(folder, rooms, *rule, files=".*", face=None, **more):
  """One rule for the `files` of each of `rooms` of `folder`; `rule` and `more`
  as Rule's. `face` says which public headers each room sees."""
  rules = []
  for room, below in rooms.items():
    inside = "|".join([room, *below.split()])
    ours = [rf"{folder}/({inside})/.*", *rule[0]]
    if face and face[room]:
      ours.append(rf"ckptree/({'|'.join(face[room].split())})\.h")
    rules.append(Rule(rf"{folder}/{room}/{files}", ours, *rule[1:], **more))
  return rules


# The first rule that matches a file is the one that holds for it.
RULES = [
    # What ends the program says why.
    Rule(r"base/require\.cc", [r"base/.*"], ["absl"]),
    Rule(r"base/instruction_set\.cc", [r"base/.*"], ["highway"], system=True),
    Rule(r"base/mapped_vector\.cc", [r"base/.*"], [], system=True),
    Rule(r"base/.*\.(cc|inc)", [r"base/.*"], ["absl", "xxhash"], never=IMPURE),
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
    *rooms_rules("kv", KV, [r"base/.*", r"kv/[^/]*", r"schema/spaces\.h"],
                 ["absl"], files=r".*\.h", system=True),
    # Object stores know nothing of RocksDB, nor of what is stored.
    Rule(r"kv/objects/.*\.h", [r"base/.*", r"kv/[^/]*", r"kv/objects/.*"],
         ["absl"], system=True),
    Rule(r"kv/objects/.*\.cc",
         [r"base/.*", r"kv/[^/]*", r"kv/(files|objects)/.*"],
         ["absl", "curl", "json", "openssl", "pugixml", "rados"], system=True),
    Rule(r"kv/testing/.*\.cc",
         [r"(base|kv)/.*", r"schema/spaces\.h"], ["absl", "rocksdb"],
         system=True),
    Rule(r"kv/[^/]*\.cc", [r"base/.*", r"kv/[^/]*", r"schema/spaces\.h"],
         ["absl"]),
    *rooms_rules("kv", KV, [r"base/.*", r"kv/[^/]*", r"schema/spaces\.h"],
                 ["absl", "rocksdb", "xxhash"], system=True),
    Rule(r"core/include/.*\.h", [r"ckptree/.*"], ["absl"]),
    # No entropy coder elsewhere.
    Rule(r"core/coding/.*", [r"base/.*", r"core/coding/.*",
                             r"schema/limits\.h"],
         ["absl", "highway", "zstd"]),
    *rooms_rules("core", CORE,
                 [r"base/.*", FORMAT_TYPES, r"kv/[^/]*", r"schema/.*"],
                 ["absl", "highway", "tbb"], face=FACE, system=True),
    # Pages and servers are one room's.
    Rule(r"tools/report/.*",
         [r"base/.*", r"ckptree/.*", r"tools/(output|report)/.*"],
         ["absl", "httplib", "json", "zlib"], system=True),
    *rooms_rules("tools", TOOLS,
                 [r"base/.*", r"ckptree/.*", r"core/.*", r"schema/.*"],
                 ["absl", "cli11", "json", "sqlite", "zip"], system=True),
    Rule(r"tools/ckptree\.cc", [r"tools/(line|output)/.*"], ["absl"],
         system=True),
    Rule(r"bench/.*",
         [r"(base|bench|ckptree|core|kv|schema)/.*"],
         ["absl", "benchmark"], system=True),
    Rule(r"python/src/.*",
         [r"python/src/.*", r"ckptree/.*"],
         ["absl", "nanobind"], system=True),
    # Plays a library of the system; it is built by a test.
    Rule(r"python/tests/played_cuda\.cc", [], []),
    # The program of somebody else sees what is installed.
    Rule(r"tests/consumer/.*", [r"ckptree/.*"], ["absl"]),
    # An example is a user: it sees what a user sees.
    Rule(r"tests/examples/.*",
         [r"ckptree/.*", r"tests/examples/.*", r"tests/testutil/.*"],
         ["absl", "gtest"], system=True),
    # What reads bytes or text from outside, and nothing that opens a store.
    Rule(r"tests/fuzz/corpus_test\.cc", [], ["gtest"]),
    Rule(r"tests/fuzz/.*",
         [r"(base|schema)/.*", r"kv/write_batch\.h",
          r"kv/journal/(preface|record)\.h", r"core/coding/.*",
          r"ckptree/(preservation|selector|tensor)\.h", FORMAT_TYPES,
          r"tools/.*",
          r"tests/fuzz/.*", r"tests/schema/samples\.h"], ["absl", "json"]),
    Rule(r"tests/fault/(files|fs|late_fs)[^/]*",
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

# Headers that declare what the library in question defines, without including
# it. None of them is a header that core, a user or a tool may include.
FORWARD = {
    "rocksdb": (r"kv/files/(file_system_of|status)\.h|kv/journal/tail\.h|"
                r"kv/rocks/\w+\.h"),
}
# Units that include each other's headers from their sources.
PAIRS = [
    # One file of the journal, what it holds, and what becomes of that.
    ["kv/journal/file_pair", "kv/journal/reader", "kv/journal/replay"],
    # A file of rows, and what its bytes mean.
    ["kv/journal/rows_file", "kv/journal/rows_layout"],
    # Copies of leaves are made by compactions of the instance that reads them.
    ["kv/rocks/instance", "kv/rocks/leaf_copies"],
    # What is wrong with a record says in which envelope it stood.
    ["schema/envelope", "schema/fault"],
    # A tree, and one entry of it.
    ["schema/tree", "schema/tree_entry"],
    # A file system that fails, and its files.
    ["tests/fault/files", "tests/fault/fs"],
]
# The modules of the package that the engine imports: for an error that it
# raises, and for what it logs.
LOADED_BY_THE_ENGINE = ("ckptree.errors", "ckptree.logs")

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
    if not name.endswith((".h", ".inc")):
      return "what is included ends in .h or .inc"
    if any(pattern.match(name) for pattern in rule.ours):
      return None
    return "there is no such arrow"
  if name in STD:
    return None
  if re.match(r"[a-z0-9_]+\.h$|(sys|linux|arpa|netinet|bits)/", name):
    return None if rule.system else "the system is not for this folder"
  return "this library is not known here; see tests/house/layering_test.py"


def check_source(path, text):
  """Returns the complaints about the code of one C++ file."""
  rule = next((rule for rule in RULES if rule.files.match(path)), None)
  if rule is None:
    return [f"{path}: no rule for this folder"]
  found, wrong = cpp_source.includes(text, path)
  for number, name in found:
    reason = why_not(rule, name)
    if reason:
      wrong.append((number, f"includes {name}: {reason}"))
  for library, number in cpp_source.named(text).items():
    declared = re.fullmatch(FORWARD.get(library, ""), path)
    if library not in rule.libraries and not declared:
      wrong.append((number, f"names what is of {library}, which is not for "
                    "this folder, or for no header of it"))
  if path.startswith("python/"):
    wrong += [
        (number, f"loads {name or 'what is not written here'}")
        for number, name in cpp_source.loaded_modules(text)
        if name not in LOADED_BY_THE_ENGINE]
  return [f"{path}:{number}: {what}" for number, what in wrong]


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
  if lines > MAX_LINES and not path.endswith(".md"):
    complaints.append(f"{path}: {lines} lines, at most {MAX_LINES}")
  if path.endswith(cpp_source.OTHER_ENDINGS):
    complaints.append(f"{path}: a C++ file ends in .h, .cc or .inc")
  if path.endswith(cpp_source.ENDINGS):
    complaints += check_source(path, text)
  return complaints


def check_circles(files):
  """Returns the complaints about circles of includes among `files`: texts of
  C++ files by their paths."""
  headers, units = {}, {}
  for path, text in files.items():
    targets = set()
    for _, name in cpp_source.includes(text)[0]:
      for folder in ("", "core/include/", "schema/include/"):
        if folder + name in files:
          targets.add(folder + name)
    if not path.endswith(".cc"):
      headers[path] = targets
    unit = path.rpartition(".")[0]
    units.setdefault(unit, set()).update(
        {target.rpartition(".")[0] for target in targets} - {unit})
  complaints = [
      "a circle of headers: " + ", ".join(circle)
      for circle in python_imports.circles(headers)]
  found = python_imports.circles(units)
  complaints += [
      f"a circle of units, which is not in PAIRS: {', '.join(circle)}"
      for circle in found if circle not in PAIRS]
  complaints += [
      f"in PAIRS, and no circle: {', '.join(pair)}" for pair in PAIRS
      if pair not in found and set(pair) & set(units)]
  return complaints


def check_tree(root):
  """Returns (number of files, complaints) of all files below `root`."""
  complaints, sources, count = [], {}, 0
  endings = cpp_source.ENDINGS + cpp_source.OTHER_ENDINGS
  for path in prose.tracked(root):
    if not path.endswith(endings) and not prose.is_written(path, root):
      continue
    with open(os.path.join(root, path), encoding="utf-8") as file:
      text = file.read()
    complaints += check_file(path, text)
    if path.endswith(cpp_source.ENDINGS):
      sources[path] = text
    count += 1
  return count, complaints + check_circles(sources)


PLANTED = [
    ("schema/keys.h", '#include "kv/database.h"'),
    ("schema/keys.h", '#include "schema/checkpoint.pb.h"'),
    ("schema/path.cc", "#include <mutex>"),
    ("schema/path.cc", "#include <unistd.h>"),
    ("schema/path.cc", '#include "absl/time/clock.h"'),
    ("base/digest.h", "#include <xxhash.h>"),
    ("base/digest.cc", '#include "hwy/highway.h"'),
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
    ("kv/objects/file_store.cc", '#include "kv/journal/reader.h"'),
    ("kv/objects/http.h", "#include <curl/curl.h>"),
    ("kv/object_store.h", "#include <rados/librados.h>"),
    ("kv/journal/reader.cc", "#include <curl/curl.h>"),
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
    ("scripts/engine.cc", "#include <string>"),
    # Rooms: a header is held to what its source is held to.
    ("kv/files/lock_file.h", '#include "kv/rocks/instance.h"'),
    ("kv/journal/record.h", '#include "kv/rocks/instance.h"'),
    ("core/process/clock.cc", '#include "ckptree/store.h"'),
    ("core/array/statistics.cc", '#include "ckptree/manager.h"'),
    # Endings.
    ("base/digest_kernel.inc", '#include "core/engine/engine.h"'),
    ("core/array/statistics.inc", '#include "core/engine/engine.h"'),
    ("core/array/statistics.hpp", ""),
    ("core/array/statistics.cpp", ""),
    ("core/array/statistics.cc", '#include "core/array/statistics.cc"'),
    # Paths.
    ("core/array/statistics.cc", '#include "schema/../core/engine/engine.h"'),
    ("core/array/statistics.cc", '#include "ckptree/../../engine/engine.h"'),
    ("core/array/statistics.cc", '#include "./engine.h"'),
    ("schema/path.cc", '#include "absl/../kv/database.h"'),
    ("schema/path.cc", '#include "/usr/include/unistd.h"'),
    # Spelling.
    ("core/array/grid.cc", '#define UP "core/engine/engine.h"\n#include UP'),
    ("core/array/grid.cc", '#include "engine.h"'),
    ("core/array/grid.cc", '#define HWY_TARGET_INCLUDE "core/engine/engine.h"'),
    ("core/array/grid.cc", "#define UP <core/engine/engine.h>"),
    ("core/array/grid.cc", '#import "core/engine/engine.h"'),
    ("core/array/grid.cc", '#include_next "core/engine/engine.h"'),
    ("core/array/grid.cc", '%:include "core/engine/engine.h"'),
    ("core/array/grid.cc", '??=include "core/engine/engine.h"'),
    ("core/array/grid.cc", '/**/ #include "core/engine/engine.h"'),
    ("core/array/grid.cc", '# /**/ include "core/engine/engine.h"'),
    ("core/array/grid.cc", '#include /**/ "core/engine/engine.h"'),
    ("core/array/grid.cc", '/*\n*/ #include "core/engine/engine.h"'),
    ("core/array/grid.cc", '#include \\\n"core/engine/engine.h"'),
    ("core/array/grid.cc", '#inc\\\nlude "core/engine/engine.h"'),
    ("core/array/grid.cc", '#include\v"core/engine/engine.h"'),
    ("core/array/grid.cc", '#include "core/engine/engine.h"  int a;'),
    ("core/array/grid.cc", 'import "core/engine/engine.h";'),
    ("core/array/grid.cc", "export import engine;"),
    ("core/array/grid.cc", '#if __has_include("kv/database.h")\n#endif'),
    ("core/array/grid.cc", '#embed "README.md"'),
    # Names of a library without its header.
    ("core/include/ckptree/store.h", "namespace rocksdb { class DB; }"),
    ("core/include/ckptree/store.h",
     "namespace google::protobuf { class Message; }"),
    ("core/include/ckptree/store.h", "namespace tbb { class task_group; }"),
    ("core/engine/engine.cc", "void Compact(rocksdb :: DB* db);"),
    ("kv/database.h", "namespace rocksdb { class DB; }"),
    ("schema/keys.h", "namespace ckptree::schema::pb { class StepRecord; }"),
    ("tests/engine_test.cc", "using rocksdb::DB;"),
    ("tools/verbs/log.cc", "namespace\nrocksdb { class DB; }"),
    # Input, output and clocks.
    ("schema/path.cc", "#include <ctime>"),
    ("schema/path.cc", "#include <cstdio>"),
    ("schema/path.h", "#include <ostream>"),
    ("schema/path.cc", "#include <execution>"),
    # Python from C++.
    ("python/src/store.cc", 'nb::module_::import_("ckptree.store");'),
    ("python/src/store.cc", "nb::module_::import_(name);"),
    ("python/src/store.cc", 'PyImport_ImportModule("jax");'),
    ("python/src/store.cc", 'nb::exec("import jax");'),
    ("core/util.cc", "#include <string>"),
    ("tools/helpers.py", ""),
    ("core/engine/engine.cc", "\n" * 601),
    ("python/ckptree/store.py", "a = 1\n" * 601),
]

CLEAN = [
    ("schema/keys.h", '#include "absl/status/statusor.h"\n#include <string>'),
    ("schema/step_record.cc", '#include "schema/checkpoint.pb.h"'),
    ("base/digest.cc", "#include <xxhash.h>"),
    ("base/instruction_set.cc", '#include "hwy/detect_targets.h"'),
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
    ("core/engine/engine.cc",
     '// #include "rocksdb/db.h"\n/*\n#include "kv/rocks/guard.h"\n*/'
     'Say("rocksdb::DB\\"", R"(\n#include "rocksdb/db.h"\n)", 1\'000);\n'),
    ("kv/rocks/instance.h", "namespace rocksdb {\nclass DB;\n}"),
    ("kv/journal/record.h", '#include "kv/files/status.h"'),
    ("core/verify/scan.h", '#include "ckptree/store.h"'),
    ("core/version/step.cc", '#include "ckptree/path.h"'),
    ("core/include/ckptree/all.h",
     '#include "ckptree/path.h"  // IWYU pragma: export'),
    ("python/src/errors.cc", 'nb::module_::import_("ckptree.errors")'),
    ("core/array/grid.cc",
     '#define HWY_TARGET_INCLUDE "core/array/grid.cc"\n'
     '#include "hwy/foreach_target.h"'),
    ("python/ckptree/store.py",
     'class Store:\n  """A\n' + "\n" * 300 + '"""\n' + "  a = 1\n" * 400),
]


# Each tree is more than one file.
CIRCLES = [
    {"core/engine/a.h": '#include "core/engine/b.h"',
     "core/engine/b.h": '#include "core/engine/a.h"'},
    {"core/include/ckptree/a.h": '#include "ckptree/b.h"',
     "core/include/ckptree/b.h": '#include "ckptree/c.h"',
     "core/include/ckptree/c.h": '#include "ckptree/a.h"'},
    {"core/engine/a.h": '#include "core/engine/a.inc"',
     "core/engine/a.inc": '#include "core/engine/a.h"'},
    # By a source.
    {"core/engine/a.cc": '#include "core/engine/b.h"', "core/engine/a.h": "",
     "core/engine/b.h": '#include "core/engine/a.h"'},
    # One that is named, and has grown; one that is named and is gone.
    {"schema/tree.h": '#include "schema/tree_entry.h"',
     "schema/tree_entry.cc": '#include "schema/path.h"',
     "schema/tree_entry.h": "",
     "schema/path.h": '#include "schema/tree.h"'},
    {"schema/tree.h": '#include "schema/tree_entry.h"',
     "schema/tree_entry.h": ""},
]
NO_CIRCLES = [
    {"core/engine/a.h": '#include "core/engine/b.h"', "core/engine/b.h": "",
     "core/engine/a.cc": '#include "core/engine/a.h"'},
    {"schema/tree.h": '#include "schema/tree_entry.h"',
     "schema/tree_entry.cc": '#include "schema/tree.h"',
     "schema/tree_entry.h": ""},
]


def self_test():
  """Returns what this test would fail to notice, or wrongly notices."""
  faults = []
  for path, text in PLANTED:
    if not check_file(path, text):
      faults.append(f"planted and not found: {path}: {text.strip()[:60]}")
  for path, text in CLEAN:
    faults += [f"wrongly found: {line}" for line in check_file(path, text)]
  for tree in CIRCLES:
    if not check_circles(tree):
      faults.append(f"planted and not found: {tree}")
  for tree in NO_CIRCLES:
    faults += [f"wrongly found: {line}" for line in check_circles(tree)]
  with tempfile.TemporaryDirectory() as root:
    os.makedirs(os.path.join(root, "core", "deep"))
    with open(os.path.join(root, "core", "deep", "a.cc"), "w") as file:
      file.write('#include "rocksdb/db.h"\n')
    # No ending and no folder is passed over.
    os.makedirs(os.path.join(root, "extra"))
    with open(os.path.join(root, "extra", "a.inc"), "w") as file:
      file.write("int a;\n")
    count, complaints = check_tree(root)
    if (count, len(complaints)) != (2, 2):
      faults.append(f"a planted tree gave {count} files, {complaints}")
  return faults


def main():
  faults = self_test()
  count, complaints = check_tree(ROOT)
  package = python_imports.files_below(ROOT)
  complaints += python_imports.check(package)
  faults += python_imports.self_test()
  planted = len(PLANTED) + len(CIRCLES) + len(python_imports.PLANTED)
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
