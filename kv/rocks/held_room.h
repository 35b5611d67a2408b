// SPDX-License-Identifier: Apache-2.0

// Room for a table that RocksDB is about to be told to write.

#ifndef CKPTREE_KV_ROCKS_HELD_ROOM_H_
#define CKPTREE_KV_ROCKS_HELD_ROOM_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "kv/options.h"

namespace ckptree::kv {

// RocksDB ends a handle whose flush finds no room, and what was free when it
// was asked for may be taken by whatever else writes to the disk. So the room
// is taken first, by fallocate(2), as a file of its own; the table that the
// flush makes is that file under another name.
//
// Where the file system cannot do that nothing is held, and that is no error.
//
// Thread-safe.
class HeldRoom {
 public:
  // `path`: of the file, on the disk of the tables. What is left of it after a
  // crash the next open for writing removes.
  explicit HeldRoom(std::string path) : path_(std::move(path)) {}

  // kResourceExhausted where so much is not free. What was held is let go.
  absl::Status Hold(const Options& options, std::uint64_t bytes);
  // The next flush makes this table. Nothing else that is written takes the
  // room.
  void IsFor(std::string_view table);
  // True, once, where the room is for `table` and held: the caller gives the
  // file at `path()` that name.
  bool Take(std::string_view table, std::uint64_t* bytes);
  // Where no table took it.
  void LetGo(const Options& options);

  const std::string& path() const { return path_; }

 private:
  const std::string path_;
  absl::Mutex mutex_;
  std::uint64_t bytes_ ABSL_GUARDED_BY(mutex_) = 0;  // 0: nothing is held.
  std::string table_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace ckptree::kv

#endif  // CKPTREE_KV_ROCKS_HELD_ROOM_H_
