// SPDX-License-Identifier: Apache-2.0

// Arrays of fewer rows than there are ranks, or of none: some ranks, or all,
// have an empty box.

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "ckptree/copy.h"
#include "ckptree/recover.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/ranks/fixture.h"

namespace ckptree::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

struct BoxOf {
  Shape start;
  Shape shape;
};

class RanksEmptyBoxTest : public RanksTest {
 protected:
  // Element i of the array is i + `offset`; a rank gives its rows.
  static void PutBox(StepBuilder* builder, const std::string& name,
                     const BoxOf& box, const Shape& global,
                     std::vector<std::int32_t>* values) {
    const std::int64_t columns = global.size() < 2 ? 1 : global[1];
    std::int64_t count = 1;
    for (const std::int64_t dim : box.shape) count *= dim;
    for (std::int64_t i = 0; i < count; ++i) {
      values->push_back(static_cast<std::int32_t>(box.start[0] * columns + i));
    }
    Tensor tensor;
    tensor.dtype = DType::kInt32;
    tensor.shape = box.shape;
    tensor.data = values->data();
    tensor.start = box.start;
    tensor.global_shape = global;
    builder->Put(name, tensor);
  }
  static absl::Status SaveBoxes(RankGroup& group, std::int64_t step,
                                const Shape& global,
                                const std::vector<BoxOf>& boxes) {
    std::vector<std::int32_t> values;
    StepBuilder builder = group.Begin(step);
    PutBox(&builder, "a", boxes[static_cast<std::size_t>(group.rank())], global,
           &values);
    return std::move(builder).Commit().WaitCommitted(kLong);
  }
  // That "a" of `step` has the elements 0 to `count`, by another open; of the
  // store, or another one.
  void ExpectArray(std::int64_t step, const Shape& shape, std::int32_t count,
                   const std::string& of = "") const {
    SCOPED_TRACE(of + " " + std::to_string(step));
    absl::StatusOr<Store> store =
        Store::Open(of.empty() ? path() : of, ToRead(QuietOptions()));
    ASSERT_OK(store);
    absl::StatusOr<Step> read = store->OpenStep(step);
    ASSERT_OK(read);
    std::vector<std::int32_t> found(static_cast<std::size_t>(count), -1);
    ASSERT_OK(read->Read("a", std::as_writable_bytes(std::span(found))));
    for (std::int32_t i = 0; i < count; ++i) {
      EXPECT_EQ(found[static_cast<std::size_t>(i)], i);
    }
    const absl::StatusOr<LeafValue> value = read->Value("a");
    ASSERT_OK(value);
    EXPECT_EQ(value->info.shape, shape);
    EXPECT_EQ(value->bytes.size(), static_cast<std::size_t>(4 * count));
    const auto report = store->Verify({.level = VerifyOptions::Level::kDeep});
    ASSERT_OK(report);
    for (const Finding& finding : report->findings) {
      ADD_FAILURE() << finding.what;
    }
  }
};

TEST_F(RanksEmptyBoxTest, OneRankHasAllOfIt) {
  InGroup(3, [&](RankGroup& group) {
    ASSERT_OK(SaveBoxes(group, 1, {1}, {{{0}, {1}}, {{1}, {0}}, {{1}, {0}}}));
    // The same again; another rank has it; an empty box in the middle.
    ASSERT_OK(SaveBoxes(group, 2, {1}, {{{0}, {1}}, {{1}, {0}}, {{1}, {0}}}));
    ASSERT_OK(SaveBoxes(group, 3, {1}, {{{0}, {0}}, {{0}, {1}}, {{1}, {0}}}));
    ASSERT_OK(SaveBoxes(group, 4, {8}, {{{0}, {8}}, {{3}, {0}}, {{8}, {0}}}));
    ASSERT_OK(
        SaveBoxes(group, 5, {2, 3},
                  {{{0, 0}, {1, 3}}, {{1, 0}, {1, 3}}, {{2, 0}, {0, 3}}}));
  });
  // So small that it stands in its record, and not.
  InGroup(2, [&](RankGroup& group) {
    ASSERT_OK(SaveBoxes(group, 6, {500}, {{{0}, {0}}, {{0}, {500}}}));
    ASSERT_OK(SaveBoxes(group, 7, {500}, {{{0}, {500}}, {{500}, {0}}}));
  });
  const std::string copy = path() + "-copy";
  const std::string recovered = path() + "-recovered";
  {
    const Store from = Store::Open(path(), ToRead(QuietOptions())).value();
    EXPECT_EQ(from.OpenStep(1)->Detail("a")->boxes.size(), 3U);
    Store to = Store::Open(copy, QuietOptions()).value();
    const auto copied = Copy(from, &to);
    ASSERT_OK(copied);
    for (const CopiedStep& step : copied->steps) {
      EXPECT_EQ(step.result, CopiedStep::Result::kCopied) << step.why;
    }
  }
  ASSERT_OK(Recover(path(), recovered));
  for (const std::string& of : {std::string(), copy, recovered}) {
    for (const std::int64_t step : {1, 2, 3}) ExpectArray(step, {1}, 1, of);
    ExpectArray(4, {8}, 8, of);
    ExpectArray(5, {2, 3}, 6, of);
    for (const std::int64_t step : {6, 7}) ExpectArray(step, {500}, 500, of);
  }
}

TEST_F(RanksEmptyBoxTest, NobodyHasAnElement) {
  InGroup(2, [&](RankGroup& group) {
    ASSERT_OK(SaveBoxes(group, 1, {0}, {{{0}, {0}}, {{0}, {0}}}));
    ASSERT_OK(
        SaveBoxes(group, 2, {0, 4}, {{{0, 0}, {0, 4}}, {{0, 0}, {0, 4}}}));
    ASSERT_OK(
        SaveBoxes(group, 3, {0, 4}, {{{0, 0}, {0, 2}}, {{0, 2}, {0, 2}}}));
    ASSERT_OK(
        SaveBoxes(group, 4, {0, 4}, {{{0, 0}, {0, 4}}, {{0, 2}, {0, 2}}}));
  });
  ExpectArray(1, {0}, 0);
  for (const std::int64_t step : {2, 3, 4}) ExpectArray(step, {0, 4}, 0);
}

TEST_F(RanksEmptyBoxTest, WhatIsRefusedBesideThem) {
  InGroup(2, [&](RankGroup& group) {
    const auto refused = [&](const Shape& global,
                             const std::vector<BoxOf>& boxes, const char* why) {
      EXPECT_THAT(SaveBoxes(group, 1, global, boxes),
                  StatusIs(absl::StatusCode::kInvalidArgument,
                           AllOf(HasSubstr("a"), HasSubstr(why))));
    };
    refused({4}, {{{0}, {0}}, {{4}, {0}}}, "0 of 4 elements were put");
    refused({4}, {{{0}, {4}}, {{0}, {4}}}, "a was put by ranks 0 and 1");
    refused({4}, {{{0}, {4}}, {{2}, {2}}},
            "a was put whole by rank 0, and a box of it by rank 1");
    refused({4}, {{{2}, {2}}, {{0}, {4}}},
            "a was put whole by rank 1, and a box of it by rank 0");
    EXPECT_OK(SaveAll(group, 1));
  });
  ExpectStore({1}, 2);
}

}  // namespace
}  // namespace ckptree::testing
