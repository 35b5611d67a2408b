// SPDX-License-Identifier: Apache-2.0

// Values that are no arrays, cut into chunks of the length that the store had:
// digests do not tell whether two that were cut otherwise are one.

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "ckptree/copy.h"
#include "ckptree/history.h"
#include "core/engine/difference_pieces.h"
#include "core/engine/leaf_past.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/core/fixture.h"

namespace ckptree::testing {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using CutValuesTest = CoreTest;

TEST_F(CutValuesTest, OneValueThatIsCutAnewIsOneValue) {
  const std::string same(5 * kChunk, 's');
  for (const std::int64_t step : {1, 2}) {
    StoreOptions options = Options();
    options.chunk_bytes = step == 1 ? kChunk : 16 * kChunk;
    Open(options);
    StepBuilder builder = store_->Begin(step);
    builder.PutBytes("a", same).PutString("b", same);
    builder.PutBytes("c", same + (step == 1 ? "x" : "y"));
    builder.PutBytes("short", "of one chunk");
    ASSERT_OK(Commit(std::move(builder)));
  }
  const Step before = Restored(AtStep(1));
  const Step after = Restored(AtStep(2));
  ASSERT_OK_AND_ASSIGN(const DiffReport report, Diff(before, after));
  EXPECT_EQ(report.same, 3u);
  ASSERT_EQ(report.changes.size(), 1u);
  EXPECT_EQ(report.changes[0].name, "c");
  internal::DifferencePieces pieces(before, after);
  internal::DifferencePieces::Runs runs;
  ASSERT_OK_AND_ASSIGN(bool more, pieces.Next(100, &runs));
  while (more) {
    ASSERT_OK_AND_ASSIGN(more, pieces.Next(100, &runs));
  }
  EXPECT_EQ(pieces.same(), 3u);
  std::vector<std::string> differ;
  for (const auto& run : runs) {
    for (const internal::LeafDifference& one : run) differ.push_back(one.name);
  }
  EXPECT_THAT(differ, ElementsAre("c"));
  for (const auto& [name, values] :
       std::map<std::string, std::size_t>{{"a", 1}, {"b", 1}, {"c", 2}}) {
    ASSERT_OK_AND_ASSIGN(const auto history, History(*store_, name));
    EXPECT_EQ(history.size(), values) << name;
    ASSERT_OK_AND_ASSIGN(const internal::LeafPast past,
                         internal::PastOf(*store_, At(name), {}));
    EXPECT_EQ(past.values.size(), values) << name;
  }
  Store other = Store::Open(dir_ / "other", Options()).value();
  ASSERT_OK(Copy(*store_, &other));
  std::swap(*store_, other);
  std::vector<CopiedStep::Result> results;
  CopyOptions copying;
  copying.on_step = [&](const CopiedStep& step) {
    results.push_back(step.result);
  };
  ASSERT_OK(Copy(other, &*store_, copying));
  EXPECT_THAT(results, Each(CopiedStep::Result::kThere));
}

}  // namespace
}  // namespace ckptree::testing
