#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How objects of a store are deleted, searched exhaustively. The chain of
commits is that of model.py: here a commit is in it at once, or its writer
learns that it lost the store.

  deletion_model.py                the search, then every mutant
  deletion_model.py --mutant NAME  one wrong rule: the way to it is printed

Writers upload segments, ship commits that bring and remove them, and write
indexes: an index names the runs it is made of, and the objects that are dead. A
put may arrive once more at any time, and so may a deletion, after its sender
died, too. Readers list the indexes, read the newest, its runs, the commits
behind it, and then segments; one of them is done within the grace time, the
other may take for ever.

The rules (8 and 9 of model.py, said more exactly):
  a mark    Nothing is deleted that is not listed as dead in an index that is
            there, of the writer that deletes, and answered.
  b when    A segment is dead at the commit that removes it; all else (runs that
            were merged, older indexes, orphans) at the commit after the index
            that lists it first, for until then readers may find it. That commit
            is of the writer of the index: what another's index says of the
            commit after it is said anew.
  c grace   It is deleted when the grace time has passed since that commit, by
            the clock of the store.
  d orphans Are of an era before the cleaner's own, are named neither by a
            living row nor by the index in hand, and are looked for after its
            open.
  e index   A writer goes on from the newest index and the commits behind it.

What must hold, in every state:
  * what a row of the newest commit names is there;
  * a reader within the grace time finds all that it looks for;
  * one that is slower is told so: the segment it misses lives no more;
