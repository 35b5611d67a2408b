#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A rounded copy and its master in one block, tried on random histories: saves,
removals, forks of what changes, collections and rewrites that code blocks or
make them plain again.

  joint_block_model.py                  the histories, then every mutant
  joint_block_model.py --mutant NAME    one wrong rule: the way to it is printed

The copy c of a master m is a function of it, chunk by chunk. Where both chunks
are new, one block has both, and a coding of it holds the master alone. Nothing
else is new: a reference says block and place, and the dead lists are of blocks.

What must hold after each operation:
  * every chunk of every step reads as it was saved;
  * the blocks that are stored are those of the versions that are not collected;
  * of a block that a save refers to at least half is referred to by it.

So no save refers to a copy without its master in the same block. Blocks live on
by their references all the same: an engine without the last rule may have
written the store. LONE_COPY are wrong rules that only such a store shows."""

import argparse
import collections
import random
import sys

MUTANTS = {
    "a block dies with its master": "the copy is still referred to",
    "a block dies with its copy": "the master is still referred to",
    "a copy leans on another block": "it is collected by itself",
    "a copy is made of its leaf's master": "that has changed since",
    "a sample decides": "a chunk that is no rounding becomes one",
    "only masters are compared": "the copy changed by itself",
    "a copy stays without its master": "two thirds of the block are dead",
    "a rewrite drops the dead half": "the copy is made of it",
}
OLDER = "an engine without the last rule"  # Not wrong.
LONE_COPY = (OLDER, "a block dies with its master",
             "a copy is made of its leaf's master",
             "a rewrite drops the dead half")
BYTES = {"m": 2, "c": 1}

Ref = collections.namedtuple("Ref", "block place value")
# holds: place -> value. coded: the copy's value is not stored. base: of a copy
# that leans on another block (a wrong rule).
Block = collections.namedtuple("Block", "holds coded base")
# leaves: name -> references by chunk. paired: the copy is cut as its master.
Version = collections.namedtuple("Version", "prev leaves paired dead")


class Wrong(Exception):
  pass


def rounded(value):
  return value // 2


class Store:

  def __init__(self, mutant):
    self.mutant = mutant
    self.blocks = {}
    self.versions = {}
    self.steps = {}  # Version -> what was saved.
    self.last = 0
    self.tip = 0

  # Which blocks a version refers to; a wrong rule overlooks half of them.
  def blocks_of(self, version):
    of = version.leaves
    refs = [ref for leaf in of.values() for ref in leaf]
    overlooked = {"a block dies with its master": "c",
                  "a block dies with its copy": "m"}.get(self.mutant)
    return {ref.block for ref in refs
            if ref.place != overlooked or len(self.joint(ref.block)) < 2}

  def joint(self, block):
    return self.blocks[block].holds if block in self.blocks else {}

  def save(self, state):
    self.last += 1
    base = self.versions.get(self.tip)
    paired = ("m" in state and "c" in state
              and state["c"][0] == rounded(state["m"][0]))  # A sample.
    leaves = {name: [None] * len(values) for name, values in state.items()}
    fresh = 0

    def write(holds, base_block=None):
      nonlocal fresh
      fresh += 1
      name = (self.last, fresh)
      self.blocks[name] = Block(holds, False, base_block)
      return name

    def shared(name, k):
      if base is None or name not in base.leaves:
        return None
      if name == "c" and base.paired != paired:
        return None  # Cut in another way.
      ref = base.leaves[name][k]
      return ref if ref.value == state[name][k] else None

    for k in range(2):
      keep = {name: shared(name, k) for name in state}
      master, copy = keep.get("m"), keep.get("c")
      if (self.mutant == "only masters are compared" and paired and master
          and "c" in base.leaves and base.paired):
        copy = base.leaves["c"][k]
        keep["c"] = copy
      if (copy and len(self.joint(copy.block)) == 2
          and not (master and master.block == copy.block)
          and self.mutant != "a copy stays without its master"
          and self.mutant not in LONE_COPY):
        keep["c"] = None
      write_both = paired and not keep["m"] and not keep["c"]
      follows = paired and (self.mutant == "a sample decides"
                            or state["c"][k] == rounded(state["m"][k]))
      if write_both and follows:
        if self.mutant == "a copy leans on another block":
          block = write({"m": state["m"][k]})
          keep["m"] = Ref(block, "m", state["m"][k])
          keep["c"] = Ref(write({"c": None}, block), "c", state["c"][k])
        else:
          block = write({name: state[name][k] for name in "mc"})
          for name in "mc":
            keep[name] = Ref(block, name, state[name][k])
      for name in state:
        leaves[name][k] = keep[name] or Ref(
            write({name: state[name][k]}), name, state[name][k])
    version = Version(self.tip, leaves, paired, frozenset())
    dead = self.blocks_of(base) - self.blocks_of(version) if base else set()
    self.versions[self.last] = version._replace(dead=frozenset(dead))
    self.steps[self.last] = state
    self.tip = self.last
    self.check_halves(version)

  def check_halves(self, version):
    if self.mutant in LONE_COPY:
      return
    referred = collections.Counter()
    for leaf in version.leaves.values():
      for ref in leaf:
        referred[ref.block] += BYTES[ref.place]
    for block, bytes_of in referred.items():
      if 2 * bytes_of < sum(BYTES[place] for place in self.joint(block)):
        raise Wrong(f"less than half of block {block} is referred to")

  def remove(self, version):
    del self.steps[version]

  def collect(self):
    for v in sorted(set(self.versions) - set(self.steps) - {self.tip}):
      row = self.versions.pop(v)
      kid = min(w for w in self.versions if w > v)
      later = self.versions[kid]
      freed = {block for block in later.dead if block[0] > row.prev}
      self.versions[kid] = later._replace(
          prev=row.prev, dead=later.dead - freed | row.dead)
      for block in freed:
        if self.blocks.pop(block, None) is None:
          raise Wrong(f"block {block} is freed twice")

  # Of what is there already; a rewrite sees no leaf.
  def code(self, block, coded):
    stored = self.blocks[block]
    if len(stored.holds) != 2:
      return
    holds = dict(stored.holds)
    if coded and self.mutant == "a rewrite drops the dead half":
      places = {ref.place for v in self.versions.values()
                for leaf in v.leaves.values() for ref in leaf
                if ref.block == block}
      if places == {"c"}:
        holds["m"] = None
    exact = holds["m"] is not None and holds["c"] == rounded(holds["m"])
    if coded and (exact or self.mutant in (
        "a sample decides", "a rewrite drops the dead half")):
      self.blocks[block] = Block(holds, True, None)
    if not coded:
      self.blocks[block] = stored._replace(coded=False)

  def read(self, version, ref, k):
    stored = self.blocks.get(ref.block)
    if stored is None:
      raise Wrong(f"block {ref.block} is gone")
    if stored.base is not None:
      if stored.base not in self.blocks:
        raise Wrong(f"block {stored.base} is gone, and another needs it")
      return rounded(self.blocks[stored.base].holds["m"])
    if ref.place == "c" and stored.coded:
      master = stored.holds["m"]
      if self.mutant == "a copy is made of its leaf's master":
        master = version.leaves["m"][k].value if "m" in version.leaves else None
      return None if master is None else rounded(master)
    return stored.holds[ref.place]

  def check(self):
    for v, state in self.steps.items():
      for name, values in state.items():
        for k, value in enumerate(values):
          found = self.read(self.versions[v], self.versions[v].leaves[name][k],
                            k)
          if found != value:
            raise Wrong(f"version {v}, {name}, chunk {k}: {found} for {value}")
    needed = {ref.block for row in self.versions.values()
              for leaf in row.leaves.values() for ref in leaf}
    if needed != set(self.blocks):
      raise Wrong(f"stored and needed differ: {needed ^ set(self.blocks)}")


def next_state(rng, state):
  master = [rng.randrange(8) if rng.random() < 0.5 else value
            for value in state.get("m", [0, 0])]
  copy = [rounded(value) for value in master]
  how = rng.random()
  if how < 0.1:
    return {"m": master}
  if how < 0.2:
    return {"c": state.get("c", copy)}
  if how < 0.35:
    copy[rng.randrange(2)] = rng.randrange(8)
  elif how < 0.4:
    master = state.get("m", master)
  elif how < 0.5:
    copy = state.get("c", copy)
  return {"m": master, "c": copy}


def history(seed, mutant):
  """None, or the way to what is wrong."""
  rng = random.Random(seed)
  store, state, way = Store(mutant), {}, []
  try:
    for _ in range(24):
      kind = rng.choice(["save", "save", "save", "remove", "collect", "code"])
      if kind == "save":
        state = next_state(rng, state)
        way.append(f"save {state}")
        store.save(state)
      elif kind == "remove" and store.steps:
        version = rng.choice(sorted(store.steps))
        way.append(f"remove {version}")
        store.remove(version)
      elif kind == "collect":
        way.append("collect")
        store.collect()
      elif kind == "code" and store.blocks:
        block, coded = rng.choice(sorted(store.blocks)), rng.random() < 0.8
        way.append(f"rewrite {block}, coded: {coded}")
        store.code(block, coded)
      store.check()
  except Wrong as wrong:
    return [*way, f"WRONG: {wrong}"]
  return None


def search(mutant, histories):
  for seed in range(histories):
    found = history(seed, mutant)
    if found is not None:
      return found
  return None


def main():
  parser = argparse.ArgumentParser(
      description=__doc__, formatter_class=argparse.RawTextHelpFormatter,
      epilog="mutants:\n" + "\n".join(
          f"  {name}: {what}" for name, what in MUTANTS.items()))
  parser.add_argument("--mutant", choices=MUTANTS, metavar="NAME")
  parser.add_argument("--histories", type=int, default=10000)
  given = parser.parse_args()
  found = search(given.mutant, given.histories)
  if given.mutant or found:
    print(*(found or ["not caught"]), sep="\n")
    return 0 if bool(found) == bool(given.mutant) else 1
  found = search(OLDER, given.histories)
  if found:
    print(OLDER, *found, sep="\n")
    return 1
  print(f"{given.histories} histories: all rules hold")
  missed = [name for name in MUTANTS if not search(name, given.histories)]
  for name in missed:
    print(f"not caught: {name}")
  print(f"{len(MUTANTS)} wrong rules, {len(missed)} not caught")
  return 1 if missed else 0


if __name__ == "__main__":
  sys.exit(main())
