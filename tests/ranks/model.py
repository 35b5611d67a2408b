#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How several processes save one step, searched exhaustively: a coordinator and
a rank that meet in a shared folder, save two steps, and try a step again that
failed; with crashes, restarts, deadlines that pass, a rank that is started
twice, one that closes and may be started again, messages that are seen late.

  model.py                  the search, then every mutant
  model.py --mutant NAME    one wrong rule: the way to it is printed
  model.py --help           their names

What must hold, in every state:
  * a committed step has one part of each process, all of the same call;
  * the bytes of a part are those that its handoff named, for ever;
  * the part of a process that was told "committed" is in the store; that of one
    that was told "failed" is not, and never will be. "Unknown" may be said
    where nobody can know.
Where nothing fails every step is committed, and everybody is told; also where
the rank closes between two steps, and another process goes on in its place.

A file is seen late: who reads a mailbox or the journal sees any beginning of it
that is not shorter than what he saw before. A name is seen at once or later."""

import argparse
import collections
import os
import sys
import time

STEPS = (1, 2)
TRIES = 2  # Of a step that failed.

# A process in a call of save(step): nth counts the calls of that step since the
# process opened the store. `at` is where it is; `attempt` what it works on;
# `taken` the part that the coordinator commits; `seen` how much of the journal
# a rank has seen.
Process = collections.namedtuple(
    "Process", "nonce incarnation step nth calls at attempt taken seen")
# journal: what is durable, in order. files: path -> (content, state), which is
# "partial", "whole" or "adopted"; folders: of attempts. mail: records by who
# wrote them. answers: (who, call, attempt, what he was told).
State = collections.namedtuple(
    "State", "coordinator ranks journal files folders mail job answers faults")

MUTANTS = {
    "the calls are counted": "a rank that gave up one call is one behind",
    "a step without its try": "a late rank meets the attempt before",
    "an attempt without its incarnation": "old handoffs are taken again",
    "any handoff of the step is taken": "a zombie's part is committed",
    "a part without its nonce": "a second process writes what is committed",
    "a handoff before its bytes": "what was not written yet is committed",
    "an outcome without the nonce": "two processes are told it was theirs",
    "an outcome before the commit": "a crash takes back what was told",
    "a deadline is a failure": "the commit comes after it",
    "what is not seen is not there": "the commit was there, and not seen yet",
    "the restart is a failure": "the commit was there before it",
    "to close is a failure": "the commit comes after the rank has closed",
    "who closed has closed for ever": "who is started again is never met",
}


class Wrong(Exception):
  """A promise that is broken."""


def first(step):
  return Process(0, 0, step, 1, 1, "idle", None, None, 0)


def start():
  return State(
      coordinator=first(1)._replace(incarnation=1),
      ranks=(first(1)._replace(nonce=1, incarnation=1),),
      journal=(("open", 1),), files=(), folders=(), mail=(), job=1,
      answers=(), faults=0)


def get(pairs, key, default=()):
  return dict(pairs).get(key, default)


def put(pairs, key, value):
  made = dict(pairs)
  if value is None:
    made.pop(key, None)
  else:
    made[key] = value
  return tuple(sorted(made.items()))


def post(state, who, record):
  return state._replace(
      mail=put(state.mail, who, get(state.mail, who) + (record,)))


def put_at(ranks, i, now):
  return ranks[:i] + (now,) + ranks[i + 1:]


def say_closed(state, process):
  return post(state, ("r", process.nonce), ("closed", process.incarnation))


def second(state):
  """Another process of the rank, where there may be one: it counts from where
  the coordinator is."""
  done = [record[2] for record in committed(state.journal)]
  left = [step for step in STEPS if step not in done]
  if len(state.ranks) > 1 or not left:
    return None
  over = [record[1][-1] for record in get(state.mail, ("c", state.job))
          if record[0] == "outcome" and record[1][-2] == left[0]]
  return first(left[0])._replace(
      nonce=2, incarnation=state.job, nth=max(over, default=0) + 1)


def committed(journal):
  return [record for record in journal if record[0] == "commit"]


class Rules:
  """The protocol, with at most one rule that is wrong."""

  def __init__(self, mutant, most_faults):
    self.mutant = mutant
    self.most_faults = most_faults

  # ---- What the processes say ----

  def call(self, process):
    """What a rank and the coordinator must agree on, to mean the same call."""
    if self.mutant == "the calls are counted":
      return ("call", process.calls)
    if self.mutant == "a step without its try":
      return ("step", process.step)
    return ("step", process.step, process.nth)

  def name(self, process):
    if self.mutant == "an attempt without its incarnation":
      return (process.step, process.nth)
    return (process.incarnation, process.step, process.nth)

  def path(self, attempt, process):
    if self.mutant == "a part without its nonce":
      return (attempt, 0)
    return (attempt, process.nonce)

  @staticmethod
  def content(process):
    return (process.incarnation, process.step, process.nth, process.nonce)

  # ---- What can happen next ----

  def after(self, state):
    """(what happens, the state then) of all that can happen next."""
    yield from self.of_coordinator(state)
    for i, rank in enumerate(state.ranks):
      yield from self.of_rank(state, i, rank)
    yield from self.again(state)
    if state.faults == self.most_faults:
      return
    faulty = state._replace(faults=state.faults + 1)
    if state.coordinator.at != "end":
      yield "the coordinator crashes and is started again", restart(faulty)
    made = second(state)
    if made is not None:
      yield "the rank is started a second time", faulty._replace(
          ranks=state.ranks + (made,))
      yield "the rank crashes and is started again", faulty._replace(
          ranks=(state.ranks[0]._replace(at="crashed"), made))
    for i, rank in enumerate(state.ranks):
      if rank.at == "idle":
        yield f"rank {rank.nonce}: closes", faulty._replace(
            ranks=put_at(state.ranks, i, rank._replace(at="closed")),
            mail=say_closed(state, rank).mail)

  @staticmethod
  def again(state):
    """Without a fault: a rank closes between two steps, and the process that is
    started in its place is there before anybody misses it."""
    made, (old, *_) = second(state), state.ranks
    if made is None or old.at != "idle" or old.incarnation != state.job:
      return
    yield "the rank closes, and is started again", say_closed(
        state, old)._replace(ranks=(old._replace(at="closed"), made))

  def of_coordinator(self, state):
    me = state.coordinator

    def goes(what, now, **others):
      return f"coordinator: {what}", state._replace(coordinator=now, **others)

    if me.at == "idle":
      if me.step in [record[2] for record in committed(state.journal)]:
        yield goes("the step is there", self.next_call(me, True))
        return
      attempt = self.name(me)
      said = ("plan", self.call(me), attempt)
      yield goes(f"plans {attempt}", me._replace(at="gather", attempt=attempt),
                 mail=post(state, ("c", me.incarnation), said).mail,
                 folders=tuple(sorted({*state.folders, attempt})))
    elif me.at == "gather":
      for rank in state.ranks:
        for record in get(state.mail, ("r", rank.nonce)):
          if record[0] == "handoff" and self.may_take(me, record):
            yield goes(f"takes {record[2]}", me._replace(
                at="adopt", taken=(rank.nonce, record[2], record[3])))
            break
          if record == ("failed", self.call(me), me.incarnation):
            yield goes("hears of a failure", me._replace(at="settle"))
            break
      if self.has_closed(state, me):
        yield goes("hears that the rank closed", me._replace(at="settle"))
      if state.faults < self.most_faults:
        what, then = goes("the deadline passes", me._replace(at="settle"))
        yield what, then._replace(faults=state.faults + 1)
    elif me.at == "adopt":
      _, path, digest = me.taken
      there = get(state.files, path, None)
      if there is None:
        yield goes("a part is gone", me._replace(at="settle"))
      else:
        then = "tell" if self.mutant == "an outcome before the commit" else (
            "commit")
        yield goes("adopts", me._replace(at=then), files=put(
            state.files, path, (there[0], "adopted")))
    elif me.at == "commit":
      _, path, digest = me.taken
      record = ("commit", me.attempt, me.step, self.content(me), path, digest)
      if self.mutant == "an outcome before the commit":
        yield goes("commits", self.next_call(me, True),
                   journal=state.journal + (record,))
      else:
        yield goes("commits", me._replace(at="tell"),
                   journal=state.journal + (record,))
    elif me.at in ("tell", "settle"):
      good = me.at == "tell"
      said = ("outcome", me.attempt, good, me.taken[0] if good else None)
      then = self.next_call(me, good)
      if good and self.mutant == "an outcome before the commit":
        then = me._replace(at="commit")
      what = f"says {'committed' if good else 'failed'}"
      mail = post(state, ("c", me.incarnation), said).mail
      yield goes(what, then, mail=mail,
                 folders=tuple(f for f in state.folders if f != me.attempt),
                 files=swept(state.files, me.attempt))
      if not good and state.faults < self.most_faults:
        yield goes(f"{what}, and cannot remove the folder", then, mail=mail,
                   faults=state.faults + 1)

  def has_closed(self, state, me):
    """Whether each process of the rank has, and has not handed over: who reads
    that it closed has read all that it said before."""
    closed = []
    for rank in state.ranks:
      said = get(state.mail, ("r", rank.nonce))
      if any(r[0] == "handoff" and self.may_take(me, r) for r in said):
        return False
      if rank.incarnation == me.incarnation:
        closed.append(("closed", me.incarnation) in said)
    if self.mutant == "who closed has closed for ever":
      return any(closed)
    return bool(closed) and all(closed)

  def may_take(self, me, record):
    _, attempt, _, content = record
    if self.mutant == "any handoff of the step is taken":
      return content[1] == me.step
    return attempt == me.attempt

  def of_rank(self, state, i, me):
    """A call gives its answer at "told"; at "ask" it looks itself."""

    def goes(what, now, **others):
      ranks = put_at(state.ranks, i, now)
      return f"rank {me.nonce}: {what}", state._replace(ranks=ranks, **others)

    def told(what, now=me):
      answer = (me.nonce, self.content(me), what)
      then = self.next_call(now, what == "committed")
      if state.job != me.incarnation and then.at != "end":
        # It opens the store again.
        then = then._replace(incarnation=state.job, nth=1)
      return goes(f"is told {what}", then, answers=state.answers + (answer,))

    box = get(state.mail, ("c", me.incarnation))
    late = state.faults < self.most_faults
    restarted = state.job != me.incarnation
    failed = post(state, ("r", me.nonce),
                  ("failed", self.call(me), me.incarnation)).mail
    if me.at == "idle":
      yield goes(f"saves {self.content(me)}", me._replace(at="seek"))
    elif me.at == "end":
      yield goes("closes", me._replace(at="closed"),
                 mail=say_closed(state, me).mail)
    elif me.at == "seek":
      for record in box:
        if record[:2] == ("plan", self.call(me)):
          yield goes("sees the plan", me._replace(at="open", attempt=record[2]))
          break
      if restarted:
        # Nothing was handed over.
        yield told("failed")
      elif late:
        # Its deadline, or an exception of its own.
        what, then = told("failed")
        yield what, then._replace(faults=state.faults + 1, mail=failed)
    elif me.at == "open":
      path = self.path(me.attempt, me)
      if me.attempt not in state.folders:
        yield goes("finds no folder", me._replace(at="ask"))
      else:
        early = self.mutant == "a handoff before its bytes"
        there = get(state.files, path, ("", "partial"))
        yield goes("makes its file", me._replace(
            at="hand" if early else "write"), files=put(
                state.files, path, there))
    elif me.at == "write":
      path = self.path(me.attempt, me)
      there = get(state.files, path, None)
      kept = state.files
      if there is not None:
        how = "adopted" if there[1] == "adopted" else "whole"
        kept = put(kept, path, (self.content(me), how))
      early = self.mutant == "a handoff before its bytes"
      yield goes("writes", me._replace(at="wait" if early else "hand"),
                 files=kept)
    elif me.at == "hand":
      said = ("handoff", me.attempt, self.path(me.attempt, me),
              self.content(me))
      early = self.mutant == "a handoff before its bytes"
      yield goes("hands over", me._replace(at="write" if early else "wait"),
                 mail=post(state, ("r", me.nonce), said).mail)
    elif me.at == "wait":
      for record in box:
        if record[:2] != ("outcome", me.attempt):
          continue
        theirs = record[3] == me.nonce
        if self.mutant == "an outcome without the nonce":
          theirs = True
        yield told("failed" if not (record[2] and theirs) else "committed")
        break
      if self.mutant == "to close is a failure" and late:
        # By the rules it goes on waiting: who closes waits for its saves.
        what, then = goes("closes", me._replace(at="closed"),
                          mail=say_closed(state, me).mail,
                          answers=state.answers + (
                              (me.nonce, self.content(me), "failed"),))
        yield what, then._replace(faults=state.faults + 1)
      if restarted:
        if self.mutant == "the restart is a failure":
          yield told("failed")
        else:
          yield goes("sees the restart", me._replace(at="ask"))
      elif late:
        if self.mutant == "a deadline is a failure":
          what, then = told("failed")
        else:
          what, then = goes("waits no more", me._replace(at="ask"))
        yield what, then._replace(faults=state.faults + 1)
    elif me.at == "ask":
      # Whatever beginning of the journal it sees.
      for seen in range(max(me.seen, 1), len(state.journal) + 1):
        view = state.journal[:seen]
        now = me._replace(seen=seen)
        mine = [r for r in committed(view) if r[5] == self.content(me)]
        newer = any(r[0] == "open" and r[1] > me.incarnation for r in view)
        # Another part was taken in this attempt: that is settled, too.
        others = [r for r in committed(view) if r[1] == me.attempt]
        if mine:
          yield told("committed", now)
        elif newer or others:
          yield told("failed", now)
        elif self.mutant == "what is not seen is not there":
          yield told("failed", now)
        elif not restarted:
          yield told("unknown", now)

  @staticmethod
  def next_call(process, good):
    made = process._replace(
        at="idle", attempt=None, taken=None, calls=process.calls + 1)
    if not good and process.nth < TRIES:
      return made._replace(nth=process.nth + 1)
    if process.step == STEPS[-1]:
      return made._replace(at="end")
    return made._replace(step=process.step + 1, nth=1)


def swept(files, attempt):
  """Without what a settled attempt left; what was adopted is the store's."""
  return tuple((path, held) for path, held in files
               if path[0] != attempt or held[1] == "adopted")


