// SPDX-License-Identifier: Apache-2.0

// The end of a journal that another process writes: whether anything is new
// there, and what.

#ifndef CKPTREE_KV_JOURNAL_TAIL_H_
#define CKPTREE_KV_JOURNAL_TAIL_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "kv/journal/preface.h"
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

  // True where the place of the next record is empty, its file is still there,
  // and each file that may come next is empty: two small reads, or some more
  // after a kill. False where there may be something, and once a second, for
  // files may have been replaced.
  bool Unchanged();

  // What was added since, where it is plain: whole records that go on from
  // `seen` at the place of the next record, in the file of then, and no later
  // file was begun. Reads these alone, whatever the journal holds. Nothing
  // where there is none, or all must be read to know. Only records, tip,
  // durable and the session are filled in.
  //
  // It need not look for files that were replaced: who finds that one record
  // follows the other by their hashes reads the same journal.
  std::optional<JournalContent> ReadOn(const ChainPoint& seen);

 private:
  struct Place {
    std::uint64_t file = 0;
    std::uint64_t offset = 0;
    bool made = true;  // The file was in a listing.
    std::unique_ptr<rocksdb::FSRandomAccessFile> open;  // Null: not yet.
  };

  bool IsEmpty(Place* place) const;
  // At most `bytes`; fewer at the end of the file, and after an error.
  std::string ReadAt(const Place& place, std::uint64_t offset,
                     std::size_t bytes) const;
  // The record at the place of the next one, with its blocks; nothing where it
  // is not whole.
  std::optional<JournalRecord> NextRecord(const Place& place) const;
  // Whether each file of the folder from that of the next record on is watched:
  // a writer may have begun one behind others that were made ahead since.
  bool WatchesAll() const;
  // Whether the folder shows the file.
  absl::StatusOr<bool> IsListed(std::uint64_t file) const;

  const Options& options_;
  const std::string directory_;  // <store>/journal
  std::vector<Place> watched_;   // The first one is of the next record.
  Preface preface_;              // Of its file.
  std::uint64_t session_ = 0;
  std::uint64_t durable_ = 0;
  absl::Time looked_ = absl::InfinitePast();
};

}  // namespace ckptree::kv

#endif  // CKPTREE_KV_JOURNAL_TAIL_H_
