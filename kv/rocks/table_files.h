// SPDX-License-Identifier: Apache-2.0

// Reading values straight from the tables that hold them.

#ifndef CKPTREE_KV_ROCKS_TABLE_FILES_H_
#define CKPTREE_KV_ROCKS_TABLE_FILES_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>

#include "absl/base/thread_annotations.h"
#include "absl/container/inlined_vector.h"
#include "absl/functional/function_ref.h"
#include "absl/synchronization/mutex.h"
#include "kv/array_block.h"
#include "kv/options.h"
#include "kv/rocks/instance.h"
#include "kv/rocks/live_tables.h"
#include "schema/spaces.h"

namespace ckptree::kv {

// One table: what stands where in it.
class TableFile;

// The table that had a record, where in it, and how far from the one before:
// records that are asked for in the order of their keys stand likely as far
// from each other again.
struct NearTable {
  std::shared_ptr<const TableFile> file;  // May be null.
  std::size_t entry = 0;
  std::size_t apart = 0;
};

// A block of `chunks`, and one of array bytes in `small`, is one record as it
// was given, and the index of its table says where: bytes of it go from the
// file into the caller's memory, without the rest of the block, a copy of it
// and a checksum of it. Where the index of a table of `chunks` is damaged, the
// heads of the blocks say it.
//
// The keys of such blocks are never used again for other bytes. So a table that
// has one has the right one, whichever table it is, and also where a later
// deletion of it stands elsewhere.
//
// Every failure is only a false: for a caller that asks the database where this
// does not give it.
//
// Thread-safe.
class TableFiles {
 public:
  // Tables of `chunks` are read below `options`, damaged or not: RocksDB does
  // not see them.
  explicit TableFiles(const Options& options) : options_(options) {}

  // Called for the bytes that were read, piece by piece, in order.
  using PieceFn = absl::FunctionRef<void(std::span<const std::byte> piece)>;

  // Fills `destination` with the bytes of the array block `key`, of `small` or
  // `chunks`, whose value has `value_bytes`, from `offset` on. NOTHING IS
  // CHECKED: for a caller that knows a digest.
  bool Read(const Instance& instance, schema::Space space, std::string_view key,
            std::uint64_t value_bytes, std::uint64_t offset,
            std::span<std::byte> destination, PieceFn on_piece);

  // As Database::ReadRun(), of `chunks`.
  std::size_t ReadRun(const Instance& instance,
                      std::span<const ArrayBlock> blocks,
                      std::span<std::byte> scratch, BlockFn on_block);

  // The bytes of the value of `key`, of `chunks`. REQUIRES: it is there.
  std::optional<std::uint64_t> ValueBytes(const Instance& instance,
                                          std::string_view key);

  // The value of a leaf record in `small`; its block has its checksum. Valid
  // until the next call on this thread. The table in `near` is asked first,
  // without a lock; then `near` is the one that has it.
  std::optional<std::string_view> ReadChecked(const Instance& instance,
                                              std::string_view key,
                                              NearTable* near);

  // Begins to read the first of these leaf records, in order of their keys, as
  // far as the table in `near` likely has them; does not wait. Returns how
  // many.
  static std::size_t PrefetchRecords(std::span<const std::string> keys,
                                     const NearTable& near);

  // Has these bytes of an array block read into the page cache, and does not
  // wait; not those that Read() would read past it. Of a value of other than
  // `value_bytes` all, where all was asked for.
  void Prefetch(const Instance& instance, schema::Space space,
                std::string_view key, std::uint64_t value_bytes,
                std::uint64_t offset, std::size_t bytes);

  // The set of tables changed.
  void Forget();
  // RocksDB wrote tables anew by itself: others have the same values now.
  void NoteChange();
  // It removed this one: its bytes are free when nothing has it open.
  void NoteRemoved(std::string_view path);

 private:
  using Files = absl::InlinedVector<std::shared_ptr<const TableFile>, 4>;
  struct Open {
    std::shared_ptr<const TableFile> file;  // Null: it cannot be read so.
    std::uint64_t used = 0;                 // The higher, the later.
  };

  // Those that may have `key`, for a read of so many bytes.
  Files Find(const Instance& instance, schema::Space space,
             std::string_view key, std::size_t bytes);
  std::shared_ptr<const TableFile> OpenOne(const Instance& instance,
                                           schema::Space space,
                                           const LiveTables::Table& table,
                                           std::size_t bytes)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Closes those that were not used for longest, until so many may be opened.
  // Those still in use outlive this.
  void MakeRoom(std::size_t descriptors, const std::string& but)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Options options_;
  absl::Mutex mutex_;
  LiveTables live_ ABSL_GUARDED_BY(mutex_);
  std::unordered_map<std::string, Open> open_ ABSL_GUARDED_BY(mutex_);
  std::uint64_t uses_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace ckptree::kv

#endif  // CKPTREE_KV_ROCKS_TABLE_FILES_H_
