#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Reads a ckptree store from schema/FORMAT.md alone.

`reader.py STORE` lists the steps of all branches, `reader.py STORE STEP FOLDER`
writes FOLDER/index.json, the entries of the step's tree, and N.bin for the
value of entry N (arrays: elements in row-major order). It shares no line with
the engine: RocksDB's `ldb` dumps the column families, all else is here, in the
order of FORMAT.md. Needs xxhash. The store must not be open for writing. Rows
are read from the journal; of `db/` only arrays and leaf records are.
"""

import ctypes
import functools
import itertools
import json
import math
import pathlib
import struct
import subprocess
import sys
import xxhash


class Damaged(Exception):
  pass


# Section 2: spaces and keys.
@functools.cache
def dump(store, space):
  """Key -> value of a space."""
  if space in SPACES_OF_ROWS:
    return rows(store)[space]
  return family(store, space)


@functools.cache
def family(store, space):
  """Key -> value of a column family."""
  done = subprocess.run(
      ["ldb", f"--db={store}/db", "--hex", f"--column_family={space}", "scan"],
      capture_output=True, text=True, check=False)
  if done.returncode != 0:
    raise Damaged(f"{space}: {done.stderr or done.stdout}")
  pairs = [row.split(" : ") for row in done.stdout.splitlines() if " : " in row]
  return {bytes.fromhex(k[2:]): bytes.fromhex(v.strip()[2:]) for k, v in pairs}


def block_key(space, version, part, kind, n):
  head = struct.pack(">QH", version, part)
  return head + bytes([kind] * (space == "small")) + struct.pack(">I", n)


# Section 3: the envelope.
def open_envelope(kind, data):
  if xxhash.xxh3_64_digest(data[:8] + data[16:]) != data[8:16]:
    raise Damaged("the checksum is wrong")
  magic, found, number, length = struct.unpack(">2sBBI", data[:8])
  if number > 1:
    raise Damaged(f"format {number} is of a newer engine")
  if (magic, found, length) != (b"ck", kind, len(data) - 16):
    raise Damaged("no envelope, or of another kind or length")
  return fields(data[16:])


def checked(data, digest, what):
  if xxhash.xxh3_128_digest(data) != digest:
    raise Damaged(f"{what}: the digest is wrong")
  return data


# Protobuf's coding.
def varint(data, at):
  value = shift = 0
  while data[at] > 0x7F:
    value |= (data[at] & 0x7F) << shift
    at, shift = at + 1, shift + 7
  return value | data[at] << shift, at + 1


def varints(data):
  values, at = [], 0
  while at < len(data):
    value, at = varint(data, at)
    values.append(value)
  return values


def unzigzag(n):
  return (n >> 1) ^ -(n & 1)


def fields(data):
  """Field number -> list of ints or bytes, in the order of the message."""
  found, at = {}, 0
  while at < len(data):
    tag, at = varint(data, at)
    if tag & 7 == 0:
      value, at = varint(data, at)
    else:
      size, at = (8, at) if tag & 7 == 1 else varint(data, at)
      value, at = data[at:at + size], at + size
    found.setdefault(tag >> 3, []).append(value)
  return found


def one(message, number, default=0):
  return message.get(number, [default])[-1]


def numbers(message, number):
  """A repeated integer, packed or not."""
  values = message.get(number, [])
  return [n for v in values
          for n in ([v] if isinstance(v, int) else varints(v))]


def column(message, number, default):
  """Empty: the defaults; one value: for all; else one for each."""
  values = numbers(message, number)
  return values * len(default) if len(values) == 1 else values or default


# Section 4: paths.
def read_text(data, at):
  end = data.index(0, at)
  text = data[at:end]
  text = text.replace(b"\x01\x01", b"\x00").replace(b"\x01\x02", b"\x01")
  return text, end + 1


def read_int(data, at):
  size = abs(data[at] - 0x10)
  body = data[at + 1:at + 1 + size]
  if data[at] >= 0x10:
    return int.from_bytes(body, "big"), at + 1 + size
  return -int.from_bytes(bytes(255 - b for b in body), "big"), at + 1 + size


def read_key(data, at):
  tag = data[at]
  if tag <= 3:
    return (None, False, True)[tag - 1], at + 1
  if tag <= 0x18:
    return read_int(data, at)
  if tag == 0x20:
    bits = int.from_bytes(data[at + 1:at + 9], "big")
    bits ^= 1 << 63 if bits >> 63 else (1 << 64) - 1
    return struct.unpack(">d", bits.to_bytes(8, "big"))[0], at + 9
  if tag <= 0x22:
    text, at = read_text(data, at + 1)
    return text.decode() if tag == 0x21 else text, at
  items, at = [], at + 1
  while data[at] != 0:
    item, at = read_key(data, at)
    items.append(item)
  return tuple(items), at + 1


def path_text(data):
  """For people: plain names bare, other keys as Python shows them."""
  parts, at = [], 0
  while at < len(data):
    kind = data[at]
    key, at = read_key(data, at + 1)
    parts.append({1: key if isinstance(key, str) else "{%r}" % (key,),
                  2: f"[{key}]", 3: f".{key}", 4: f"<{key}>"}[kind])
  return "/".join(parts)


# Section 5: trees.
LEAVES = "array bool int float complex str bytes json proto file".split()
NODES = "none dict list tuple namedtuple object custom".split()
KINDS = dict(enumerate(LEAVES, 1)) | dict(enumerate(NODES, 32)) | {64: "tie"}
BITS = [0, 8, 1, 2, 4, 8, 16, 32, 64, 1, 2, 4, 8, 16, 32, 64, 16, 16, 32, 64,
        8, 8, 8, 8, 8, 8, 8, 8, 6, 6, 4, 32, 32, 64, 128]


def read_tree(records, digest):
  """The entries of a tree, ascending by path."""
  root = open_envelope(4, checked(records[b"\x03" + digest], digest, "tree"))
  digests = one(root, 1, b"")
  for at in range(0, len(digests), 16):
    name = digests[at:at + 16]
    page = checked(records[b"\x04" + name], name, "tree page")
    yield from read_page(open_envelope(5, page))


def read_page(page):
  suffixes, dtypes, ranks = (one(page, n, b"") for n in (4, 5, 6))
  dims, ties = numbers(page, 7), list(page.get(11, []))
  tags = {e: page[10][t] for e, t in zip(numbers(page, 8), numbers(page, 9))}
  path, at, array = b"", 0, 0
  lengths = zip(one(page, 1, b""), numbers(page, 2), numbers(page, 3))
  for i, (kind, shared, length) in enumerate(lengths):
    path, at = path[:shared] + suffixes[at:at + length], at + length
    entry = {"path": path, "kind": KINDS[kind], "leaf": kind < 32,
             "tag": tags.get(i, b"").decode()}
    if kind == 1:
      entry["dtype"], entry["packed"] = dtypes[array] & 127, dtypes[array] > 127
      entry["shape"], dims = dims[:ranks[array]], dims[ranks[array]:]
      array += 1
    if kind == 64:
      entry["tie_to"] = ties.pop(0)
    yield entry


# Section 6: leaf maps.
def read_map(data):
  """Per leaf: space, version and n of its record."""
  values, places = varints(data), []
  for run in range(values[0]):
    head, version, delta = values[1 + 3 * run:4 + 3 * run]
    source = len(places) + unzigzag(delta)
    for i in range(head >> 1):
      space = "small" if head & 1 else "leaves"
      places.append((space, version, source + i + 1))
  return places


# Section 7: blocks.
def read_chunks(store, record):
  digests = one(record, 8, b"")
  zeros = [0] * (len(digests) // 16)
  length = column(record, 11, zeros)
  columns = [column(record, n, d) for n, d in (
      (9, zeros), (16, zeros), (17, [3 for _ in zeros]), (13, zeros),
      (19, length))]
  n = 0
  for i, delta in enumerate(numbers(record, 10)):
    version, part, place, offset, block = (values[i] for values in columns)
    n += unzigzag(delta)
    space = {1: "small", 3: "chunks"}[place]
    payload = dump(store, space)[block_key(space, version, part, 2, n)]
    if space == "chunks" and len(payload) < block:
      if b"coded" not in features(store):
        raise Damaged("a coded block in a store without that feature")
      payload = decoded(payload, block)
    if len(payload) != block:
      raise Damaged("a block of another length")
    chunk = payload[offset:offset + length[i]]
    yield checked(chunk, digests[16 * i:16 * i + 16], "chunk")


@functools.cache
def features(store):
  """The names of those that a reader must know."""
  return open_envelope(1, dump(store, "records")[b"\x00"]).get(5, [])


def decoded(stored, length):
  """The payload of a coded block of `length` bytes."""
  coding, width, turned, cell, raw = struct.unpack_from(">BBBBI", stored)
  has_copy = coding == 2
  in_cells = length // 3 * 2 if has_copy else length
  first = 40 if has_copy else 24
  count = -(-in_cells // 65536)
  end = first + 12 * count
  if xxhash.xxh3_64_digest(stored[:end]) != stored[end:end + 8]:
    raise Damaged("the head of a coded block is damaged")
  if coding not in (1, 2) or (cell, raw) != (16, length) or turned > 1:
    raise Damaged("a coded block of another kind")
  if has_copy and length % 6:
    raise Damaged("a block that is no words and their rounded copy")
  payload, before = bytearray(), 0
  for i in range(count):
    ends, checksum = struct.unpack_from(">I8s", stored, first + 12 * i)
    body, before = stored[end + 8 + before:end + 8 + ends], ends
    if xxhash.xxh3_64_digest(body) != checksum:
      raise Damaged("a cell is damaged")
    size = min(65536, in_cells - 65536 * i)
    payload += decoded_cell(body, width, turned, size)
  if end + 8 + before != len(stored):
    raise Damaged("bytes of no cell")
  checked(bytes(payload), stored[8:24], "coded block")
  if has_copy:
    copy = b"".join(rounded(word) for (word,) in struct.iter_unpack(
        "<I", bytes(payload)))
    payload += checked(copy, stored[24:40], "rounded copy")
  return bytes(payload)


def rounded(word):
  top, low = word >> 16, word & 0xffff
  if word & 0x7fffffff > 0x7f800000:
    return struct.pack("<H", top | 0x40)
  up = low > 0x8000 or (low == 0x8000 and top & 1)
  return struct.pack("<H", top + up)


def decoded_cell(body, width, rotated, size):
  words, at = bytearray(size // width * width), 5 * width
  for b in range(width):
    kind, length = struct.unpack_from(">BI", body, 5 * b)
    plane, at = body[at:at + length], at + length
    if kind == 1:
      plane = plane * (size // width)
    elif kind == 2:
      plane = unzstd(plane, size // width)
    words[b::width] = plane
  if rotated:
    bits = 8 * width
    for word in range(0, len(words), width):
      value = int.from_bytes(words[word:word + width], "little")
      value = value >> 1 | (value & 1) << (bits - 1)
      words[word:word + width] = value.to_bytes(width, "little")
  return bytes(words) + body[at:]


def unzstd(frame, size):
  library = ctypes.CDLL("libzstd.so.1")
  library.ZSTD_decompress.restype = ctypes.c_size_t
  out = ctypes.create_string_buffer(size)
  done = library.ZSTD_decompress(
      out, ctypes.c_size_t(size), frame, ctypes.c_size_t(len(frame)))
  if done != size:
    raise Damaged("a plane is damaged")
  return out.raw[:size]


def read_value(store, entry, record):
  if 4 in record:
    return one(record, 4)
  chunks = read_chunks(store, record)
  rank, dims = one(record, 5), numbers(record, 7)
  if entry["kind"] != "array" or entry["packed"] or rank == 0:
    return b"".join(chunks)
  size = (BITS[entry["dtype"]] + 7) // 8
  out = bytearray(size * math.prod(entry["shape"]))
  for box in range(one(record, 6)):
    start, shape, cut = (
        dims[(3 * box + d) * rank:(3 * box + d + 1) * rank] for d in range(3))
    grid = [range(-(-s // c)) for s, c in zip(shape, cut)]
    for cell in itertools.product(*grid):
      low = [s + i * c for s, i, c in zip(start, cell, cut)]
      high = [min(l + c, s + e) for l, c, s, e in zip(low, cut, start, shape)]
      place_cell(out, entry["shape"], low, high, next(chunks), size)
  return bytes(out)


def place_cell(out, shape, low, high, chunk, size):
  run, at = (high[-1] - low[-1]) * size, 0
  for row in itertools.product(*map(range, low[:-1], high[:-1])):
    flat = functools.reduce(lambda f, n: f * n[0] + n[1],
                            zip(shape, row + (low[-1],)), 0)
    out[flat * size:flat * size + run] = chunk[at:at + run]
    at += run


# Section 8: the journal.
SPACES_OF_ROWS = ["records", "small"]
PREFACE, HEADER = 4096, 120


class Block(bytes):
  """The digest of array bytes that stand elsewhere."""


def take(data, at, layout):
  """What stands at `at`, and where it ends."""
  return struct.unpack_from(">" + layout, data, at), at + struct.calcsize(
      ">" + layout)


def read_rows_file(path):
  """(space, key) -> value or Block; ordinal."""
  data, found = path.read_bytes(), {}
  if data[:8] != b"CKPTROWS" or xxhash.xxh3_64_digest(data[:68]) != data[68:76]:
    raise Damaged(f"{path}: no file of rows")
  at, end = 76, len(data) - 108
  if data[end:end + 8] != b"CKPTROWE" or data[end + 8:end + 68] != data[8:68]:
    raise Damaged(f"{path}: its end is missing")
  while at < end:
    magic, size, count = struct.unpack_from(">4sII", data, at)
    body = at + 44
    if (magic != b"ROWB"
        or xxhash.xxh3_64_digest(data[68:76] + data[at:at + 36])
        != data[at + 36:at + 44] or
        xxhash.xxh3_64_digest(data[body:body + size]) != data[at + 28:at + 36]):
      raise Damaged(f"{path}: a block is damaged")
    for _ in range(count):
      (space, what, length), body = take(data, body, "BBI")
      key, body = data[body:body + length], body + length
      if what == 0:
        (length,), body = take(data, body, "I")
        value, body = data[body:body + length], body + length
      else:
        (_, digest), body = take(data, body, "Q16s")
        value = Block(digest)
      found[SPACES_OF_ROWS[space], key] = value
    at = body
  return found, struct.unpack_from(">Q", data, 28)[0]


def read_records(path, copy, number):
  """The whole records of one copy: ordinal -> (session, hash, bytes,
  blocks)."""
  data, at, found = path.read_bytes(), PREFACE, {}
  follows = ()
  if data[:8] == b"CKPTJRNL":
    follows = struct.unpack_from(">Q16s", data, 80)
  while at + HEADER <= len(data) and data[at:at + 4] == b"CKJR":
    written, session, ordinal = struct.unpack_from(">QQQ", data, at + 8)
    rows_bytes, block_bytes = struct.unpack_from(">QQ", data, at + 80)
    end = at + HEADER + rows_bytes
    record = data[at:end]
    if xxhash.xxh3_64_digest(record[:112] + record[120:]) != record[112:120]:
      break
    digest = xxhash.xxh3_128_digest(record)
    if written != number and (ordinal, digest) != follows:
      break
    if record[5] != 11:
      blocks = data[end:end + block_bytes] if copy == "a" else b""
      found[ordinal] = (session, digest, record, blocks)
    at = end
    if copy == "a":
      at += block_bytes + -(end + block_bytes) % 4096
  return found


def read_journal(folder):
  """The records of both copies, and the sessions that began where."""
  records, begun = {}, []
  for path in sorted(folder.glob("[ab]-*")):
    data = path.read_bytes()
    if data[:8] == b"CKPTJRNL":
      session, = struct.unpack_from(">Q", data, 40)
      begun.append((session, struct.unpack_from(">Q", data, 80)[0]))
    for ordinal, record in read_records(path, path.name[0],
                                        int(path.name[2:])).items():
      old = records.get(ordinal)
      if old is None or len(old[3]) < len(record[3]):
        records[ordinal] = record
  return {o: r for o, r in records.items()
          if not any(s > r[0] and f < o for s, f in begun)}


@functools.cache
def rows(store):
  """All rows by space; array bytes of small saves in their place."""
  folder = pathlib.Path(store, "journal")
  found, ordinal = {}, 0
  for path in sorted(folder.glob("rows-*")):
    found, ordinal = read_rows_file(path)
  records, at_hand = read_journal(folder), {}
  for number in range(ordinal + 1, max(records, default=0) + 1):
    record, blocks = records[number][2], records[number][3]
    at, at_block = HEADER, 0
    while at < len(record):
      (space, what, length), at = take(record, at, "BBI")
      key, at = (SPACES_OF_ROWS[space], record[at:at + length]), at + length
      if what == 0:
        found.pop(key, None)
      elif what == 1:
        (length,), at = take(record, at, "I")
        found[key], at = record[at:at + length], at + length
      else:
        (length, digest), at = take(record, at, "Q16s")
        found[key] = Block(digest)
        at_hand[digest] = blocks[at_block:at_block + length]
        at_block += length
  by_space = {space: {} for space in SPACES_OF_ROWS}
  for (space, key), value in found.items():
    if isinstance(value, Block):
      data = at_hand.get(bytes(value), b"")
      if xxhash.xxh3_128_digest(data) != value:
        data = family(store, "small")[key]
      value = checked(data, bytes(value), "block")
    by_space[space][key] = value
  return by_space


# All of it.
def find_steps(records):
  """The rows of the steps of all branches, by name: "7", on a fork
  "BRANCH/7"."""
  branches = {key[1:]: one(open_envelope(8, row), 2, b"").decode()
           for key, row in records.items() if key[0] == 9}
  return {f"{branches[k[1:5]]}/{int.from_bytes(k[5:], 'big') - (1 << 63)}"
          .lstrip("/"): row for k, row in sorted(records.items()) if k[0] == 1}


def is_proved(store, row, part, ordinal, record):
  """Whether the value needs no record: its proof stands behind it."""
  digest, version = one(record, 8, b""), one(row, 1)
  if (len(digest) != 16 or column(record, 17, [3]) != [1]
      or column(record, 9, [0]) != [version]):
    return False
  n = unzigzag(numbers(record, 10)[0])
  pack = dump(store, "small")[block_key("small", version, one(part, 1), 2, n)]
  end = column(record, 13, [0])[0] + column(record, 11, [0])[0]
  leaf = struct.pack(">QHI", version, one(part, 1), ordinal)
  return pack[end:end + 16] == xxhash.xxh3_128_digest(
      b"v" + leaf + one(part, 2) + one(row, 18) + digest)


def read_step(store, step):
  records = dump(store, "records")
  row = open_envelope(2, find_steps(records)[step])
  parts = row.get(6, [])
  if one(row, 5):
    meta = records[b"\x02" + struct.pack(">Q", one(row, 1))]
    parts = open_envelope(3, meta)[1]
  for part in map(fields, parts):
    places = enumerate(read_map(one(part, 3, b"")))
    for entry in read_tree(records, one(part, 2)):
      if not entry["leaf"]:
        yield entry, None
        continue
      ordinal, (space, version, n) = next(places)
      record = open_envelope(
          11, dump(store, space)[block_key(space, version, one(part, 1), 1, n)])
      entry["proved"] = is_proved(store, row, part, ordinal, record)
      yield entry, read_value(store, entry, record)


def main(store, step=None, folder=None):
  if step is None:
    return print(*find_steps(dump(store, "records")), sep="\n")
  index = []
  for number, (entry, value) in enumerate(read_step(store, step)):
    entry["text"] = path_text(entry["path"])
    index.append({k: v.hex() if isinstance(v, bytes) else v
                  for k, v in entry.items()})
    if value is not None:
      pathlib.Path(folder, f"{number}.bin").write_bytes(value)
  pathlib.Path(folder, "index.json").write_text(json.dumps(index), "utf-8")


if __name__ == "__main__":
  if len(sys.argv) not in (2, 4):
    sys.exit(__doc__)
  try:
    main(*sys.argv[1:])
  except (Damaged, KeyError) as problem:  # KeyError: no such step or block.
    sys.exit(f"reader.py: {problem!r}")
