// SPDX-License-Identifier: Apache-2.0

// A step has as many leaves as it has paths, however many ranks saved it.

#include <cstddef>
#include <cstdint>
#include <limits>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "schema/limits.h"
#include "schema/part_handoff.h"
#include "schema/rank_message.h"
#include "tests/ranks/fixture.h"

namespace ckptree::testing {
namespace {

using ::testing::HasSubstr;

// One array of `global` rows of which a rank has `rows` from `start` on.
struct Piece {
  std::string name;
  std::int64_t start = 0;
  std::int64_t rows = 0;
  std::int64_t global = 0;
  float value = 0;
};

class RanksLeafCountTest : public RanksTest {
 protected:
  static absl::Status SavePieces(RankGroup& group, std::int64_t step,
                                 const std::vector<Piece>& pieces) {
    std::vector<std::vector<float>> values;
    StepBuilder builder = group.Begin(step);
    for (const Piece& piece : pieces) {
      values.emplace_back(static_cast<std::size_t>(piece.rows), piece.value);
    }
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      Tensor tensor;
      tensor.dtype = DType::kFloat32;
      tensor.shape = {pieces[i].rows};
      tensor.data = values[i].data();
      tensor.start = {pieces[i].start};
      tensor.global_shape = {pieces[i].global};
      builder.Put(pieces[i].name, tensor);
    }
    builder.PutInt("epoch", 1);
    return std::move(builder).Commit().WaitCommitted(kLong);
  }

