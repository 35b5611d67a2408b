// SPDX-License-Identifier: Apache-2.0

// Counts the leaves of which several parts of a step have something, once each.

#ifndef CKPTREE_CORE_SAVE_SPLIT_LEAVES_H_
#define CKPTREE_CORE_SAVE_SPLIT_LEAVES_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "base/digest.h"
#include "core/version/leaf_share.h"
#include "schema/part_handoff.h"
#include "schema/tree.h"

namespace ckptree::internal {

// Checksums of their paths, in tree order.
using SplitNames = std::vector<std::uint64_t>;

// Those of a part with these entries, of which it has less than the whole of
// `boxed`.
SplitNames SplitNamesOf(const std::vector<schema::TreeEntry>& entries,
                        const std::vector<schema::BoxedLeaf>& boxed);
base::Digest DigestOfNames(const SplitNames& names);

// Puts together what a part says of them; in tree order.
class SplitWriter {
 public:
  void Add(std::string_view path, const LeafMarks& marks);
  schema::SplitLeaves Finish() &&;

 private:
  SplitNames names_;
  schema::SplitLeaves split_;
};

// Over all parts. `names_of` gives the names of the part at an index, and is
// asked only where parts have other ones.
absl::StatusOr<LeafTotals> CountSplit(
    const std::vector<const schema::SplitLeaves*>& parts,
    absl::FunctionRef<
        absl::StatusOr<std::shared_ptr<const SplitNames>>(std::size_t)>
        names_of);

}  // namespace ckptree::internal

#endif  // CKPTREE_CORE_SAVE_SPLIT_LEAVES_H_
