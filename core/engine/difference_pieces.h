// SPDX-License-Identifier: Apache-2.0

// Diff() of two steps some leaves at a time, to show the first before the last
// are read.

#ifndef CKPTREE_CORE_ENGINE_DIFFERENCE_PIECES_H_
#define CKPTREE_CORE_ENGINE_DIFFERENCE_PIECES_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ckptree/history.h"
#include "ckptree/statistics.h"
#include "ckptree/step.h"
#include "core/engine/part_comparison.h"

namespace ckptree::internal {

// What a table says of a leaf in one of two steps; of a tie that of the leaf
// whose value it shares.
struct LeafSide {
  // Null: it is not in this step. Without its name and path; leaves near each
  // other share it.
  const LeafInfo* type = nullptr;
  std::uint64_t bytes = 0;
  std::optional<Statistics> statistics = {};
};

// A LeafChange without what no table says.
struct LeafDifference {
  LeafChange::Kind kind = LeafChange::Kind::kChanged;
  std::string name = {};
  LeafSide before = {};
  LeafSide after = {};
};

// What Diff() gives of all leaves, in the same order; types live as long as
// this. Both steps outlive it. Confined to one thread.
class DifferencePieces {
 public:
  DifferencePieces(const Step& before, const Step& after);
  ~DifferencePieces();

  // The next ones: so many leaves are compared, or a few more, and those that
  // differ appended, in runs that stand behind each other. All at once of two
  // stores, and where a step has several parts: their order is known only when
  // all are read. False: those were all. After an error there are no more.
  using Runs = std::vector<std::vector<LeafDifference>>;
  absl::StatusOr<bool> Next(std::size_t leaves, Runs* runs);

  // As DiffReport::same, of what was compared so far.
  std::uint64_t same() const { return same_; }

 private:
  struct Pair {
    PartComparison::Entry before;
    PartComparison::Entry after;
  };
  struct Run;
  class Types;

  // Those of some of the pairs; called by several threads at once.
  absl::Status Compare(std::size_t begin, std::size_t end, Run* run) const;
  // Reads the values of what records do not tell.
  absl::Status CompareValues(Run* run) const;
  absl::Status TakeWhole(Runs* runs);

  const Step& before_;
  const Step& after_;
  // Nothing: by the whole.
  std::optional<PartComparison> walk_;
  bool ended_ = false;
  std::vector<Pair> pairs_;  // That are compared now.
  std::uint64_t same_ = 0;
  // What `type` points into.
  std::vector<std::unique_ptr<Types>> types_;
  DiffReport whole_;
};

}  // namespace ckptree::internal

#endif  // CKPTREE_CORE_ENGINE_DIFFERENCE_PIECES_H_
