// SPDX-License-Identifier: Apache-2.0

// What the leaves of a save refer to: bytes that stay where they were put, and
// one type for all that are alike.

#include "core/save/source_leaf.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

namespace ckptree::internal {
namespace {

std::string Text(std::size_t i) {
  return std::string(i % 700, static_cast<char>('a' + i % 26));
}

TEST(KeptBytesTest, WhatWasKeptStaysWhereItIs) {
  KeptBytes bytes;
  std::vector<std::string_view> kept;
  for (std::size_t i = 0; i < 3000; ++i) {
    kept.push_back(i % 2 == 0 ? bytes.Keep(std::string_view(Text(i)))
                              : bytes.Keep(Text(i)));
    if (i % 500 == 0) kept.push_back(bytes.Keep(std::string(1 << 20, 'x')));
  }
  std::size_t at = 0;
  for (std::size_t i = 0; i < 3000; ++i) {
    EXPECT_EQ(kept[at++], Text(i));
    if (i % 500 == 0) EXPECT_EQ(kept[at++], std::string(1 << 20, 'x'));
  }
}

TEST(KeptBytesTest, NothingIsKeptAsNothing) {
  KeptBytes bytes;
  EXPECT_EQ(bytes.Keep(std::string_view()), "");
  EXPECT_EQ(bytes.Keep(std::string_view("a")), "a");
}

schema::TreeEntry Array(DType dtype, std::vector<std::int64_t> shape,
                        std::string tag = "") {
  schema::TreeEntry entry;
  entry.dtype = dtype;
  entry.shape = std::move(shape);
  entry.tag = std::move(tag);
  return entry;
}

TEST(LeafTypesTest, WhatIsAlikeHasOneType) {
  LeafStorage storage;
  LeafTypes types(1 << 20, &storage);
  const LeafType* const type = types.Of(Array(DType::kFloat32, {4, 2}), 32);
  EXPECT_EQ(types.Of(Array(DType::kFloat32, {4, 2}), 32), type);
  EXPECT_EQ(storage.types.size(), 1u);
  EXPECT_EQ(type->bytes, 32u);
  EXPECT_EQ(type->whole.start, (std::vector<std::int64_t>{0, 0}));
  EXPECT_EQ(type->whole.shape, (std::vector<std::int64_t>{4, 2}));
  EXPECT_EQ(type->whole.chunk_shape, (std::vector<std::int64_t>{4, 2}));

  EXPECT_NE(types.Of(Array(DType::kInt32, {4, 2}), 32), type);
  EXPECT_NE(types.Of(Array(DType::kFloat32, {2, 4}), 32), type);
  EXPECT_NE(types.Of(Array(DType::kFloat32, {4, 2}, "tag"), 32), type);
  schema::TreeEntry value;
  value.kind = EntryKind::kBytes;
  EXPECT_NE(types.Of(value, 0), type);
  EXPECT_EQ(types.Of(value, 0), types.Of(value, 0));
  EXPECT_EQ(storage.types.size(), 5u);
}

}  // namespace
}  // namespace ckptree::internal
