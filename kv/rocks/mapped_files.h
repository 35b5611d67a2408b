// SPDX-License-Identifier: Apache-2.0

// The mapped files behind zero-copy views.

#ifndef CKPTREE_KV_ROCKS_MAPPED_FILES_H_
#define CKPTREE_KV_ROCKS_MAPPED_FILES_H_

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "base/digest.h"
#include "kv/rocks/instance.h"
#include "kv/rocks/live_tables.h"
#include "kv/value.h"
#include "schema/spaces.h"

namespace ckptree::kv {

// One file of `leaves` or `chunks`, mapped. Stays readable when the database
// drops the file, and when it is closed, which this does not hold up.
class MappedFile;

// Finds the file that holds a key and maps it on first use.
//
// Thread-safe.
class MappedFiles {
 public:
  // Null where no live file's range has `key`, or it cannot be mapped.
  // kDataLoss where the file is not as long as the database says: a mapping
  // past its end kills the process.
  absl::StatusOr<std::shared_ptr<const MappedFile>> Find(
      const std::shared_ptr<const Instance>& instance, schema::Space space,
      std::string_view key);

  // All files are others now.
  void Forget();
  // Some came or went; those that are still there stay mapped.
  void NoteChange();
  // RocksDB removed this one: its bytes are free when nothing maps it.
  void NoteRemoved(std::string_view path);

 private:
  absl::StatusOr<std::shared_ptr<const MappedFile>> FindListed(
      const std::shared_ptr<const Instance>& instance, schema::Space space,
      std::string_view key) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  absl::Mutex mutex_;
  LiveTables live_ ABSL_GUARDED_BY(mutex_);
  std::unordered_map<std::string, std::shared_ptr<const MappedFile>> mapped_
      ABSL_GUARDED_BY(mutex_);
};

// One record of a mapped file.
class MappedRecord {
 public:
  struct Impl;
  // Nothing where the key is absent. Where `saved` is given, and the value has
  // as many bytes, they are compared with its digest, once for each mapping of
  // the file where they are kRemembered or more; else the block is compared
  // with its checksum. kDataLoss where they are others. Damage of a block
  // beside the bytes of a value that has its digest is passed over.
  static absl::StatusOr<std::optional<MappedRecord>> Find(
      std::shared_ptr<const MappedFile> file, std::string_view key,
      const Saved* saved);

  // What is remembered of smaller ones would be much beside them.
  static constexpr std::size_t kRemembered = std::size_t{64} << 10;

  MappedRecord(MappedRecord&&) noexcept;
  MappedRecord& operator=(MappedRecord&&) noexcept;
  ~MappedRecord();

  std::string_view value() const;

 private:
  explicit MappedRecord(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace ckptree::kv

#endif  // CKPTREE_KV_ROCKS_MAPPED_FILES_H_
