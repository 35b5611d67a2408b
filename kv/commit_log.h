// The commit record: the chained log that HEAD points into.

#ifndef CKPTREE_KV_COMMIT_LOG_H_
#define CKPTREE_KV_COMMIT_LOG_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "kv/head.h"

namespace ckptree::kv {

// What a commit was. ON DISK: never renumber or reuse one.
enum class CommitKind : std::uint8_t {
  kCreate = 1,
  kSave = 2,
  kDelete = 3,
  kTag = 4,
  kPin = 5,
  kOpen = 6,  // A new incarnation, or the writer moved on after a repair.
  kCollect = 7,  // What nothing needs any more goes.
  kLine = 8,     // A line was forked off or dropped.
  kSettings = 9,  // What is wanted of a line.
};

struct CommitRecord {
  std::uint64_t ordinal = 0;  // 1, 2, ... without gap.
  CommitKind kind = CommitKind::kSave;
  std::uint64_t version = 0;  // That is saved or collected; 0 otherwise.
  bool small = false;         // The batch wrote to `small`.
  std::uint64_t small_safe = 0;  // Newest ordinal up to which every block in
                                 // `small` had left the log by then.
  Hash previous{};  // Of the previous commit record's stored bytes.
  Hash batch{};     // Of this batch: spaces, keys, values in order.
  std::string engine;  // Version of the engine that wrote it.

  friend bool operator==(const CommitRecord&, const CommitRecord&) = default;
};

// Fixed layout, big-endian, ends with an XXH3-64 of all before it.
std::string EncodeCommitRecord(const CommitRecord& record);
absl::StatusOr<CommitRecord> DecodeCommitRecord(std::string_view bytes);

// Of a record's stored bytes.
Hash HashOf(std::string_view bytes);

// The key of a commit record in `records`: Row::kCommit, ordinal (big-endian).
std::string CommitRecordKey(std::uint64_t ordinal);

}  // namespace ckptree::kv

#endif  // CKPTREE_KV_COMMIT_LOG_H_
