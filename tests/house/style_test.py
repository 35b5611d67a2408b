#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every C++ file is as clang-format 14 writes it, by .clang-format.

Other versions of clang-format break other lines, so that one alone is asked;
exit code 77, with the reason, where it is not installed.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import prose

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = "clang-format-14"
SKIPPED = 77
PLANTED = "int  main( ) {return 0;}\n"


def complains(arguments: list[str], text: str | None = None) -> str:
  """What clang-format has to say; empty where it is content."""
  done = subprocess.run(
      [PROGRAM, "--dry-run", "-Werror", *arguments], cwd=ROOT, input=text,
      capture_output=True, text=True)
  return "" if done.returncode == 0 else done.stderr or "it failed"


def main() -> int:
  if shutil.which(PROGRAM) is None:
    print(f"SKIPPED: {PROGRAM} is not installed")
    return SKIPPED
  if not complains(["--assume-filename=planted.cc"], PLANTED):
    print("a planted violation was not found")
    return 1
  files = [name for name in prose.files_of_tree(ROOT)
           if name.endswith((".cc", ".h", ".inc"))]
  if len(files) < 100:
    print(f"only {len(files)} files were found")
    return 1
  complaints = complains(files)
  print(complaints or f"{len(files)} files are formatted")
  if complaints:
    print(f"to mend it: {PROGRAM} -i FILE")
  return 1 if complaints else 0


if __name__ == "__main__":
  sys.exit(main())
