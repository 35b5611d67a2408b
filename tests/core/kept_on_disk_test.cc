// SPDX-License-Identifier: Apache-2.0

// Which versions a disk keeps that keeps what a policy says of each branch.

#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/engine/engine.h"
#include "core/engine/store_engine.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kv/database.h"
#include "schema/keys.h"
#include "tests/core/fixture.h"

namespace ckptree::testing {
namespace {

using internal::KeptVersions;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class KeptOnDiskTest : public CoreTest {
 protected:
  void SaveInts(const std::vector<std::int64_t>& steps,
                const std::string& branch = "") {
    for (const std::int64_t step : steps) {
      StepBuilder builder = store_->Begin(step, {.branch = branch});
      builder.PutInt("count", step);
      ASSERT_OK(Commit(std::move(builder)));
    }
  }
  absl::StatusOr<KeptVersions> Ask(const Preservation& policy) {
    return internal::StoreEngine::Of(*store_).retention().KeptOnDisk(policy);
  }
  // The listed steps that are kept, those of the main branch first.
  std::vector<std::string> Kept(const Preservation& policy) {
    const absl::StatusOr<KeptVersions> kept = Ask(policy);
    EXPECT_OK(kept);
    std::vector<std::string> steps;
    for (const std::string branch : {"", "b"}) {
      const auto infos = store_->Steps(branch);
      if (!kept.ok() || !infos.ok()) continue;
      for (const StepInfo& info : *infos) {
        if (kept->Has(info.version)) {
          steps.push_back(absl::StrCat(branch, info.step));
        }
      }
    }
    return steps;
  }
};

TEST_F(KeptOnDiskTest, APolicyHoldsForEachBranchByItself) {
  SaveInts({1, 2, 3, 4, 5});
  ASSERT_OK(store_->Fork(3, "b"));
  SaveInts({4, 5, 6}, "b");
  EXPECT_THAT(Kept(LatestN{2}), ElementsAre("4", "5", "b5", "b6"));
  EXPECT_THAT(Kept(EveryNSteps{4}), ElementsAre("4", "5", "b4", "b6"));
  EXPECT_THAT(Kept(PreserveAll{}),
              ElementsAre("1", "2", "3", "4", "5", "b4", "b5", "b6"));
}

TEST_F(KeptOnDiskTest, WhatABranchGoesOnFromIsKept) {
  SaveInts({1, 5, 3});
  // The newest by its number, and what the next save is compared with.
  EXPECT_THAT(Kept(LatestN{0}), ElementsAre("3", "5"));
  SaveInts({6});
  EXPECT_THAT(Kept(LatestN{0}), ElementsAre("6"));
  ASSERT_OK(store_->Fork(1, "b"));
  EXPECT_THAT(Kept(LatestN{0}), ElementsAre("1", "6"));
  SaveInts({2}, "b");
  EXPECT_THAT(Kept(LatestN{0}), ElementsAre("6", "b2"));
}

TEST_F(KeptOnDiskTest, ARemovedTipIsKeptUntilItIsCollected) {
  SaveInts({1, 2, 3, 4});
  const std::uint64_t tip = store_->Resolve(AtStep(4))->version;
  const std::uint64_t before = store_->Resolve(AtStep(3))->version;
  // So that the numbers of later versions say nothing of it.
  ASSERT_OK(store_->Fork(1, "b"));
  SaveInts({2}, "b");
  ASSERT_OK(store_->Delete({AtStep(3), AtStep(4)}));
  ASSERT_OK_AND_ASSIGN(const KeptVersions kept, Ask(LatestN{1}));
  EXPECT_TRUE(kept.Has(tip));
  EXPECT_FALSE(kept.Has(before));
  EXPECT_THAT(Kept(LatestN{1}), ElementsAre("2", "b2"));
  ASSERT_OK(store_->Collect());
  ASSERT_OK_AND_ASSIGN(const KeptVersions later, Ask(LatestN{1}));
  EXPECT_FALSE(later.Has(tip));
}

TEST_F(KeptOnDiskTest, PinsAndTagsKeepNothingHere) {
  SaveInts({1, 2, 3});
  ASSERT_OK(store_->Pin(1));
  ASSERT_OK(store_->Tag("good", 2));
  EXPECT_THAT(Kept(LatestN{1}), ElementsAre("3"));
}

TEST_F(KeptOnDiskTest, WhatIsSavedSinceIsKept) {
  SaveInts({1, 2});
  ASSERT_OK_AND_ASSIGN(const KeptVersions kept, Ask(LatestN{1}));
  SaveInts({3});
  EXPECT_FALSE(kept.Has(store_->Resolve(AtStep(1))->version));
  EXPECT_TRUE(kept.Has(store_->Resolve(AtStep(3))->version));
}

TEST_F(KeptOnDiskTest, ABudgetCountsNoPins) {
  for (std::int64_t step = 1; step <= 4; ++step) {
    ASSERT_OK(Save(step, RandomBytes(100'000, step)));
  }
  ASSERT_OK(store_->Pin(1));
  EXPECT_THAT(Kept(Budget{250'000}), ElementsAre("3", "4"));
  EXPECT_THAT(Kept(Budget{1}), ElementsAre("4"));
}

TEST_F(KeptOnDiskTest, APolicyThatCannotBeAskedIsAnError) {
  SaveInts({1, 2});
  const absl::Status missing = Ask(KeepIf{.name = "mine"}).status();
  EXPECT_EQ(missing.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(missing.message()), HasSubstr("'mine'"));
  EXPECT_EQ(Ask(KeepIf{.name = "mine",
                       .function = [](const PolicyStep&) -> bool {
                         throw std::runtime_error("no");
                       }})
                .status()
                .code(),
            absl::StatusCode::kInternal);
  EXPECT_EQ(Ask(LatestN{-1}).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_F(KeptOnDiskTest, WhereRowsAreDamagedNobodyKnows) {
  SaveInts({1, 2, 3});
  kv::CommitRequest request;
  request.batch.Put(schema::Space::kRecords, schema::StepKey(0, 2), "no row");
  ASSERT_OK(internal::StoreEngine::Of(*store_)
                .mutable_database()
                ->Commit(std::move(request))
                .status);
  Open();
  const absl::Status status = Ask(LatestN{1}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("step 2"));
}

}  // namespace
}  // namespace ckptree::testing
