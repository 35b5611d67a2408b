#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Which steps need a segment, by the dead lists alone and without a tree:
compared with the trees of all small histories.

  need_model.py                the search, then every mutant
  need_model.py --mutant NAME  one wrong rule: the way to it is printed

A version has a block in each of a few places, its own or that of its base; a
save writes some anew. Branches part. Steps are removed, and their versions
collected as core/collect does it: dead(v) are the blocks of prev(v) that v does
not have. Of a version that was collected neither a row nor its branch is left,
only blocks that others have.

The rules, of a block that was born in version b and still lives:
  a path      A version v needs it only if b is v or before it, along prev.
  b collected Where b is not in the chain any more, it was between some u and
              prev(u). Of several such u it is the one behind which a list has
              a block of b; where no list has one, each is taken for its place.
  c dead      v does not need it where the list of a version behind b, up to v
              along prev, has it.

What must hold, in every state:
  * who has a block in its tree needs it by these rules;
  * who needs it has it, but where there are several branches and no list has
    a block of the collected version that wrote it: then one that never had it
    may be thought to need it. Some version that none follows has it then, so
    that it stays anyway where these are kept."""

import collections
import sys

from searching import run, search

# versions: version -> (prev, branch, blocks, removed). dead: version -> blocks.
# A block is (version it was born in, place). living: all that were not freed.
State = collections.namedtuple("State", "versions dead tips living newest")
Size = collections.namedtuple("Size", "places saves branches")
SIZES = (Size(2, 5, 1), Size(2, 4, 2), Size(1, 5, 2), Size(1, 5, 3))
MUTANTS = {
    "what was collected has no place": (0, "others have its blocks"),
    "one place is enough": (1, "the other branch has them"),
    "no list is asked for the place": (1, "one of them never had it"),
    "the last place is told by a list": (1, "it is of another branch"),
    "lists of all branches count": (2, "it is dead on one of them"),
    "only the own list counts": (0, "it says what died in that version alone"),
    "any version behind the block has it": (2, "it may be on another branch"),
}


class Rules:
  """The rules, with at most one that is wrong."""

  def __init__(self, mutant, size):
    self.mutant, self.size = mutant, size

  def start(self):
    return State((), (), ((0, 0),), frozenset(), 0)

  def steps(self, state):
    versions, tips = dict(state.versions), dict(state.tips)
    if state.newest < self.size.saves:
      for branch, tip in tips.items():
        for mask in range(1 if tip == 0 else 0, 1 << self.size.places):
          if tip == 0 and mask != (1 << self.size.places) - 1:
            continue
          yield f"saves {mask:b} on {branch}", self.save(
              state, branch, tip, mask)
    if len(tips) < self.size.branches:
      for version, (_, _, _, removed) in versions.items():
        if not removed:
          yield f"forks at {version}", state._replace(
              tips=state.tips + ((len(tips), version),))
    for version, (prev, branch, blocks, removed) in versions.items():
      if not removed:
        versions[version] = (prev, branch, blocks, True)
        yield f"removes {version}", state._replace(
            versions=tuple(sorted(versions.items())))
        versions[version] = (prev, branch, blocks, False)
      else:
        yield f"collects {version}", self.collect(state, version)

  def save(self, state, branch, tip, mask):
    versions, dead = dict(state.versions), dict(state.dead)
    new = state.newest + 1
    before = versions[tip][2] if tip else frozenset()
    blocks = frozenset(
        (new, place) if mask >> place & 1 else next(
            b for b in before if b[1] == place)
        for place in range(self.size.places))
    versions[new] = (tip, branch, blocks, False)
    dead[new] = before - blocks
    tips = dict(state.tips)
    tips[branch] = new
    return State(tuple(sorted(versions.items())), tuple(sorted(dead.items())),
                 tuple(sorted(tips.items())), state.living | blocks, new)

  def collect(self, state, version):
    versions, dead = dict(state.versions), dict(state.dead)
    tips = dict(state.tips)
    prev, branch, blocks, _ = versions[version]
    behind = [v for v, of in versions.items() if of[0] == version]
    if len(behind) > 1 or any(
        tip == version and b != branch for b, tip in tips.items()):
      return None
    if behind:
      after = behind[0]
      freed = frozenset(b for b in dead[after] if b[0] > prev)
      dead[after] = (dead[after] - freed) | dead[version]
      versions[after] = (prev,) + versions[after][1:]
    else:
      freed = frozenset(b for b in blocks if b[0] > prev)
    if tips[branch] == version:
      tips[branch] = prev if prev and versions[prev][1] == branch else 0
    del versions[version], dead[version]
    return State(tuple(sorted(versions.items())), tuple(sorted(dead.items())),
                 tuple(sorted(tips.items())), state.living - freed,
                 state.newest)

  # ---- Who needs it ----

  def needs(self, versions, dead, version, block):
    born = block[0]
    path = [version]
    while versions[path[-1]][0]:
      path.append(versions[path[-1]][0])
    if self.mutant == "any version behind the block has it":
      return born <= version and not any(
          block in dead[u] for u in path if u > born)
    if born in versions:
      if born not in path:
        return False                                         # Rule a.
    elif self.mutant == "what was collected has no place":
      return False
    else:                                                    # Rule b.
      places = [u for u, of in sorted(versions.items()) if of[0] < born < u]
      told = self.told(versions, dead, born)
      if self.mutant == "one place is enough":
        places = places[:1]
      elif told and self.mutant == "the last place is told by a list":
        places = places[-1:]
      elif told and self.mutant != "no list is asked for the place":
        places = [u for u in places if u in told]
      if not set(places) & set(path):
        return False
    if self.mutant == "lists of all branches count":
      path = list(versions)
    if self.mutant == "only the own list counts":
      path = path[:1]
    return not any(block in dead[u] for u in path if born < u <= version)

  def told(self, versions, dead, born):
    """The first version whose list has a block of `born`, and all that it goes
    on from; empty: there is none."""
    first = next((u for u in sorted(versions)
                  if any(block[0] == born for block in dead[u])), 0)
    path = {first} - {0}
    while first and versions[first][0]:
      first = versions[first][0]
      path.add(first)
    return path

  def look(self, state, met):
    versions, dead = dict(state.versions), dict(state.dead)
    followed = {of[0] for of in versions.values()}
    newest = [of[2] for v, of in versions.items() if v not in followed]
    for version, (_, _, blocks, _) in versions.items():
      for block in state.living:
        needed = self.needs(versions, dead, version, block)
        if block in blocks and not needed:
          return f"version {version} has {block}, and does not need it"
        if needed and block not in blocks:
          met["thought needed"] += 1
          if (len(state.tips) == 1 or block[0] in versions
              or self.told(versions, dead, block[0])):
            return f"version {version} needs {block}, and does not have it"
          if not any(block in blocks_of for blocks_of in newest):
            return f"{block} stays, and nothing that is newest has it"
        met["shared"] += needed and block[0] != version
        met["of a collected version"] += needed and block[0] not in versions
    return None


def model(mutant, size, met):
  rules = Rules(mutant, size)
  return search(rules.start(), rules.steps,
                lambda state: rules.look(state, met))


if __name__ == "__main__":
  sys.exit(run(__doc__, MUTANTS, SIZES,
               ("shared", "of a collected version", "thought needed"), model,
               long=(3,)))
