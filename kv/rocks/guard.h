// SPDX-License-Identifier: Apache-2.0

// The guard file system: what this handle may do to the store's files.

#ifndef CKPTREE_KV_ROCKS_GUARD_H_
#define CKPTREE_KV_ROCKS_GUARD_H_

#include <functional>
#include <memory>
#include <string_view>

#include "kv/options.h"
#include "kv/rocks/held_room.h"

namespace ckptree::kv {

// Both refuse to open a table whose properties are damaged
// (kv/rocks/table_check.h), and try each read that fails a second time
// (kv/rocks/second_read.h).
enum class Guard {
  // New files and directories get the permissions of the options, without what
  // the umask takes. A sync_file_range(2) that fails is told by the next sync,
  // as RocksDB asserts that it cannot fail. Once a write or sync of a
  // MANIFEST, of CURRENT or of a directory failed, no table, log or MANIFEST is
  // removed any more: the record that still names it may have reached the disk,
  // and a store whose MANIFEST names a missing file does not open. What is left
  // over goes away at the next open. A directory is synced before CURRENT is
  // renamed in it.
  kWriter,
  // Every operation that would change anything is refused.
  kReader,
};

// `options` with its file system wrapped. `on_failure` is called with a text,
// from any thread, when one of the writes above fails.
//
// `room`, where there is one: a new table that it is held for becomes that
// file.
Options Guarded(const Options& options, Guard guard,
                std::function<void(std::string_view text)> on_failure,
                std::shared_ptr<HeldRoom> room = nullptr);

// While it lives, this thread opens damaged tables through a guard as well: for
// what reads them without RocksDB.
class DamagedTablesWelcome {
 public:
  DamagedTablesWelcome();
  ~DamagedTablesWelcome();
  DamagedTablesWelcome(const DamagedTablesWelcome&) = delete;
  DamagedTablesWelcome& operator=(const DamagedTablesWelcome&) = delete;
};

}  // namespace ckptree::kv

#endif  // CKPTREE_KV_ROCKS_GUARD_H_
