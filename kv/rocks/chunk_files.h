// SPDX-License-Identifier: Apache-2.0

// Reading chunks straight from their files.

#ifndef CKPTREE_KV_ROCKS_CHUNK_FILES_H_
#define CKPTREE_KV_ROCKS_CHUNK_FILES_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "kv/options.h"
#include "kv/rocks/instance.h"
#include "kv/rocks/live_tables.h"

namespace ckptree::kv {

// One file of `chunks`: where each value stands.
class ChunkFile;

// A block of `chunks` is one record as it was given, and the index of its file
// says where: bytes of it go from the file into the caller's memory, without
// the rest of the block, a copy of it and a checksum of it. Where the index is
// damaged, the heads of the blocks say it.
//
// Nothing that is read is checked, and every failure is only a false: for a
// caller that knows a digest, and asks the database where this does not give
// it.
//
// Thread-safe.
class ChunkFiles {
 public:
  // Files are read below `options`, damaged or not: RocksDB does not see them.
  explicit ChunkFiles(const Options& options) : options_(options) {}

  // Fills `destination` with the bytes of the value of `key`, which has
  // `value_bytes`, from `offset` on.
  bool Read(const Instance& instance, std::string_view key,
            std::uint64_t value_bytes, std::uint64_t offset,
            std::span<std::byte> destination);

  // The bytes of the value of `key`. REQUIRES: it is there.
  std::optional<std::uint64_t> ValueBytes(const Instance& instance,
                                          std::string_view key);

  // Has these bytes of the value read into the page cache, and does not wait;
  // not those that Read() would read past it, into `destination`. Of a value of
  // other than `value_bytes` all, where all was asked for.
  void Prefetch(const Instance& instance, std::string_view key,
                std::uint64_t value_bytes, std::uint64_t offset,
                std::size_t bytes, std::span<const std::byte> destination);

  // The set of live files changed.
  void Forget();

 private:
  // For a read of so many bytes.
  std::shared_ptr<const ChunkFile> Find(const Instance& instance,
                                        std::string_view key,
                                        std::size_t bytes);
  // Whether as many more may be open.
  bool HasRoom(std::size_t descriptors) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Options options_;
  absl::Mutex mutex_;
  LiveTables live_ ABSL_GUARDED_BY(mutex_);
  // By path; null for files that cannot be read like this.
  std::unordered_map<std::string, std::shared_ptr<const ChunkFile>> open_
      ABSL_GUARDED_BY(mutex_);
};

}  // namespace ckptree::kv

#endif  // CKPTREE_KV_ROCKS_CHUNK_FILES_H_
