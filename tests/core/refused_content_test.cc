// SPDX-License-Identifier: Apache-2.0

// What could be saved and never be restored is refused: arrays with holes, JSON
// that is not one.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/core/fixture.h"

namespace ckptree::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

class RefusedContentTest : public CoreTest {
 protected:
  // Why it was not saved.
  absl::Status Mistake(const std::function<void(StepBuilder&)>& put) {
    StepBuilder step = store_->Begin(7);
    put(step);
    const absl::Status status = Commit(std::move(step));
    EXPECT_THAT(StepNumbers(), IsEmpty());
    return status;
  }
};

TEST_F(RefusedContentTest, ArraysWithHoles) {
  const Bytes bytes = RandomBytes(64, 1);
  const auto box = [&](Shape start, Shape shape, Shape whole) {
    Tensor tensor = Array(DType::kUint8, std::move(shape), bytes);
    tensor.start = std::move(start);
    tensor.global_shape = std::move(whole);
    return tensor;
  };
  EXPECT_THAT(
      Mistake([&](StepBuilder& step) { step.Put("w", box({1}, {1}, {4})); }),
      StatusIs(kInvalid, AllOf(HasSubstr("w: the box at [0] of shape "
                                         "[1] is missing"),
                               HasSubstr("1 of 4 elements"))));
  EXPECT_THAT(Mistake([&](StepBuilder& step) {
                step.Put("w", box({0, 0}, {4, 2}, {4, 4}))
                    .Put("w", box({0, 2}, {3, 2}, {4, 4}));
              }),
              StatusIs(kInvalid, HasSubstr("w: the box at [3, 2] of shape "
                                           "[1, 2] is missing")));
  // In the middle.
  EXPECT_THAT(Mistake([&](StepBuilder& step) {
                step.Put("w", box({0, 0}, {1, 3}, {3, 3}))
                    .Put("w", box({2, 0}, {1, 3}, {3, 3}))
                    .Put("w", box({1, 0}, {1, 1}, {3, 3}))
                    .Put("w", box({1, 2}, {1, 1}, {3, 3}));
              }),
              StatusIs(kInvalid, HasSubstr("w: the box at [1, 1] of shape "
                                           "[1, 1] is missing")));
  // Without a hole, and with nothing to have one.
  StepBuilder step = store_->Begin(9);
  step.Put("w", box({0, 0}, {4, 2}, {4, 4}))
      .Put("w", box({0, 2}, {4, 2}, {4, 4}))
      .Put("none", box({0, 0}, {0, 3}, {0, 3}))
      .Put("scalar", box({}, {}, {}));
  ASSERT_OK(Commit(std::move(step)));
  EXPECT_OK(Restored(AtStep(9)).Value("w"));
}

// Packed elements are cut where a row ends on a byte; the format has no chunk
// above 16 MiB.
TEST_F(RefusedContentTest, PackedArraysThatCannotBeCut) {
  const auto put = [](DType dtype, Shape shape, const Bytes& bytes) {
    Tensor tensor = Array(dtype, std::move(shape), bytes);
    tensor.packed = true;
    return tensor;
  };
  constexpr std::int64_t kMi = 1 << 20;
  const std::vector<std::pair<DType, Shape>> refused = {
      {DType::kInt4, {3, 11 * kMi + 1}},
      {DType::kInt4, {3, 3, 4 * kMi + 1}},
      {DType::kInt2, {3, 22 * kMi + 1}}};
  for (const auto& one : refused) {
    const Bytes bytes(BytesOf(one.first, true, one.second));
    ASSERT_GT(bytes.size(), std::size_t{16} << 20);
    EXPECT_THAT(
        Mistake([&](StepBuilder& step) {
          step.Put("q/w", put(one.first, one.second, bytes),
                   Ownership::kBorrow);
          EXPECT_THAT(step.status(),
                      StatusIs(kInvalid, HasSubstr("q/w: packed")));
        }),
        StatusIs(kInvalid, AllOf(HasSubstr("at most 16777216"),
                                 HasSubstr("put it unpacked, or in a shape"))));
  }
  // The longest that is one chunk, of a length that cannot be cut; one whose
  // rows end on bytes; and one without elements.
  const Bytes bytes = RandomBytes(17 << 20, 3);
  StepBuilder step = store_->Begin(9);
  step.Put("most", put(DType::kInt4, {33, 1'016'799}, bytes))
      .Put("rows", put(DType::kInt4, {2, 17 * kMi}, bytes))
      .Put("none", put(DType::kInt4, {0, 3, 40 * kMi + 1}, bytes));
  ASSERT_OK(Commit(std::move(step)));
  Open();
  Bytes wanted = bytes;
  EXPECT_TRUE(Read(AtStep(9), "rows") == wanted);
  EXPECT_TRUE(Read(AtStep(9), "none").empty());
  // Whose last byte has one element.
  wanted.resize(BytesOf(DType::kInt4, true, {33, 1'016'799}));
  const Bytes most = Read(AtStep(9), "most");
  ASSERT_EQ(most.size(), wanted.size());
  EXPECT_TRUE(std::equal(wanted.begin(), wanted.end() - 1, most.begin()));
  ExpectClean();
}

TEST_F(RefusedContentTest, WhatIsNoJson) {
  for (const char* text : {"{nope", "", "{\"a\": 1,}", "nan", "1 2"}) {
    EXPECT_THAT(Mistake([&](StepBuilder& step) { step.PutJson("c/d", text); }),
                StatusIs(kInvalid, AllOf(HasSubstr("c/d"),
                                         HasSubstr("no JSON: at byte"))));
    EXPECT_EQ(store_->SetMetadata(text).ok(), *text == 0) << text;
    if (*text == 0) continue;  // No metadata.
    EXPECT_THAT(Mistake([&](StepBuilder& step) {
                  step.PutInt("a", 1).SetCustomMetadata(text);
                }),
                StatusIs(kInvalid, AllOf(HasSubstr("custom metadata"),
                                         HasSubstr("no JSON: at byte"))));
  }
  EXPECT_EQ(*store_->Metadata(), "");
}

// For a reason of the caller's.
TEST_F(RefusedContentTest, WhatTheCallerGivesUp) {
  const absl::Status why = absl::OutOfRangeError("no such layer");
  EXPECT_THAT(
      Mistake([&](StepBuilder& step) { step.PutInt("a", 1).Fail(why); }),
      StatusIs(absl::StatusCode::kOutOfRange,
               AllOf(HasSubstr("step 7"), HasSubstr("no such layer"))));
  // The first one counts.
  EXPECT_THAT(Mistake([&](StepBuilder& step) {
                step.PutString("a", "\xff").Fail(why);
                EXPECT_THAT(step.status(), StatusIs(kInvalid));
              }),
              StatusIs(kInvalid, HasSubstr("UTF-8")));
  // Who waits for the memory alone is told nothing.
  StepBuilder given_up = store_->Begin(9);
  SaveHandle handle = given_up.PutInt("a", 1).Fail(why).Submit();
  EXPECT_TRUE(handle.WaitStagedOrDone(absl::InfiniteDuration()));
  EXPECT_THAT(handle.WaitStaged(), StatusIs(absl::StatusCode::kOutOfRange));
  EXPECT_THAT(Mistake([&](StepBuilder& step) { step.Fail(absl::OkStatus()); }),
              StatusIs(kInvalid, HasSubstr("Fail() was given no error")));
  EXPECT_OK(Save(8, RandomBytes(10, 1)));
}

}  // namespace
}  // namespace ckptree::testing
