// SPDX-License-Identifier: Apache-2.0

// Arrays that were put in boxes of very different sizes, each of which is cut
// by its own shape of chunks.

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "ckptree/copy.h"
#include "ckptree/history.h"
#include "ckptree/recover.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/core/fixture.h"

namespace ckptree::testing {
namespace {

using ::testing::IsEmpty;
using ::testing::SizeIs;

class UnevenBoxesTest : public CoreTest {
 protected:
  static constexpr std::int64_t kRows = 101;
  static constexpr std::int64_t kColumns = 1000;

  // "w", of two boxes: nearly all of its rows, and the last one.
  absl::Status SaveRows(std::int64_t step, const Bytes& bytes,
                        std::int64_t rows_of_chunk) {
    StepBuilder builder = store_->Begin(step);
    const auto first = static_cast<std::size_t>((kRows - 1) * kColumns);
    for (const std::int64_t start : {std::int64_t{0}, kRows - 1}) {
      Tensor box;
      box.dtype = DType::kUint8;
      box.shape = {start == 0 ? kRows - 1 : 1, kColumns};
      box.start = {start, 0};
      box.global_shape = {kRows, kColumns};
      box.chunk_shape = {start == 0 ? rows_of_chunk : 1, kColumns};
      box.data = bytes.data() + (start == 0 ? 0 : first);
      box.size_bytes = start == 0 ? first : bytes.size() - first;
      builder.Put("w", std::move(box));
    }
    return Commit(std::move(builder));
  }
  static Bytes Content(int seed) {
    return RandomBytes(static_cast<std::size_t>(kRows * kColumns), seed);
  }
  std::string Beside(const std::string& name) const { return dir_ / name; }
  static Store OpenAt(const std::string& path) {
    return Store::Open(path, Options()).value();
  }
};

TEST_F(UnevenBoxesTest, ACopyCutsEachBoxAsItWas) {
  ASSERT_OK(SaveRows(1, Content(1), 50));
  const LeafDetail was = Restored(Latest()).Detail(At("w")).value();
  EXPECT_EQ(was.chunk_count, 3u);
  EXPECT_EQ(was.chunk_shape, (Shape{50, kColumns}));
  EXPECT_EQ(was.chunk_shapes,
            (std::vector<Shape>{{50, kColumns}, {1, kColumns}}));
  EXPECT_THAT(was.rank_boxes, IsEmpty());
  Store copy = OpenAt(Beside("copy"));
  ASSERT_OK(Copy(*store_, &copy));
  ASSERT_OK(store_->Close());
  ASSERT_OK(Recover(path(), Beside("recovered")));
  Store recovered = OpenAt(Beside("recovered"));
  for (Store* const other : {&copy, &recovered}) {
    const Step step = other->OpenStep(1).value();
    const LeafDetail is = step.Detail(At("w")).value();
    EXPECT_EQ(is.chunk_count, 3u);
    EXPECT_EQ(is.digest, was.digest);
    EXPECT_EQ(step.Value("w")->bytes, Content(1));
  }
}

// Digests are of chunks: of the last box alone they were cut alike.
TEST_F(UnevenBoxesTest, OneValueThatIsCutAnewIsOneValue) {
  ASSERT_OK(SaveRows(1, Content(1), 50));
  ASSERT_OK(SaveRows(2, Content(1), 20));
  ASSERT_OK(SaveRows(3, Content(2), 20));
  ASSERT_NE(Restored(AtStep(1)).Detail(At("w"))->digest,
            Restored(AtStep(2)).Detail(At("w"))->digest);
  const auto history = History(*store_, At("w"));
  ASSERT_OK(history);
  ASSERT_THAT(*history, SizeIs(2));
  EXPECT_EQ(history->front().last_step, 2);
  const auto same = Diff(Restored(AtStep(1)), Restored(AtStep(2)));
  ASSERT_OK(same);
  EXPECT_THAT(same->changes, IsEmpty());
  const auto other = Diff(Restored(AtStep(2)), Restored(AtStep(3)));
  ASSERT_OK(other);
  EXPECT_THAT(other->changes, SizeIs(1));
}

TEST_F(UnevenBoxesTest, ACopyThatIsCutAnewHasTheSameContent) {
  ASSERT_OK(SaveRows(1, Content(1), 50));
  Store other = OpenAt(Beside("other"));
  std::swap(*store_, other);
  ASSERT_OK(SaveRows(1, Content(1), 20));
  std::swap(*store_, other);
  const auto copied = Copy(*store_, &other);
  ASSERT_OK(copied);
  ASSERT_THAT(copied->steps, SizeIs(1));
  EXPECT_EQ(copied->steps.front().result, CopiedStep::Result::kThere);
}

}  // namespace
}  // namespace ckptree::testing
