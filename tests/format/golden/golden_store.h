// SPDX-License-Identifier: Apache-2.0

// The store that every later engine must still read, and what it says of itself
// as text.

#ifndef CKPTREE_TESTS_FORMAT_GOLDEN_GOLDEN_STORE_H_
#define CKPTREE_TESTS_FORMAT_GOLDEN_GOLDEN_STORE_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ckptree/ckptree.h"
#include "nlohmann/json.hpp"

namespace ckptree::testing {

// Makes it in `directory`, which is not there yet:
//   1   small: inline scalars, text and every kind of leaf and node
//   10  segments: rows, a grid, packs, boxes, packed elements, NaN and Inf
//   20  small on a large base, later overwritten
//   30  segments again, half of it shared; pinned
//   20, 25, 40 had versions that were collected: dead blocks, a file that was
//   written again, small saves of which some blocks are left
//   26  removed, not collected
//   11  on the branch "fork", which goes on from 10
//   50  after a close and an open; its commit is in the journal alone
//   60  coded; from format 1 on with the rounded copy of an array
// Tags: first -> 1, good -> 30 (moved from 10).
// `format`: what it has of what formats brought.
absl::Status MakeGoldenStore(const std::string& directory, int format);

// One line for each step and entry, fields apart by tabs. The digest of a value
// is over its bytes, not over its chunks.
absl::StatusOr<std::string> ListingOf(const Store& store);

// The lines "leaf" of step `step` of such a listing.
std::vector<std::string> LeafLines(const std::string& listing,
                                   std::int64_t step);

// Such a line from what tests/format/reader.py says of an entry, `value` its
// bytes.
std::string LeafLine(std::int64_t step, const nlohmann::json& entry,
                     const std::string& value);

}  // namespace ckptree::testing

#endif  // CKPTREE_TESTS_FORMAT_GOLDEN_GOLDEN_STORE_H_
