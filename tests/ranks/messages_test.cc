// SPDX-License-Identifier: Apache-2.0

// Plans and parts that a caller's messages brought damaged.

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/ranks/fixture.h"

namespace ckptree::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr int kWorld = 5;

using RanksMessagesTest = RanksTest;

std::string Damaged(std::string bytes) {
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  return bytes;
}

absl::StatusOr<std::string> BuildOne(const Store& store,
                                     const std::string& plan, int rank) {
  StepBuilder part = BeginPart(store, plan, rank);
  part.PutInt("epoch", 1);
  return FinishPart(std::move(part));
}

TEST_F(RanksMessagesTest, ADamagedPartIsNamedByItsPlace) {
  absl::StatusOr<Store> store = Store::Open(path(), QuietOptions());
  ASSERT_OK(store);
  for (std::size_t damaged = 0; damaged < kWorld; ++damaged) {
    absl::StatusOr<RankedSave> save =
        RankedSave::Begin(store->Begin(7), {.world = kWorld});
    ASSERT_OK(save);
    std::vector<std::string> parts;
    // In an order that is not that of the ranks.
    for (int rank = kWorld - 1; rank >= 0; --rank) {
      const auto part = BuildOne(*store, save->plan(), rank);
      ASSERT_OK(part);
      parts.push_back(*part);
    }
    parts[damaged] = Damaged(parts[damaged]);
    EXPECT_THAT(
        save->Commit(std::move(parts)).WaitCommitted(kLong),
        StatusIs(absl::StatusCode::kDataLoss,
                 AllOf(HasSubstr("step 7 was not saved"),
                       HasSubstr("part " + std::to_string(damaged + 1) +
                                 " of 5 given: part token: the checksum"))));
  }
  EXPECT_EQ(store->Steps()->size(), 0u);
}

TEST_F(RanksMessagesTest, ADamagedPlanHasNoStep) {
  absl::StatusOr<Store> store = Store::Open(path(), QuietOptions());
  ASSERT_OK(store);
  absl::StatusOr<RankedSave> save =
      RankedSave::Begin(store->Begin(7), {.world = kWorld});
  ASSERT_OK(save);
  EXPECT_LE(save->plan().size(), 80u);
  EXPECT_THAT(
      BuildOne(*store, Damaged(save->plan()), 1).status(),
      StatusIs(absl::StatusCode::kDataLoss,
               AllOf(HasSubstr("the part was not built: its plan: rank plan: "),
                     Not(HasSubstr("step ")))));
  // One that is whole says which it is.
  EXPECT_THAT(BuildOne(*store, save->plan(), kWorld).status(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("step 7: the part was not built: rank 5")));
}

TEST_F(RanksMessagesTest, APlanThatWasGivenUpTakesNoPart) {
  absl::StatusOr<Store> store = Store::Open(path(), QuietOptions());
  ASSERT_OK(store);
  absl::StatusOr<RankedSave> save =
      RankedSave::Begin(store->Begin(7), {.world = 1});
  ASSERT_OK(save);
  const std::string plan = save->plan();
  EXPECT_FALSE(save->Fail(absl::OkStatus()).WaitCommitted(kLong).ok());
  const auto refused = StatusIs(absl::StatusCode::kFailedPrecondition,
                                AllOf(HasSubstr("step 7: the part was not "
                                                "built"),
                                      HasSubstr("given up")));
  const Bytes bytes = RandomBytes(std::size_t{1} << 20, 7);
  StepBuilder part = BeginPart(*store, plan, 0);
  part.Put("w", Uint8s(bytes));
  EXPECT_THAT(FinishPart(std::move(part)).status(), refused);
  // Nor one that needs no file.
  StepBuilder small = BeginPart(*store, plan, 0);
  small.PutInt("epoch", 3);
  EXPECT_THAT(FinishPart(std::move(small)).status(), refused);
}

}  // namespace
}  // namespace ckptree::testing
