// SPDX-License-Identifier: Apache-2.0

// Collection beside others: a branch goes while its tip is collected, a step is
// let go of, what was in the way is mended.

#include <cstdint>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "core/collect/chain_keeper.h"
#include "core/collect/collect_commit.h"
#include "core/collect/collect_plan.h"
#include "core/engine/engine.h"
#include "core/engine/store_engine.h"
#include "core/version/base_loader.h"
#include "kv/commit_kind.h"
#include "kv/database.h"
#include "schema/keys.h"
#include "tests/core/fixture.h"
#include "tests/core/waiting_tensor.h"

namespace ckptree::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class CollectReleaseTest : public CoreTest {
 protected:
  internal::Engine& engine() { return internal::StoreEngine::Of(*store_); }
  internal::ChainKeeper& keeper() { return engine().keeper(); }

  CollectReport Collect() {
    absl::StatusOr<CollectReport> report =
        store_->Collect({.min_dead_fraction = 0});
    EXPECT_OK(report);
    return report.ok() ? *std::move(report) : CollectReport();
  }
  // The commit that collects `step`, up to where it looks at the branch.
  void Plan(const internal::ChainStep& step, internal::CollectBatch* batch) {
    const kv::Database& database = engine().database();
    const auto record = internal::ReadVersion(database, step.version);
    ASSERT_OK(record);
    const auto parts = internal::PartsOf(database, *record);
    ASSERT_OK(parts);
    absl::StatusOr<internal::CollectPlan> plan = absl::UnknownError("");
    engine().arena().execute([&] {
      plan = internal::PlanCollect(
          step,
          [&](std::uint64_t version) { return batch->DeadListOf(version); },
          [&](std::uint64_t version) {
            return internal::ReadBlocks(database, version);
          });
    });
    ASSERT_OK(plan);
    ASSERT_OK(batch->Add(*plan, *parts));
  }
};

TEST_F(CollectReleaseTest, ABranchThatGoesWhileItsTipIsCollected) {
  ASSERT_OK(Save(1, RandomBytes(20000, 1)));
  ASSERT_OK(store_->Fork(1, "trial"));
  for (const int step : {2, 3}) {
    ASSERT_OK(Save(step, RandomBytes(20000, step), {.branch = "trial"}));
  }
  ASSERT_OK(store_->Delete({AtStep(3, "trial")}));
  const std::vector<internal::ChainStep> steps =
      keeper().Begin(keeper().Removed());
  ASSERT_THAT(steps, SizeIs(1));
  ASSERT_TRUE(steps[0].tip.has_value());
  internal::CollectBatch batch(engine().database());
  Plan(steps[0], &batch);
  ASSERT_OK(store_->DropBranch("trial"));
  absl::StatusOr<internal::CollectCommit> commit = batch.Finish();
  ASSERT_OK(commit);
  ASSERT_OK(
      engine().mutable_database()->Commit(std::move(commit->request)).status);
  keeper().End(steps);
  EXPECT_FALSE(keeper().chain().tips().contains(steps[0].branch));
  EXPECT_THAT(Collect().kept, IsEmpty());
  // Nor does it hold the step that it went on from.
  ASSERT_OK(Save(2, RandomBytes(20000, 4)));
  ASSERT_OK(store_->Delete({AtStep(1)}));
  EXPECT_THAT(Collect().kept, IsEmpty());
  EXPECT_THAT(keeper().Removed(), IsEmpty());
  ExpectClean();
}

