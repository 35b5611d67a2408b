// SPDX-License-Identifier: Apache-2.0

// Where the bytes of a small leaf stand is guessed. With a proof behind them
// they are read without their record. Else a guess only begins to read, while
// the record is read, and what is read is what the record says.

#ifndef CKPTREE_CORE_VERSION_PACK_GUESS_H_
#define CKPTREE_CORE_VERSION_PACK_GUESS_H_

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "absl/status/statusor.h"
#include "base/digest.h"
#include "core/array/pack_layout.h"
#include "core/version/pack_places.h"
#include "core/version/step_tree.h"
#include "kv/database.h"
#include "kv/monotonic.h"
#include "schema/leaf_map.h"
#include "schema/leaf_record.h"

namespace ckptree::internal {

// A leaf of a part of a step.
struct LeafOfStep {
  const StepTree& tree;
  const schema::LeafMap& map;
  std::uint64_t version = 0;
  std::uint16_t part = 0;
  std::uint32_t ordinal = 0;
};

// Where the save of the leaf's version put that array, if it wrote all that the
// map has of it, and nothing else, into `small`. Nothing where the tree has
// more than one page, which would have to be read, or the leaf is not packed.
std::optional<PackPlace> GuessPack(const LeafOfStep& leaf,
                                   PackLayout::Kind kind);

// Whether guessing is worth it: not in a store whose leaves stand otherwise,
// and without proofs not where records come out of the page cache. Thread-safe.
class PackGuesses {
 public:
  // A guess whose bytes were asked for.
  struct Trial {
    std::optional<PackPlace> guess;
    PackLayout::Kind kind = PackLayout::Kind::kProved;  // Of it.
    bool refuted = false;  // They were read, and no proof stands behind them.
  };

  // Fills `destination`, all of the value of an array, where it stands in the
  // place that is guessed and what is behind it proves it. False, with anything
  // in `destination`, where not: then its record says all. REQUIRES: the leaf
  // is in a step of one part, which has the digest `step`.
  bool ReadProved(const kv::Database& database, const LeafOfStep& leaf,
                  const base::Digest& step, std::span<std::byte> destination,
                  Trial* trial);

  // Reads the record of a leaf by `read`, and where records come from the disk
  // begins to read the bytes of the leaf before that, unless `trial` did.
  template <typename Read>
  absl::StatusOr<schema::LeafRecord> ReadWith(const kv::Database& database,
                                              const LeafOfStep& leaf,
                                              bool one_part, Trial trial,
                                              Read read) {
    if (!trial.guess.has_value() && slow_.load(std::memory_order_relaxed)) {
      trial = Begin(database, leaf, one_part);
    }
    const auto begun = std::chrono::steady_clock::now();
    absl::StatusOr<schema::LeafRecord> record = read();
    slow_.store(std::chrono::steady_clock::now() - begun >= kv::kReadOfDisk,
                std::memory_order_relaxed);
    if (trial.guess.has_value() && record.ok()) Judge(trial, *record);
    return record;
  }

 private:
  // So many wrong guesses, one after the other, and there are no more.
  static constexpr int kMostWrong = 8;

  Trial Begin(const kv::Database& database, const LeafOfStep& leaf,
              bool one_part);
  std::atomic<int>& WrongOf(PackLayout::Kind kind) {
    return wrong_[static_cast<std::size_t>(kind)];
  }
  bool MayGuess(PackLayout::Kind kind) {
    return WrongOf(kind).load(std::memory_order_relaxed) < kMostWrong;
  }
  void Judge(const Trial& trial, const schema::LeafRecord& record);

  std::atomic<bool> slow_{false};            // The last record was.
  std::array<std::atomic<int>, 2> wrong_{};  // By kind.
};

}  // namespace ckptree::internal

#endif  // CKPTREE_CORE_VERSION_PACK_GUESS_H_
