#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How a store's commits go to an object store, searched exhaustively: writers
that share nothing but "create this name unless it is there".

  model.py                  the search, then every mutant
  model.py --mutant NAME    one wrong rule: the way to it is printed
  model.py --help           their names

The chain is the objects commit/1, commit/2, ... A commit is an `open`, by which
a writer takes the store over, or ships local steps. What is sent may arrive at
once, late, several times or never, after its sender died, too; so may answers.
Writers are killed and started again; their local disks survive. A step uses the
bytes that were born in it and those born in the step before it.

The rules:
  1 next     A commit is asked for at the ordinal after one that was seen in the
             chain, and names that one. One at a time.
  2 identity A commit is known by its write id alone, which is drawn once.
  3 answers  Created, or there and mine: committed. There and another's: failed,
             and fenced. An opener reads on instead, and opens anew.
  4 silence  Says nothing: the same bytes are asked for at the same ordinal.
  5 era      The ordinal of the writer's open; in each commit and segment name.
  6 bytes    All that a living row needs is uploaded, and answered, before its
             commit is asked for; also what was born in a step that is skipped.
  7 names    A segment's name holds its era, and is used once. The name of a
             commit stays taken for ever.
  8 dead     A segment is deleted once the commit that no longer needs it is
             known to be in the chain.
  9 orphans  Segments without a living row are deleted where their era is before
             the cleaner's own, and the cleaner's open is in the chain.
 10 place    What was shipped is learnt from the chain, not from memory.
 11 diverged A writer with steps that were not shipped, behind which another
             shipped its own, does not open.
 12 readers  Take commits up to the first that is absent, whatever lies behind.
 13 copies   A disk notes the write id of what it ships before it asks for it,
             and keeps that of the one before. One of which the chain's newest
             ship is neither is an older copy, put back, and does not open.

What must hold, in every state:
  * each commit names the one before it, and the era of the newest open;
  * steps that a writer was told are committed are in the chain; those that it
    was told have failed are not, and never will be;
  * no step is in the chain twice, none without the one that it stands on;
  * what the newest commit needs is there;
  * what a disk ships stands on all that was shipped from it before, and one
    that nobody put back goes on;
  * what a reader took is the chain.

