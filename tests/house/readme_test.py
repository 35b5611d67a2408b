#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the commands that the README shows and compares what they print; the
C++ there must be what tests/examples/readme_example.cc compiles.

With --update the README is written anew instead.

A capture stands in the README as

    <!-- capture: NAME -->
    ```
    $ ckptree log -n 3
    ...what it printed...
    ```

and every capture runs on one store that char_lm makes.
"""

import argparse
import os
import re
import shlex
import subprocess
import sys
import tempfile
import textwrap

ROOT = os.path.dirname(
    os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
CAPTURE = re.compile(
    r"(<!-- capture: (?P<name>[a-z-]+) -->\n```[a-z]*\n)(?P<body>.*?)(?=```\n)",
    re.DOTALL)
CODE = re.compile(r"(<!-- code: (?P<name>\S+) -->\n```cpp\n)(?P<body>.*?)"
                  r"(?=```\n)", re.DOTALL)
REGION = re.compile(r"^ *// README: begin\n(.*?)^ *// README: end\n",
                    re.DOTALL | re.MULTILINE)

# What is another each time: digests and names of stores, moments, ages.
VOLATILE = [
    (re.compile(r"\b[0-9a-f]{32}\b"), "DIGEST"),
    (re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?(Z| UTC)?"), "TIME"),
    (re.compile(r"\b\d+(\.\d+)? ?(ns|us|µs|ms|s|sec|min|h|d|days?)"
                r"( ago)?(?!\w)"), "SPAN"),
    (re.compile(r"\bpid \d+"), "pid N"),
]
# Floating-point results differ in the last digits between processors.
TOLERANCE = 0.02


def mask(text):
  for pattern, word in VOLATILE:
    text = pattern.sub(word, text)
  return text


def number(word):
  """Returns the value of a word like 2.31e-05 or None; integers are names."""
  if not re.fullmatch(r"[-+]?\d+(\.\d+)?(e[-+]?\d+)?", word):
    return None
  return float(word) if re.search(r"[.e]", word) else None


def same_words(shown, printed):
  shown_words = shown.replace(",", " , ").split()
  printed_words = printed.replace(",", " , ").split()
  if len(shown_words) != len(printed_words):
    return False
  for a, b in zip(shown_words, printed_words):
    if a == b:
      continue
    x, y = number(a), number(b)
    if x is None or y is None:
      return False
    if abs(x - y) > TOLERANCE * max(abs(x), abs(y), 1e-3):
      return False
  return True


def compare(name, shown, printed):
  """Returns complaints about a capture against what is printed now."""
  shown_lines = mask(shown).splitlines()
  printed_lines = mask(printed).splitlines()
  complaints = []
  for i in range(max(len(shown_lines), len(printed_lines))):
    a = shown_lines[i] if i < len(shown_lines) else "(nothing)"
    b = printed_lines[i] if i < len(printed_lines) else "(nothing)"
    if not same_words(a, b):
      complaints.append(f"capture {name}, line {i + 1}:\n"
                        f"  README:  {a}\n  printed: {b}")
  return complaints


class Captures:
  """Runs `ckptree` on a store made for the purpose."""

  def __init__(self, ckptree, char_lm, folder):
    self.ckptree = os.path.abspath(ckptree)
    self.store = os.path.join(folder, "run")
    # Twice, so that there is a run that was resumed; the second starts from a
    # step that is known, as one that was killed would not.
    for steps in (200, 400):
      subprocess.run(
          [char_lm, "--store", self.store, "--tiny", "--quiet", "--save-every",
           "100", "--steps", str(steps)],
          check=True, stdout=subprocess.DEVNULL)

  def run(self, body):
    """Returns the body with what its commands print now."""
    printed = ""
    for line in body.splitlines():
      if not line.startswith("$ "):
        continue
      words = shlex.split(line[2:])
      if words[0] != "ckptree":
        raise ValueError(f"not a command of ours: {line}")
      environment = dict(os.environ, CKPTREE_STORE=self.store, LC_ALL="C.UTF-8")
      done = subprocess.run([self.ckptree] + words[1:], env=environment,
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                            text=True, check=False)
      if done.returncode != 0:
        raise ValueError(f"{line}: exit status {done.returncode}: "
                         f"{done.stdout}")
      printed += line + "\n"
      printed += "".join(
          text.rstrip() + "\n" for text in done.stdout.splitlines())
    return printed


def code_region(name):
  with open(os.path.join(ROOT, name), encoding="utf-8") as file:
    return textwrap.dedent(REGION.search(file.read()).group(1))


def self_test():
  """Returns what the comparison would not notice, or wrongly notices."""
  faults = []
  shown = "40 2026-01-02T03:04:05Z 2.31 0.2 MiB\n"
  for other in ("40 2027-01-02T03:04:05Z 2.32 0.2 MiB\n",
                "40  2026-01-02T03:04:05Z  2.31 0.2 MiB\n"):
    if compare("self", shown, other):
      faults.append(f"wrongly noticed: {other}")
  for other in ("41 2026-01-02T03:04:05Z 2.31 0.2 MiB\n",
                "40 2026-01-02T03:04:05Z 2.61 0.2 MiB\n", "", shown + shown):
    if not compare("self", shown, other):
      faults.append(f"not noticed: {other}")
  return faults


def main():
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  parser.add_argument("--ckptree", required=True)
  parser.add_argument("--char-lm", required=True)
  parser.add_argument("--readme", default=os.path.join(ROOT, "README.md"))
  parser.add_argument("--update", action="store_true")
  arguments = parser.parse_args()

  with open(arguments.readme, encoding="utf-8") as file:
    readme = file.read()
  complaints = self_test()
  counts = {"captures": 0, "codes": 0}

  with tempfile.TemporaryDirectory() as folder:
    captures = Captures(arguments.ckptree, arguments.char_lm, folder)

    def capture(match):
      counts["captures"] += 1
      printed = captures.run(match["body"])
      complaints.extend(compare(match["name"], match["body"], printed))
      return match[1] + printed

    def code(match):
      counts["codes"] += 1
      compiled = code_region(match["name"])
      if compiled != match["body"]:
        complaints.append(f"the code of {match['name']} is another:\n"
                          f"{compiled}")
      return match[1] + compiled

    updated = CODE.sub(code, CAPTURE.sub(capture, readme))

  marks = len(re.findall(r"<!-- (capture|code): ", readme))
  if marks != sum(counts.values()) or 0 in counts.values():
    complaints.append(f"{marks} marks in the README, but {counts}")
  if arguments.update:
    with open(arguments.readme, "w", encoding="utf-8") as file:
      file.write(updated)
    return 0
  for line in complaints:
    print(line)
  if complaints:
    print("If that is what should be printed: "
          "tests/house/readme_test.py --update")
  return 1 if complaints else 0


if __name__ == "__main__":
  sys.exit(main())
