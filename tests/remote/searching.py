# SPDX-License-Identifier: Apache-2.0
"""What the models of this room share: the search of all states, breadth first,
and a command line on which a model must hold and each wrong rule be caught."""

import argparse
import collections
import os
import time


def search(first, steps, look):
  """Returns the number of states, and the way to the first broken one, or None.
  `steps(state)` yields what may happen and the state after it, None where that
  is nothing; `look(state)`, called once for each, returns what is wrong."""
  came = {first: None}
  level = [first]
  while level:
    following = []
    for state in level:
      for what, after in steps(state):
        if after is None or after in came:
          continue
        came[after] = (state, what)
        wrong = look(after)
        if wrong:
          return len(came), way(came, after) + [wrong]
        following.append(after)
    level = following
  return len(came), None


def way(came, state):
  steps = []
  while came[state]:
    state, what = came[state]
    steps.append(what)
  return steps[::-1]


def run(about, mutants, sizes, must_meet, model, long=()):
  """Searches the model at each of `sizes`, then each mutant; returns the exit
  code. `mutants[name][0]` is the index of its size. `model(mutant, size, met)`
  returns what search() does, and counts in `met` what happened; without each of
  `must_meet` the search means nothing. The sizes with the indexes `long` take
  as long as all others together: a tenth of the trials goes without, and
  without the mutants."""
  parser = argparse.ArgumentParser(
      description=about, formatter_class=argparse.RawTextHelpFormatter)
  parser.add_argument("--mutant", choices=["all", *mutants])
  asked = parser.parse_args().mutant
  failed = 0
  part = "CKPTREE_TEST_SCALE" in os.environ
  if not asked:
    total, met = 0, collections.Counter()
    for index, size in enumerate(sizes):
      if part and index in long:
        print(f"{size}: searched by tests/run --all")
        continue
      begun = time.process_time()
      states, path = model("", size, met)
      total += states
      print(f"{size}: {states} states, {time.process_time() - begun:.1f} s",
            flush=True)
      if path:
        print("BROKEN:", *path, sep="\n  ")
        return 1
    print("the model holds:", total, "states;",
          ", ".join(f"{n} {what}" for what, n in sorted(met.items())))
    for what in must_meet:
      if not met[what]:
        print(f"nothing was ever {what}")
        failed = 1
  if not asked and part:
    print("the wrong rules are searched for by tests/run --all")
    return failed
  for mutant in mutants if asked in (None, "all") else [asked]:
    states, path = model(mutant, sizes[mutants[mutant][0]],
                         collections.Counter())
    if path is None:
      print(f"NOT CAUGHT: {mutant}, {states} states")
      failed = 1
    elif asked == mutant:
      print(f"{mutant}: {states} states", *path, sep="\n  ")
    else:
      print(f"{mutant}: {states} states, {len(path) - 1} steps: {path[-1]}",
            flush=True)
  return failed
