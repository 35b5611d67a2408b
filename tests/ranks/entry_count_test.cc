// SPDX-License-Identifier: Apache-2.0

// A step of all ranks has no more entries (leaves, ties, and nodes that do not
// follow from these) than one of a single process may have.

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "ckptree/path.h"
#include "core/save/part_union.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "schema/limits.h"
#include "tests/ranks/fixture.h"

namespace ckptree::testing {
namespace {

using internal::CheckUnion;
using internal::PartToUnite;
using schema::BoxedLeaf;
using schema::TreeEntry;
using ::testing::HasSubstr;

TreeEntry EntryOf(const Path& path, EntryKind kind) {
  TreeEntry entry;
  entry.path = path.Encode();
  entry.kind = kind;
  return entry;
}

TEST(RanksEntryCountTest, WhatRanksShareCountsOnce) {
  const Path own = Path().Key("own");
  // The root and "own" are on both, and each has two empty dicts.
  std::vector<std::vector<TreeEntry>> entries(2);
  for (int rank = 0; rank < 2; ++rank) {
    auto& of = entries[static_cast<std::size_t>(rank)];
    of.push_back(EntryOf(Path(), EntryKind::kDict));
    of.push_back(EntryOf(own, EntryKind::kDict));
    for (const int i : {0, 1}) {
      of.push_back(EntryOf(Path(own).Key("d" + std::to_string(2 * rank + i)),
                           EntryKind::kDict));
    }
  }
  const std::vector<BoxedLeaf> boxed;
  const std::vector<std::pair<std::string, std::string>> ties;
  const std::vector<PartToUnite> parts = {{0, &entries[0], &boxed, &ties},
                                          {1, &entries[1], &boxed, &ties}};
  EXPECT_OK(CheckUnion(parts));
  EXPECT_OK(CheckUnion(parts, 6));
  EXPECT_THAT(
      CheckUnion(parts, 5),
      StatusIs(absl::StatusCode::kInvalidArgument,
               HasSubstr("6 entries of all ranks together (leaves, ties, "
                         "nodes): a step has at most 5")));
}

}  // namespace
}  // namespace ckptree::testing
