# SPDX-License-Identifier: Apache-2.0
"""What model.py proves: how the journal and the index are read. The
numbers in brackets are the rules of the protocol; the writer's are in
writer.py.

  journal/a-N   place 0 the preface, then records, each from a place of its own:
                a header with its rows, then a block if it has one; zeros to the
                end of the file; a seal where it was closed
  journal/b-N   preface, records without blocks, seal; two to a sector
  journal/rows-N  all rows as of record N
  db/           the index: MANIFEST, tables of `records` and `small`, segments
  tip           the last record that was acknowledged"""

import collections
import functools
import hashlib

from disk import BAD, ZERO

A_PLACES = 5
ORIGIN = "origin"
SPACES = ("records", "small")
# after: (ordinal, hash) of the record that the file's own records follow.
Preface = collections.namedtuple("Preface", "file session after")
Record = collections.namedtuple(
    "Record", "file session ordinal prev rows block hash")
Seal = collections.namedtuple("Seal", "ordinal hash")
Block = collections.namedtuple("Block", "name")
Rows = collections.namedtuple("Rows", "ordinal hash rows")
Tip = collections.namedtuple("Tip", "ordinal hash")
Footer = collections.namedtuple("Footer", "space marker")
Body = collections.namedtuple("Body", "rows")
Manifest = collections.namedtuple("Manifest", "tables segments next")
Segment = collections.namedtuple("Segment", "name")
LOST = "lost"


class Damage(Exception):
  """The error by name: nothing is read, nothing is written."""


@functools.lru_cache(maxsize=None)
def digest(*what):
  return hashlib.blake2b(repr(what).encode(), digest_size=4).hexdigest()


def make_record(*fields):
  return Record(*fields, digest(*fields))


def apply_rows(rows, changes):
  for key, value in changes:
    if value is None:
      rows.pop(key, None)
    else:
      rows[key] = value


class Index:
  """The tables of one database folder, and how far each space has come."""

  def __init__(self, disk, folder):
    names = disk.names(folder) or {}
    self.folder, self.damaged, self.rows_damaged = folder, None, set()
    self.markers = {space: (0, ORIGIN) for space in SPACES}
    self.bodies = {space: [] for space in SPACES}
    manifest = disk.read(folder + "/MANIFEST")
    if manifest and isinstance(manifest[0], Manifest):
      self.tables, segments, self.next = manifest[0]
      self.segments = set(segments)
    else:                    # blocks are still found by their names, in any way
      self.damaged = folder + "/MANIFEST"
      self.tables = [(None, n) for n in sorted(names) if n.startswith("t-")]
      self.segments = {n for n in names if n.startswith("seg-")}
    for space, name in self.tables:
      footer, body = ((disk.read(f"{folder}/{name}") or ()) + (BAD, BAD))[:2]
      if isinstance(footer, Footer):
        space = footer.space
        self.markers[space] = footer.marker or self.markers[space]
      else:
        self.damaged = self.damaged or f"{folder}/{name}"
      if not isinstance(body, Body):
        self.rows_damaged.add(space)                             # met by a Get
      elif space:
        self.bodies[space].append(body.rows)

  def rows(self, space):
    rows = {}
    for body in self.bodies[space]:
      apply_rows(rows, body)
    return rows


class Pair:
  """Both files of one number. A record counts only in its own file, or as the
  copy that the preface names, with what it is made of before it (5, 8)."""

  def __init__(self, disk, number):
    self.number = number
    self.a, self.b = (disk.read(f"journal/{x}-{number}") for x in "ab")
    units = [u for s in self.b or () for u in
             (s if isinstance(s, tuple) and not hasattr(s, "_fields")
              else (BAD, BAD))]
    self.units = units
    prefaces = [x for x in ((self.a or ())[:1] + tuple(units[:1]))
                if isinstance(x, Preface) and x.file == number]
    self.preface = prefaces[0] if prefaces else None
    self.records = {"a": self.own(self.a or ()), "b": self.own(units)}
    self.blocks = {s.name for s in self.a or () if isinstance(s, Block)}
    self.seals = {x: s for x, place in (("a", self.a or ()), ("b", units))
                  for s in place if isinstance(s, Seal)}
    self.used = bool(self.preface or self.records["a"] or self.records["b"])
    every = list(self.records["a"].values()) + list(self.records["b"].values())
    self.session = self.preface.session if self.preface else max(
        (r.session for r in every if r.file == number), default=0)

  def own(self, places):
    found = {}
    wanted = self.preface.after[1] if self.preface else None
    for record in reversed(places):
      if not isinstance(record, Record):
        continue
      if record.file == self.number:
        found[record.ordinal] = record
      elif record.hash == wanted:
        found[record.ordinal] = record
        wanted = record.prev
    return found


