#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The journal of a store, searched exhaustively: histories of three commits
with background work between them, a crash at every call, every part of what was
not synced; what is left is read, damaged and read, opened, written on, cut
again.

  model.py                  the search, then every mutant
  model.py --mutant NAME    one wrong rule: a counterexample is printed
  model.py --help           their names

What must be there is what this file's driver was answered, never what the
store says of itself. Beside it lie the rules, rules.py (reading) and writer.py
(writing), and the disk, disk.py."""

import argparse
import collections
import itertools
import os
import sys
import time
import zlib

from disk import BAD, ZERO, Disk, SyncFailed, from_image
from rules import LOST, Block, Damage, Index, View
from writer import Writer, create

HISTORIES = (
    ("small", "large", "collect"),
    ("large", "collect", "small"),
    ("small", "before"),
)
WORK = ("", "sync b", "flush records", "flush small", "drop", "collect")
SLS = ("small", "large", "small")
SB = ("small", "before")
LS = ("large", "small")
LC = ("large", "collect")
# name: the history, the work and the phase in which it must be caught.
MUTANTS = {
    "b before the sync of a": (SLS, "", ""),
    "memtables before the sync of a": (SLS, "", ""),
    "answer before the sync of a": (SLS, "", ""),
    "b beside the sync of a": (SLS, "", ""),
    "answer before b": (SLS, "", "one"),
    "answer before the note": (SLS, "", "one"),
    "open appends to the old pair": (SLS, "", "one again"),
    "before is synced with its commit": (SB, "", ""),
    "open without a note": (("small",), "", "again later"),
    "secured by b alone after a crash": (LS, "", "again later"),
    "sync of b without the note": (("large", "large"), "sync b", "two"),
    "sync of the last b alone": (SB, "sync b", "one"),
    "one marker for both": (SB, "flush records", "one again"),
    "no marker in small": (SLS, "flush small,drop", "one again"),
    "drop without flush": (SLS, "drop", ""),
    "drop with one space flushed": (SLS, "drop", ""),
    "rows- before the sync of b": (("small",), "drop", "one"),
    "drop without rows-": (SLS, "drop", ""),
    "rows- not synced before the drop": (SLS, "drop", ""),
    "rows by a scan of the index": (SB, "drop", "one"),
    "collection without sync of b": (LC, "collect", "one"),
    "torn tail of a over whole b": (SLS, "drop", "one"),
    "longer b is a crash": (SLS, "drop", "one"),
    "nothing is void": (SB, "", "again"),
    "header alone counts": (SLS, "", ""),
    "no chain check": (SLS, "", "two"),
    "new file without directory sync": (SLS, "", ""),
    "tip is ignored": (SLS, "", "two"),
    "a reader takes the journal first": (SLS, "flush records", ""),
    "close cuts before the seal is synced": (SLS, "drop", ""),
    "index swap without directory sync": (SLS, "drop", "one"),
}


class Wrong(Exception):
  """A promise that is broken."""


class Known:
  """What the driver knows. states[k]: the steps after k commits; acked:
  answered for; safe: answered for, and since then a work that syncs b has
  ended; begun: given to the store; flushed, dropped: of the blocks of small
  saves."""

  def __init__(self):
    self.states, self.acked, self.safe, self.begun = ({},), 0, 0, 0
    self.flushed, self.dropped = 0, 0
    # cut: a power cut, since when no open has ended. old: moments before this
    # one, for readers that are slow: (disk, index, answered for).
    self.cut, self.old = False, ()
    # A session after a power cut, and nothing has secured what it started from:
    # old files may still lack it in b.
    self.short = False

  def copy(self):
    new = Known()
    new.__dict__.update(self.__dict__)
    return new

  def key(self):
    return (self.begun, self.acked, self.safe, self.flushed, self.dropped,
            self.cut, self.short,
            tuple(sorted(self.states[-1].items())))

  def begin(self, kind, session):
    """The next commit, as the store is given it, and what it makes. What goes
    before one is a commit of its own."""
    self.begun += 1
    steps = dict(self.states[-1])
    n, name = self.begun, f"{self.begun}.{session}"
    rows = [("records", "count", ("row", n))]
    block = ""
    if kind == "collect":
      victim = min((s for s in steps if s[0] == "s"), default=None)
      if victim:
        rows.append(("records", victim, None))
        rows.append(("small", steps.pop(victim), None))
    elif kind == "large":
      rows.append(("records", f"s{n}", ("large", name)))
      steps[f"s{n}"] = name
    elif kind == "before":
      rows.append(("records", f"tree{n}", ("row", name)))
      steps[f"tree{n}"] = name
    else:
      rows.append(("records", f"s{n}", ("small", name)))
      steps[f"s{n}"] = block = name
    steps["count"] = n
    self.states += (steps,)
    return [(tuple(rows), block)]


def damages(image):
  """Each single damage: (path, place, what was there, the damaged image)."""
  for path, content in sorted(image.items()):
    if content is None:
      continue
    rest = {p: c for p, c in image.items() if p != path}
    yield path, "missing", content, rest
    if len(content) > 1:
      yield path, "cut", content, rest | {path: content[:len(content) // 2]}
    for i, sector in enumerate(content):
      for new in spoiled(path, content, i, sector):
        if new != sector:
          yield path, i, sector, rest | {
              path: content[:i] + (new,) + content[i + 1:]}


def spoiled(path, content, i, sector):
  if path.startswith("journal/b-") and isinstance(sector, tuple):
    for j in range(len(sector)):
      yield sector[:j] + (BAD,) + sector[j + 1:]
    yield (ZERO,) * len(sector)
    yield (BAD,) * len(sector)
    return
  yield BAD
  yield ZERO
  if path.startswith("journal/a-") and i:
    yield content[i - 1]


class Search:
  def __init__(self, mutant="", full=False):
    self.mutant, self.full = mutant, full
    self.seen, self.counts = set(), collections.Counter()
    self.trail, self.later = [], []

  # judging

  def judge(self, disk, known, lowest, highest, *, fails=False,
            loses=lambda name: False, quiet=False, where="", index=None):
    """Reads, and compares with what the driver knows."""
    self.counts["reads"] += 1
    try:
      view = View(disk, self.mutant, index)
      steps = view.steps(disk)
    except Damage as error:
      self.counts["errors by name"] += 1
      if not fails:
        self.wrong(f"{where}: an error for a sound store: {error}", disk)
      return None
    count = steps.get("count", 0)
    if not lowest <= count <= highest:
      self.wrong(f"{where}: {count} commits, not {lowest} to {highest}", disk)
    want = known.states[count]
    for step in sorted(want.keys() | steps.keys()):
      got = steps.get(step)
      if got != want.get(step) and not (
          got == LOST and step in want and loses(want[step])):
        self.wrong(f"{where}: {step} is {got}, not {want.get(step)}", disk)
    if quiet and view.told:
      self.wrong(f"{where}: a false alarm: {view.told}", disk)
    return view

  def wrong(self, what, disk):
    lines = [what, "  after " + ", ".join(self.trail)]
    for path, content in sorted(disk.image().items()):
      lines.append(f"  {path}: {content}")
    raise Wrong("\n".join(lines))

  # crashes

  def step(self, disk, label, known, opening=False):
    """At every call: a reader beside the writer, a kill, every power cut."""
    key = disk.key(), known.key()
    if key in self.seen:
      return
    self.seen.add(key)
    self.trail.append(label)
    self.counts["moments"] += 1
    live = disk.copy()
    self.judge(live, known, known.acked, known.begun, where="a reader",
               quiet=not opening)
    self.later.append((live, known.copy(), known.cut, list(self.trail)))
    if not opening:
      self.slow_readers(live, known)
    for image in disk.power_cuts():
      key = image, known.key()
      if key in self.seen:
        continue
      self.seen.add(key)
      self.counts["power cuts"] += 1
      left = from_image(image)
      self.judge(left, known, known.acked, known.begun,
                 where="after a power cut", quiet=not opening)
      self.later.append((left, known.copy(), True, list(self.trail)))
    self.trail.pop()

  def slow_readers(self, live, known):
    """A reader takes the index first, then the journal, a while after (18).
    What it needs may be gone by then: it starts again."""
    index = Index(live, "db")
    for old, before, acked in known.old[:1] + known.old[-1:]:
      if self.mutant == "a reader takes the journal first":
        self.judge(old, known, acked, known.begun, index=index,
                   where="a slow reader")
      else:
        self.judge(live, known, acked, known.begun, index=before, fails=True,
                   where="a slow reader")
    known.old = known.old[-5:] + ((live, index, known.acked),)

  def hook(self, disk, known, opening=False):
    disk.hook = lambda disk, label: self.step(disk, label, known, opening)

  # one session

  def commit(self, writer, known, kind, fails=False):
    def acknowledge():
      known.acked = known.begun
    records = []
    if kind == "before":
      records = known.begin("before", writer.session)
      if self.mutant != "before is synced with its commit":
        writer.commit(records, acknowledge)
        records = []
    kind = "small" if kind == "before" else kind
    records += known.begin(kind, writer.session)
    writer.commit(records, acknowledge, fails)

  def work(self, writer, known, what):
    files = set(writer.disk.names("db"))
    if what == "sync b":
      writer.sync_b()
    elif what == "flush records":
      writer.flush("records")
    elif what == "flush small":
      writer.flush("small")
      known.flushed = known.acked
    elif what == "drop":
      known.dropped = known.acked                # from here on they may be gone
      writer.drop()
      known.flushed = known.acked
    elif what == "collect":
      writer.drop_segments()
    elif what == "close":
      writer.close()
      known.flushed = known.acked
    removed = {n for n in files if n.startswith("seg-")} - set(
        writer.disk.names("db"))
    if what in ("drop", "close") or removed:
      known.short = False
    if what in ("sync b", "drop", "close") or removed:
      known.safe = known.safe if known.short else known.acked

  def session(self, writer, known, kinds):
    """Every way to do these commits with some work after each."""
    if not kinds:
      other, knows = writer.clone(), known.copy()
      self.hook(other.disk, knows)
      self.trail.append("close")
      self.work(other, knows, "close")
      self.step(other.disk, "closed", knows)
      self.trail.pop()
      return
    failing, knows = writer.clone(), known.copy()
    self.hook(failing.disk, knows)
    self.trail.append(f"{kinds[0]} whose sync fails")
    try:
      self.commit(failing, knows, kinds[0], fails=True)
    except SyncFailed:
      self.counts["failed syncs"] += 1
      self.step(failing.disk, "dead", knows)
    self.trail.pop()
    writer, known = writer.clone(), known.copy()
    self.hook(writer.disk, known)
    self.trail.append(kinds[0])
    self.commit(writer, known, kinds[0])
    for what in self.works:
      if what == "collect" and kinds[0] != "collect":
        continue
      other, knows = writer.clone(), known.copy()
      self.hook(other.disk, knows)
      self.trail.append(what or "no work")
      self.work(other, knows, what)
      self.session(other, knows, kinds[1:])
      self.trail.pop()
    self.trail.pop()

  def first(self, history):
    disk, known = Disk(), Known()
    create(disk)
    writer = Writer(disk, self.mutant)
    self.trail = ["/".join(history) + ":"]
    self.session(writer, known, history)

  # what is left, once more

  def drawn(self, one_in, *what):
    """The same ones each time, spread over all."""
    return self.full or zlib.crc32(repr(what).encode()) % one_in == 0

  def open(self, disk, known, cut, where, careful=False):
    """Opened for writing: from now on its tip is what was answered for."""
    try:
      writer = Writer(disk, self.mutant, careful)
    except Damage as error:
      self.wrong(f"{where}: no open: {error}", disk)
    view = View(disk, self.mutant)
    known.acked = view.records().get("count", ("row", 0))[1]
    known.begun = known.acked
    known.safe = min(known.safe, known.acked)
    known.short = writer.unsealed and (known.short or known.cut or cut)
    known.states = known.states[:known.acked + 1]
    known.cut, known.old = False, ()
    return writer

  def again(self, live, known, cut, trail):
    """A second session on what a crash left, with a crash in every call."""
    disk, known, self.trail = live.copy(), known.copy(), trail
    opening = known.copy()
    opening.cut = cut or known.cut
    self.trail.append("power cut, open" if cut else "kill, open")
    self.counts["opens"] += 1
    lowest = known.acked
    self.hook(disk, opening, opening=True)
    writer = self.open(disk, known, cut, "a second open")
    if known.acked < lowest:
      self.wrong(f"open took {known.acked} commits of {lowest}", disk)
    self.hook(disk, known)
    self.step(disk, "opened", known)
    for kind in ("small", "collect"):
      self.trail.append(kind)
      self.commit(writer, known, kind)
    for what in ("collect", "drop", "close"):
      self.trail.append(what)
      self.work(writer, known, what)
    self.judge(disk, known, known.acked, known.acked, quiet=True,
               where="closed")

  # damage

  def one_damage(self, live, known, cut, trail):
    """Any one: every commit is there, to read and to open; after a power cut
    what only a had may go with it. Without a, b may have a commit that nobody
    was answered for, and no note of it: nobody can tell then whether it is the
    last."""
    image = live.image()
    for path, place, old, damaged in damages(image):
      self.counts["damages"] += 1
      self.trail = trail + [f"damage of {path} at {place}"]
      of_a = (cut or known.short) and path.startswith("journal/a-")
      lowest = known.safe if of_a else known.acked
      without_a = path.startswith("journal/a-") and place in ("missing", "cut")
      fails = of_a and (lowest < known.acked or without_a) or (
          without_a and known.acked < known.begun)
      loses = self.losses(known, path, place, old)
      disk = from_image(damaged.items())
      view = self.judge(disk, known, lowest, known.begun, fails=fails,
                        loses=loses, where="one damage")
      if view and self.drawn(8, path, place, sorted(damaged.items(), key=str)):
        if path.startswith("db/t-"):     # what a has as well goes with the drop
          loses = self.losses(known, path, "dropped", old)
        self.mended(disk, known, cut, loses)

  def losses(self, known, path, place, old):
    """Payloads have one copy: which of them this damage may cost."""
    def commit(name):
      return int(name.split(".")[0])
    if path.startswith("db/seg-"):
      return lambda name: path == "db/seg-" + name
    if path.startswith("db/t-"):
      last = known.begun if place == "dropped" else known.dropped
      return lambda name: commit(name) <= last
    if path.startswith("journal/a-") and place in ("missing", "cut"):
      return lambda name: commit(name) > known.flushed
    if isinstance(old, Block):
      return lambda name: name == old.name and commit(name) > known.flushed
    return lambda name: False

  def mended(self, disk, known, cut, loses):
    """Opened, written on, old files dropped, closed: nothing is lost by that,
    and the second time all is whole."""
    known = known.copy()
    self.counts["mended"] += 1
    lowest = known.acked
    writer = self.open(disk, known, cut, "an open after damage")
    for what in ("large", "drop", "close"):
      self.trail.append(what)
      if what == "large":
        self.commit(writer, known, what)
        for image in disk.power_cuts():
          self.judge(from_image(image), known, known.acked, known.acked,
                     loses=loses, where="mended, then a power cut")
      else:
        self.work(writer, known, what)
    self.judge(disk, known, known.acked, known.acked, loses=loses,
               where="written on after damage")
    self.trail.append("open")
    writer = self.open(disk, known, False, "mended", careful=True)
    self.trail.append("close")
    self.work(writer, known, "close")
    self.judge(disk, known, known.acked, known.acked, loses=loses, quiet=True,
               where="mended")

  def two_damages(self, live, known, cut, trail):
    """Any two: all of it, or an error by name."""
    image = live.image()
    lowest = known.safe if cut or known.short else known.acked
    anything = lambda name: True
    for path, place, _, damaged in damages(image):
      if place == "cut":
        continue
      for other, where, _, both in damages(damaged):
        if where == "cut" or other < path:
          continue
        self.counts["two damages"] += 1
        self.trail = trail + [
            f"damages of {path} at {place}, {other} at {where}"]
        self.judge(from_image(both.items()), known, lowest, known.begun,
                   fails=True, loses=anything, where="two damages")


def run(mutant="", full=False, histories=HISTORIES, works=WORK,
        phases="one two again later", scale=1):
  """All phases, of each so much; a mutant must be caught on the way."""
  search = Search(mutant, full)
  search.works = works
  for history in histories:
    search.first(history)
  left, search.later = search.later, []
  left.sort(key=lambda state: zlib.crc32(repr(state[3]).encode()))
  each = {"one": 240, "two": 1200, "again": 1200, "later": 600}
  for phase in phases.split():
    if phase == "later":
      continue                        # with what each of those opens left
    step = 1 if full and phase != "two" else max(1, each[phase] // scale)
    states = left[::step]
    if phase == "one":                   # where a kill leaves something undone
      states += [s for s in left if s[3][-1] == "answered"][
          ::max(1, step // 10)]
    if phase == "again":             # what is in memory alone is where it hurts
      states += [s for s in left if not s[2] and s[3][-1].startswith(
          ("write journal/a", "write journal/b", "dead"))][
              ::max(1, step // 10)]
    for state in states:
      if phase == "again":
        search.again(*state)
        after, search.later = search.later, []
        if "later" in phases:
          later = 1 if full else max(1, each["later"] // scale)
          first = zlib.crc32(repr(state[3]).encode()) % later
          for state in after[first::later]:
            search.one_damage(*state)
      elif phase == "two":
        search.two_damages(*state)
      else:
        search.one_damage(*state)
  return search


def main():
  parser = argparse.ArgumentParser(description=__doc__)
  parser.add_argument("--mutant", choices=["all", *MUTANTS])
  parser.add_argument("--full", action="store_true", help="hours")
  args = parser.parse_args()
  failed = 0
  if not args.mutant:
    search = run(full=args.full, phases="one two again later")
    print("the model holds:", ", ".join(
        f"{n} {what}" for what, n in search.counts.items()))
    if "CKPTREE_TEST_SCALE" in os.environ:
      print("the wrong rules are searched for by tests/run --all")
      return failed
  # Takes long: by name it runs.
  names = [name for name in MUTANTS if name != "sync of the last b alone"]
  for mutant in names if args.mutant in (None, "all") else [args.mutant]:
    history, works, phases = MUTANTS[mutant]
    start = time.process_time()
    try:
      run(mutant, False, [history], ("", *filter(None, works.split(","))),
          phases, 120)
      print(f"NOT CAUGHT: {mutant} ({time.process_time() - start:.1f} s)")
      failed = 1
    except (Wrong, Damage) as wrong:
      lines = str(wrong).split("\n")[:None if args.mutant == mutant else 2]
      print(f"{mutant} ({time.process_time() - start:.1f} s):",
            *lines, sep="\n", flush=True)
  return failed


if __name__ == "__main__":
  sys.exit(main())