  // What the step says of its leaves, and that `verify` counts the same.
  void ExpectCounts(std::int64_t step, std::uint64_t leaves,
                    std::uint64_t changed, std::uint64_t nonfinite) const {
    SCOPED_TRACE(step);
    absl::StatusOr<Store> store = Store::Open(path(), ToRead(QuietOptions()));
    ASSERT_OK(store);
    const absl::StatusOr<StepInfo> info = store->Resolve(AtStep(step));
    ASSERT_OK(info);
    EXPECT_EQ(info->leaf_count, leaves);
    EXPECT_EQ(info->changed_leaves, changed);
    EXPECT_EQ(info->nonfinite_leaves, nonfinite);
    EXPECT_EQ(store->OpenStep(step)->Leaves()->size(), leaves);
    const auto report = store->Verify(
        {.level = VerifyOptions::Level::kDeep, .steps = {AtStep(step)}});
    ASSERT_OK(report);
    EXPECT_EQ(report->leaves, leaves);
    for (const Finding& finding : report->findings) {
      ADD_FAILURE() << finding.what;
    }
  }
};

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

TEST_F(RanksLeafCountTest, AnArrayOfAllRanksIsOneLeaf) {
  constexpr int kWorld = 3;
  const auto w = [](int rank, float value) {
    return Piece{"w", 4 * rank, 4, 4 * kWorld, value};
  };
  const auto v = [](int rank, float value) {
    return Piece{"v", 4 * rank, 4, 4 * kWorld, value};
  };
  InGroup(kWorld, [&](RankGroup& group) {
    const int rank = group.rank();
    ASSERT_OK(SavePieces(group, 1, {w(rank, kNan), v(rank, 1)}));
    // Nothing, one rank's box, and a box of each of two leaves.
    ASSERT_OK(SavePieces(group, 2, {w(rank, kNan), v(rank, 1)}));
    ASSERT_OK(
        SavePieces(group, 3, {w(rank, kNan), v(rank, rank == 2 ? 2 : 1)}));
    ASSERT_OK(SavePieces(
        group, 4,
        {w(rank, rank == 1 ? kNan : 0.0f), v(rank, rank == 0 ? kNan : 1)}));
  });
  ExpectCounts(1, 3, 3, 1);
  ExpectCounts(2, 3, 0, 1);
  ExpectCounts(3, 3, 1, 1);
  ExpectCounts(4, 3, 2, 2);
}

// Ranks 0 and 1 have "a" between them, 2 and 3 have "b", and "c" all of them.
TEST_F(RanksLeafCountTest, RanksThatShareOtherLeaves) {
  constexpr int kWorld = 4;
  const auto pieces = [](int rank, float c) {
    return std::vector<Piece>{
        {rank < 2 ? "a" : "b", 2 * (rank % 2), 2, 4, kNan},
        {"c", 2 * rank, 2, 2 * kWorld, c}};
  };
  InGroup(kWorld, [&](RankGroup& group) {
    const int rank = group.rank();
    ASSERT_OK(SavePieces(group, 1, pieces(rank, 1)));
    ASSERT_OK(SavePieces(group, 2, pieces(rank, rank == 3 ? 5 : 1)));
  });
  ExpectCounts(1, 4, 4, 2);
  ExpectCounts(2, 4, 1, 2);
  // Ranks that were started again: what the base has is known from the store.
  InGroup(kWorld, [&](RankGroup& group) {
    const int rank = group.rank();
    ASSERT_OK(SavePieces(group, 3, pieces(rank, rank == 3 ? 5 : 1)));
    ASSERT_OK(SavePieces(group, 4, pieces(rank, rank == 0 ? kNan : 5)));
  });
  ExpectCounts(3, 4, 0, 2);
  ExpectCounts(4, 4, 1, 3);
}

// Some of it is enough, on any of them.
TEST_F(RanksLeafCountTest, LeavesOfUnknownHealthCountOnce) {
  constexpr int kWorld = 4;
  const auto pieces = [](int rank, float c) {
    return std::vector<Piece>{{rank < 2 ? "a" : "b", 2 * (rank % 2), 2, 4, 1},
                              {"c", 16 * rank, 16, 16 * kWorld, c},
                              {"none", 0, 0, 0, 0},
                              {"own" + std::to_string(rank), 0, 1, 1, 1}};
  };
  const auto run = [&](bool statistics, std::int64_t step, float changed) {
    OnAll(kWorld, [&](int rank) {
      RankOptions options = Options(rank, kWorld);
      options.store.statistics = statistics;
      absl::StatusOr<RankGroup> group =
          RankGroup::Open(path(), std::move(options));
      ASSERT_OK(group);
      ASSERT_OK(
          SavePieces(*group, step, pieces(rank, rank == 3 ? changed : 1)));
      EXPECT_OK(group->Close());
    });
    absl::StatusOr<Store> store = Store::Open(path(), ToRead(QuietOptions()));
    EXPECT_OK(store);
    return store->Resolve(AtStep(step))->unknown_leaves;
  };
  EXPECT_EQ(run(true, 1, 1), 0u);
  // "c", for its last 16 rows, and "b", whose last two leave the block of
  // those: they are less than half of it.
  EXPECT_EQ(run(false, 2, 2), 2u);
  // Nothing changed, and it is known now.
  EXPECT_EQ(run(true, 3, 2), 0u);
  EXPECT_EQ(run(true, 4, 3), 0u);
  EXPECT_EQ(run(false, 5, 4), 2u);
  ExpectCounts(1, 9, 9, 0);
  ExpectCounts(5, 9, 1, 0);
  absl::StatusOr<Store> store = Store::Open(path(), ToRead(QuietOptions()));
  ASSERT_OK(store);
  EXPECT_EQ(store->Resolve(LatestHealthy())->step, 4);
}

// A rank that has an empty box has no leaf.
TEST_F(RanksLeafCountTest, EmptyBoxesCountNothing) {
  InGroup(2, [&](RankGroup& group) {
    const int rank = group.rank();
    for (const std::int64_t step : {1, 2}) {
      ASSERT_OK(
          SavePieces(group, step,
                     {{"one", rank, 1 - rank, 1, kNan}, {"none", 0, 0, 0, 0}}));
    }
  });
  ExpectCounts(1, 3, 3, 1);
  ExpectCounts(2, 3, 0, 1);
}

// The same state by one process and by several.
TEST_F(RanksLeafCountTest, AsOneProcessCounts) {
  std::set<std::vector<std::uint64_t>> counts;
  for (const int world : {1, 2, 4}) {
    TempDir dir;
    OnAll(world, [&](int rank) {
      absl::StatusOr<RankGroup> group =
          RankGroup::Open(dir / "store", Options(rank, world));
      ASSERT_OK(group);
      for (const std::int64_t step : {1, 2}) {
        std::vector<Piece> pieces;
        for (int i = 0; i < 20; ++i) {
          const bool is_new = step == 2 && i % 5 == 0 && rank == world - 1;
          pieces.push_back({"w" + std::to_string(i), 8 / world * rank,
                            8 / world, 8,
                            i % 7 == 0 ? kNan
                            : is_new   ? 2
                                       : 1});
        }
        ASSERT_OK(SavePieces(*group, step, pieces));
      }
      EXPECT_OK(group->Close());
    });
    absl::StatusOr<Store> store =
        Store::Open(dir / "store", ToRead(QuietOptions()));
    ASSERT_OK(store);
    std::vector<std::uint64_t> of;
    const std::vector<StepInfo> steps = store->Steps().value();
    for (const StepInfo& info : steps) {
      of.insert(of.end(),
                {info.leaf_count, info.changed_leaves, info.nonfinite_leaves});
    }
    EXPECT_EQ(of, (std::vector<std::uint64_t>{21, 21, 3, 21, 3, 3})) << world;
    counts.insert(of);
  }
  EXPECT_EQ(counts.size(), 1u);
}

// No part has too many, and all of them together have one more than a step may.
// That there are a million is only said: to put them takes long.
TEST_F(RanksLeafCountTest, MoreLeavesThanAStepMayHave) {
  absl::StatusOr<Store> store = Store::Open(path(), QuietOptions());
  ASSERT_OK(store);
  constexpr std::uint64_t kMost = schema::kMaxLeaves;
  for (const std::uint64_t beyond : {1u, 0u}) {
    absl::StatusOr<RankedSave> save =
        RankedSave::Begin(store->Begin(1), {.world = 2});
    ASSERT_OK(save);
    std::vector<std::string> parts;
    for (int rank = 0; rank < 2; ++rank) {
      StepBuilder part = BeginPart(*store, save->plan(), rank);
      part.SetPerRank(Path()).PutInt("n" + std::to_string(rank), 1);
      const absl::StatusOr<std::string> built = FinishPart(std::move(part));
      ASSERT_OK(built);
      schema::PartToken token = schema::DecodePartToken(*built).value();
      schema::PartHandoff handoff =
          schema::DecodePartHandoff(token.handoff).value();
      EXPECT_EQ(handoff.record.leaf_count, 1u);
      if (rank == 1) handoff.record.leaf_count = kMost - 1 + beyond;
      token.handoff = schema::EncodePartHandoff(handoff);
      parts.push_back(schema::EncodePartToken(token));
    }
    const absl::Status saved =
        save->Commit(std::move(parts)).WaitCommitted(kLong);
    if (beyond == 0) {
      EXPECT_OK(saved);
      continue;
    }
    EXPECT_THAT(saved, StatusIs(absl::StatusCode::kInvalidArgument,
                                HasSubstr("1048577 leaves of all ranks "
                                          "together: a step has at most "
                                          "1048576")));
  }
  EXPECT_EQ(store->Resolve(AtStep(1))->leaf_count, kMost);
}

}  // namespace
}  // namespace ckptree::testing
