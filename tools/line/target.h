// SPDX-License-Identifier: Apache-2.0

// What a KEY names in a step: leaves, and a slice of them.

#ifndef CKPTREE_TOOLS_LINE_TARGET_H_
#define CKPTREE_TOOLS_LINE_TARGET_H_

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "ckptree/step.h"
#include "core/engine/leaf_pieces.h"
#include "tools/output/slice.h"

namespace ckptree::tools {

// Leaves that a KEY names, and the slice behind it.
struct Target {
  std::vector<LeafInfo> leaves;
  std::vector<SliceItem> slice;
  std::string slice_text;
  bool pattern = false;  // Of a glob or regular expression.
};

// A key is tried whole first, so "params/[3]" is the fourth child where there
// is one, then as a key and a slice. kNotFound names the nearest key, or the
// number of leaves below where the key names a subtree.
absl::StatusOr<Target> FindTarget(const Step& step, std::string_view key);

// Every entry that `key` names: itself, what is below it, or what a pattern
// matches; all where it is empty. kNotFound where there is none.
absl::StatusOr<std::vector<LeafInfo>> FindSubtree(const Step& step,
                                                  std::string_view key);

// What FindSubtree() finds, some at a time where no key says which: with a key
// all at once. `step` outlives it. Confined to one thread.
class SubtreePieces {
 public:
  SubtreePieces(const Step& step, std::string key)
      : step_(step), key_(std::move(key)), pieces_(step) {}

  // The next ones; none: there are no more. Those of the first time are few.
  absl::StatusOr<std::vector<LeafInfo>> Next();

 private:
  const Step& step_;
  const std::string key_;
  internal::LeafPieces pieces_;
  bool begun_ = false;
};

// The names of what `key` names in any of the steps, ascending; the error of
// the last where there is nothing. `leaves`, where it is not null: those that
// are of leaves of the first step, and not of ties, ascending as well.
absl::StatusOr<std::vector<std::string>> NamesIn(
    const std::vector<const Step*>& steps, std::string_view key,
    std::vector<std::string>* leaves = nullptr);

// Keys of a step in whatever form they were written, as their names are: those
// in quotes and brackets, or with a slash behind them. Patterns stay.
std::vector<std::string> PlainKeys(std::vector<std::string> keys);

}  // namespace ckptree::tools

#endif  // CKPTREE_TOOLS_LINE_TARGET_H_
