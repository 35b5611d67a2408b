// SPDX-License-Identifier: Apache-2.0

// Which segments kept versions need, compared with the trees of real stores
// after random saves, forks, deletions and collections.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <map>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "ckptree/ckptree.h"
#include "core/collect/chain.h"
#include "core/collect/chain_keeper.h"
#include "core/collect/collect_plan.h"
#include "core/engine/engine.h"
#include "core/engine/store_engine.h"
#include "core/remote/needed_segments.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kv/database.h"
#include "schema/dead_list.h"
#include "schema/keys.h"
#include "tests/core/fixture.h"
#include "tests/remote/segment_judge.h"

namespace ckptree::testing {
namespace {

using internal::Chain;
using internal::Engine;
using internal::SegmentNeeds;
using internal::StoreEngine;
using schema::BlockRun;
using schema::DeadPart;
using schema::Space;
using ::testing::HasSubstr;

class NeededSegmentsStoreTest : public CoreTest {
 protected:
  static constexpr std::size_t kLeaf = 384 << 10;
  static constexpr int kLeaves = 8;

  static StoreOptions Options() {
    StoreOptions options = CoreTest::Options();
    options.chunk_bytes = kLeaf;
    return options;
  }

  // Two leaves are a small save, three of them are not.
  void SaveSome(const std::string& branch, std::mt19937_64* random) {
    std::vector<Bytes>& leaves = leaves_[branch];
    const auto count = 1 + (*random)() % 5;
    for (std::uint64_t i = 0; i < count; ++i) {
      const std::uint64_t number = ++written_;
      std::memcpy(leaves[(*random)() % leaves.size()].data(), &number,
                  sizeof(number));
    }
    StepBuilder builder = store_->Begin(++step_, {.branch = branch});
    for (int i = 0; i < kLeaves; ++i) {
      builder.Put(absl::StrFormat("w%d", i),
                  Uint8s(leaves[static_cast<std::size_t>(i)]));
    }
    ASSERT_OK(Commit(std::move(builder)));
  }

  void DoSome(int branches, std::mt19937_64* random) {
    const auto at =
        std::next(leaves_.begin(),
                  static_cast<std::ptrdiff_t>((*random)() % leaves_.size()));
    const std::string branch = at->first;
    const std::uint64_t what = (*random)() % 10;
    const std::vector<StepInfo> steps = store_->Steps(branch).value();
    if (what < 5 || steps.empty()) return SaveSome(branch, random);
    const StepInfo& step = steps[(*random)() % steps.size()];
    const StepSelector chosen = AtStep(step.step, branch);
    if (what < 6) {
      if (static_cast<int>(leaves_.size()) >= branches) return;
      const std::string name = absl::StrFormat("b%d", leaves_.size());
      ASSERT_OK(store_->Fork(chosen, name));
      leaves_[name] = leaves_[branch];
    } else if (what < 9) {
      ASSERT_OK(store_->Delete(chosen));
    } else {
      ASSERT_OK(store_->Collect());
    }
  }

  void CompareAll(Met* met, std::mt19937_64* random) {
    Engine& engine = StoreEngine::Of(*store_);
    const Chain chain = engine.keeper().chain();
    auto segments = internal::ListChunkSegments(engine.database());
    ASSERT_OK(segments);
    ASSERT_OK_AND_ASSIGN(
        const SegmentNeeds needs,
        internal::ReadSegmentNeeds(engine.database(), *std::move(segments)));
    std::map<std::uint64_t, std::set<Segment>> has;
    for (const auto& [version, link] : chain.versions()) {
      absl::StatusOr<std::vector<DeadPart>> blocks = absl::UnknownError("");
      engine.arena().execute([&, v = version] {
        blocks = internal::ReadBlocks(engine.database(), v);
      });
      ASSERT_OK(blocks);
      for (const DeadPart& part : *blocks) {
        for (const BlockRun& run : part.runs) {
          if (run.place != Space::kChunks) continue;
          has[version].insert(
              {run.version, part.part, schema::BuilderOf(run.first_n)});
        }
      }
    }
    Judge judge(needs, chain, std::move(has), met);
    judge.CompareAll(random);
    for (const Preservation& policy :
         {Preservation(LatestN{0}), Preservation(LatestN{2}),
          Preservation(EveryNSteps{3})}) {
      const auto kept = engine.retention().KeptOnDisk(policy);
      ASSERT_OK(kept);
      judge.CompareKept(*kept);
    }
  }

  Met RunStores(int branches, int count) {
    Met met;
    for (int i = 0; i < count; ++i) {
      const auto seed = static_cast<std::uint64_t>(i);
      SCOPED_TRACE(absl::StrFormat("%d branches, seed %d", branches, seed));
      std::mt19937_64 random(seed);
      const TempDir dir;
      absl::StatusOr<Store> store = Store::Open(dir / "store", Options());
      EXPECT_OK(store);
      if (!store.ok()) return met;
      store_.emplace(*std::move(store));
      leaves_.clear();
      for (int leaf = 0; leaf < kLeaves; ++leaf) {
        leaves_[""].push_back(RandomBytes(kLeaf, leaf));
      }
      for (int step = 0; step < 30; ++step) {
        DoSome(branches, &random);
        if (step % 3 == 2) CompareAll(&met, &random);
        if (HasFatalFailure()) return met;
      }
      store_.reset();
    }
    return met;
  }

  std::map<std::string, std::vector<Bytes>> leaves_;  // By branch.
  std::uint64_t written_ = 0;
  std::int64_t step_ = 0;
};

TEST_F(NeededSegmentsStoreTest, OfOneBranchIsWhatTheTreesSay) {
  const Met met = RunStores(1, 10);
  EXPECT_GT(met.may_go, 100);
  EXPECT_GT(met.of_collected, 100);
  EXPECT_GT(met.shared, 100);
  EXPECT_GT(met.partly_dead, 100);
  EXPECT_EQ(met.kept_too_long, 0);
}

TEST_F(NeededSegmentsStoreTest, OfBranchesIsWhatTheTreesSay) {
  const Met met = RunStores(3, 10);
  EXPECT_GT(met.may_go, 100);
  EXPECT_GT(met.with_branches, 10);
  EXPECT_GT(met.shared, 100);
  EXPECT_GT(met.partly_dead, 100);
}

TEST_F(NeededSegmentsStoreTest, AListThatDoesNotDecodeIsNamed) {
  std::mt19937_64 random(1);
  for (int leaf = 0; leaf < kLeaves; ++leaf) {
    leaves_[""].push_back(RandomBytes(kLeaf, leaf));
  }
  SaveSome("", &random);
  SaveSome("", &random);
  Engine& engine = StoreEngine::Of(*store_);
  kv::CommitRequest request;
  request.batch.Put(Space::kRecords, schema::DeadKey(2), "no list");
  ASSERT_OK(engine.mutable_database()->Commit(std::move(request)).status);
  auto segments = internal::ListChunkSegments(engine.database());
  ASSERT_OK(segments);
  const auto needs =
      internal::ReadSegmentNeeds(engine.database(), *std::move(segments));
  EXPECT_EQ(needs.status().code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(
      std::string(needs.status().message()),
      HasSubstr(schema::DescribeKey(Space::kRecords, schema::DeadKey(2))));
}

}  // namespace
}  // namespace ckptree::testing