TEST_F(CollectReleaseTest, WhatCouldNotBeCollectedIsTriedAgain) {
  for (const int step : {1, 2}) {
    ASSERT_OK(Save(step, RandomBytes(4 << 20, step)));
  }
  // Without the rows that its dead blocks would be marked in.
  kv::CommitRequest away;
  kv::CommitRequest back;
  away.kind = back.kind = kv::CommitKind::kCollect;
  for (std::uint8_t builder = 0; builder < 16; ++builder) {
    const std::string key =
        schema::SegmentKey(1, 0, schema::Space::kChunks, builder);
    const auto row = engine().database().Get(schema::Space::kRecords, key);
    ASSERT_OK(row);
    if (!row->has_value()) continue;
    away.batch.Delete(schema::Space::kRecords, key);
    back.batch.Put(schema::Space::kRecords, key, **row);
  }
  ASSERT_FALSE(back.batch.empty());
  ASSERT_OK(engine().mutable_database()->Commit(std::move(away)).status);
  ASSERT_OK(store_->Delete({AtStep(1)}));
  const CollectReport failed = Collect();
  ASSERT_THAT(failed.kept, SizeIs(1));
  EXPECT_THAT(failed.kept[0].why, HasSubstr("is missing"));
  ASSERT_OK(engine().mutable_database()->Commit(std::move(back)).status);
  // Whoever asks what is kept hears it, too.
  const absl::StatusOr<UsageReport> usage = store_->Usage();
  ASSERT_OK(usage);
  ASSERT_THAT(usage->kept, SizeIs(1));
  EXPECT_THAT(usage->kept[0].why, HasSubstr("is missing"));
  EXPECT_EQ(usage->pending_bytes, 0u);
  const CollectReport mended = Collect();
  EXPECT_THAT(mended.kept, IsEmpty());
  EXPECT_EQ(mended.versions, 1u);
  EXPECT_THAT(store_->Usage()->kept, IsEmpty());
  ExpectClean();
}

TEST_F(CollectReleaseTest, TheLastWhoLetsGoTells) {
  for (const int step : {1, 2, 3}) {
    ASSERT_OK(Save(step, RandomBytes(20000, step)));
  }
  int told = 0;
  keeper().OnReleased([&told] { ++told; });
  std::optional<Step> first = Restored(AtStep(2));
  std::optional<Step> second = Restored(AtStep(2));
  { const Step listed = Restored(AtStep(1)); }
  ASSERT_OK(store_->Delete({AtStep(2)}));
  EXPECT_THAT(Collect().kept, SizeIs(1));
  first.reset();
  EXPECT_EQ(told, 0);
  second.reset();
  EXPECT_EQ(told, 1);
  EXPECT_THAT(Collect().kept, IsEmpty());
}

TEST_F(CollectReleaseTest, ASaveThatEndsTells) {
  for (const int step : {1, 2}) {
    ASSERT_OK(Save(step, RandomBytes(20000, step)));
  }
  int told = 0;
  keeper().OnReleased([&told] { ++told; });
  absl::Notification go;
  StepBuilder builder = store_->Begin(3);
  builder.Put("w", WaitingFor(go));
  SaveHandle save = std::move(builder).Submit();
  // It has its base.
  while (save.Progress().phase != Progress::Phase::kWriting) {
    std::this_thread::yield();
  }
  ASSERT_OK(store_->Delete({AtStep(2)}));
  EXPECT_THAT(Collect().kept, SizeIs(1));
  EXPECT_EQ(told, 0);
  go.Notify();
  ASSERT_OK(save.WaitCommitted(kLong));
  EXPECT_EQ(told, 1);
  EXPECT_THAT(Collect().kept, IsEmpty());
}

TEST_F(CollectReleaseTest, TheBackgroundHearsOfIt) {
  StoreOptions options = Options();
  options.collect = true;
  Open(options);
  for (const int step : {1, 2, 3}) {
    ASSERT_OK(Save(step, RandomBytes(20000, step)));
  }
  std::optional<Step> held = Restored(AtStep(2));
  ASSERT_OK(store_->Delete({AtStep(2)}));
  EXPECT_THAT(Collect().kept, SizeIs(1));
  held.reset();
  const absl::Time end = absl::Now() + kLong;
  while (!keeper().Removed().empty() && absl::Now() < end) {
    std::this_thread::yield();
  }
  EXPECT_THAT(keeper().Removed(), IsEmpty());
}

}  // namespace
}  // namespace ckptree::testing
