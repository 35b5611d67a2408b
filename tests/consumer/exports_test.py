#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares what the shared library shows with what the public headers say:
every public function is there, and nothing else."""

import argparse
import glob
import os
import re
import subprocess
import sys

# What no name that is shown may have in it.
FOREIGN = re.compile(
    r"\b(internal|kv|base|schema|rocksdb|google|tbb|Impl|pb)::|^(?!ckptree::)")


def declared(texts):
  """The classes with functions, and the functions, that headers declare."""
  names = set()
  for text in texts:
    text = re.sub(r"//.*", "", text)
    names |= set(re.findall(
        r"^(?:class|struct) (?:CKPTREE_EXPORT )?(\w+) \{", text, re.M))
    # A declaration begins in the first column; a friend's is found anywhere.
    for line in re.findall(r"^[A-Za-z][^;{}]*?(operator\W+|\b\w+)\(", text,
                           re.M):
      names.add(line)
    names |= set(re.findall(r"friend [\w ]*?(operator\W+)\(", text))
  return names


def outermost(symbol):
  """"Store" of "ckptree::Store::Open(...)", "Text" of "ckptree::Text(...)";
  None of what is in no room of its own or in another namespace."""
  match = re.match(r"ckptree::(operator[^\w\s(]+|\w+)", symbol)
  return match.group(1) if match else None


def readable(texts):
  """The types that Step::Read<T>() is declared for."""
  match = re.search(r"concept ReadableValue =\s*AnyOfTypes<T,(.*?)>;",
                    "\n".join(texts), re.S)
  return re.split(r",\s*", match.group(1)) if match else []


def complaints(shown, defined, texts):
  """`shown`: symbols of the shared library; `defined`: of the object files."""
  # Its names begin with what it returns, and are weak in the object files.
  read = re.compile(r" ckptree::Step::Read<[^(]*\(ckptree::PathRef\) const$")
  reads = {symbol for symbol in shown if read.search(symbol)}
  shown = shown - reads
  lines = [f"shown, and not public: {symbol}" for symbol in sorted(shown)
           if FOREIGN.search(symbol.split("(")[0])]
  names = declared(texts)
  lines += [f"shown, and in no public header: {symbol}"
            for symbol in sorted(shown) if outermost(symbol) not in names]
  public = {symbol for symbol in defined
            if outermost(symbol) in names
            and not FOREIGN.search(symbol.split("(")[0])}
  lines += [f"public, and not shown: {symbol}"
            for symbol in sorted(public - shown)]
  if len(reads) != len(readable(texts)):
    lines.append(f"Step::Read<T>() is shown for {len(reads)} types, and "
                 f"declared for {len(readable(texts))}")
  return public, lines


def symbols(arguments, files):
  """Functions and data, demangled."""
  output = subprocess.run(["nm", "-C", "--defined-only", *arguments, *files],
                          check=True, capture_output=True, text=True).stdout
  found = re.findall(r"^[0-9a-f]+ ([A-Za-z]) (.+)$", output, re.M)
  # Weak ones are of templates and inline functions: a program makes its own.
  kinds = "TDBRVWu" if arguments else "TDBR"
  return {name for kind, name in found if kind in kinds}


HEADER = """
concept ReadableValue =
    AnyOfTypes<T, bool,
               std::vector<float>>;
struct CKPTREE_EXPORT Store {
  void Open();
  friend CKPTREE_EXPORT bool operator==(const Store& a, const Store& b);
};
CKPTREE_EXPORT std::string Text(int a,
                                int b);
"""
ALL = {"ckptree::Store::Open()", "ckptree::Text(int, int)",
       "ckptree::operator==(ckptree::Store const&, ckptree::Store const&)"}
READS = {"S<bool> ckptree::Step::Read<bool>(ckptree::PathRef) const",
         "S<std::vector<float> > ckptree::Step::Read<std::vector<float> >"
         "(ckptree::PathRef) const"}


def self_test():
  """What this test would fail to notice, or wrongly notices."""
  faults = []
  for extra in ("ckptree::internal::Engine::Close()", "rocksdb::DB::Open()",
                "ckptree::Store::Impl::Wait()", "ckptree::Pool::Free()",
                "ckptree::kv::Join()", "google::protobuf::Arena::Init()",
                "typeinfo for ckptree::kv::Database",
                "std::vector<int>::push_back(int const&)"):
    if not complaints(ALL | READS | {extra}, ALL, [HEADER])[1]:
      faults.append(f"planted and not found: {extra}")
  for symbol in ALL | READS:
    if not complaints((ALL | READS) - {symbol}, ALL, [HEADER])[1]:
      faults.append(f"taken away and not missed: {symbol}")
  more = ALL | {"ckptree::internal::Engine::Close()"}
  faults += complaints(ALL | READS, more, [HEADER])[1]
  return faults


def main():
  parser = argparse.ArgumentParser()
  parser.add_argument("--source", required=True)
  parser.add_argument("--library", required=True)
  parser.add_argument("--archives", required=True, nargs="+")
  options = parser.parse_args()
  texts = []
  for folder in ("core", "schema"):
    pattern = os.path.join(options.source, folder, "include/ckptree/*.h")
    for name in glob.glob(pattern):
      with open(name, encoding="utf-8") as file:
        texts.append(file.read())

  faults = self_test()
  shown = symbols(["-D"], [options.library])
  public, found = complaints(shown, symbols([], options.archives), texts)
  for line in faults + found:
    print(line)
  print(f"{len(shown)} symbols shown, {len(public)} public ones in "
        f"{len(texts)} headers, {len(found)} complaints, {len(faults)} missed")
  if len(public) < 150:
    print("these are not the headers and libraries of ckptree")
    return 1
  return 1 if faults or found else 0


if __name__ == "__main__":
  sys.exit(main())
