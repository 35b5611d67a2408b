// SPDX-License-Identifier: Apache-2.0

// An open RocksDB out of which nothing is thrown.

#ifndef CKPTREE_KV_ROCKS_CAUGHT_DB_H_
#define CKPTREE_KV_ROCKS_CAUGHT_DB_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#include "absl/functional/function_ref.h"

namespace rocksdb {
class ColumnFamilyHandle;
class DB;
class Status;
struct RangePtr;
}  // namespace rocksdb

namespace ckptree::kv {

// RocksDB 7.8.3 is not written for exceptions: a call that one leaves (of
// std::bad_alloc, as a rule) keeps what it held. A read keeps a reference to
// the tables, which the next read of its thread and the end of the database
// assert against; what writes may keep a mutex or the turn to write, for which
// the next call waits for ever. So the first exception is the last call: from
// then on each one is Status::MemoryLimit, and the database must not be
// destroyed, only left (see Instance). Whoever asks for what has no status gets
// std::bad_alloc.
//
// Thread-safe.
class CaughtDb {
 public:
  // What an exception left behind.
  enum class Harm : std::uint8_t {
    kNone,
    kHeld,   // A reference: background work can still be stopped.
    kStuck,  // A mutex, perhaps: nothing may be called at all.
  };

  // Of no database as yet, which `writes` or only reads. `on_harm` is called
  // once, and must not throw.
  CaughtDb(bool writes, std::function<void()> on_harm);
  // Closes the database.
  ~CaughtDb();
  CaughtDb(const CaughtDb&) = delete;
  CaughtDb& operator=(const CaughtDb&) = delete;

  // Opens by `open`, before all else, and owns what that gives. What it throws
  // does harm, too.
  rocksdb::Status Open(
      absl::FunctionRef<rocksdb::Status(rocksdb::DB** opened)> open);
  // What catches. Only what the engine calls: anything else goes by unseen.
  rocksdb::DB* db() const;

  // A function of RocksDB that goes by what catches.
  rocksdb::Status DeleteFilesInRanges(rocksdb::ColumnFamilyHandle* family,
                                      const rocksdb::RangePtr* ranges,
                                      std::size_t count);

  Harm harm() const;
  // Something was thrown by a call that does `harm`. Never throws.
  void Note(Harm harm);
  // What every call is told from then on.
  rocksdb::Status Told() const;

 private:
  class Catching;
  class CatchingIterator;
  std::unique_ptr<Catching> catching_;
};

// Asked before what writes, which is what an exception does the most harm to.
// A write of a batch is behind the point where this helps: its callers ask.
bool IsMemoryToWrite();

}  // namespace ckptree::kv

#endif  // CKPTREE_KV_ROCKS_CAUGHT_DB_H_
