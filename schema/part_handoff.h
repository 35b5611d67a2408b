// SPDX-License-Identifier: Apache-2.0

// What a rank that built one part of a step tells the coordinator.

#ifndef CKPTREE_SCHEMA_PART_HANDOFF_H_
#define CKPTREE_SCHEMA_PART_HANDOFF_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "base/digest.h"
#include "schema/dead_list.h"
#include "schema/leaf_record.h"
#include "schema/remote_record.h"
#include "schema/step_record.h"

namespace ckptree::schema {

// A leaf of which a part has less than the whole, and the boxes that it has;
// their chunk shapes are not said.
struct BoxedLeaf {
  std::uint32_t ordinal = 0;
  std::vector<Box> boxes;

  friend bool operator==(const BoxedLeaf&, const BoxedLeaf&) = default;
};

// The leaves of a part of which others may have something, too: each counts
// once in the step, whichever of them it changed in.
struct SplitLeaves {
  std::uint32_t count = 0;
  base::Digest names;  // Of their paths; all zeros where there are none.
  // A bit for each in tree order, from the lowest of the first byte on; the
  // last byte is not zero.
  std::string changed;
  std::string nonfinite;  // Has a NaN or an Inf here.
  std::string unknown;    // Of which that is not known here.

  friend bool operator==(const SplitLeaves&, const SplitLeaves&) = default;
};

// What a rank says of its part for the step as a whole: no part knows alone
// whether all elements are there, and once.
struct PartLayout {
  // Paths and boxes are those of the same part of the base: `boxed` is not
  // told.
  bool as_base = false;
  std::vector<BoxedLeaf> boxed;  // Ascending.
  // 16 bytes for each leaf and tie that every rank was given alike, in tree
  // order, whichever of them saves it: checksums of its path, of its entry,
  // and, where it is small and in the memory of the host, of its value, which
  // is 0 where it was not looked at; of a tie, of its target.
  std::string replicated;
  // Encoded paths of those that other ranks save, where the base may have other
  // ones: to name one in an error.
  std::vector<std::string> names;
  // Encoded path and target of each other tie whose target is in another part.
  std::vector<std::pair<std::string, std::string>> ties;
  SplitLeaves split;

  friend bool operator==(const PartLayout&, const PartLayout&) = default;
};

// Lives in the staging folder while a save of several processes is put
// together; never in a store.
struct PartHandoff {
  // Exactly one part; version, base, step, totals and the part's digest. The
  // base is 0 where the part was compared with nothing.
  // Leaves are counted without those of `layout.split`.
  StepRecord record;
  DeadList dead;  // At most that part; prev is the base.
  // Empty where the tree is that of the same part of the base.
  std::string tree_root;
  std::vector<std::string> tree_pages;
  // Keys and values of rows and of `small`, as they will be written.
  std::vector<std::pair<std::string, std::string>> segments;
  bool coded = false;  // A block in one of these is.
  // As which objects these were uploaded, in their order. Empty: they are files
  // in the folder of the part.
  std::vector<RemoteLiving> uploaded;
  std::vector<std::pair<std::string, std::string>> small;

  // Which save it is of (see RankPlan), and whose part.
  std::string attempt;
  std::uint64_t session = 0;
  std::uint32_t world = 0;
  std::uint64_t nonce = 0;
  std::string host;
  std::uint32_t pid = 0;
  std::uint64_t nanoseconds = 0;  // Since the plan.

  PartLayout layout;
};

std::string EncodePartHandoff(const PartHandoff& handoff);
// kDataLoss where it is not whole or contradicts itself.
absl::StatusOr<PartHandoff> DecodePartHandoff(std::string_view bytes);

}  // namespace ckptree::schema

#endif  // CKPTREE_SCHEMA_PART_HANDOFF_H_
