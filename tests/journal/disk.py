# SPDX-License-Identifier: Apache-2.0
"""A disk for model.py: files of 4 KiB sectors and directories, of which
a power cut keeps what was synced and any part of what was not.

A sector is (dirty, versions): versions[0] is what the medium has for certain,
versions[-1] what a process reads. A sync of the file leaves the last version
alone. A sync that fails leaves all of them and makes the sector clean: a later
sync does not write it, as in Linux. A directory keeps any prefix of the
operations since its last sync, each directory for itself."""

import itertools

ZERO = "zero"
BAD = "bad"


class SyncFailed(Exception):
  """What fdatasync returned to the writer of a commit."""


def trimmed(sectors):
  """What is behind the end is not there; a hole before it reads as zeros."""
  count = len(sectors)
  while count and sectors[count - 1] is None:
    count -= 1
  return tuple(ZERO if s is None else s for s in sectors[:count])


class Disk:
  """Paths are 'name' or 'folder/name'; only the root has folders."""

  def __init__(self):
    self.files = {}                 # number -> sectors
    self.dirs = {0: ({}, (), {})}   # number -> (synced, operations, seen)
    self.next = 1
    self.hook = lambda disk, label: None

  def copy(self):
    new = Disk()
    new.files, new.dirs, new.next = dict(self.files), dict(self.dirs), self.next
    return new

  # reading

  def folder(self, path):
    """(number of the folder, name in it); the number is None if it is gone."""
    head, _, name = path.rpartition("/")
    return (self.dirs[0][2].get(head) if head else 0), name

  def names(self, folder):
    number = self.dirs[0][2].get(folder)
    return None if number is None else self.dirs[number][2]

  def number(self, path):
    folder, name = self.folder(path)
    return None if folder is None else self.dirs[folder][2].get(name)

  def read(self, path):
    number = self.number(path)
    if number is None or number not in self.files:
      return None
    return trimmed([versions[-1] for _, versions in self.files[number]])

  # changing

  def change(self, folder, operation):
    synced, pending, seen = self.dirs[folder]
    self.dirs[folder] = synced, pending + (operation,), apply(seen, operation)

  def mkdir(self, name):
    self.dirs[self.next] = {}, (), {}
    self.change(0, ("set", name, self.next))
    self.next += 1

  def create(self, path):
    folder, name = self.folder(path)
    self.files[self.next] = ()
    self.change(folder, ("set", name, self.next))
    self.next += 1
    self.hook(self, "create " + path)

  def link(self, path, to):
    folder, name = self.folder(to)
    self.change(folder, ("set", name, self.number(path)))

  def unlink(self, path):
    folder, name = self.folder(path)
    self.change(folder, ("del", name))
    self.hook(self, "unlink " + path)

  def rename(self, path, to):
    (folder, name), (_, new) = self.folder(path), self.folder(to)
    self.change(folder, ("mv", name, new))
    self.hook(self, f"rename {path} to {to}")

  def write(self, path, at, contents, quiet=False):
    number = self.number(path)
    sectors = list(self.files[number])
    sectors += [(False, (None,))] * (at + len(contents) - len(sectors))
    for i, content in enumerate(contents, at):
      versions = sectors[i][1]
      if versions[-1] != content:
        sectors[i] = True, versions + (content,)
    self.files[number] = tuple(sectors)
    if not quiet:
      self.hook(self, "write " + path)

  def truncate(self, path, length):
    count = len(self.read(path)) - length
    self.write(path, length, [None] * count, quiet=True)
    self.hook(self, "truncate " + path)

  def sync(self, path, fails=False):
    number = self.number(path)
    self.files[number] = tuple(
        (False, versions if fails or not dirty else versions[-1:])
        for dirty, versions in self.files[number])
    self.hook(self, "sync " + path)
    if fails:
      raise SyncFailed(path)

  def syncdir(self, folder):
    number = self.dirs[0][2][folder] if folder else 0
    seen = self.dirs[number][2]
    self.dirs[number] = seen, (), seen
    self.hook(self, "sync directory " + folder)

  # what is left

  def key(self):
    """Equal for equal disks, whatever happened before."""
    def contents(number):
      if number in self.files:
        return self.files[number]
      synced, pending, seen = self.dirs[number]
      old = tuple((n, contents(i)) for n, i in sorted(synced.items()))
      new = tuple((n, contents(i)) for n, i in sorted(seen.items()))
      return old, pending, new
    return contents(0)

  def image(self):
    """Path -> contents, as a process sees it; a folder has None."""
    image = {}
    for name, number in self.dirs[0][2].items():
      if number in self.files:
        image[name] = self.read(name)
        continue
      image[name] = None
      for inner in self.dirs[number][2]:
        image[f"{name}/{inner}"] = self.read(f"{name}/{inner}")
    return image

  def power_cuts(self):
    """Every image that a power cut may leave, once."""
    found = {}                                   # in the order of its making
    for root in prefixes(self.dirs[0]):
      folders = {n: i for n, i in root.items() if i in self.dirs}
      plain = {n: i for n, i in root.items() if i in self.files}
      each = [list(prefixes(self.dirs[i])) for i in folders.values()]
      for chosen in itertools.product(*each):
        paths = dict(plain)
        for name, entries in zip(folders, chosen):
          paths |= {f"{name}/{n}": i for n, i in entries.items()}
        numbers = sorted(set(paths.values()))
        choices = [dict.fromkeys(map(trimmed, itertools.product(
            *(versions for _, versions in self.files[i])))) for i in numbers]
        for contents in itertools.product(*choices):
          content = dict(zip(numbers, contents))
          image = {path: content[i] for path, i in paths.items()}
          image |= dict.fromkeys(folders)
          found[frozenset(image.items())] = None
    return found


def apply(entries, operation):
  entries = dict(entries)
  if operation[0] == "set":
    entries[operation[1]] = operation[2]
  elif operation[0] == "del":
    entries.pop(operation[1])
  else:
    entries[operation[2]] = entries.pop(operation[1])
  return entries


def prefixes(folder):
  synced, pending, _ = folder
  yield synced
  for operation in pending:
    synced = apply(synced, operation)
    yield synced


def from_image(image):
  """A disk on which all of the image is synced."""
  disk = Disk()
  image = dict(image)
  folders = sorted(path for path, content in image.items() if content is None)
  for name in folders:
    disk.mkdir(name)
    disk.dirs[disk.dirs[0][2][name]] = {}, (), {}
  for path, content in sorted(
      (p, c) for p, c in image.items() if c is not None):
    disk.create(path)
    number = disk.number(path)
    disk.files[number] = tuple((False, (s,)) for s in content)
  for number, (_, _, seen) in list(disk.dirs.items()):
    disk.dirs[number] = seen, (), seen
  return disk