and from every state a writer that opens, and cleans twice, leaves nothing but
what is needed."""

import collections
import sys

from searching import run, search

# Commits: (kind, era, adds, removes). Names: ("segment"|"run"|"index", era, n);
# an index also has what it says.
Index = collections.namedtuple("Index", "kind era n at runs dead")
# at: off, open, lost. tip: commits it knows. runs: of its index. dead: as its
# newest index that is answered says; marked: what the next will say.
Writer = collections.namedtuple(
    "Writer", "at lives era tip runs dead marked made")
# phase: idle, listed, runs, segments, done. wants: what it still looks for.
Reader = collections.namedtuple("Reader", "phase fast tip wants index")
# passed: the grace time has passed since the commits up to there.
State = collections.namedtuple(
    "State", "chain objects flying writers readers passed")
Size = collections.namedtuple("Size", "lives commits objects readers")
SIZES = (
    Size((1, 1), 4, 2, (True,)),
    Size((1, 1), 4, 2, (False,)),
    Size((2, 0), 4, 2, (True,)),
)
MUTANTS = {
    "no grace": (0, "a reader within it misses a segment"),
    "dead at the newest commit": (0, "a reader found it since then"),
    "another's next commit counts": (0, "it is older than the index"),
    "orphans of any era": (0, "the successor's are deleted"),
    "orphans before the open": (0, "the writer that is taken over is alive"),
    "living by the index alone": (0, "the commits behind it bring more"),
    "the index is not waited for": (0, "the reader finds the older one"),
    "names are used again": (2, "a deletion is late"),
    "orphans are forgotten": (0, "they stay for ever"),
}
NOTHING = frozenset()


class Rules:
  """The protocol, with at most one rule that is wrong."""

  def __init__(self, mutant, size):
    self.mutant, self.size = mutant, size

  def start(self):
    writer = Writer("off", 0, 0, 0, NOTHING, NOTHING, NOTHING, 0)
    return State((), NOTHING, NOTHING, (writer, writer),
                 tuple(Reader("idle", fast, 0, NOTHING, None)
                       for fast in self.size.readers), 0)

  # ---- What commits come to ----

  @staticmethod
  def living(chain):
    there = set()
    for _, _, adds, removes in chain:
      there |= adds
      there -= removes
    return frozenset(there)

  @staticmethod
  def newest_era(chain):
    return max((era for kind, era, _, _ in chain if kind == "open"), default=0)

  @staticmethod
  def newest_index(state):
    """Those of one commit say the same of it; which of them, no matter."""
    indexes = [o for o in state.objects if o.kind == "index"]
    return max(indexes, key=lambda i: (i.at, i.era, i.n), default=None)

  def name(self, kind, w, me, at=0, runs=NOTHING, dead=NOTHING):
    again = self.mutant == "names are used again"
    era, n = (w + 1, 1) if again and kind == "segment" else (me.era, me.made)
    return Index(kind, era, n, at, runs, dead)

  @staticmethod
  def put(state, w, **changes):
    now = state.writers[w]._replace(**changes)
    return state._replace(
        writers=state.writers[:w] + (now,) + state.writers[w + 1:])

  @staticmethod
  def upload(state, name):
    """Answered; and once more at any time."""
    return state._replace(objects=state.objects | {name},
                          flying=state.flying | {("put", name)})

  # ---- A writer ----

  def open(self, state, w):
    """Rule e."""
    me = state.writers[w]
    index = self.newest_index(state)
    if self.mutant == "orphans before the open":
      state = self.put(state, w, era=len(state.chain) + 1)
      state = self.sweep(state, w)
    marked = state.writers[w].marked
    at = len(state.chain) + 1
    state = state._replace(
        chain=state.chain + (("open", at, NOTHING, NOTHING),))
    dead = index.dead if index else NOTHING
    if self.mutant != "another's next commit counts":
      anew = {(name, 0) for name, when in dead if when > index.at}
      dead = frozenset((name, when) for name, when in dead if when <= index.at)
      marked |= anew
    return self.put(
        state, w, at="open", lives=me.lives + 1, era=at, tip=at, made=0,
        runs=index.runs if index else NOTHING, dead=dead, marked=marked | dead)

  def ship(self, state, w, removed):
    me = state.writers[w]
    if self.newest_era(state.chain) != me.era:
      return self.put(state, w, at="lost")
    me = me._replace(made=me.made + 1)
    name = self.name("segment", w, me)
    state = self.upload(state, name)
    removes = frozenset([removed] if removed else [])
    state = state._replace(
        chain=state.chain + (("ship", me.era, frozenset([name]), removes),))
    tip = len(state.chain)
    return self.put(state, w, made=me.made, tip=tip,
                    marked=me.marked | {(name, tip) for name in removes})

  def crashes_in_ship(self, state, w):
    """Its segment is there, and no commit."""
    me = state.writers[w]
    name = self.name("segment", w, me._replace(made=me.made + 1))
    return self.put(self.upload(state, name), w, at="off")

  def later(self, me):
    """Rule b."""
    return me.tip + (self.mutant != "dead at the newest commit")

  def sweep(self, state, w):
    """Rule d: listed, and marked."""
    me = state.writers[w]
    if self.mutant == "orphans are forgotten":
      return state
    known = self.living(state.chain[:me.tip]) | me.runs
    index = self.newest_index(state)
    if self.mutant == "living by the index alone":
      known = self.living(state.chain[:index.at if index else 0]) | me.runs
    found = {o for o in state.objects - known if o.era < me.era}
    if self.mutant == "orphans of any era":
      found = {o for o in state.objects - known if o.era != me.era}
    found -= {index}
    found -= {name for name, _ in me.marked}
    return self.put(state, w, marked=me.marked | {
        (name, 0) for name in found})

  def write_index(self, state, w):
    """All rows as one new run; the runs before are merged into it."""
    me = state.writers[w]
    me = me._replace(made=me.made + 1)
    run = self.name("run", w, me)
    there = {o for o in state.objects if o.kind == "index" and o.era <= me.era}
    there -= {name for name, _ in me.marked}
    dead = {(name, at or self.later(me)) for name, at in me.marked
            if name in state.objects} | {
                (name, self.later(me)) for name in me.runs | there}
    dead = frozenset(dead)
    index = self.name("index", w, me, me.tip, frozenset([run]), dead)
    if self.mutant == "the index is not waited for":
      state = self.upload(state, run)
      state = state._replace(flying=state.flying | {("put", index)})
    else:
      state = self.upload(self.upload(state, run), index)
    return self.put(state, w, made=me.made, runs=frozenset([run]), dead=dead,
                    marked=dead)

  def delete(self, state, w):
    """Rules a and c."""
    me = state.writers[w]
    until = len(state.chain) if self.mutant == "no grace" else state.passed
    if self.mutant != "another's next commit counts":
      until = min(until, me.tip)
    due = {name for name, at in me.dead if at <= until}
    return state._replace(
        flying=state.flying | {("delete", name) for name in due})

  # ---- What can happen next ----

  def steps(self, state):
    for what, name in state.flying:
      there = name in state.objects
      if there == (what == "put"):
        continue
      after = state.objects | {name} if what == "put" else (
          state.objects - {name})
      yield f"{what} of {name[:3]}", state._replace(objects=after)
    if state.passed < len(state.chain) and not any(
        r.fast and r.phase not in ("idle", "done") and r.tip <= state.passed
        for r in state.readers):
      yield "time passes", state._replace(passed=state.passed + 1)
    for w, me in enumerate(state.writers):
      for what, after in self.writer_steps(state, w, me):
        yield f"writer {w} {what}", after
    for r, reader in enumerate(state.readers):
      after = self.read(state, reader)
      if after:
        yield f"reader {r} goes on from {reader.phase}", state._replace(
            readers=state.readers[:r] + (after,) + state.readers[r + 1:])

  def writer_steps(self, state, w, me):
    room = len(state.chain) < self.size.commits
    if me.at == "off":
      if me.lives < self.size.lives[w] and room:
        yield "opens", self.open(state, w)
      return
    if me.at != "open":
      return
    yield "is killed", self.put(state, w, at="off")
    if me.made < self.size.objects:
      if room:
        yield "ships", self.ship(state, w, None)
        for name in self.living(state.chain[:me.tip]):
          yield f"ships without {name[:3]}", self.ship(state, w, name)
        yield "is killed as it ships", self.crashes_in_ship(state, w)
      yield "writes an index", self.write_index(state, w)
    yield "sweeps", self.sweep(state, w)
    yield "deletes", self.delete(state, w)

  def read(self, state, reader):
    if reader.phase == "idle":
      index = self.newest_index(state)
      # A reader begins when it lists: what is newer it may see, or not.
      return reader._replace(
          phase="listed", tip=len(state.chain), index=index,
          wants=frozenset([index]) if index else NOTHING)
    if reader.phase in ("listed", "runs", "segments"):
      missing = reader.wants - state.objects
      if missing and reader.fast:
        return reader._replace(phase="failed")
      if missing and reader.phase != "segments":
        return reader._replace(phase="done")   # It begins again.
      if missing & self.living(state.chain):
        return reader._replace(phase="failed")
      if reader.phase == "listed" and reader.index:
        return reader._replace(phase="runs", wants=reader.index.runs)
      if reader.phase != "segments":
        return reader._replace(phase="segments",
                               wants=self.living(state.chain[:reader.tip]))
      return reader._replace(phase="done")
    return None

  # ---- What must hold ----

  def broken(self, state):
    missing = self.living(state.chain) - state.objects
    if missing:
      return f"a row names what is not there: {[m[:3] for m in missing]}"
    if any(r.phase == "failed" for r in state.readers):
      return "a reader misses what it should find"
    return None

  def left_over(self, state):
    """What a last writer does not get rid of, once nothing flies any more."""
    state = state._replace(flying=NOTHING, readers=())
    state = self.open(state, 0)
    state = self.sweep(state, 0)
    for _ in range(3):
      state = self.write_index(state, 0)
      # A commit that brings nothing.
      me = state.writers[0]
      state = state._replace(
          chain=state.chain + (("ship", me.era, NOTHING, NOTHING),))
      state = self.put(state, 0, tip=len(state.chain))
      state = self.delete(state._replace(passed=len(state.chain)), 0)
      for what, name in state.flying:
        if what == "delete":
          state = state._replace(objects=state.objects - {name})
      state = state._replace(flying=NOTHING)
    wrong = self.broken(state)
    if wrong:
      return wrong
    me = state.writers[0]
    # The newest index and its runs, and what the last round of it replaced.
    old = {name for name, at in me.dead if at >= len(state.chain)}
    left = state.objects - self.living(state.chain) - me.runs - {
        self.newest_index(state)} - {name for name, _ in me.dead} - old
    if left:
      return f"it stays for ever: {[o[:3] for o in left]}"
    return None


def model(mutant, size, met):
  rules = Rules(mutant, size)
  checked = set()

  def look(state):
    met["deleted"] += any(k == "delete" for k, _ in state.flying)
    met["done"] += any(r.phase == "done" for r in state.readers)
    met["lost"] += any(w.at == "lost" for w in state.writers)
    wrong = rules.broken(state)
    end = (state.chain, state.objects)
    if not wrong and end not in checked:
      checked.add(end)
      wrong = rules.left_over(state)
    return wrong

  return search(rules.start(), rules.steps, look)


if __name__ == "__main__":
  sys.exit(run(__doc__, MUTANTS, SIZES, ("deleted", "done", "lost"), model))
