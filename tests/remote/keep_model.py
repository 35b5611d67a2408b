#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How a segment leaves the disk of a store that ships, searched exhaustively.
The chain of commits is that of model.py, the names of segments and when they
are deleted those of deletion_model.py: here they meet a disk without some.

  keep_model.py                the search, then every mutant
  keep_model.py --mutant NAME  one wrong rule: the way to it is printed

Two directories: one that ships, and one that is empty, is made of what is there
or of a copy of the first; that copy may also be put back in its own place. A
commit that is asked for may arrive late, after its sender died, or never, and
so may its answer. Somebody who is no part of this may, once, do one of these:
destroy an object of which the disk still has the bytes, keep other bytes than
were put, leave a name out of a list; an upload may arrive once more, and a
crash may cost the rows of which there is one copy only.

The rules:
  a known   A segment may go once a commit that lists it is known to be in the
            chain: created, or read back.
  b listed  The list of segments of this open has been read, and what it missed
            is uploaded again before anything else of it.
  c look    Nothing stands behind the newest commit that the writer knows, so
            nobody took over. What is removed after that look is deleted the
            grace time later, and the drop is before that: a look that is older
            is made anew.
  d bytes   Behind the look, the object of the newest upload is read, and has
            its digest. Where it has another, the segment counts as lost there.
  e far     A row says that the segment is far, and in which object. It is
            of this directory: no commit of the chain has it.
  f secure  That row is in both copies of the journal before the file goes.
  g again   An open that finds the file beside its far row removes the row: the
            file counts, and goes by all these rules or not at all.
  h files   A directory is made of all objects of the chain, or not at all.

