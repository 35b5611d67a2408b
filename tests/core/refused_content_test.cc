// SPDX-License-Identifier: Apache-2.0

// What could be saved and never be restored is refused: arrays with holes, JSON
// that is not one.

#include <functional>
#include <utility>

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
