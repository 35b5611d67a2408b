// SPDX-License-Identifier: Apache-2.0

// Whether a journal that another process writes has anything new.

#ifndef CKPTREE_KV_JOURNAL_TAIL_H_
#define CKPTREE_KV_JOURNAL_TAIL_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "kv/journal/reader.h"
#include "kv/options.h"

namespace rocksdb {
class FSRandomAccessFile;
}  // namespace rocksdb

namespace ckptree::kv {

// Confined to one thread at a time.
class JournalTail {
 public:
  JournalTail(const Options& options, const std::string& directory);
  ~JournalTail();

  // After `content` was read.
  void Start(const JournalContent& content);

  // True where the place of the next record is empty, and so is each file that
  // may come next: two small reads, or some more after a kill. False where
  // there may be something, and once a second, for files may have been
  // replaced.
  bool Unchanged();

 private:
  struct Place {
    std::uint64_t file = 0;
    std::uint64_t offset = 0;
    bool made = true;  // The file was in a listing.
    std::unique_ptr<rocksdb::FSRandomAccessFile> open;  // Null: not yet.
  };

  bool IsEmpty(Place* place) const;
  // Whether the folder shows the file.
  absl::StatusOr<bool> IsListed(std::uint64_t file) const;

  const Options& options_;
  const std::string directory_;  // <store>/journal
  std::vector<Place> watched_;
  absl::Time looked_ = absl::InfinitePast();
};

}  // namespace ckptree::kv

#endif  // CKPTREE_KV_JOURNAL_TAIL_H_
