#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""scripts/failed_tests repeats why each test failed, and nothing of the
others."""

import os
import subprocess
import sys
import tempfile

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")


def part(number, name, output, passed):
  return (f"{number}/3 Testing: {name}\n{number}/3 Test: {name}\n"
          f'Command: "/somewhere/{name}"\nDirectory: /somewhere\n'
          f'"{name}" start time: Nov 26 01:02 UTC\nOutput:\n'
          + "-" * 58 + "\n" + output + "\n<end of output>\n"
          "Test time =   0.10 sec\n" + "-" * 58 + "\n"
          + ("Test Passed.\n" if passed else "Test Failed.\n")
          + f'"{name}" end time: Nov 26 01:02 UTC\n\n')


LOG = "Start testing: Nov 26 01:02 UTC\n" + "-" * 58 + "\n" + part(
    1, "good_test", "good.cc:1: Failure\nof a trial that was planted", True
) + part(
    2, "bad_test", "[ RUN      ] A.B\n" + "noise\n" * 100
    + "bad.cc:17: Failure\nExpected equality of these values:\n  1\n  2\n"
    + "more noise\n" * 100, False
) + part(
    3, "odd_test", "\n".join(f"line {i}" for i in range(100)) + "\n"
    + "x" * 1000, False
) + "End testing: Nov 26 01:03 UTC\n"


def main():
  with tempfile.NamedTemporaryFile("w", suffix=".log") as file:
    file.write(LOG)
    file.flush()
    said = subprocess.run(
        [os.path.join(ROOT, "scripts", "failed_tests"), file.name],
        check=True, capture_output=True, text=True).stdout.splitlines()
  odd = said.index("---- odd_test")
  wanted = ["---- bad_test", "  bad.cc:17: Failure",
            "  Expected equality of these values:", "    1", "    2"]
  assert said[:5] == wanted, said
  assert "  noise" not in said and "  more noise" in said, said
  assert odd <= 9, said  # A few lines behind the reason.
  # Where nothing is known to be the reason: the end, cut to what one reads.
  assert said[odd + 1:-1] == [f"  line {i}" for i in range(81, 100)], said
  assert said[-1] == "  " + "x" * 400 + " [...]", said
  print("two that failed, one that did not")


if __name__ == "__main__":
  sys.exit(main())