What must hold, in every state:
  * a file is dropped only while the object is there, as it was built;
  * whoever is the writer, or may become it, reads each step of its rows: here,
    or the object that its far row names;
  * also elsewhere a row has a file or a far row: it is not taken for damage;
  * what the chain needs is there, or is on a disk that uploads it again, or
    is removed there;
  * what has to be uploaded is here."""

import collections
import sys

from searching import run, search

# A name is (segment, era, n). An object: (name, whole).
# Commits: kind open or ship. who: (disk, life, n) of ships. adds: of names;
# removes: of segments; far: rows that no commit should have.
Commit = collections.namedtuple("Commit", "kind era who adds removes far")
# What survives a crash. rows, files: of segments. far: (segment, name, secure).
# noted: of ships, what is known to be there and what is asked for.
Disk = collections.namedtuple("Disk", "rows files far shipped announced")
# at: off, open, lost. tip: commits it knows. asked: what it asked for behind
# them. going: (phase, segment, name, commits at the look), of what is leaving.
Writer = collections.namedtuple(
    "Writer", "at lives era tip made asked swept missed going")
State = collections.namedtuple(
    "State", "chain objects flying disks writers copy saves trouble late sent")
Size = collections.namedtuple("Size", "lives saves commits trouble copies")
NOTHING = frozenset()
SIZES = (
    Size((2, 0), 1, 5, 1, 0),
    Size((1, 1), 1, 5, 1, 0),
    Size((1, 1), 1, 5, 1, 1),
    Size((2, 1), 1, 5, 1, 1),
    Size((1, 1), 2, 5, 0, 0),
)
MUTANTS = {
    "an unknown commit counts": (0, "it never comes, and its orphan goes"),
    "the list comes later": (0, "it misses what has left by then"),
    "what the list missed leaves": (0, "nothing is left to upload"),
    "nobody looks": (1, "who took over has deleted it"),
    "the answer of a put counts": (0, "other bytes are kept"),
    "an older upload is named": (0, "it is dead, and deleted"),
    "the file goes first": (0, "a crash leaves a row with nothing"),
    "it goes before it is secure": (0, "one copy of the row is lost"),
    "a far row is shipped": (1, "it is believed where nobody compared"),
    "an open drops what is left": (0, "the object was lost since"),
    "what is far is not fetched": (1, "the same, of who takes over"),
    "an older copy opens": (2, "its objects are deleted"),
}


class Broken(Exception):
  pass


class Rules:
  """The protocol, with at most one rule that is wrong."""

  def __init__(self, mutant, size):
    self.mutant, self.size = mutant, size

  def start(self):
    off = Writer("off", 0, 0, 0, 0, None, False, NOTHING, None)
    disk = Disk(NOTHING, NOTHING, NOTHING, None, None)
    return State((), NOTHING, NOTHING, (disk, None), (off, off), None, 0,
                 self.size.trouble, 1, NOTHING)

  # ---- What commits come to ----

  @staticmethod
  def uploads(chain):
    """Of living segments, all that were listed, oldest first."""
    there = {}
    for commit in chain:
      for name in sorted(commit.adds):
        there.setdefault(name[0], []).append(name)
      for segment in commit.removes:
        there.pop(segment, None)
    return there

  def living(self, chain):
    return {segment: names[-1]
            for segment, names in self.uploads(chain).items()}

  @staticmethod
  def newest_era(chain):
    return max((c.era for c in chain if c.kind == "open"), default=0)

  def may_open(self, chain, disk):
    """Rule 13 of model.py."""
    if self.mutant == "an older copy opens":
      return True
    ships = [c.who for c in chain if c.kind == "ship"]
    return not ships or ships[-1] in (disk.shipped, disk.announced)

  @staticmethod
  def shipped_far(chain):
    """What a chain says that is far, where rows are shipped as they are."""
    fars = [c.far for c in chain if c.kind == "ship"]
    return fars[-1] if fars else NOTHING

  @staticmethod
  def put(state, w, disk=None, **changes):
    disks, writers = list(state.disks), list(state.writers)
    if disk:
      disks[w] = disk
    writers[w] = writers[w]._replace(**changes)
    return state._replace(disks=tuple(disks), writers=tuple(writers))

  # ---- Opens ----

  def open(self, state, w):
    disk, me = state.disks[w], state.writers[w]
    living = self.living(state.chain)
    far = (self.shipped_far(state.chain)
           if self.mutant == "a far row is shipped" else NOTHING)
    if disk is None:
      away = {segment for segment, _, _ in far if segment in living}
      if self.mutant == "what is far is not fetched":
        far = frozenset((s, name, True) for s, name in living.items())
        away = set(living)
      if any((name, True) not in state.objects
             for s, name in living.items() if s not in away):
        return None                      # Rule h.
      ships = [c.who for c in state.chain if c.kind == "ship"]
      disk = Disk(frozenset(living), frozenset(living) - away,
                  frozenset((f[0], f[1], True) for f in far if f[0] in away),
                  ships[-1] if ships else None, None)
    elif not self.may_open(state.chain, disk):
      return None
    else:
      ships = [c.who for c in state.chain if c.kind == "ship"]
      disk = disk._replace(shipped=ships[-1] if ships else None,
                           announced=None)
    if self.mutant == "an open drops what is left":
      for segment, name, _ in disk.far:
        disk = self.dropped(state, disk, segment, name)
    else:                                # Rule g.
      disk = disk._replace(far=frozenset(
          f for f in disk.far if f[0] not in disk.files))
    era = len(state.chain) + 1
    state = state._replace(chain=state.chain + (
        Commit("open", era, None, NOTHING, NOTHING, NOTHING),))
    return self.put(state, w, disk, at="open", lives=me.lives + 1, era=era,
                    tip=era, made=0, swept=False, missed=NOTHING)

  def killed(self, state, w, disk=None):
    return self.put(state, w, disk, at="off", era=0, tip=0, asked=None,
                    swept=False, missed=NOTHING, going=None)

  # ---- Shipping ----

  def ask(self, state, w, kept_whole):
    """Uploads, notes and asks for the net change; nothing is heard yet."""
    me, disk = state.writers[w], state.disks[w]
    living = self.living(state.chain[:me.tip])
    adds = {s for s in disk.rows if s not in living or s in me.missed}
    removes = frozenset(living) - disk.rows
    far = (disk.far if self.mutant == "a far row is shipped" else NOTHING)
    if not adds and not removes and far == self.shipped_far(
        state.chain[:me.tip]):
      return None
    if adds - disk.files:
      raise Broken("what has to be uploaded is not here")
    names = frozenset((s, me.era, me.made + 1) for s in adds)
    commit = Commit("ship", me.era, (w, me.era, me.made + 1), names, removes,
                    far)
    if not kept_whole and not names:
      return None
    state = state._replace(
        objects=state.objects | {(name, kept_whole) for name in names},
        sent=state.sent | names,
        trouble=state.trouble - (not kept_whole),
        flying=state.flying | {(me.tip + 1, commit)})
    return self.put(state, w, disk._replace(announced=commit.who),
                    made=me.made + 1, asked=commit)

  def hear(self, state, w):
    me, disk = state.writers[w], state.disks[w]
    if len(state.chain) <= me.tip:
      return None
    if state.chain[me.tip] != me.asked:
      return self.put(state, w, at="lost", asked=None, going=None)
    return self.put(state, w, disk._replace(shipped=me.asked.who,
                                            announced=None),
                    tip=me.tip + 1, asked=None,
                    missed=me.missed - {s for s, _, _ in me.asked.adds})

  # ---- Deleting there ----

  def sweep(self, state, w, hidden):
    """What is of an era before and in no commit goes; what is missing is
    uploaded again where it is here."""
    me, disk = state.writers[w], state.disks[w]
    names = {name for name, _ in state.objects} - {hidden}
    living = self.living(state.chain[:me.tip])
    known = {name for c in state.chain[:me.tip] for name in c.adds}
    orphans = {name for name in names - known if name[1] < me.era}
    # They wait the grace time, too.
    if any(w != v and writer.going and writer.going[3]
           for v, writer in enumerate(state.writers)):
      orphans = NOTHING
    missed = frozenset(s for s, name in living.items()
                       if name not in names and s in disk.files)
    objects = frozenset(o for o in state.objects if o[0] not in orphans)
    return self.put(
        state._replace(objects=objects, trouble=state.trouble - bool(hidden)),
        w, swept=True, missed=missed)

  def dead(self, chain):
    """Names, and the commit that made them so."""
    when, there = {}, {}
    for at, commit in enumerate(chain, 1):
      for name in commit.adds:
        if name[0] in there:
          when[there[name[0]]] = at
        there[name[0]] = name
      for segment in commit.removes:
        if segment in there:
          when[there.pop(segment)] = at
    return when

  def delete(self, state, w):
    """The grace time is longer than from a look to its drop."""
    me = state.writers[w]
    looks = [writer.going[3] for writer in state.writers if writer.going]
    due = {name for name, at in self.dead(state.chain[:me.tip]).items()
           if all(look is None or look >= at for look in looks)}
    return state._replace(
        objects=frozenset(o for o in state.objects if o[0] not in due))

  # ---- Leaving the disk ----

  def compare(self, state, w, segment):
    """Rules a to d."""
    me, disk = state.writers[w], state.disks[w]
    uploads = self.uploads(state.chain[:me.tip])
    if self.mutant == "an unknown commit counts" and me.asked:
      uploads = self.uploads(state.chain[:me.tip] + (me.asked,))
    if segment not in uploads:
      return None
    if not me.swept and self.mutant != "the list comes later":
      return None
    if segment in me.missed and self.mutant != "what the list missed leaves":
      return None
    look = len(state.chain)
    if self.mutant == "nobody looks":
      look = None
    elif look != me.tip:
      # It asks what stands there, and knows its own.
      if me.asked and state.chain[me.tip] == me.asked:
        return None
      return self.put(state, w, at="lost", asked=None, going=None)
    name = uploads[segment][-1]
    if self.mutant == "an older upload is named":
      name = uploads[segment][0]
    if (name, True) not in state.objects and (
        self.mutant != "the answer of a put counts"
        or (name, False) not in state.objects):
      return self.put(state, w, missed=me.missed | {segment})
    return self.put(state, w, going=("compared", segment, name, look))

  @staticmethod
  def dropped(state, disk, segment, name):
    if segment in disk.files and (name, True) not in state.objects:
      raise Broken("a file is dropped, and the object is not there")
    return disk._replace(files=disk.files - {segment})

  def go_on(self, state, w):
    me, disk = state.writers[w], state.disks[w]
    phase, segment, name, look = me.going
    order = ["compared", "far", "secure", "dropped"]
    if self.mutant == "the file goes first":
      order = ["compared", "dropped", "far", "secure"]
    if self.mutant == "it goes before it is secure":
      order = ["compared", "far", "dropped", "secure"]
    phase = order[order.index(phase) + 1]
    if phase == "far":
      disk = disk._replace(far=disk.far | {(segment, name, False)})
    elif phase == "secure":
      disk = disk._replace(far=frozenset((s, n, True) for s, n, _ in disk.far))
    else:
      disk = self.dropped(state, disk, segment, name)
    going = None if phase == order[-1] else (phase, segment, name, look)
    return self.put(state, w, disk, going=going)

  # ---- What can happen next ----

  def steps(self, state):
    for ordinal, commit in state.flying:
      rest = state.flying - {(ordinal, commit)}
      if len(state.chain) == ordinal - 1:
        yield f"{commit.who} arrives", state._replace(
            chain=state.chain + (commit,), flying=rest)
    yield from self.troubles(state)
    if state.copy is None and self.size.copies:
      yield "the directory is copied", state._replace(copy=state.disks[0])
    if state.copy:
      if state.trouble and state.writers[0].at == "off":
        yield "the copy is put back", self.put(
            state._replace(trouble=state.trouble - 1), 0, state.copy)
      if state.disks[1] is None and self.size.lives[1]:
        yield "the copy is moved to", self.put(state, 1, state.copy)
    for w, me in enumerate(state.writers):
      for what, after in self.writer_steps(state, w, me):
        yield f"writer {w} {what}", after

  def troubles(self, state):
    objects = {name for name, _ in state.objects}
    if state.late:
      for name in state.sent - objects:
        yield f"an upload of {name} arrives again", state._replace(
            objects=state.objects | {(name, True)}, late=0)
    if not state.trouble:
      return
    going = {me.going[1] for me in state.writers if me.going}
    trusting = [disk for disk in state.disks
                if disk and self.may_open(state.chain, disk)]
    for name, whole in state.objects:
      has = [name[0] in disk.files for disk in trusting
             if name[0] in disk.rows]
      if name[0] not in going and has and all(has):
        yield f"{name} is destroyed", state._replace(
            objects=state.objects - {(name, whole)},
            trouble=state.trouble - 1)

  def writer_steps(self, state, w, me):
    disk = state.disks[w]
    if me.at == "off":
      if me.lives < self.size.lives[w] and (
          len(state.chain) < self.size.commits):
        yield "opens", self.open(state, w)
      return
    if me.at != "open":
      return
    yield "is killed", self.killed(state, w)
    if state.trouble and any(not secure for _, _, secure in disk.far):
      yield "is killed, and one copy of its journal is lost", self.killed(
          state._replace(trouble=state.trouble - 1), w, disk._replace(
              far=frozenset(f for f in disk.far if f[2])))
    if state.saves < self.size.saves:
      segment = state.saves + 1
      yield "saves", self.put(
          state._replace(saves=segment), w, disk._replace(
              rows=disk.rows | {segment}, files=disk.files | {segment}))
    for segment in disk.rows:
      without = disk._replace(
          rows=disk.rows - {segment}, files=disk.files - {segment},
          far=frozenset(f for f in disk.far if f[0] != segment))
      going = me.going if me.going and me.going[1] != segment else None
      yield f"removes {segment}", self.put(
          state, w, without, going=going, missed=me.missed - {segment})
    if me.asked:
      yield "hears", self.hear(state, w)
    elif len(state.chain) < self.size.commits:
      yield "asks for a commit", self.ask(state, w, True)
      if state.trouble:
        yield "asks for a commit, other bytes are kept", self.ask(
            state, w, False)
    if not me.swept:
      yield "sweeps", self.sweep(state, w, None)
      if state.trouble:
        for name in self.living(state.chain[:me.tip]).values():
          yield f"sweeps, and {name} is not listed", self.sweep(
              state, w, name)
    yield "deletes", self.delete(state, w)
    if me.going:
      yield f"goes on from {me.going[0]}", self.go_on(state, w)
    else:
      for segment in disk.files & disk.rows:
        yield f"compares {segment}", self.compare(state, w, segment)

  # ---- What must hold ----

  def counts(self, state, disk, me):
    """Whether it is the writer, or may become it."""
    if me.at == "open":
      return me.era == self.newest_era(state.chain)
    return me.at == "off" and self.may_open(state.chain, disk)

  def broken(self, state):
    uploading, removed = set(), set()
    for disk, me in zip(state.disks, state.writers):
      if disk is None:
        continue
      far = {s: name for s, name, _ in disk.far}
      counts = self.counts(state, disk, me)
      for segment in disk.rows - disk.files:
        if segment not in far:
          return f"{segment} has a row, and is neither here nor far"
        if counts and (far[segment], True) not in state.objects:
          return f"{segment} is read by nobody"
      if counts:
        uploading |= disk.files
        removed |= set(self.living(state.chain)) - disk.rows
    for segment, name in self.living(state.chain).items():
      if (name, True) not in state.objects and (
          segment not in uploading | removed):
        return f"the chain needs {segment}, and nobody has it"
    return None


def model(mutant, size, met):
  rules = Rules(mutant, size)

  def look(state):
    if isinstance(state, str):
      return state
    for disk, me in zip(state.disks, state.writers):
      if disk is None:
        continue
      met["dropped"] += bool(disk.rows - disk.files)
      met["lost"] += me.at == "lost"
      met["refused"] += not rules.may_open(state.chain, disk)
      met["missed"] += bool(me.missed)
      met["unheard"] += bool(me.asked and state.chain[-1] == me.asked)
      met["left with its row"] += me.at == "off" and any(
          s in disk.files for s, _, _ in disk.far)
    return rules.broken(state)

  def steps(state):
    if isinstance(state, str):
      return
    at = "it"
    try:
      for at, after in rules.steps(state):
        yield at, after
    except Broken as why:
      yield f"behind {at}, another step", str(why)

  return search(rules.start(), steps, look)


if __name__ == "__main__":
  sys.exit(run(__doc__, MUTANTS, SIZES,
               ("dropped", "lost", "refused", "missed", "unheard",
                "left with its row"), model, long=(3,)))
