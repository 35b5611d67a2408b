// SPDX-License-Identifier: Apache-2.0

// What became of leaves over the steps of a run: log, diff and blame of
// weights.
//
//   auto history = ckptree::History(store, "params/w");  // Every value it had.
//   auto diff = ckptree::Diff(*before, *after);          // What differs.
//   auto blame = ckptree::Blame(store, *step);           // Who wrote what.
//
// Values are compared by the digests that saves wrote. Arrays are read only
// where the same array was cut into other chunks or boxes, which digests cannot
// tell. So the cost is that of the records: microseconds for each leaf and
// step.
//
// All functions are thread-safe. A step that is deleted while they work is left
// out, as if it had been deleted before.

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

// Listed steps, next to each other on a branch, in which a leaf has the same
// value, bit by bit, and is of the same kind, type and shape.
struct HistoryEntry {
  std::int64_t first_step = 0;
  std::int64_t last_step = 0;
  std::uint64_t steps = 1;               // From one to the other.
  absl::Time begun = absl::UnixEpoch();  // Of the first.
  LeafInfo leaf = {};                    // In the first.
  LeafDetail detail = {};  // A tie: of the leaf that holds its value.
};

// Which steps a history looks at.
struct HistoryOptions {
  std::string branch = {};  // Empty: the main branch.
  // Steps of these numbers and between.
  std::int64_t first = std::numeric_limits<std::int64_t>::min();
  std::int64_t last = std::numeric_limits<std::int64_t>::max();
  // Checked between steps; true stops with kCancelled.
  std::function<bool()> cancelled = {};
};

// Each value that the leaf had, by step number; None counts as a value, of kind
// "none". Steps in which the value stays the same are one entry. Steps without
// the leaf are left out: the entries around them do not touch each other.
// kNotFound where no step has the leaf, or where there is no such branch.
// kInvalidArgument: it is a node, which has no value. kCancelled.
CKPTREE_EXPORT absl::StatusOr<std::vector<HistoryEntry>> History(
    const Store& store, PathRef path, const HistoryOptions& options = {});

// A leaf, or None, in which two steps differ. What is only in one of the steps
// has nothing on the other side.
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

// "added", "removed", "changed" or "retyped".
CKPTREE_EXPORT std::string_view Name(LeafChange::Kind kind);

// What differs between two steps, and how much does not.
struct DiffReport {
  std::vector<LeafChange> changes = {};  // In tree order.
  // Leaves. A tie is another name of one, and not counted, as in
  // StepInfo::leaf_count.
  std::uint64_t same = 0;
};

// Compares the leaves whose name matches `glob` (see MatchesGlob); all where it
// is empty. The steps may be of different stores and different branches. A tie
// is compared by the value that it shares. Of two steps of one Store only the
// records of leaves are read that not both of them have: milliseconds where
// little differs. kInvalidArgument: a glob that does not parse. kDataLoss: a
// record that cannot be read; nothing is reported then.
CKPTREE_EXPORT absl::StatusOr<DiffReport> Diff(const Step& before,
                                               const Step& after,
                                               std::string_view glob = "");

// Which save gave a leaf its value: the step and version that last changed it,
// in `detail`. A save that wrote the same bytes again did not change it.
struct BlameEntry {
  LeafInfo leaf = {};
  LeafDetail detail = {};  // since_step, since_version
  // That step is still listed, with that version.
  bool listed = false;
  // Of that step, "" for the main one; where it is not listed nobody knows.
  std::string branch = {};
};

// For each leaf of `step` whose name matches `glob`, in tree order, without
// None. `store` says which of the steps named are still listed. Errors as
// Diff().
CKPTREE_EXPORT absl::StatusOr<std::vector<BlameEntry>> Blame(
    const Store& store, const Step& step, std::string_view glob = "");

}  // namespace ckptree

#endif  // CKPTREE_HISTORY_H_
