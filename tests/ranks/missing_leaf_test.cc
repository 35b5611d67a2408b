// SPDX-License-Identifier: Apache-2.0

// A leaf that one rank has and another does not is named, whoever would save it
// and whatever the step before had.

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/ranks/fixture.h"

namespace ckptree::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr int kWorld = 2;
// Enough that each rank is the one that saves some.
constexpr const char* kNames[] = {"a", "b", "c", "d", "e", "f", "g", "h"};

class RanksMissingLeafTest : public RanksTest {
 protected:
  // All of kNames, on `rank` without `missing`.
  static absl::Status SaveWithout(RankGroup& group, std::int64_t step, int rank,
                                  const std::string& missing) {
    StepBuilder builder = group.Begin(step);
    for (const char* name : kNames) {
      if (group.rank() != rank || missing != name) builder.PutInt(name, 1);
    }
    return std::move(builder).Commit().WaitCommitted(kLong);
  }
  static void ExpectNamed(RankGroup& group, std::int64_t* step) {
    for (int rank = 0; rank < kWorld; ++rank) {
      for (const char* name : kNames) {
        EXPECT_THAT(SaveWithout(group, ++*step, rank, name),
                    StatusIs(absl::StatusCode::kInvalidArgument,
                             HasSubstr(absl::StrFormat(
                                 ": %s was put by rank %d and not by rank %d",
                                 name, 1 - rank, rank))));
      }
    }
  }
};

TEST_F(RanksMissingLeafTest, OfTheFirstStep) {
  InGroup(kWorld, [&](RankGroup& group) {
    std::int64_t step = 0;
    ExpectNamed(group, &step);
    ASSERT_OK(SaveWithout(group, ++step, -1, ""));
  });
}

TEST_F(RanksMissingLeafTest, ThatTheStepBeforeHad) {
  InGroup(kWorld, [&](RankGroup& group) {
    std::int64_t step = 0;
    ASSERT_OK(SaveWithout(group, ++step, -1, ""));
    ExpectNamed(group, &step);
    ASSERT_OK(SaveWithout(group, ++step, -1, ""));
    ASSERT_OK(SaveWithout(group, ++step, -1, ""));
    ExpectNamed(group, &step);
  });
}

// Rank 0 has all of it for all ranks, rank 1 has it, too: as a box, or as its
// own.
TEST_F(RanksMissingLeafTest, PutWholeByOneAndAnotherWayByTheOther) {
  InGroup(kWorld, [&](RankGroup& group) {
    const std::vector<float> values(8, 1);
    std::int64_t step = 0;
    for (const bool by_box : {true, false}) {
      for (const char* name : kNames) {
        StepBuilder builder = group.Begin(++step);
        Tensor tensor;
        tensor.dtype = DType::kFloat32;
        tensor.shape = {8};
        tensor.data = values.data();
        if (group.rank() == 1 && by_box) {
          tensor.shape = {4};
          tensor.start = {4};
          tensor.global_shape = {8};
        }
        if (group.rank() == 1 && !by_box) builder.SetPerRank(name);
        builder.Put(name, tensor);
        EXPECT_THAT(
            std::move(builder).Commit().WaitCommitted(kLong),
            StatusIs(absl::StatusCode::kInvalidArgument,
                     AllOf(HasSubstr(absl::StrFormat(
                               ": %s was put whole by rank 0, as what all "
                               "ranks have alike, and by rank 1 as its own",
                               name)),
                           Not(HasSubstr("not by rank 1")))));
      }
    }
    EXPECT_OK(SaveAll(group, 100));
  });
  ExpectStore({100}, kWorld);
}

}  // namespace
}  // namespace ckptree::testing
