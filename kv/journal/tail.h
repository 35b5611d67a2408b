// Whether a journal that another process writes has anything new.

#ifndef CKPTREE_KV_JOURNAL_TAIL_H_
#define CKPTREE_KV_JOURNAL_TAIL_H_

#include <cstdint>
#include <memory>
#include <string>

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

  // True where the place of the next record is empty, and so is the file that
  // would come after this one: two small reads. False where there may be
  // something, and once a second, for files may have been replaced.
  bool Unchanged();

 private:
  bool IsEmptyAt(std::unique_ptr<rocksdb::FSRandomAccessFile>* file,
                 std::uint64_t number, std::uint64_t offset);

  const Options& options_;
  const std::string directory_;  // <store>/journal
  std::uint64_t file_ = 0;
  std::uint64_t offset_ = 0;
  absl::Time looked_ = absl::InfinitePast();
  std::unique_ptr<rocksdb::FSRandomAccessFile> current_;
  std::unique_ptr<rocksdb::FSRandomAccessFile> next_;
};

}  // namespace ckptree::kv

#endif  // CKPTREE_KV_JOURNAL_TAIL_H_
