#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every behaviour of the manager that people know by a row id is answered in
python/manager_rows.md, and the tests named there exist."""

import pathlib
import re
import sys

ROWS = {"OPT": 31, "CM": 31, "SV": 11, "SD": 8, "PP": 9}
UNUSED = {"CM-09"}
ROW = re.compile(r"^\| ([A-Z]+-\d+) \| (\w+) \| (.+) \|$", re.MULTILINE)


def main():
  root = pathlib.Path(__file__).resolve().parents[2]
  part = (root / "python/manager_rows.md").read_text(encoding="utf-8")
  tests = {f"{suite}.{name}" for file in (root / "tests").rglob("*_test.cc")
           for suite, name in re.findall(r"^TEST(?:_[FP])?\((\w+),\s+(\w+)\)",
                                         file.read_text(encoding="utf-8"),
                                         re.MULTILINE)}
  suites = {test.split(".")[0] for test in tests}
  programs = {f"{room}{file.stem}"
              for file in (root / "tests").rglob("*_test.cc")
              for room in ("", f"{file.parent.name}_")}

  faults = []
  answered = {}
  for row, stance, answer in ROW.findall(part):
    if row in answered:
      faults.append(f"{row} is answered twice")
    answered[row] = stance
    if stance not in ("kept", "better", "refused"):
      faults.append(f"{row}: '{stance}' is no stance")
    for test in re.findall(r"\b\w+Test\.\w+", answer):
      if test not in tests:
        faults.append(f"{row}: there is no test {test}")
    for suite in re.findall(r"\b([A-Z]\w*Test)(?![.\w])", answer):
      if suite not in suites:
        faults.append(f"{row}: there are no tests {suite}")
    for program in re.findall(r"\b[a-z_]+_test\b", answer):
      if program not in programs:
        faults.append(f"{row}: there is no {program}")
  wanted = {f"{kind}-{n:02}" for kind, last in ROWS.items()
            for n in range(1, last + 1)} - UNUSED
  faults += [f"{row} is not answered" for row in sorted(wanted - set(answered))]
  faults += [f"{row} is no row" for row in sorted(set(answered) - wanted)]
  for fault in faults:
    print(f"rows_test: {fault}", file=sys.stderr)
  print(f"{len(answered)} rows answered")
  return 1 if faults else 0


if __name__ == "__main__":
  sys.exit(main())