def restart(state):
  """A crash of the coordinator, and the next open: what nothing refers to goes,
  and so does every folder of an attempt."""
  there = {record[4] for record in committed(state.journal)}
  number = state.job + 1
  done = [record[2] for record in committed(state.journal)]
  left = [step for step in STEPS if step not in done]
  now = first(left[0] if left else STEPS[-1])._replace(incarnation=number)
  if not left:
    now = now._replace(at="end")
  return state._replace(
      coordinator=now, journal=state.journal + (("open", number),),
      files=tuple((path, held) for path, held in state.files if path in there),
      folders=(), job=number)


def check(state):
  """Raises Wrong."""
  parts = set()
  for _, attempt, step, own, path, digest in committed(state.journal):
    if own[:3] != digest[:3]:
      raise Wrong(f"step {step} of two calls: {own} and {digest}")
    held = get(state.files, path, None)
    if held is None or held[0] != digest:
      raise Wrong(f"step {step}: its bytes are {held}, not {digest}")
    parts.add(digest)
  for who, content, what in state.answers:
    if what == "committed" and content not in parts:
      raise Wrong(f"rank {who} was told that {content} is there")
    if what == "failed" and content in parts:
      raise Wrong(f"rank {who} was told that {content} is not there")


def check_end(state):
  """Of a state after which nothing comes."""
  if state.faults:
    return
  if len(committed(state.journal)) != len(STEPS):
    raise Wrong("nothing failed, and a step is not there")
  told = [what for _, _, what in state.answers]
  if told != ["committed"] * len(STEPS):
    raise Wrong(f"nothing failed, and the rank was told {told}")


