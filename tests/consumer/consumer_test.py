#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Builds the program in project/ with ckptree taken in one way, and runs it."""

import argparse
import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
PROJECT = os.path.join(HERE, "project")
WARNINGS = "-Wall -Wextra -Wpedantic -Wold-style-cast -Werror".split()
# What ckptree compiles itself with, and no program of others.
OWN_FLAGS = {"-Wconversion", "-Wshadow", "-Wnon-virtual-dtor",
             "-fvisibility=hidden"}


def run(*command, **more):
  """Runs a command and returns what it printed; a failure ends the test."""
  done = subprocess.run(command, text=True, stdout=subprocess.PIPE,
                        stderr=subprocess.STDOUT, **more)
  if done.returncode != 0:
    raise SystemExit(f"{shlex.join(command)}: {done.returncode}\n"
                     f"{done.stdout}")
  return done.stdout


def check(condition, what):
  if not condition:
    raise SystemExit(f"WRONG: {what}")


class Test:
  def __init__(self, options, folder):
    self.options = options
    self.folder = folder
    self.prefix = os.path.join(folder, "moved")

  def cmake(self, build, source, *settings):
    run(self.options.cmake, "-G", "Ninja", "-S", source, "-B", build,
        f"-DCMAKE_CXX_COMPILER={self.options.compiler}", *settings)

  def build(self, build, *targets):
    run(self.options.cmake, "--build", build, "--parallel", "2",
        *(["--target", *targets] if targets else []))

  def install(self, build):
    """Installs what `build` has, and moves it: no path may stay behind."""
    first = os.path.join(self.folder, "first")
    run(self.options.cmake, "--install", build, "--prefix", first)
    os.rename(first, self.prefix)

  def find(self, name):
    """The one file of that name that is installed."""
    found = [os.path.join(parent, name)
             for parent, folders, files in os.walk(self.prefix)
             if name in files]
    check(len(found) == 1, f"{name} is installed as {found}")
    return found[0]

  def check_installed(self):
    """The headers of the public face are there, and no others."""
    wanted = set()
    for folder in ("core/include/ckptree", "schema/include/ckptree"):
      wanted |= set(os.listdir(os.path.join(self.options.source, folder)))
    include = os.path.join(self.prefix, "include")
    check(os.listdir(include) == ["ckptree"], os.listdir(include))
    there = set(os.listdir(os.path.join(include, "ckptree")))
    check(there == wanted, f"headers: {sorted(there ^ wanted)}")
    for parent, _, files in os.walk(self.prefix):
      for name in files:
        if not name.endswith((".cmake", ".pc", ".h")):
          continue
        with open(os.path.join(parent, name), encoding="utf-8") as file:
          text = file.read()
        for path in (self.options.source, self.options.build, self.folder):
          check(path not in text, f"{name} has the path {path} in it")

  def run_consumer(self, program, **more):
    """Runs it, and looks at the store that it makes with the command."""
    store = os.path.join(self.folder, "store")
    printed = run(program, store, **more)
    check(printed == f"{self.options.version} 7 1\n", f"printed {printed!r}")
    return store

  def check_command(self, store):
    command = os.path.join(self.prefix, "bin/ckptree")
    check(self.options.version in run(command, "--version"), "--version")
    check("params/w" in run(command, "-C", store, "ls"), "ckptree ls")
    # It measures a clock when it is loaded, 3 ms of every process.
    libraries = run("ldd", command)
    check("libhwy" not in libraries, "linked to libhwy")
    # None of them, where the archives were there: one would bring them all.
    if self.settings("CKPTREE_COMMAND_HAS_ABSL") == [
        "-DCKPTREE_COMMAND_HAS_ABSL:INTERNAL=ON"]:
      check("libabsl" not in libraries, f"linked to Abseil: {libraries}")

  def check_modules(self, *programs, **more):
    """What speaks S3 is no part of a program, and is found by it; where its
    module is not, that is said."""
    modules = [os.path.join(parent, name)
               for parent, _, files in os.walk(self.prefix)
               for name in files if name == "ckptree_s3.so"]
    built = self.options.modules.split(",")
    check(len(modules) == ("s3" in built), f"{built}, and there is {modules}")
    if not modules:
      return
    environment = dict(os.environ, AWS_ENDPOINT_URL_S3="http://elsewhere",
                       **more)
    asked = dict(text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                 env=environment)
    hidden = f"{modules[0]}.hidden"
    for program in programs:
      libraries = run("ldd", program[0], env=environment)
      for library in ("librados", "libcurl"):
        check(library not in libraries, f"{program[0]} is linked to {library}")
      # It is refused as plain http to another machine: S3's own words.
      said = subprocess.run(program, **asked).stdout
      check("http://elsewhere" in said, f"{program}: {said}")
      os.rename(modules[0], hidden)
      said = subprocess.run(program, **asked).stdout
      os.rename(hidden, modules[0])
      check("s3:// needs" in said and "ckptree_s3.so" in said,
            f"{program}: {said}")

  def check_flags(self, build):
    """A program gets the folders of the public headers and no flag of ours,
    and cannot include what is inside."""
    with open(os.path.join(build, "compile_commands.json"),
              encoding="utf-8") as file:
      commands = json.load(file)
    [entry] = [entry for entry in commands
               if entry["file"].startswith(PROJECT)]
    words = shlex.split(entry["command"])
    check("-std=gnu++20" in words, words)
    check(not OWN_FLAGS & set(words), f"{OWN_FLAGS & set(words)} leaked")
    for other in commands:
      if other is not entry:
        check("-Werror" not in shlex.split(other["command"]),
              f"{other['file']} is compiled with -Werror")
    self.check_inside(words[:words.index("-o")], entry["directory"])

  def check_inside(self, words, directory):
    """The compiler's command `words` finds public headers and no others."""
    source = os.path.join(self.folder, "includes.cc")
    for header, right in (("ckptree/store.h", True), ("ckptree/path.h", True),
                          ("kv/database.h", False), ("base/digest.h", False),
                          ("core/engine/engine.h", False),
                          ("schema/keys.h", False),
                          ("schema/checkpoint.pb.h", False),
                          ("tests/testutil/flip_byte.h", False)):
      with open(source, "w", encoding="utf-8") as file:
        file.write(f'#include "{header}"\n')
      status = subprocess.run([*words, "-fsyntax-only", source], cwd=directory,
                              capture_output=True).returncode
      check((status == 0) == right,
            f"a program {'cannot' if right else 'can'} include {header}")

  def check_with_cmake(self):
    """find_package() of what is installed."""
    self.check_installed()
    build = os.path.join(self.folder, "build")
    self.cmake(build, PROJECT, f"-DCMAKE_PREFIX_PATH={self.prefix}")
    self.build(build)
    self.check_flags(build)
    return self.run_consumer(os.path.join(build, "consumer"))

  def installed(self):
    self.install(self.options.build)
    self.check_command(self.check_with_cmake())
    self.check_modules(
        [os.path.join(self.prefix, "bin/ckptree"), "-C", "s3://bucket/run",
         "log"],
        [os.path.join(self.folder, "build/consumer"), "s3://bucket/run"])
    soname = run("readelf", "-d", self.find("libckptree.so"))
    short = ".".join(self.options.version.split(".")[:2])
    check(f"[libckptree.so.{short}]" in soname, soname)

  def compile_by_pkg_config(self):
    """As a Makefile would."""
    where = os.path.dirname(self.find("ckptree.pc"))
    environment = dict(os.environ, PKG_CONFIG_PATH=where)

    def ask(*words):
      return run("pkg-config", *words, "ckptree", env=environment).split()

    check(ask("--modversion") == [self.options.version], "--modversion")
    compiler = [self.options.compiler, "-std=gnu++20", *WARNINGS,
                *ask("--cflags")]
    program = os.path.join(self.folder, "consumer")
    run(*compiler, os.path.join(PROJECT, "consumer.cc"), "-o", program,
        *ask("--libs"))
    self.check_inside(compiler, self.folder)
    return self.run_consumer(program, env=dict(
        os.environ, LD_LIBRARY_PATH=os.path.dirname(where)))

  def pkg_config(self):
    self.install(self.options.build)
    self.check_command(self.compile_by_pkg_config())

  def static(self):
    """The library anew, in a folder beside the build's, so that a compiler
    cache has all its object files: they are the same for both kinds."""
    build = os.path.join(os.path.dirname(self.options.build),
                         "consumer_static")
    settings = self.settings("CMAKE_BUILD_TYPE", "CMAKE_CXX_FLAGS_DEBUG",
                             "CMAKE_CXX_FLAGS_RELEASE",
                             "CKPTREE_WARNINGS_AS_ERRORS")
    # Afresh: with another compiler than last time CMake would forget the rest.
    self.cmake(build, self.options.source, "--fresh", "-DCKPTREE_SHARED=OFF",
               "-DCKPTREE_BUILD_TESTS=OFF", "-DCKPTREE_BUILD_BENCH=OFF",
               "-DCKPTREE_BUILD_TOOLS=OFF", *settings)
    self.build(build, "ckptree")
    # Not all of it: the libraries of the rooms are not installed.
    self.install(build)
    self.check_with_cmake()
    shutil.rmtree(os.path.join(self.folder, "store"))
    self.compile_by_pkg_config()
    libraries = run("ldd", os.path.join(self.folder, "consumer"))
    check("libckptree" not in libraries, libraries)

  def settings(self, *names):
    """What the build that is tested has for these."""
    with open(os.path.join(self.options.build, "CMakeCache.txt"),
              encoding="utf-8") as file:
      lines = [line.strip() for line in file]
    return [f"-D{line}" for line in lines
            if line.partition(":")[0] in names]

  def configure_subdirectory(self, *settings):
    build = os.path.join(self.folder, "build")
    self.cmake(build, PROJECT, f"-DSOURCE={self.options.source}", *settings)
    with open(os.path.join(build, "CMakeCache.txt"), encoding="utf-8") as file:
      cache = file.read()
    check("CMAKE_BUILD_TYPE:STRING=\n" in cache, "a build type was forced")
    for name in ("TESTS", "BENCH", "TOOLS"):
      check(f"CKPTREE_BUILD_{name}:BOOL=OFF" in cache, f"{name} are built")
    check("CKPTREE_SHARED:BOOL=OFF" in cache, "is shared")
    return build

  def subdirectory(self):
    """Configures, and compiles the program and two files of the engine: all of
    it would take minutes, and is in whole()."""
    build = self.configure_subdirectory("-DCKPTREE_UNITY=OFF")
    self.check_flags(build)
    self.build(build, "CMakeFiles/consumer.dir/consumer.cc.o",
               "ckptree/schema/CMakeFiles/ckptree_schema.dir/step_record.cc.o",
               "ckptree/core/CMakeFiles/ckptree_core.dir/engine/"
               "local_path.cc.o")

  def whole(self):
    build = self.configure_subdirectory()
    self.build(build)
    self.run_consumer(os.path.join(build, "consumer"))


def main():
  ways = ("installed", "pkg_config", "static", "subdirectory", "whole")
  parser = argparse.ArgumentParser()
  parser.add_argument("--way", required=True, choices=ways)
  for name in ("cmake", "compiler", "version", "source", "build"):
    parser.add_argument(f"--{name}", required=True)
  parser.add_argument("--modules", required=True)
  options = parser.parse_args()
  with tempfile.TemporaryDirectory() as folder:
    getattr(Test(options, folder), options.way)()
  print(f"{options.way}: a program is built, saves, reads back and lists"
        if options.way != "subdirectory" else
        "subdirectory: a program and files of the engine compile")


if __name__ == "__main__":
  sys.exit(main())
