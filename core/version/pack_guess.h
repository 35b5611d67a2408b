// SPDX-License-Identifier: Apache-2.0

// The bytes of a small leaf are read while its record is: where they stand is
// guessed. A guess only begins to read; what is read is what the record says.

#ifndef CKPTREE_CORE_VERSION_PACK_GUESS_H_
#define CKPTREE_CORE_VERSION_PACK_GUESS_H_

#include <atomic>
#include <cstdint>
#include <optional>

#include "absl/status/statusor.h"
#include "core/version/step_tree.h"
#include "kv/database.h"
#include "schema/leaf_map.h"
#include "schema/leaf_record.h"

namespace ckptree::internal {

// Bytes of a block of `small`.
struct PackPlace {
  std::uint32_t n = 0;
  std::uint64_t block_bytes = 0;
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
};

// Where the save of `version` put the array at `ordinal`, if it wrote all that
// `map` has of it, and nothing else, into `small`. Nothing where the tree has
// more than one page, which would have to be read, or the leaf is not packed.
std::optional<PackPlace> GuessPack(const StepTree& tree,
                                   const schema::LeafMap& map,
                                   std::uint64_t version,
                                   std::uint32_t ordinal);

// Whether guessing is worth it: not where records come out of the page cache,
// and not in a store whose leaves stand otherwise. Thread-safe.
class PackGuesses {
 public:
  // Reads the record of a leaf by `read`, and where records come from the disk
  // begins to read the bytes of the leaf before that.
  template <typename Read>
  absl::StatusOr<schema::LeafRecord> ReadWith(
      const kv::Database& database, const StepTree& tree,
      const schema::LeafMap& map, std::uint16_t part, std::uint64_t version,
      std::uint32_t ordinal, Read read) {
    std::optional<PackPlace> guess;
    if (slow_.load(std::memory_order_relaxed) &&
        wrong_.load(std::memory_order_relaxed) < kMostWrong) {
      guess = Begin(database, tree, map, part, version, ordinal);
    }
    const std::int64_t begun = Now();
    absl::StatusOr<schema::LeafRecord> record = read();
    slow_.store(Now() - begun >= kSlowNanoseconds, std::memory_order_relaxed);
    if (guess.has_value() && record.ok()) Judge(*guess, *record);
    return record;
  }

 private:
  // Nothing that is in the page cache takes as long, and no disk is as fast.
  static constexpr std::int64_t kSlowNanoseconds = 20'000;
  // So many wrong guesses, one after the other, and there are no more.
  static constexpr int kMostWrong = 8;

  static std::int64_t Now();
  static std::optional<PackPlace> Begin(const kv::Database& database,
                                        const StepTree& tree,
                                        const schema::LeafMap& map,
                                        std::uint16_t part,
                                        std::uint64_t version,
                                        std::uint32_t ordinal);
  void Judge(const PackPlace& guess, const schema::LeafRecord& record);

  std::atomic<bool> slow_{false};  // The last record was.
  std::atomic<int> wrong_{0};
};

}  // namespace ckptree::internal

#endif  // CKPTREE_CORE_VERSION_PACK_GUESS_H_
