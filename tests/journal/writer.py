# SPDX-License-Identifier: Apache-2.0
"""How model.py's store is written: commits, background work, opening
and closing. The numbers in brackets are the rules of the protocol."""

import copy

from disk import BAD, ZERO
from rules import (A_PLACES, LOST, ORIGIN, SPACES, Block, Body, Footer,
                           Index, Manifest, Preface, Rows, Seal, Segment, Tip,
                           View, apply_rows, make_record)


def create(disk):
  """An empty store; that a crash in here leaves none is another matter."""
  for folder in ("journal", "db"):
    disk.mkdir(folder)
  disk.syncdir("")
  put_synced(disk, "db/MANIFEST", [Manifest((), (), 1)])
  put_synced(disk, "tip", [Tip(0, ORIGIN)])
  first, seal = Preface(1, 0, (0, ORIGIN)), Seal(0, ORIGIN)
  put_synced(disk, "journal/a-1", [first, seal])
  put_synced(disk, "journal/b-1", [(first, seal)])


def put_synced(disk, path, contents):
  """A file made and synced by a way that is not in question here."""
  hook, disk.hook = disk.hook, lambda disk, label: None
  if disk.number(path) is None:
    disk.create(path)
  disk.write(path, 0, contents)
  disk.sync(path)
  disk.syncdir(path.rpartition("/")[0])
  disk.hook = hook


def places(record, block):
  return [record] + ([block] if record.block else [])


