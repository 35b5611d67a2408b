// SPDX-License-Identifier: Apache-2.0

// What a power cut would leave of files and directories.

#ifndef CKPTREE_TESTS_FAULT_DISK_H_
#define CKPTREE_TESTS_FAULT_DISK_H_

#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/fault/random.h"

namespace ckptree::testing {

// What a disk writes as a whole or not at all.
inline constexpr std::uint64_t kSector = 512;

// Follows every change of some files and directories on a real file system and
// knows which of them a sync has made durable. Strict: only a sync of a file
// keeps its bytes, only a sync of its directory keeps its name.
//
// What was there before the first change that it is told of counts as durable.
// Paths must not go through links. Confined to one thread at a time.
class FaultDisk {
 public:
  // One inode with an open descriptor.
  class File;

  // `scratch`, an existing directory on the same file system as the files and
  // outside them, keeps the removed files until they cannot come back.
  explicit FaultDisk(std::string scratch);
  ~FaultDisk();
  FaultDisk(const FaultDisk&) = delete;
  FaultDisk& operator=(const FaultDisk&) = delete;

  // ---- files ----

  // The file at `path`, which exists; null where it cannot be opened.
  std::shared_ptr<File> Open(const std::string& path);
  // To be called before the bytes are changed.
  void WillWrite(File& file, std::uint64_t offset, std::uint64_t length);
  void WillTruncate(File& file, std::uint64_t size);
  std::uint64_t SizeOf(const File& file) const;
  // To be called after a sync: everything written so far is durable.
  void Synced(File& file);
  // After a failed sync: everything not yet durable never will be.
  void SyncFailed(File& file);

  // ---- directories ----

  // Before it may be created; `Created` after, where it was not there.
  bool Exists(const std::string& path) const;
  void Created(const std::string& path);
  // Before the entry goes; gives a hidden name to be given to Removed.
  std::string Hide(const std::string& path);
  void Removed(const std::string& path, std::string hidden);
  // `hidden`: of what stood at `to`; empty: nothing.
  void Renamed(const std::string& from, const std::string& to,
               std::string hidden);
  void Linked(const std::string& to);
  void MadeDirectory(const std::string& path);
  void RemovedDirectory(const std::string& path);
  void DirectorySynced(const std::string& path);

  // ---- the cut ----

  // Keeps a random part of what is not durable. Nothing may follow.
  void CutPower(std::uint64_t seed);

 private:
  enum class ChangeKind { kCreate, kRemove, kRename, kMakeDir, kRemoveDir };
  struct Change {
    ChangeKind kind;
    std::string path;
    std::string to;      // kRename.
    std::string hidden;  // Of the entry that went.
    bool Touches(const std::string& name) const;
    bool In(const std::string& directory) const;
  };

  static void CutFile(File& file, FaultRandom& random);
  void CutDirectories(FaultRandom& random);
  static void Undo(const Change& change);

  const std::string scratch_;
  std::uint64_t next_hidden_ = 0;
  // By (device, inode); a file without changes is only here while open.
  std::map<std::pair<std::uint64_t, std::uint64_t>, std::weak_ptr<File>> files_;
  // Those that have bytes to lose.
  std::map<const File*, std::shared_ptr<File>> dirty_;
  std::list<Change> changes_;  // Not durable, oldest first.
};

}  // namespace ckptree::testing

#endif  // CKPTREE_TESTS_FAULT_DISK_H_
