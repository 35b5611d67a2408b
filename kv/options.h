// SPDX-License-Identifier: Apache-2.0

// How a database is opened.

#ifndef CKPTREE_KV_OPTIONS_H_
#define CKPTREE_KV_OPTIONS_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "schema/spaces.h"

namespace ckptree::kv {

class Database;
class FarSegments;
class SpareSegments;
class WriteBatch;

enum class Severity { kInfo, kWarning, kError };
// Called from any thread; must not call back into the database.
using LogFn = std::function<void(Severity, std::string_view text)>;

enum class Mode {
  // The one writer. Holds the lock.
  kReadWrite,
  // No lock, writes nothing to what the store holds, works on a read-only
  // mount. Beside a live writer it follows it by Refresh().
  kRead,
  // As kRead, by who holds the store's lock: nobody writes to it.
  kReadLocked,
  // As kRead, of what Salvage() made: without a journal and without the check
  // of the caller, past damage.
  kReadSalvaged,
};

struct Options {
  // For tests: a rocksdb::FileSystem (std::shared_ptr<rocksdb::FileSystem>
  // converted to void) below the guard file system; null = the real one. All
  // of kv's own file operations but the lock and lstat go through it as well.
  std::shared_ptr<void> file_system;

  // kRead: other hosts see the folder, too, and what one of them wrote is seen
  // by another when it opens the file anew, or lists the folder; one that was
  // told once that a name is missing may go on believing it for a while.
  bool shared_folder = false;

  // Where segments are that are not in the directory. Null: all are.
  std::shared_ptr<FarSegments> far;
  // kRead: true where none of its segments is in the directory. Else `far` has
  // some of kChunks, as rows of the directory say, and one that is here, too,
  // is read here where it cannot be read there.
  bool all_far = false;

  // Where segments of the directory are, too: who looks for a block of kChunks
  // that no file here gives finds it there. Null: nowhere.
  std::shared_ptr<SpareSegments> spare;

  LogFn log;  // Null: nothing is logged.

  // Permission bits of new files, before the umask takes some away.
  int permissions = 0666;

  // Database::Create: no version up to it will be used.
  std::uint64_t version_floor = 0;

  // Whether every segment that a row names is in a file of the database. False,
  // or an error of damage: the index may be made anew. Null: always.
  std::function<absl::StatusOr<bool>(const Database& database)> index_is_whole;

  // The space of a segment by its first record's value; nothing where the value
  // is not of a segment. Null: segments are not taken along when the index is
  // made anew.
  std::function<std::optional<schema::Space>(std::string_view value)>
      segment_space;

  // kReadWrite: called after each commit that is durable, in their order, while
  // no other is made; must be quick and not call the database. `version` is
  // that of a save, else 0. Null: nothing.
  std::function<void(std::uint64_t ordinal, std::uint64_t version,
                     const WriteBatch& batch)>
      on_commit;

  // For tests; 0: as it is in use. Of a file of the journal, and of what may
  // stand in it behind the file of all rows.
  std::uint64_t journal_file_bytes = 0;
  std::uint64_t journal_rows_bytes = 0;
  // For tests; 0: a second. How long a commit may be in the first copy alone.
  std::int64_t journal_sync_ms = 0;

  // How long kReadWrite waits for another process to give the store up.
  std::int64_t lock_wait_ms = 0;
  // Of kReadWrite: see StoreLock::Acquire().
  bool brief = false;
};

}  // namespace ckptree::kv

#endif  // CKPTREE_KV_OPTIONS_H_
