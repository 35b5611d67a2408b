#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Ranks that share no folder, searched exhaustively: a rank uploads its part
under a name of the coordinator's era, hands it over, and the coordinator names
the object in its commit. What ranks say to each other is in
tests/ranks/model.py, the chain in model.py, deletion in deletion_model.py: here
they meet.

  rank_model.py                the search, then every mutant
  rank_model.py --mutant NAME  one wrong rule: the way to it is printed

A coordinator may die at any time and open again, with its disk or on another
machine without; one that was thought dead goes on until it meets the chain. Of
two processes that are the rank one may be a zombie. An upload may arrive
without an answer, and later than its sender lives.

The rules:
  a era      An object has the era of the plan in its name; a handoff names
             attempt and era, and is taken for those alone.
  b before   A part is handed over when its upload was answered.
  c ship     A commit names objects of its own era: what an earlier coordinator
             left on the disk is uploaded anew.
  d sweep    Who has its open in the chain deletes objects of earlier eras that
             no commit names, and the messages of those eras.
  e told     A rank is told "committed" when the commit is in the chain.

What must hold, in every state:
  * what a commit in the chain names is there;
  * a step has one commit, with the part that was built for that attempt;
  * what anybody was told is in the chain."""

import collections
import sys

from searching import run, search

# at: off, asks, open, planned, local, lost. plan: the attempt. disk: what is
# committed there and not in the chain: (attempt, object). swept: it has.
Coordinator = collections.namedtuple(
    "Coordinator", "at era tries plan disk swept")
# at: off, met, handed. era, attempt: of the plan that it read last. uploads:
# that it began.
Rank = collections.namedtuple("Rank", "at era attempt uploads")
# chain: ("open", era) and ("ship", era, attempt, object). An object: (era,
# attempt, who, n). hands: of the mailbox: (era, attempt, object). told:
# attempts.
State = collections.namedtuple(
    "State", "chain objects flying hands coordinators ranks told")
Size = collections.namedtuple("Size", "coordinators tries ranks uploads")
SIZES = (
    Size(2, 1, 1, 2),
    Size(2, 1, 2, 1),
    Size(3, 1, 1, 1),
    Size(1, 2, 2, 1),
)

MUTANTS = {
    "any handoff is taken": (
        0, "one of an era before is committed as that of this one"),
    "a handoff before its upload": (0, "nothing is there when it is taken"),
    "an object of an earlier era is named": (
        0, "it was swept before the commit"),
    "the own era is swept": (0, "what is about to be named goes"),
    "swept before the open is in the chain": (
        0, "the writer before ships what was swept"),
    "told before the commit": (0, "the coordinator may have been fenced"),
    "an attempt that was given up is taken": (3, "its part is in the next"),
}


def start(size):
  off = Coordinator("off", 0, 0, None, (), False)
  return State((), frozenset(), frozenset(), frozenset(),
               (off,) * size.coordinators, (Rank("off", 0, None, 0),) *
               size.ranks, frozenset())


def era_of_chain(state):
  return max((c[1] for c in state.chain if c[0] == "open"), default=0)


def with_(state, who, i, **changes):
  several = list(getattr(state, who))
  several[i] = several[i]._replace(**changes)
  return state._replace(**{who: tuple(several)})


def named(state):
  return {c[3] for c in state.chain if c[0] == "ship"}


def attempts(state):
  return [c[2] for c in state.chain if c[0] == "ship"]


def coordinator_steps(mutant, size, state, i):
  me = state.coordinators[i]
  if me.at == "off":
    if i and state.coordinators[i - 1].at == "off":
      return
    era = len(state.chain) + 1
    yield f"coordinator {i} asks for era {era}", with_(
        state, "coordinators", i, at="asks", era=era)
    if i and state.coordinators[i - 1].at != "asks":
      # On the disk of the one before, who is dead by then.
      disk = state.coordinators[i - 1].disk
      after = with_(state, "coordinators", i - 1, at="lost", disk=())
      yield f"coordinator {i} asks for era {era}, in place of the last", with_(
          after, "coordinators", i, at="asks", era=era, disk=disk)
    return
  if me.at == "asks":
    if mutant == "swept before the open is in the chain" and not me.swept:
      yield f"coordinator {i} sweeps", swept(mutant, state, i)
    if len(state.chain) + 1 == me.era:
      yield f"coordinator {i} opens", with_(
          state._replace(chain=state.chain + (("open", me.era),)),
          "coordinators", i, at="open", disk=tuple(
              d for d in me.disk if d[0] not in attempts(state)))
    else:
      yield f"coordinator {i} asks anew", with_(
          state, "coordinators", i, era=len(state.chain) + 1)
    return
  if me.at == "lost":
    return
  if not me.swept:
    yield f"coordinator {i} sweeps", swept(mutant, state, i)
  if me.disk:
    attempt, what = me.disk[0]
    if era_of_chain(state) != me.era:
      after = with_(state, "coordinators", i, at="lost")
      yield f"coordinator {i} is fenced", after
    else:
      # Its own, or one of this era that a rank has uploaded.
      if what[0] != me.era and mutant != "an object of an earlier era is named":
        what = (me.era, what[1], "coordinator", i)
        state = state._replace(objects=state.objects | {what})
      after = state._replace(
          chain=state.chain + (("ship", me.era, attempt, what),),
          told=state.told | {attempt})
      yield f"coordinator {i} ships {attempt}", with_(
          after, "coordinators", i, disk=me.disk[1:], at="open")
    return
  if me.at == "open" and me.tries < size.tries:
    yield f"coordinator {i} plans", with_(
        state, "coordinators", i, at="planned", plan=(me.era, me.tries + 1),
        tries=me.tries + 1)
  if me.at == "planned":
    yield f"coordinator {i} gives up", with_(
        state, "coordinators", i, at="open", plan=None)
    for era, attempt, what in state.hands:
      right = era == me.era and attempt == me.plan
      if mutant == "an attempt that was given up is taken":
        right = era == me.era
      if mutant == "any handoff is taken":
        right = True
      if not right:
        continue
      # To fetch it is to see that it is there; where it is not the step fails.
      if what not in state.objects and mutant not in (
          "any handoff is taken", "a handoff before its upload"):
        continue
      after = with_(state, "coordinators", i, at="local",
                    disk=me.disk + ((me.plan, what),))
      if mutant == "told before the commit":
        after = after._replace(told=after.told | {me.plan})
      yield f"coordinator {i} takes {what}", after


def swept(mutant, state, i):
  me = state.coordinators[i]
  keep = named(state)
  late = me.era + (mutant == "the own era is swept")
  return with_(
      state._replace(
          objects=frozenset(o for o in state.objects
                            if o[0] >= late or o in keep),
          hands=state.hands if mutant == "any handoff is taken" else frozenset(
              h for h in state.hands if h[0] >= me.era)),
      "coordinators", i, swept=True)


def rank_steps(mutant, size, state, i):
  me = state.ranks[i]
  for c, coordinator in enumerate(state.coordinators):
    if coordinator.at == "planned" and coordinator.plan != me.attempt and (
        coordinator.era >= me.era):
      yield f"rank {i} reads the plan of {c}", with_(
          state, "ranks", i, at="met", era=coordinator.era,
          attempt=coordinator.plan)
  if me.at != "met" or me.uploads == size.uploads:
    return
  what = (me.era, me.attempt, f"rank {i}", me.uploads)
  after = with_(state, "ranks", i, uploads=me.uploads + 1)
  yield f"rank {i} uploads, and hears nothing", after._replace(
      flying=after.flying | {what})
  hand = frozenset({(me.era, me.attempt, what)})
  done = with_(after, "ranks", i, at="handed")
  yield f"rank {i} uploads and hands over", done._replace(
      objects=done.objects | {what}, hands=done.hands | hand)
  if mutant == "a handoff before its upload":
    yield f"rank {i} hands over what is on its way", done._replace(
        flying=done.flying | {what}, hands=done.hands | hand)


def steps(mutant, size, met):
  def those(state):
    for i in range(size.coordinators):
      yield from coordinator_steps(mutant, size, state, i)
    for i in range(size.ranks):
      yield from rank_steps(mutant, size, state, i)
    for what in state.flying:
      yield f"{what} arrives", state._replace(
          objects=state.objects | {what}, flying=state.flying - {what})
    for what in named(state):
      if what[0] < era_of_chain(state):
        met["of an earlier era, and kept"] += 1
    if any(c.at == "lost" for c in state.coordinators):
      met["fenced with a part in hand"] += 1
    if len(named(state)) > 1:
      met["committed twice or more"] += 1
  return those


def look(state):
  for commit in state.chain:
    if commit[0] != "ship":
      continue
    if commit[3] not in state.objects:
      return f"{commit} names what is not there"
    if commit[3][1] != commit[2]:
      return f"{commit} has a part of another attempt"
  shipped = attempts(state)
  if len(shipped) != len(set(shipped)):
    return "an attempt is there twice"
  if not state.told <= set(shipped):
    return f"told {sorted(state.told)}, there are {shipped}"
  return None


def model(mutant, size, met):
  return search(start(size), steps(mutant, size, met), look)


if __name__ == "__main__":
  sys.exit(run(__doc__, MUTANTS, SIZES,
               ("of an earlier era, and kept", "fenced with a part in hand",
                "committed twice or more"), model))