class Writer:
  """A handle that is open for writing."""

  def __init__(self, disk, mutant="", careful=False):
    self.disk, self.mutant = disk, mutant
    if disk.names("db") is None and disk.names("db.new") is not None:
      disk.rename("db.new", "db")                                        # (15)
      disk.syncdir("")
    view = View(disk, mutant)
    rows = view.records() if careful or not view.base_whole else None
    # Until the rows were written after a crash the index is the second place of
    # what an old b may lack: see secure().
    self.unsealed = view.tip in view.chain and not view.sealed
    self.tip, self.hash = view.tip, view.hash_at(view.tip)
    self.session = 1 + max((p.session for p in view.pairs), default=0)
    self.chain = dict(view.chain)
    self.begin(view)
    if self.tip in view.chain and mutant != "open appends to the old pair":
      old = f"journal/b-{view.chain[self.tip].file}"
      if disk.number(old) is not None:
        disk.sync(old)                               # a kill: in memory alone
    note = Tip(self.tip, self.hash)
    if not (disk.read("tip") and isinstance(disk.read("tip")[0], Tip)):
      put_synced(disk, "tip", [note])
    elif mutant != "open without a note":
      # Of a commit that was not noted before a crash: both copies have it now.
      disk.write("tip", 0, [note])
    self.base, self.base_rows = view.base.ordinal, dict(view.base.rows)
    if not view.base_whole:
      self.base, self.base_rows = self.tip, rows
    if not view.index_whole or "db: rows" in view.told:
      self.make_index_anew(view)
      view.index = Index(disk, "db")
    self.index = Index(disk, "db")
    self.memory = {space: {} for space in SPACES}
    markers = dict(view.index.markers)
    if mutant == "one marker for both":
      markers = dict.fromkeys(markers, max(markers.values()))
    for record in view.above(min(m for m, _ in markers.values())):
      self.apply(record, view.blocks, markers)
    # Old files stay as they are until the thread has written the rows.
    self.behind = self.unsealed or bool(view.told)
    self.drop_segments()
    self.make_next()

  def clone(self):
    """The same handle over a copy of the disk, for another future."""
    new = copy.copy(self)
    new.disk = self.disk.copy()
    new.chain, new.base_rows = dict(self.chain), dict(self.base_rows)
    new.units, new.index = list(self.units), copy.copy(self.index)
    new.unsynced = list(self.unsynced)
    new.index.segments = set(self.index.segments)
    new.memory = {space: dict(rows) for space, rows in self.memory.items()}
    return new

  # the pair

  def begin(self, view):
    """A new pair that starts with a copy of the last record, the only one that
    may be in memory alone; no file of an earlier session is written to again
    (5)."""
    self.unsynced = []
    last = max((p.number for p in view.pairs), default=0)
    if self.mutant == "open appends to the old pair" and view.last and (
        view.last.a is not None and view.last.b is not None):
      self.append_to(view.last)
      return
    self.number = last + 1
    group = [view.chain[self.tip]] if self.tip in view.chain else []
    after = (self.tip, self.hash)
    preface = Preface(self.number, self.session, after)
    contents = [preface]
    self.units = [preface] + group
    for record in group:
      contents += places(record, self.block(record, view.blocks))
    self.place = len(contents)
    a, b = f"journal/a-{self.number}", f"journal/b-{self.number}"
    disk = self.disk
    disk.create(a)
    disk.write(a, 0, contents + [ZERO] * (A_PLACES - len(contents)))
    disk.sync(a)
    if self.mutant != "new file without directory sync":
      disk.syncdir("journal")
    disk.create(b)
    self.write_b(0)
    disk.sync(b)
    if self.mutant != "new file without directory sync":
      disk.syncdir("journal")

  def append_to(self, pair):
    self.number, self.session = pair.number, pair.session
    self.units = list(pair.units)
    self.place = 1 + max((i for i, x in enumerate(pair.a)
                          if x not in (ZERO, BAD)), default=0)

  def block(self, record, blocks):
    return Block(record.block) if record.block in blocks else BAD

  def write_b(self, since):
    """Packed: the sector of the last unit is written again."""
    if self.number not in self.unsynced:
      self.unsynced.append(self.number)
    first = since // 2
    self.disk.write(f"journal/b-{self.number}", first, [
        tuple(self.units[i:i + 2])
        for i in range(first * 2, len(self.units), 2)])

  def make_next(self):
    """The next pair, in the background: zeros, and durable before its use; a
    before b (6)."""
    following = self.number + 1
    a, b = f"journal/a-{following}", f"journal/b-{following}"
    if self.disk.number(a) is None:
      self.disk.create(a)
      self.disk.write(a, 0, [ZERO] * A_PLACES)
      self.disk.sync(a)
      if self.mutant != "new file without directory sync":
        self.disk.syncdir("journal")
    if self.disk.number(b) is None:
      self.disk.create(b)
      if self.mutant != "new file without directory sync":
        self.disk.syncdir("journal")

  def rotate(self):
    """Nothing is synced: b is by the next sync_b()."""
    self.make_next()
    self.number, self.place = self.number + 1, 0
    self.units = []

  # a commit

  def commit(self, commits, acknowledge, fails=False):
    """commits: of each record its rows and block, written and synced together:
    one of them, but in a mutant. Durable in a, then b, then the index in
    memory, then the note, then the answer (4)."""
    for rows, _ in commits:
      for space, _, value in rows:
        if space == "records" and value and value[0] == "large":
          self.adopt(value[1])
    size = sum(1 + bool(block) for _, block in commits)
    contents = []
    if self.place + size > A_PLACES:
      self.rotate()
      contents = [Preface(self.number, self.session, (self.tip, self.hash))]
    records, a = [], f"journal/a-{self.number}"
    since = len(self.units)
    ordinal, last = self.tip, self.hash
    for rows, block in commits:
      record = make_record(self.number, self.session, ordinal + 1, last, rows,
                           block)
      ordinal, last = record.ordinal, record.hash
      records.append(record)
    units = contents + records
    for record in records:
      contents = contents + places(record, Block(record.block))
    blocks = {record.block for record in records}
    if self.mutant == "b before the sync of a":
      self.units += units
      self.write_b(since)
      self.sync_b()
    if self.mutant == "memtables before the sync of a":
      for record in records:
        self.apply(record, blocks)
      self.tip, self.hash = ordinal, last
      self.flush("records")
    self.disk.write(a, self.place, contents)
    self.place += len(contents)
    if self.mutant == "b beside the sync of a":
      self.units += units
      self.write_b(since)
    if self.mutant != "answer before the sync of a":
      self.disk.sync(a, fails)
    if self.mutant == "answer before b":
      self.answer(acknowledge)
    if self.mutant not in ("b before the sync of a", "b beside the sync of a"):
      self.units += units
      self.write_b(since)
    for record in records:
      self.apply(record, blocks)
      self.chain[record.ordinal] = record
    self.tip, self.hash = ordinal, last
    if self.mutant == "answer before the note":
      self.answer(acknowledge)
    self.disk.write("tip", 0, [Tip(self.tip, self.hash)])
    self.answer(acknowledge)
    if self.disk.number(f"journal/a-{self.number + 1}") is None:
      self.make_next()

  def answer(self, acknowledge):
    """A moment of its own, for a kill may come before what is left to do."""
    acknowledge()
    self.disk.hook(self.disk, "answered")

  def apply(self, record, blocks, markers=None):
    for space, key, value in record.rows:
      if not markers or record.ordinal > markers[space][0]:
        self.memory[space][key] = value
    if record.block and record.block in blocks and (
        not markers or record.ordinal > markers["small"][0]):
      self.memory["small"][record.block] = record.block

  def adopt(self, name):
    put_synced(self.disk, f"db/seg-{name}", [Segment(name)])
    self.index.segments.add(f"seg-{name}")
    self.write_manifest()

  def write_manifest(self):
    self.disk.write("db/MANIFEST", 0, [Manifest(
        self.index.tables, tuple(sorted(self.index.segments)),
        self.index.next)])
    self.disk.sync("db/MANIFEST")

  # in the background

  def sync_b(self):
    """All that were written to since the last time: a rotation syncs none."""
    if self.mutant == "sync of the last b alone":
      self.unsynced = self.unsynced[-1:]
    for number in self.unsynced:
      self.disk.sync(f"journal/b-{number}")
    self.unsynced = []
    if self.mutant != "sync of b without the note":
      self.disk.sync("tip")

  def secure(self):
    """All that was acknowledged survives the loss of either place. A crash may
    have kept an old b short: then the index is the second place, until the rows
    were written."""
    self.sync_b()
    if self.unsealed and self.mutant != "secured by b alone after a crash":
      for space in SPACES:
        self.flush(space)

  def flush(self, space):
    """The tables of a space are the prefix that its marker names (1)."""
    if self.index.damaged:
      return
    name = f"t-{self.index.next}"
    marker = (self.tip, self.hash)
    if self.mutant == "no marker in small" and space == "small":
      marker = None
    put_synced(self.disk, "db/" + name, [
        Footer(space, marker), Body(tuple(sorted(self.memory[space].items())))])
    self.index.tables += ((space, name),)
    self.index.next += 1
    self.write_manifest()
    self.memory[space] = {}

  def write_rows(self):
    """The rows- before it and the records since, never a scan (11)."""
    rows = dict(self.base_rows)
    for record in (self.chain[o] for o in sorted(self.chain)):
      if record.ordinal > self.base:
        apply_rows(rows, ((k, v) for s, k, v in record.rows if s == "records"))
    if self.mutant == "rows by a scan of the index":
      rows = Index(self.disk, "db").rows("records")
      apply_rows(rows, self.memory["records"].items())
    disk, path = self.disk, f"journal/rows-{self.tip}"
    if disk.number(path) is not None and self.base == self.tip and (
        disk.read(path)[1:] == (Body(tuple(sorted(rows.items()))),)):
      return
    disk.create(path + ".tmp")
    disk.write(path + ".tmp", 0, [Rows(self.tip, self.hash, ()),
                                  Body(tuple(sorted(rows.items())))])
    if self.mutant != "rows- not synced before the drop":
      disk.sync(path + ".tmp")
    disk.rename(path + ".tmp", path)
    disk.syncdir("journal")
    self.base, self.base_rows = self.tip, rows
    for name in sorted(disk.names("journal")):
      if name.startswith("rows-") and "journal/" + name != path:
        disk.unlink("journal/" + name)

  def drop(self):
    """b is synced, so that rows-N names nothing that one damage can take from
    the journal; then rows-N, then both spaces are flushed, then old pairs go
    (12). The same mends: what is damaged in old pairs goes with them."""
    if self.mutant != "rows- before the sync of b":
      self.sync_b()
    if self.mutant != "drop without rows-":
      self.write_rows()
    if self.mutant != "drop without flush":
      self.flush("records")
      if self.mutant != "drop with one space flushed":
        self.flush("small")
    self.sync_b()                                  # what came since; nothing
    self.drop_pairs()
    self.unsealed = self.behind = False

  def drop_pairs(self):
    """The oldest first, b before a: an a gone beside its b is always damage."""
    numbers = {int(name[2:]) for name in self.disk.names("journal")
               if name[:2] in ("a-", "b-") and name[2:].isdigit()}
    for number in sorted(numbers):
      if number < self.number:
        self.unlink(f"journal/b-{number}")
        self.unlink(f"journal/a-{number}")
    self.disk.syncdir("journal")

  def drop_segments(self):
    """Files without a row, when the record that took the row is synced in both
    copies (13)."""
    rows = self.rows()
    living = {f"seg-{v[1]}" for v in rows.values() if v[0] == "large"}
    dead = self.index.segments - living
    if not dead:
      return
    if self.mutant != "collection without sync of b":
      self.secure()
    self.index.segments -= dead
    self.write_manifest()
    for name in sorted(dead):
      self.unlink("db/" + name)

  def rows(self):
    rows = dict(self.base_rows)
    for ordinal in sorted(self.chain):
      if ordinal > self.base:
        apply_rows(rows, ((k, v) for s, k, v in self.chain[ordinal].rows
                          if s == "records"))
    return rows

  def close(self):
    """The seal is synced before anything is cut off behind it (6); in a before
    in b, as everything. The rows are written where the open owed it."""
    for space in SPACES:
      self.flush(space)
    if self.behind:
      self.drop()
    disk, a = self.disk, f"journal/a-{self.number}"
    disk.write(a, self.place, [Seal(self.tip, self.hash)])
    if self.mutant != "close cuts before the seal is synced":
      disk.sync(a)
    self.units.append(Seal(self.tip, self.hash))
    self.write_b(len(self.units) - 1)
    self.sync_b()
    if self.place + 1 < A_PLACES:
      disk.truncate(a, self.place + 1)
      disk.sync(a)
    for name in ("b", "a"):
      disk.unlink(f"journal/{name}-{self.number + 1}")
    disk.syncdir("journal")

  # in the open

  def unlink(self, path):
    if self.disk.number(path) is not None:
      self.disk.unlink(path)

  def make_index_anew(self, view):
    """In db.new, from rows- and records; the segments are linked (15)."""
    disk = self.disk
    rows, small = view.records(), view.small()
    named = {v[1] for v in rows.values() if v[0] == "small"}
    small = {k: v for k, v in small.items() if k in named and v != LOST}
    segments = sorted(f"seg-{v[1]}" for v in rows.values() if v[0] == "large")
    segments = [s for s in segments if s in (disk.names("db") or ())]
    self.unlink("db.new")
    disk.mkdir("db.new")
    for name in segments:
      disk.link(f"db/{name}", f"db.new/{name}")
    marker = (self.tip, self.hash)
    for name, space, content in (("t-1", "records", rows),
                                 ("t-2", "small", small)):
      put_synced(disk, "db.new/" + name, [
          Footer(space, marker), Body(tuple(sorted(content.items())))])
    put_synced(disk, "db.new/MANIFEST", [Manifest(
        (("records", "t-1"), ("small", "t-2")), tuple(segments), 3)])
    disk.rename("db", "db.damaged")
    disk.rename("db.new", "db")
    if self.mutant != "index swap without directory sync":
      disk.syncdir("")
