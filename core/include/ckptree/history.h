// SPDX-License-Identifier: Apache-2.0

// What became of leaves over the steps of a run. Reads records; no arrays, but
// where the same array was cut into other chunks.

#ifndef CKPTREE_HISTORY_H_
#define CKPTREE_HISTORY_H_

#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "ckptree/export.h"
#include "ckptree/step.h"
#include "ckptree/store.h"

namespace ckptree {

// Listed steps, next to each other, in which a leaf has the same value.
struct HistoryEntry {
  std::int64_t first_step = 0;
  std::int64_t last_step = 0;
  std::uint64_t steps = 1;               // From one to the other.
  absl::Time begun = absl::UnixEpoch();  // Of the first.
  LeafInfo leaf = {};                    // In the first.
  LeafDetail detail = {};  // A tie: of the leaf that holds its value.
};

struct HistoryOptions {
  std::string branch = {};  // Empty: the main branch.
  // Steps of these numbers and between.
  std::int64_t first = std::numeric_limits<std::int64_t>::min();
  std::int64_t last = std::numeric_limits<std::int64_t>::max();
  // Checked between steps; true stops with kCancelled.
  std::function<bool()> cancelled = {};
};

// Each value that the leaf had, by step number; None is one, of kind "none".
// Steps without the leaf are left out; kNotFound where no step has it.
// kInvalidArgument: it is a node.
CKPTREE_EXPORT absl::StatusOr<std::vector<HistoryEntry>> History(
    const Store& store, PathRef path, const HistoryOptions& options = {});

// A leaf, or None, in which two steps differ.
struct LeafChange {
  enum class Kind {
    kAdded,    // Only in the second.
    kRemoved,  // Only in the first.
    kChanged,  // Another value.
    kRetyped,  // Another kind, element type, shape or tag.
  };
  Kind kind = Kind::kChanged;
  std::string name = {};
  std::optional<LeafInfo> before = {};
  std::optional<LeafInfo> after = {};
  std::optional<LeafDetail> before_detail = {};
  std::optional<LeafDetail> after_detail = {};
};

struct DiffReport {
  std::vector<LeafChange> changes = {};  // In tree order.
  std::uint64_t same = 0;                // Leaves.
};

// Compares the leaves whose name matches `glob` (see MatchesGlob); all
// where it is empty. The steps may be of different stores.
CKPTREE_EXPORT absl::StatusOr<DiffReport> Diff(const Step& before,
                                               const Step& after,
                                               std::string_view glob = "");

// Which save gave a leaf its value.
struct BlameEntry {
  LeafInfo leaf = {};
  LeafDetail detail = {};  // since_step, since_version
  // That step is still listed, with that version.
  bool listed = false;
};

// In tree order, without None.
CKPTREE_EXPORT absl::StatusOr<std::vector<BlameEntry>> Blame(
    const Store& store, const Step& step, std::string_view glob = "");

}  // namespace ckptree

#endif  // CKPTREE_HISTORY_H_