def search(mutant, most_faults):
  """(states, None), or the way to what is wrong."""
  rules = Rules(mutant, most_faults)
  begin = start()
  came = {begin: None}
  front = collections.deque([begin])
  while front:
    state = front.popleft()
    try:
      check(state)
      then = list(rules.after(state))
      if not then:
        check_end(state)
    except Wrong as wrong:
      way = []
      while came[state] is not None:
        state, what = came[state]
        way.append(what)
      return len(came), (way[::-1], wrong)
    for what, found in then:
      if found not in came:
        came[found] = (state, what)
        front.append(found)
  return len(came), None


def main():
  parser = argparse.ArgumentParser(
      description=__doc__, formatter_class=argparse.RawTextHelpFormatter,
      epilog="mutants:\n" + "\n".join(
          f"  {name}: {what}" for name, what in MUTANTS.items()))
  parser.add_argument("--mutant", choices=MUTANTS, metavar="NAME")
  parser.add_argument("--faults", type=int, default=2,
                      help="at most so many in one history (2)")
  given = parser.parse_args()
  if given.mutant:
    states, found = search(given.mutant, given.faults)
    if found is None:
      print(f"{states} states: not caught")
      return 1
    print(*found[0], f"WRONG: {found[1]}", sep="\n")
    return 0
  begun = time.monotonic()
  states, found = search(None, given.faults)
  if found is not None:
    print(*found[0], f"WRONG: {found[1]}", sep="\n")
    return 1
  print(f"{states} states, at most {given.faults} faults each: all rules hold")
  if "CKPTREE_TEST_SCALE" in os.environ:
    print("the wrong rules are searched for by tests/run --all")
    return 0
  missed = [name for name in MUTANTS
            if search(name, given.faults)[1] is None]
  for name in missed:
    print(f"not caught: {name}")
  print(f"{len(MUTANTS)} wrong rules, {len(missed)} not caught, "
        f"{time.monotonic() - begun:.0f} s")
  return 1 if missed else 0


if __name__ == "__main__":
  sys.exit(main())
