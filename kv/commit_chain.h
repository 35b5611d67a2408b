// Reading the chain of commits back, and holding it against HEAD.

#ifndef CKPTREE_KV_COMMIT_CHAIN_H_
#define CKPTREE_KV_COMMIT_CHAIN_H_

#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kv/commit_log.h"
#include "kv/database.h"
#include "kv/head.h"
#include "kv/instance.h"

namespace ckptree::kv {

// How many of the newest commit records are read at every open.
inline constexpr std::uint64_t kCheckedCommits = 1024;
// How many are kept below the newest one that is surely in a file.
inline constexpr std::uint64_t kKeptCommits = 4096;

// The newest commit.
struct ChainTip {
  std::uint64_t ordinal = 0;  // 0: there is none.
  Hash hash{};                // Of its record's stored bytes.
};

absl::StatusOr<ChainTip> ReadTip(const Instance& instance);

// Of the oldest record that was not trimmed; 0 where there is none.
absl::StatusOr<std::uint64_t> OldestOrdinal(const Instance& instance);

// Reads the last kCheckedCommits records and all after small_safe, checks that
// they are chained and that no older one is missing that was kept, holds them against report->head (unless head_missing) and
// fills in ordinal, ahead_by_one, recent, highest_version, warnings and
// read_only_because. kDataLoss where commits are missing or do not follow each
// other.
absl::Status CheckChain(const Instance& instance, bool beside_writer,
                        OpenReport* report);

}  // namespace ckptree::kv

#endif  // CKPTREE_KV_COMMIT_CHAIN_H_
