// SPDX-License-Identifier: Apache-2.0

// Budgets: what steps need together, against what deleting the others frees.

#include <algorithm>
#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/core/fixture.h"

namespace ckptree::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using BudgetTest = CoreTest;

// What costs nothing to keep is not worth a step: the bytes of all blocks that
// the kept steps need, against those that deleting the others frees.
TEST_F(BudgetTest, BudgetCountsSharedBytesOnce) {
  constexpr int kParts = 6;
  std::mt19937_64 random(11);
  std::vector<Bytes> parts;
  for (int i = 0; i < kParts; ++i) {
    parts.push_back(RandomBytes(20'000, random()));
  }
  std::int64_t number = 100;
  const auto save = [&](std::int64_t step) {
    StepBuilder builder = store_->Begin(step);
    for (int i = 0; i < kParts; ++i) {
      auto& part = parts[static_cast<std::size_t>(i)];
      if (random() % 3 == 0) part = RandomBytes(20'000, random());
      builder.Put(absl::StrFormat("p%d", i), Uint8s(part));
    }
    ASSERT_OK(Commit(std::move(builder)));
  };
  for (int round = 0; round < 40; ++round) {
    save(number += static_cast<std::int64_t>(1 + random() % 3));
    const std::vector<std::int64_t> steps = StepNumbers();
    if (round % 5 == 4) {
      ASSERT_OK(store_->Delete(steps[random() % (steps.size() - 1)]));
    }
    if (round % 7 == 6) {
      ASSERT_OK(store_->Pin(StepNumbers()[random() % 3]));
    }
    if (round % 11 == 10) {
      ASSERT_OK(store_->Collect());
    }
  }
  const std::vector<std::int64_t> steps = StepNumbers();
  // All of them, and the pins, which stay whatever is deleted.
  std::vector<StepSelector> all;
  for (const std::int64_t step : steps) all.push_back(AtStep(step));
  const std::uint64_t everything = store_->WouldFree(all)->bytes;
  std::vector<std::uint64_t> need;  // By how many of the oldest go.
  for (std::size_t gone = 0; gone < steps.size(); ++gone) {
    std::vector<StepSelector> oldest;
    for (std::size_t i = 0; i < gone; ++i) {
      if (!store_->Resolve(all[i])->pinned) oldest.push_back(all[i]);
    }
    need.push_back(everything -
                   (oldest.empty() ? 0 : store_->WouldFree(oldest)->bytes));
  }
  EXPECT_LT(need.back(), need.front());
  for (std::size_t gone = 0; gone < steps.size(); ++gone) {
    for (const std::uint64_t budget : {need[gone], need[gone] - 1}) {
      std::size_t expected = 0;
      while (expected + 1 < steps.size() && need[expected] > budget) {
        ++expected;
      }
      ASSERT_OK_AND_ASSIGN(const PolicyReport report,
                           store_->PreviewPolicy("", Budget{budget}));
      for (std::size_t i = 0; i < steps.size(); ++i) {
        const bool pinned = store_->Resolve(all[i])->pinned;
        EXPECT_EQ(report.steps[i].kept, pinned || i >= expected)
            << "step " << steps[i] << ", budget " << budget;
      }
    }
  }
  // And as a save applies it, on a base whose tip is in memory.
  const std::uint64_t budget = need[steps.size() / 2];
  ASSERT_OK(store_->SetPolicy(Budget{budget}));
  for (int round = 0; round < 20; ++round) {
    save(number += 1);
    ASSERT_OK_AND_ASSIGN(const PolicyReport report, store_->PreviewPolicy());
    for (const PolicyVerdict& verdict : report.steps) {
      EXPECT_TRUE(verdict.kept) << verdict.step;
    }
    all.clear();
    for (const std::int64_t step : StepNumbers()) all.push_back(AtStep(step));
    EXPECT_LE(store_->WouldFree(all)->bytes, budget);
  }
  ExpectClean();
}

TEST_F(BudgetTest, BudgetWithStepsOutOfOrder) {
  for (const std::int64_t step : {50, 10, 40, 20, 30, 60}) {
    ASSERT_OK(
        Save(step, RandomBytes(10'000, static_cast<std::uint64_t>(step))));
  }
  for (std::size_t keep = 1; keep <= 6; ++keep) {
    ASSERT_OK_AND_ASSIGN(const PolicyReport report,
                         store_->PreviewPolicy("", Budget{keep * 10'500}));
    for (std::size_t i = 0; i < 6; ++i) {
      EXPECT_EQ(report.steps[i].kept, i >= 6 - keep) << keep << " " << i;
    }
  }
  // What the policy would drop at once is not saved, and drops nothing.
  ASSERT_OK(store_->SetPolicy(Budget{2 * 10'500}));
  EXPECT_EQ(Save(5, RandomBytes(10'000, 5)).code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(StepNumbers(), ElementsAre(10, 20, 30, 40, 50, 60));
  ASSERT_OK(Save(70, RandomBytes(10'000, 70)));
  EXPECT_THAT(StepNumbers(), ElementsAre(60, 70));
  ASSERT_OK(store_->Delete(70));
  ASSERT_OK(store_->SetPolicy(Budget{10'500}));
  EXPECT_THAT(*store_->ApplyPolicy(), IsEmpty());
  EXPECT_THAT(StepNumbers(), ElementsAre(60));
}

}  // namespace
}  // namespace ckptree::testing
