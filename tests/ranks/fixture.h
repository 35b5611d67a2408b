// SPDX-License-Identifier: Apache-2.0

// What the tests of several ranks in one process share: each rank is a thread.

#ifndef CKPTREE_TESTS_RANKS_FIXTURE_H_
#define CKPTREE_TESTS_RANKS_FIXTURE_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "ckptree/ckptree.h"
#include "ckptree/ranks.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/core/fixture.h"

namespace ckptree::testing {

class RanksTest : public ::testing::Test {
 protected:
  static constexpr std::int64_t kColumns = 8;
  static constexpr std::int64_t kRows = 5;  // Of each rank.

  std::string path() const { return dir_ / "store"; }

  static RankOptions Options(int rank, int world) {
    RankOptions options;
    options.rank = rank;
    options.world = world;
    options.job = "test";
    options.deadline = kLong;
    options.open_deadline = kLong;
    options.store = QuietOptions();
    options.store.collect = false;
    return options;
  }
  absl::StatusOr<RankGroup> Open(int rank, int world) const {
    return RankGroup::Open(path(), Options(rank, world));
  }

  // Runs `body` for each rank at once, on a thread of its own.
  static void OnAll(int world, const std::function<void(int rank)>& body) {
    std::vector<std::thread> threads;
    for (int rank = 0; rank < world; ++rank) {
      threads.emplace_back([&body, rank] { body(rank); });
    }
    for (std::thread& thread : threads) thread.join();
  }
  // The same with an open group.
  void InGroup(int world,
               const std::function<void(RankGroup& group)>& body) const {
    OnAll(world, [&](int rank) {
      absl::StatusOr<RankGroup> group = Open(rank, world);
      ASSERT_OK(group);
      body(*group);
      EXPECT_OK(group->Close());
    });
  }

  // What rank `rank` has of the array "w" of step `step`.
  static Bytes RowsOf(int rank, std::int64_t step) {
    return RandomBytes(static_cast<std::size_t>(kRows * kColumns * 4),
                       rank + 1000 * step);
  }
  static Bytes AllRows(int world, std::int64_t step) {
    Bytes all;
    for (int rank = 0; rank < world; ++rank) {
      const Bytes rows = RowsOf(rank, step);
      all.insert(all.end(), rows.begin(), rows.end());
    }
    return all;
  }
  // `bytes` outlive the builder.
  static Tensor Shard(int rank, int world, const Bytes& bytes) {
    Tensor tensor = Array(DType::kFloat32, {kRows, kColumns}, bytes);
    tensor.start = {kRows * rank, 0};
    tensor.global_shape = {kRows * world, kColumns};
    return tensor;
  }
  // "w" by its shards, "epoch" and "name" alike, "rng" of each rank.
  static void PutAll(StepBuilder* builder, int rank, int world,
                     std::int64_t step, const Bytes& rows) {
    builder->Put("w", Shard(rank, world, rows));
    builder->PutInt("epoch", step);
    builder->PutString("name", "run");
    builder->SetPerRank("rng");
    builder->PutInt("rng/" + std::to_string(rank), 100 * step + rank);
  }
  static absl::Status SaveAll(RankGroup& group, std::int64_t step) {
    const Bytes rows = RowsOf(group.rank(), step);
    StepBuilder builder = group.Begin(step);
    PutAll(&builder, group.rank(), group.world(), step, rows);
    return std::move(builder).Commit().WaitCommitted(kLong);
  }

  // Reads step `step` of PutAll() by another way than the ranks had.
  void ExpectStep(const Store& store, std::int64_t step, int world) const {
    absl::StatusOr<Step> read = store.OpenStep(step);
    ASSERT_OK(read);
    const Bytes all = AllRows(world, step);
    Bytes found(all.size());
    ASSERT_OK(read->Read("w", found));
    EXPECT_TRUE(found == all);
    EXPECT_EQ(*read->Value("epoch")->Int(), step);
    EXPECT_EQ(*read->Value("name")->String(), "run");
    std::vector<std::string> names;
    const auto leaves = read->Leaves();
    ASSERT_OK(leaves);
    for (const LeafInfo& leaf : *leaves) names.push_back(leaf.name);
    std::vector<std::string> wanted = {"epoch", "name", "w"};
    for (int rank = 0; rank < world; ++rank) {
      const std::string name = "rng/" + std::to_string(rank);
      wanted.push_back(name);
      EXPECT_EQ(*read->Value(name)->Int(), 100 * step + rank);
    }
    EXPECT_THAT(names, ::testing::UnorderedElementsAreArray(wanted));
  }
  // Opens the store anew; the steps are these, each as ExpectStep() says, and
  // nothing is wrong.
  void ExpectStore(const std::vector<std::int64_t>& steps, int world) const {
    absl::StatusOr<Store> store = Store::Open(path(), ToRead(QuietOptions()));
    ASSERT_OK(store);
    std::vector<std::int64_t> numbers;
    const auto listed = store->Steps();
    ASSERT_OK(listed);
    for (const StepInfo& info : *listed) numbers.push_back(info.step);
    EXPECT_EQ(numbers, steps);
    for (const std::int64_t step : steps) ExpectStep(*store, step, world);
    const auto report = store->Verify({.level = VerifyOptions::Level::kDeep});
    ASSERT_OK(report);
    for (const Finding& finding : report->findings) {
      ADD_FAILURE() << finding.what;
    }
  }

  TempDir dir_;
};

}  // namespace ckptree::testing

#endif  // CKPTREE_TESTS_RANKS_FIXTURE_H_
