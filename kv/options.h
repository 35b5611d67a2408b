// How a database is opened.

#ifndef CKPTREE_KV_OPTIONS_H_
#define CKPTREE_KV_OPTIONS_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace ckptree::kv {

enum class Severity { kInfo, kWarning, kError };
// Called from any thread; must not call back into the database.
using LogFn = std::function<void(Severity, std::string_view text)>;

enum class Mode {
  // The one writer. Holds the lock.
  kReadWrite,
  // No lock, writes nothing to what the store holds, works on a read-only mount. Beside
  // a live writer it follows it by Refresh().
  kRead,
};

struct Options {
  // For tests: a rocksdb::FileSystem (std::shared_ptr<rocksdb::FileSystem>
  // converted to void) below the guard file system; null = the real one. All
  // of kv's own file operations but the lock and lstat go through it as well.
  std::shared_ptr<void> file_system;

  LogFn log;  // Null: nothing is logged.

  // Open without the checks of step 4 and tolerate damage, read only:
  // for `verify` and `recover`.
  bool forensic = false;

  // kRead: HEAD is not believed, as if it were lost: for `repair`, which holds
  // it against what is there.
  bool ignore_head = false;

  // kRead: the caller holds the store's lock, so that nobody writes to it.
  bool locked = false;

  // How long kReadWrite waits for another process to give the store up.
  std::int64_t lock_wait_ms = 0;
};

}  // namespace ckptree::kv

#endif  // CKPTREE_KV_OPTIONS_H_
