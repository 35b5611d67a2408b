// SPDX-License-Identifier: Apache-2.0

// Values of tables with a damaged byte, read in a handle that has the table
// open, and in one that opens it so.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "base/digest.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kv/database.h"
#include "kv/value.h"
#include "tests/fault/scale.h"
#include "tests/kv/index_fixture.h"
#include "tests/testutil/flip_byte.h"
#include "tests/testutil/status_matchers.h"

namespace ckptree::kv {
namespace {

namespace fs = std::filesystem;
using ::ckptree::testing::FlipByte;
using ::ckptree::testing::StatusIs;
using schema::Space;

class TableSearchTest : public IndexRebuildTest {
 protected:
  enum class Way { kRead, kView, kViewOfSaved };

  // As core reads a block whose digest it knows.
  static bool Get(const Database& database, Space space, std::string_view key,
                  std::string_view value, Way way) {
    if (way == Way::kRead) {
      std::string straight(value.size(), '?');
      if (database.ReadUnchecked(space, key, value.size(), 0,
                                 std::as_writable_bytes(std::span(straight))) &&
          straight == value) {
        return true;
      }
    }
    const Saved saved{value.size(), base::DigestOf(value)};
    const auto read =
        way == Way::kRead
            ? database.Read(space, key)
            : database.View(space, key,
                            way == Way::kViewOfSaved ? &saved : nullptr);
    if (read.ok() && read->view() == value) return true;
    const auto found = database.Search(
        space, key, [&](std::string_view bytes) { return bytes == value; });
    return found.ok() && found->view() == value;
  }

  // Flips each byte of the table in turn; or one in eleven, so that each bit
  // has its turn, where a tenth of the trials is asked for.
  void ExpectOnlyTheValueItIsInIsLost(Space space) {
    const Model& model = models_[space];
    const std::string path = TableWith(model.rbegin()->second);
    const std::string bytes = ReadAll(path);
    std::size_t hit = 0;
    const auto stride = static_cast<std::size_t>(testing::TrialStride()) | 1u;
    std::size_t flipped = 0;
    for (std::size_t at = 0; at < bytes.size() && !HasFailure(); at += stride) {
      SCOPED_TRACE(at);
      const auto mask = static_cast<std::uint8_t>(1 << (at % 8));
      ASSERT_OK_AND_ASSIGN(const auto running, Open(Mode::kRead));
      FlipByte(path, at, mask);
      ASSERT_OK_AND_ASSIGN(const auto later, Open(Mode::kRead));
      for (const auto& [key, value] : model) {
        const std::size_t from = bytes.find(value);
        const bool whole = at < from || at >= from + value.size();
        hit += whole ? 0u : 1u;
        // A bit of a leaf record is put right.
        const bool there = whole || space == Space::kLeaves;
        for (const Way way : {Way::kRead, Way::kView, Way::kViewOfSaved}) {
          // The journal may still have what is damaged here.
          EXPECT_TRUE(!there || Get(*running, space, key, value, way));
          EXPECT_TRUE(!there || Get(*later, space, key, value, way));
        }
      }
      FlipByte(path, at, mask);
      ++flipped;
    }
    std::size_t payload = 0;
    for (const auto& [key, value] : model) payload += value.size();
    EXPECT_EQ(flipped, (bytes.size() + stride - 1) / stride);
    EXPECT_GT(hit, 0u);
    if (stride == 1) {
      EXPECT_EQ(hit, payload);
    }
  }
};

TEST_F(TableSearchTest, EveryByteOfATableOfChunks) {
  ASSERT_NO_FATAL_FAILURE(Save(Space::kChunks, 1, 3, 80));
  ASSERT_NO_FATAL_FAILURE(Close());
  ExpectOnlyTheValueItIsInIsLost(Space::kChunks);
}

TEST_F(TableSearchTest, EveryByteOfATableOfLeaves) {
  ASSERT_NO_FATAL_FAILURE(Save(Space::kLeaves, 1, 4, 60));
  ASSERT_NO_FATAL_FAILURE(Close());
  ExpectOnlyTheValueItIsInIsLost(Space::kLeaves);
}

TEST_F(TableSearchTest, EveryByteOfATableOfSmall) {
  ASSERT_NO_FATAL_FAILURE(SaveSmall(1, 3, 80));
  ASSERT_NO_FATAL_FAILURE(Close());
  ExpectOnlyTheValueItIsInIsLost(Space::kSmall);
}

TEST_F(TableSearchTest, WhatNobodyHasIsNotFound) {
  ASSERT_NO_FATAL_FAILURE(Save(Space::kChunks, 1, 3, 80));
  const auto any = [](std::string_view) { return true; };
  EXPECT_THAT(database_->Search(Space::kChunks, Key(1, 9), any),
              StatusIs(absl::StatusCode::kNotFound));
  EXPECT_THAT(database_->Search(Space::kChunks, Key(2, 1), any),
              StatusIs(absl::StatusCode::kNotFound));
  EXPECT_THAT(database_->Search(Space::kSmall, SmallBlockKey(1, 1), any),
              StatusIs(absl::StatusCode::kNotFound));
  ASSERT_OK_AND_ASSIGN(const Value found,
                       database_->Search(Space::kChunks, Key(1, 2), any));
  EXPECT_EQ(found.view(), models_[Space::kChunks][Key(1, 2)]);
  // And what is dropped is gone.
  ASSERT_OK(database_->Drop(Space::kChunks, {{Key(1, 0), Key(2, 0)}}));
  EXPECT_THAT(database_->Search(Space::kChunks, Key(1, 2), any),
              StatusIs(absl::StatusCode::kNotFound));
}

}  // namespace
}  // namespace ckptree::kv