class View:
  """All that an open reads, and what it makes of it: the tip, the records from
  `low` + 1 to it, where the rows come from, and what is damaged."""

  def __init__(self, disk, mutant="", index=None):
    self.mutant, self.told = mutant, []
    names = disk.names("journal")
    numbers = sorted({int(n[2:]) for n in names
                      if n[:2] in ("a-", "b-") and n[2:].isdigit()})
    self.pairs = [Pair(disk, n) for n in numbers]
    folders = [f for f in ("db", "db.new", "db.damaged")
               if disk.names(f) is not None]          # between two renames (15)
    self.index = index or Index(disk, (folders or ["db"])[0])
    self.base = self.read_rows(disk, names)
    self.blocks = set().union(*(p.blocks for p in self.pairs))
    self.find_records()
    self.find_tip()
    self.find_chain()
    self.read_note(disk)
    self.find_end()
    self.check_note()
    self.choose(beside_writer=index is not None)

  def read_rows(self, disk, names):
    best = Rows(0, ORIGIN, ())
    for name in names:
      if name.startswith("rows-") and name[5:].isdigit():
        content = disk.read("journal/" + name)
        if len(content) == 2 and isinstance(content[0], Rows) and (
            isinstance(content[1], Body)):
          rows = content[0]._replace(rows=content[1].rows)
          best = max(best, rows, key=lambda r: r.ordinal)
        else:
          self.told.append("journal/" + name)
    return best

  def find_records(self):
    """Ordinal -> hash -> (record, the files that have it). A session makes void
    what stands in files of earlier ones behind the record it started from: it
    was never acknowledged (14)."""
    starts = {}
    for pair in self.pairs:
      if pair.preface and (pair.b is not None or any(
          r.file == pair.number or r.hash == pair.preface.after[1]
          for r in pair.records["a"].values())):
        start = pair.preface.after[0]     # else a crash in the open: none began
        starts[pair.session] = min(starts.get(pair.session, start), start)
    self.found = collections.defaultdict(dict)
    for pair in self.pairs:
      limit = min((s for session, s in starts.items()
                   if session > pair.session), default=1 << 30)
      if self.mutant == "nothing is void":
        limit = 1 << 30
      copies = ["a", "b"]
      if self.mutant == "torn tail of a over whole b":
        copies = ["a"] if pair.a is not None else ["b"]
      if self.mutant == "longer b is a crash" and pair.a is not None:
        last = max(pair.records["a"], default=0)
        limit = min(limit, last)
      for copy in copies:
        for ordinal, record in pair.records[copy].items():
          if ordinal <= limit:
            self.found[ordinal].setdefault(record.hash, (record, set()))[1].add(
                (pair.number, copy))

  def whole(self, record, files):
    """Whether the record at the tip is more than a torn write: b has what a's
    sync has answered for; without b its block must be there. The record before
    it was synced before it was written (4, 9, 21)."""
    if self.mutant == "header alone counts":
      return True
    if any(copy == "b" for _, copy in files):
      return True
    return not record.block or record.block in self.blocks

  def find_tip(self):
    self.chain = {}
    self.tip = max(self.found, default=0)
    while self.tip:
      choices = [choice for _, choice in sorted(self.found[self.tip].items())]
      if len(choices) > 1:
        raise Damage(f"two different records {self.tip}")
      if any(self.whole(*choice) for choice in choices):
        break
      self.tip -= 1

  def find_chain(self):
    """Down from the tip as far as each record names the one before it."""
    ordinal, wanted = self.tip, None
    while ordinal and (ordinal in self.found or
                       self.mutant == "no chain check"):
      choices = self.found[ordinal]
      if self.mutant == "no chain check":
        if not choices:
          ordinal -= 1
          continue
        wanted = None
      if wanted is None:
        wanted = max(choices, key=lambda h: choices[h][0].session)
      if wanted not in choices:
        break
      self.chain[ordinal] = choices[wanted][0]
      wanted, ordinal = choices[wanted][0].prev, ordinal - 1
    self.low = ordinal
    if self.base.ordinal > self.tip:                   # it has all that is lost
      self.told.append("journal: records before rows-")
      self.tip = self.low = self.base.ordinal

  def hash_at(self, ordinal):
    if ordinal in self.chain:
      return self.chain[ordinal].hash
    if ordinal + 1 in self.chain:
      return self.chain[ordinal + 1].prev
    if ordinal == self.base.ordinal:
      return self.base.hash
    return ORIGIN if ordinal == 0 else None

  def find_end(self):
    """Whether records behind the tip may be missing (14)."""
    used = [p for p in self.pairs if p.used]
    self.last = used[-1] if used else None
    noted = self.note == Tip(self.tip, self.hash_at(self.tip))
    if not used:
      raise Damage("journal: no records")
    self.sealed = bool(self.last.seals)
    for pair in self.pairs[self.pairs.index(self.last):]:
      cut = pair.a is None or len(pair.a) < A_PLACES and "a" not in pair.seals
      if pair.b is not None and cut:
        self.told.append(f"journal/a-{pair.number}")
        if pair is self.last and "b" not in pair.seals and not noted:
          raise Damage(f"journal/a-{pair.number}: commits may be missing")
      for seal in pair.seals.values():
        if seal.ordinal > self.tip:
          raise Damage("journal: records before the seal are gone")

  def read_note(self, disk):
    content = disk.read("tip")
    self.note = content[0] if content else None
    if content and not isinstance(self.note, Tip):
      self.told.append("tip")
    if not isinstance(self.note, Tip) or self.mutant == "tip is ignored":
      self.note = None

  def check_note(self):
    """Written after the sync of a: on a sound disk it is never ahead."""
    if self.note is None:
      return
    here = self.hash_at(self.note.ordinal)
    if self.note.ordinal > self.tip or (here and here != self.note.hash):
      raise Damage(f"journal: record {self.note.ordinal} was acknowledged")

  def choose(self, beside_writer):
    """The rows come from the index and the records above its markers, else from
    rows-N and all records above it (2)."""
    index = self.index
    for space, (ordinal, _) in index.markers.items():
      if ordinal > self.tip:
        raise Damage(f"journal: record {ordinal} is in the index only")
    self.index_whole = not index.damaged and all(
        ordinal >= self.low and
        self.hash_at(ordinal) == h
        for ordinal, h in index.markers.values())
    if beside_writer and not self.index_whole:
      raise Damage("db: older than the journal: to be opened again")      # (18)
    self.base_whole = (self.base.ordinal >= self.low and
                       self.hash_at(self.base.ordinal) == self.base.hash)
    if not self.index_whole:
      self.told.append(index.damaged or "db: not of this journal")
    if not self.index_whole and not self.base_whole:
      raise Damage(f"rows: neither db nor rows-, records from {self.low + 1}")
    if not self.base_whole:
      self.told.append("journal/rows-")

  def above(self, ordinal):
    return [self.chain[o] for o in sorted(self.chain) if o > ordinal]

  def rows_from_base(self):
    rows = dict(self.base.rows)
    for record in self.above(self.base.ordinal):
      apply_rows(rows, (
          (k, v) for space, k, v in record.rows if space == "records"))
    return rows

  def rows_from_index(self):
    rows = self.index.rows("records")
    marker = self.index.markers["records"][0]
    if self.mutant == "one marker for both":
      marker = max(m for m, _ in self.index.markers.values())
    for record in self.above(marker):
      apply_rows(rows, (
          (k, v) for space, k, v in record.rows if space == "records"))
    return rows

  def records(self):
    if self.index_whole and "records" not in self.index.rows_damaged:
      return self.rows_from_index()
    if self.index_whole:
      self.told.append("db: rows")                                       # (17)
    if not self.base_whole:
      raise Damage("rows: damaged in db, and there is no rows-")
    return self.rows_from_base()

  def small(self):
    """Blocks by name, from the tables and from a. Their names come from rows,
    so what is not living does no harm."""
    small = self.index.rows("small")
    for record in self.chain.values():
      if record.block in self.blocks:
        small[record.block] = record.block
    return small

  def steps(self, disk):
    """What a user sees: step -> content, each read to its end."""
    rows, small = self.records(), self.small()
    steps = {}
    for key, (kind, name) in rows.items():
      if kind == "small":
        steps[key] = small.get(name, LOST)
      elif kind == "large":
        content = disk.read(f"{self.index.folder}/seg-{name}") or (BAD,)
        steps[key] = name if content[0] == Segment(name) else LOST
      else:
        steps[key] = name
    return steps