Left out, as they are no matter of order: handoffs of ranks, whole indexes, and
that an opener asks before it takes a store over that somebody still uses."""

import collections
import sys

from searching import run, search

# shape: open or ship. write: (writer, life, try): the write id. steps: (writer,
# first, last), or None. on: the write id of the shipped commit that the steps
# stand on. needs: names of segments.
# over: the newest ship of its writer that the disk holds, whatever it noted.
Commit = collections.namedtuple(
    "Commit", "shape write at era before steps on needs over")
# at: off, open, loaded (its bytes are there), asking, fenced, refused. `tip` is
# the newest ordinal it saw; `made` and `sent` count its steps; `base` is the
# write id of the shipped commit its disk holds, `born` the segment of that.
# `fresh`: segments it uploaded for the commit in hand. `noted`: write ids of
# its own ships, of which the first is known to be there. `copy`: what a copy of
# its disk has of made, sent, base, born and noted.
Writer = collections.namedtuple(
    "Writer",
    "at life tries tip era made sent base born fresh asked answers noted copy")
# chain: what was created, by ordinal - 1. lost: how many of these names are
# free again, by a mutant.
# flying: requests that may still do something. reader: (next, taken, wrong).
State = collections.namedtuple(
    "State", "chain lost flying segments committed failed writers reader")
# How often each writer starts, steps it makes, ordinals there are; whether the
# first writer's disk is copied once, and put back.
Size = collections.namedtuple("Size", "lives steps ordinals reader copies")
SIZES = (
    Size((2, 1), (1, 1), 5, False, False),
    Size((1, 1), (2, 2), 5, False, False),
    Size((3, 1), (2, 1), 4, False, False),
    Size((2, 2), (1, 1), 4, False, False),
    Size((1, 1), (1, 1), 3, True, False),
    Size((3, 0), (2, 0), 5, False, True),
)

# Which of SIZES shows it, and what it does.
MUTANTS = {
    "commits are pipelined": (1, "the one before never arrives"),
    "the era is the identity": (3, "two openers at one ordinal"),
    "there is another's": (4, "the answer to one's own was lost"),
    "any answer counts": (4, "that to the commit before is late"),
    "a new write id for each try": (4, "the first try had arrived"),
    "the next ordinal is taken": (4, "a fenced writer goes on"),
    "silence is failure": (4, "the request arrives later"),
    "commits are trimmed": (3, "a late request finds its name free"),
    "bytes are not waited for": (4, "the upload is lost"),
    "what is skipped is not uploaded": (1, "the next step needs it"),
    "names are used again": (0, "a late deletion meets the second one"),
    "deleted while unknown": (2, "the commit never arrives"),
    "orphans before the open": (3, "the writer it takes over is alive"),
    "orphans of any era": (3, "those of the successor are deleted"),
    "what memory says was shipped": (3, "it is shipped again"),
    "diverged goes on": (0, "its steps stand on what is no longer the newest"),
    "readers pass a hole": (4, "what comes to stand there is left out"),
    "copies are known by ordinals": (5, "it makes as many steps again"),
    "noted once answered": (5, "the answer was lost"),
}


def is_ship(commit):
  return commit is not None and commit.shape == "ship"


class Rules:
  """The protocol, with at most one rule that is wrong."""

  def __init__(self, mutant, size):
    self.mutant, self.size = mutant, size

  def start(self):
    writer = Writer("off", 0, 0, 0, 0, 0, 0, None, None, frozenset(), None,
                    frozenset(), (), None)
    nothing = frozenset()
    return State((None,) * self.size.ordinals, 0, nothing, nothing, nothing,
                 nothing, (writer, writer),
                 (1, 0, False) if self.size.reader else None)

  # ---- What is in the chain ----

  @staticmethod
  def whole(state, until=None):
    """Its commits up to the first that is absent."""
    found = []
    for commit in state.chain[:until]:
      if commit is None:
        break
      found.append(commit)
    return found

  @staticmethod
  def newest_ship(commits):
    return next((c for c in reversed(commits) if c.shape == "ship"), None)

  def living(self, commits):
    newest = self.newest_ship(commits)
    return frozenset(newest.needs) if newest else frozenset()

  # ---- A writer ----

  @staticmethod
  def put(state, w, **changes):
    now = state.writers[w]._replace(**changes)
    return state._replace(
        writers=state.writers[:w] + (now,) + state.writers[w + 1:])

  def ask(self, state, w, commit):
    """Sends it; None where the search ends."""
    if commit is None:
      return None
    me = state.writers[w]
    old = me.answers if self.mutant == "any answer counts" else frozenset()
    return self.put(
        state._replace(flying=state.flying | {("create", commit)}), w,
        at="asking", asked=commit, answers=old)

  def make(self, state, w, shape, tip, before, **more):
    me = state.writers[w]
    if tip >= self.size.ordinals:
      return None
    at = tip + 1
    era = at if shape == "open" else me.era
    return Commit(shape, (w, me.life, me.tries), at, era, before,
                  more.get("steps"), more.get("on"), more.get("needs", ()),
                  more.get("over"))

  def ask_open(self, state, w):
    """Rule 3: at the first ordinal that is absent."""
    chain = self.whole(state)
    me = state.writers[w]
    state = self.put(state, w, tip=len(chain), tries=me.tries + 1)
    before = chain[-1].write if chain else None
    return self.ask(state, w, self.make(state, w, "open", len(chain), before))

  def segment(self, w, era, step):
    return (w, 0 if self.mutant == "names are used again" else era, step)

  def needed(self, me, w):
    """Names that the newest step needs; those of them to be uploaded."""
    names = [self.segment(w, me.era, me.made)]
    if me.made - 1 > me.sent:
      names.append(self.segment(w, me.era, me.made - 1))
    upload = frozenset(names)
    if self.mutant == "what is skipped is not uploaded":
      upload = frozenset(names[:1])
    if me.made - 1 == me.sent and me.born:
      names.append(me.born)
    return tuple(names), upload

  def ask_ship(self, state, w, tip=None, before=None):
    me = state.writers[w]
    tip = me.tip if tip is None else tip
    before = before or state.chain[tip - 1].write
    state = self.put(state, w, tries=me.tries + 1, tip=tip)
    needs, _ = self.needed(me, w)
    commit = self.make(
        state, w, "ship", tip, before, steps=(w, me.sent + 1, me.made),
        on=me.base, needs=needs,
        over=me.noted[0] if me.noted else None)
    if self.size.copies and commit and self.mutant != "noted once answered":
      known = me.noted[:1] or (None,)
      state = self.put(state, w, noted=known + (commit.write,))
    return self.ask(state, w, commit)

  def deletions(self, state, names):
    return state._replace(
        flying=state.flying | {("delete", name) for name in names})

  def no_longer_needed(self, state, w, commit):
    """Rule 8: what the commit before needed and this one does not."""
    before = self.living(self.whole(state, commit.at - 1))
    return before - set(commit.needs)

  def is_mine(self, state, w):
    """The commit it asked for is in the chain."""
    me = state.writers[w]
    commit = me.asked
    if commit.shape == "ship":
      state = state._replace(
          committed=state.committed | {commit.write})
      state = self.deletions(state, self.no_longer_needed(state, w, commit))
      return self.put(
          state, w, at="open", tip=commit.at, sent=commit.steps[2],
          base=commit.write, born=commit.needs[0], fresh=frozenset(),
          asked=None, noted=(commit.write,) if self.size.copies else ())
    return self.look_around(
        self.put(state, w, tip=commit.at, era=commit.at, asked=None,
                 fresh=frozenset()), w)

  def look_around(self, state, w):
    """Rules 10 and 11: its open is in the chain; what did it ship before?"""
    me = state.writers[w]
    chain = self.whole(state, me.tip)
    newest = self.newest_ship(chain)
    sent = me.sent
    base = me.base
    if self.mutant != "what memory says was shipped":
      for commit in chain:
        if commit.steps and commit.steps[0] == w:
          sent, base = max(sent, commit.steps[2]), commit.write
    if self.size.copies:
      state = self.look_at_own(state, w, chain)
      if state.writers[w].at == "refused":
        return state
    behind = newest and newest.write != base
    if behind and me.made > sent and newest.steps[0] != w:
      if self.mutant != "diverged goes on":
        return self.put(state, w, at="refused", sent=sent, base=base)
    if newest and (newest.steps[0] == w or me.made == sent):
      base = newest.write               # it has read what the other shipped
    if newest and base == newest.write:
      return self.put(state, w, at="open", sent=sent, base=base,
                      born=newest.needs[0])
    return self.put(state, w, at="open", sent=sent, base=base)

  def look_at_own(self, state, w, chain):
    """Rule 13: is its newest ship one that its disk holds?"""
    me = state.writers[w]
    own = self.newest_ship([c for c in chain if c.write[0] == w])
    if own is None:
      # What was asked for never came, and no copy of it will.
      return self.put(state, w, noted=())
    if me.made < own.steps[2]:          # Behind by its ordinals alone.
      return self.put(state, w, at="refused")
    if own.write in me.noted:
      return self.put(state, w, noted=(own.write,))
    if self.mutant == "copies are known by ordinals":
      return state
    return self.put(state, w, at="refused")

  def is_anothers(self, state, w):
    """Rule 3."""
    me = state.writers[w]
    if me.asked.shape == "open":
      return self.ask_open(state, w)
    if self.mutant == "the next ordinal is taken":
      chain = self.whole(state)
      return self.ask_ship(state, w, len(chain), chain[-1].write)
    state = state._replace(
        failed=state.failed | {me.asked.write[:2] + me.asked.steps})
    return self.put(state, w, at="fenced", asked=None)

  def hear(self, state, w, answer):
    """Rules 2 to 4: what an answer means."""
    me = state.writers[w]
    kind, to = answer
    state = self.put(state, w, answers=me.answers - {answer})
    if to != me.asked.write and self.mutant != "any answer counts":
      return None
    if kind == "created":
      return self.is_mine(state, w)
    found = state.chain[me.asked.at - 1]
    if found is None:                   # That answer was to another request.
      return None
    mine = found.write == me.asked.write
    if self.mutant == "the era is the identity":
      mine = found.era == me.asked.era
    if self.mutant == "there is another's":
      mine = False
    return self.is_mine(state, w) if mine else self.is_anothers(state, w)

  # ---- The network ----

  def arrive(self, state, request):
    """One request, once more; what is answered may never be heard."""
    kind, what = request
    if kind == "delete":
      return state._replace(segments=state.segments - {what})
    if kind == "upload":
      return state._replace(segments=state.segments | {what})
    absent = state.chain[what.at - 1] is None
    free = absent or what.at <= state.lost
    if absent:
      state = state._replace(
          chain=state.chain[:what.at - 1] + (what,) + state.chain[what.at:])
    answer = ("created" if free else "exists", what.write)
    w, life, _ = what.write
    me = state.writers[w]
    stale = self.mutant == "any answer counts" or (
        me.asked and me.asked.write == what.write)
    if me.life == life and me.at == "asking" and stale:
      state = self.put(state, w, answers=me.answers | {answer})
    return state

  def forget(self, state):
    """Drops requests that can do nothing any more, and what nobody can hear."""
    if self.mutant == "commits are trimmed":
      return state
    asked = {me.asked.write for me in state.writers if me.asked}
    flying = frozenset(
        request for request in state.flying
        if request[0] != "create" or state.chain[request[1].at - 1] is None
        or request[1].write in asked)
    if self.mutant != "names are used again":
      flying = frozenset(
          request for request in flying
          if request[0] != "delete" or request[1] in state.segments)
    return state._replace(flying=flying)

  # ---- All that can happen next ----

  def steps(self, state):
    for request in state.flying:
      yield (f"arrives: {request}", self.arrive(state, request))
    if self.mutant == "commits are trimmed":
      if state.lost + 1 < len(self.whole(state)):
        yield "a commit is trimmed", state._replace(lost=state.lost + 1)
    for w, me in enumerate(state.writers):
      for what, after in self.writer_steps(state, w, me):
        yield f"writer {w} {what}", after
    if state.reader and state.reader[0] <= self.size.ordinals:
      yield "the reader asks", self.read(state)

  def writer_steps(self, state, w, me):
    if me.at == "off":
      if self.size.copies and w == 0:
        disk = (me.made, me.sent, me.base, me.born, me.noted)
        if me.copy is None:
          yield "is copied", self.put(state, w, copy=disk)
        elif me.copy != "used":
          made, sent, base, born, noted = me.copy
          yield "is put back", self.put(
              state, w, made=made, sent=sent, base=base, born=born,
              noted=noted, copy="used")
        if me.made < self.size.steps[w]:
          yield "makes a step by itself", self.put(state, w, made=me.made + 1)
      if me.life < self.size.lives[w]:
        after = self.put(state, w, life=me.life + 1, tries=0)
        if self.mutant == "orphans before the open":
          after = self.deletions(
              after, after.segments - self.living(self.whole(after)))
        yield "starts", self.ask_open(after, w)
      return
    # One that is never started again may as well stop here.
    if me.life < self.size.lives[w]:
      yield "is killed", self.put(
          state, w, at="off", tip=0, era=0, asked=None, fresh=frozenset(),
          answers=frozenset())
    if me.at == "open":
      if me.made < self.size.steps[w]:
        yield "makes a step", self.put(state, w, made=me.made + 1)
      if me.made > me.sent:
        yield "uploads", self.upload(state, w)
    if me.at in ("open", "loaded"):
      yield "cleans", self.clean(state, w)
    if me.at == "loaded":
      yield "asks", self.ask_ship(state, w)
    if me.at == "asking":
      for answer in me.answers:
        yield f"hears {answer[0]}", self.hear(state, w, answer)
      if me.asked.shape == "ship":
        yield from self.impatient(state, w, me)

  def upload(self, state, w):
    """Rule 6: answered, before anything else is done."""
    me = state.writers[w]
    _, names = self.needed(me, w)
    if self.mutant == "bytes are not waited for":
      state = state._replace(
          flying=state.flying | {("upload", name) for name in names})
    else:
      state = state._replace(segments=state.segments | names)
    return self.put(state, w, at="loaded", fresh=names)

  def clean(self, state, w):
    """Rule 9. Its own segments of this commit are of its own era."""
    me = state.writers[w]
    dead = state.segments - me.fresh - self.living(self.whole(state, me.tip))
    if self.mutant == "names are used again":  # Known by their writer alone.
      dead = frozenset(name for name in dead if name[0] != w)
    elif self.mutant != "orphans of any era":
      dead = frozenset(name for name in dead if name[1] < me.era)
    return self.deletions(state, dead)

  def impatient(self, state, w, me):
    """Wrong things to do while no answer comes."""
    commit = me.asked
    if self.mutant == "silence is failure":
      yield "gives up", self.put(
          state._replace(
              failed=state.failed | {commit.write[:2] + commit.steps}), w,
          at="fenced", asked=None)
    if self.mutant == "deleted while unknown":
      yield "deletes", self.deletions(
          state, self.no_longer_needed(state, w, commit))
    if self.mutant == "a new write id for each try" and me.tries < 3:
      yield "asks anew", self.ask_ship(state, w)
    if self.mutant == "commits are pipelined" and me.made < self.size.steps[w]:
      ahead = self.put(state, w, made=me.made + 1, sent=me.made,
                       base=commit.write, born=commit.needs[0])
      ahead = self.upload(ahead, w)
      yield "asks for the next", self.ask_ship(
          ahead, w, commit.at, commit.write)

  def read(self, state):
    """Rule 12: many are asked for at once; each answer is of its own time."""
    at, taken, wrong = state.reader
    if state.chain[at - 1] is None:
      if self.mutant == "readers pass a hole":
        return state._replace(reader=(at + 1, taken, wrong))
      return state._replace(reader=(self.size.ordinals + 1, taken, wrong))
    return state._replace(reader=(at + 1, taken + 1, wrong or taken + 1 != at))


def broken(rules, state):
  """The promise that does not hold, or None."""
  if rules.size.copies and any(
      me.at == "refused" and me.copy != "used" for me in state.writers):
    return "a disk that nobody put back is refused"
  before, era, steps, ship, own = None, 0, set(), None, {}
  for at, commit in enumerate(rules.whole(state), 1):
    if commit.at != at or before and commit.before != before.write:
      return f"commit {at} does not follow the one before it"
    if commit.shape == "open":
      era = at
    if commit.era != era:
      return f"commit {at} is of era {commit.era}, after the open of {era}"
    if is_ship(commit):
      who, first, last = commit.steps
      each = {(who, step) for step in range(first, last + 1)}
      if each & steps:
        return f"commit {at} ships a step again"
      if commit.on != (ship.write if ship else None):
        return f"commit {at} stands on what is not the newest before it"
      if rules.size.copies and commit.over != own.get(who):
        return f"commit {at} is of an older copy of its disk"
      own[who] = commit.write
      steps |= each
      ship = commit
    before = commit
  there = {c.write for c in state.chain if is_ship(c)}
  if state.committed - there:
    return f"told committed and not in the chain: {state.committed - there}"
  shipped = {c.write[:2] + c.steps for c in state.chain if is_ship(c)}
  if state.failed & shipped:
    return f"told failed and in the chain: {state.failed & shipped}"
  missing = rules.living(rules.whole(state)) - state.segments
  if missing:
    return f"needed and not there: {sorted(missing)}"
  if state.reader and state.reader[2]:
    return "a reader took a commit behind a hole"
  return None


def model(mutant, size, met):
  rules = Rules(mutant, size)

  def steps(state):
    for what, after in rules.steps(state):
      yield what, None if after is None else rules.forget(after)

  def look(state):
    for me in state.writers:
      met[me.at] += 1
    met["committed"] += bool(state.committed)
    return broken(rules, state)

  return search(rules.start(), steps, look)


if __name__ == "__main__":
  sys.exit(run(__doc__, MUTANTS, SIZES,
               ("fenced", "refused", "committed", "asking", "loaded"), model,
               long=(2, 3)))
