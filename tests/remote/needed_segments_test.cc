// SPDX-License-Identifier: Apache-2.0

// Which segments kept versions need, by the dead lists, compared with the trees
// of random histories, which the rules of saves and collection make in memory.

#include "core/remote/needed_segments.h"

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "core/collect/chain.h"
#include "core/collect/collect_plan.h"
#include "core/version/dead_blocks.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "schema/dead_list.h"
#include "schema/keys.h"
#include "schema/segment_record.h"
#include "tests/remote/segment_judge.h"
#include "tests/testutil/status_matchers.h"

namespace ckptree::testing {
namespace {

using internal::BaseLeaf;
using internal::BasePart;
using internal::Chain;
using internal::ChainLink;
using internal::ChainStep;
using internal::ChunkSegment;
using internal::CollectPlan;
using internal::SegmentNeeds;
using schema::BlockNumber;
using schema::BlockRun;
using schema::DeadList;
using schema::DeadPart;
using schema::Space;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Saves, forks, removals and collections, by the rules of the engine: the dead
// lists of DeadBlocks(), the order of Chain, the plans of PlanCollect().
class History {
 public:
  History(std::uint64_t seed, int branches)
      : random_(seed), branches_(branches) {
    chain_.SetTip(0, 0);
  }

  void Step() {
    const std::uint64_t what = random_() % 10;
    if (what < 5 || trees_.empty()) {
      Save();
    } else if (what < 6) {
      Fork();
    } else if (what < 9) {
      Remove();
    } else {
      Collect();
    }
  }

  void Compare(Met* met) {
    std::vector<ChunkSegment> segments;
    for (const auto& [name, row] : rows_) {
      const auto& [version, part, builder] = name;
      segments.push_back({{version, part, Space::kChunks, builder}, row});
    }
    SegmentNeeds needs(std::move(segments));
    for (const auto& [version, list] : lists_) {
      ASSERT_OK(needs.Add(version, list));
    }
    std::map<std::uint64_t, std::set<Segment>> has;
    for (const auto& [version, tree] : trees_) {
      for (const auto& [part, base] : tree) {
        for (const schema::Block& block : internal::BlocksOfPart(*base)) {
          if (block.place != Space::kChunks) continue;
          has[version].insert(
              {block.version, part, schema::BuilderOf(block.n)});
        }
      }
    }
    Judge(needs, chain_, std::move(has), met).CompareAll(&random_);
  }

 private:
  using Tree = std::map<std::uint16_t, std::shared_ptr<BasePart>>;
  static constexpr std::uint32_t kBytes = 100;
  static constexpr std::size_t kLeaves = 4;

  bool OneIn(int n) { return random_() % static_cast<std::uint64_t>(n) == 0; }

  template <typename Map>
  auto Any(Map& map) {
    return std::next(map.begin(),
                     static_cast<std::ptrdiff_t>(random_() % map.size()));
  }

  void Save() {
    const auto [branch, tip] = *Any(chain_.tips());
    const std::uint64_t version = ++newest_;
    const Tree base = tip != 0 ? trees_.at(tip) : Tree();
    const bool small = OneIn(4);
    Tree tree;
    for (std::uint16_t part = 0; part < 2; ++part) {
      if (part == 1 && OneIn(3)) continue;
      const auto before = base.find(part);
      tree[part] = SavePart(
          version, part, before == base.end() ? nullptr : before->second.get(),
          small);
    }
    DeadList list;
    list.branch = branch;
    list.prev = tip;
    for (const auto& [part, of_base] : base) {
      const auto now = tree.find(part);
      std::vector<BlockRun> runs = internal::DeadBlocks(
          of_base.get(), now == tree.end() ? BasePart() : *now->second);
      if (!runs.empty()) list.parts.push_back({part, std::move(runs)});
    }
    lists_[version] = std::move(list);
    trees_[version] = std::move(tree);
    ChainLink link;
    link.prev = tip;
    link.branch = branch;
    chain_.Add(version, std::move(link));
    chain_.SetTip(branch, version);
  }

  std::shared_ptr<BasePart> SavePart(std::uint64_t version, std::uint16_t part,
                                     const BasePart* base, bool small) {
    std::map<std::uint8_t, std::uint32_t> sequences;
    const auto written = [&] {
      schema::ChunkRef ref;
      ref.place = small ? Space::kSmall : Space::kChunks;
      ref.version = version;
      ref.part = part;
      const auto builder = static_cast<std::uint8_t>(small ? 0 : random_() % 2);
      ref.n = BlockNumber(builder, ++sequences[builder]);
      ref.block_length = kBytes;
      return ref;
    };
    auto saved = std::make_shared<BasePart>();
    const bool all = base == nullptr;
    for (std::uint32_t i = 0; i < kLeaves; ++i) {
      if (!all && !OneIn(3)) {
        saved->leaves.push_back(base->leaves[i]);
        continue;
      }
      auto leaf = std::make_shared<BaseLeaf>();
      leaf->version = version;
      leaf->source = i;
      leaf->place = small ? Space::kSmall : Space::kLeaves;
      leaf->encoded_bytes = kBytes;
      for (std::size_t chunk = 0; chunk < 2; ++chunk) {
        leaf->record.chunks.push_back(
            all || OneIn(2) ? written()
                            : base->leaves[i]->record.chunks[chunk]);
      }
      saved->leaves.push_back(std::move(leaf));
    }
    for (const auto& [builder, count] : sequences) {
      if (small) continue;
      schema::SegmentRow& row = rows_[{version, part, builder}];
      row.first_n = BlockNumber(builder, 1);
      row.last_n = BlockNumber(builder, count);
      row.block_count = count;
      row.bytes = std::uint64_t{count} * kBytes;
    }
    return saved;
  }

  void Fork() {
    if (static_cast<int>(chain_.tips().size()) >= branches_) return;
    const auto at = Any(chain_.versions());
    if (!at->second.removed) chain_.SetTip(++branch_, at->first);
  }

  void Remove() {
    if (OneIn(10) && chain_.tips().size() > 1) {
      const std::uint32_t branch = chain_.tips().rbegin()->first;
      chain_.DropBranch(branch);
      std::vector<std::uint64_t> of_branch;
      for (const auto& [version, link] : chain_.versions()) {
        if (link.branch == branch) of_branch.push_back(version);
      }
      for (const std::uint64_t version : of_branch) chain_.Remove(version);
      return;
    }
    chain_.Remove(Any(chain_.versions())->first);
  }

  void Collect() {
    bool again = true;
    while (again) {
      again = false;
      for (const std::uint64_t version : std::set(chain_.removed())) {
        if (!chain_.MayGo(version) || OneIn(4)) continue;
        CollectOne(version);
        again = true;
      }
    }
  }

  void CollectOne(std::uint64_t version) {
    const ChainStep step = chain_.StepOf(version);
    absl::StatusOr<CollectPlan> plan = internal::PlanCollect(
        step, [this](std::uint64_t v) { return lists_.at(v); },
        [this](std::uint64_t v) {
          std::vector<DeadPart> blocks;
          for (const auto& [part, base] : trees_.at(v)) {
            blocks.push_back(
                {part, schema::RunsOf(internal::BlocksOfPart(*base))});
          }
          return blocks;
        });
    ASSERT_OK(plan);
    for (const DeadPart& part : plan->freed) {
      for (const BlockRun& run : part.runs) {
        if (run.place != Space::kChunks) continue;
        const auto row = rows_.find(
            {run.version, part.part, schema::BuilderOf(run.first_n)});
        ASSERT_NE(row, rows_.end());
        ASSERT_OK(schema::MarkDead(schema::SequenceOf(run.first_n), run.count,
                                   run.bytes, &row->second));
        if (row->second.dead_count() == row->second.block_count) {
          rows_.erase(row);
        }
      }
    }
    if (step.successor != 0) lists_[step.successor] = plan->successor_list;
    lists_.erase(version);
    trees_.erase(version);
    chain_.Collect(step);
  }

  std::mt19937_64 random_;
  const int branches_;
  Chain chain_;
  std::uint64_t newest_ = 0;
  std::uint32_t branch_ = 0;
  std::map<std::uint64_t, Tree> trees_;
  std::map<std::uint64_t, DeadList> lists_;
  std::map<Segment, schema::SegmentRow> rows_;
};

Met RunHistories(int branches, int count) {
  Met met;
  for (int i = 0; i < count; ++i) {
    const auto seed = static_cast<std::uint64_t>(i);
    SCOPED_TRACE(absl::StrFormat("%d branches, seed %d", branches, seed));
    History history(seed, branches);
    for (int step = 0; step < 24; ++step) {
      history.Step();
      if (step % 6 == 5) history.Compare(&met);
      if (::testing::Test::HasFatalFailure()) return met;
    }
  }
  return met;
}

TEST(NeededSegmentsTest, OfOneBranchIsWhatTheTreesSay) {
  const Met met = RunHistories(1, 1000);
  EXPECT_GT(met.may_go, 1000);
  EXPECT_GT(met.of_collected, 1000);
  EXPECT_GT(met.shared, 1000);
  EXPECT_GT(met.partly_dead, 1000);
  EXPECT_EQ(met.kept_too_long, 0);
}

TEST(NeededSegmentsTest, OfBranchesIsWhatTheTreesSayWhereTheNewestAreKept) {
  for (const int branches : {2, 4}) {
    const Met met = RunHistories(branches, 700);
    EXPECT_GT(met.may_go, 1000);
    EXPECT_GT(met.with_branches, 1000);
    EXPECT_GT(met.shared, 1000);
    EXPECT_GT(met.partly_dead, 1000);
    EXPECT_GT(met.kept_too_long, 0);
  }
}

// ---- what lists may not say, and what nobody knows ----

ChunkSegment SegmentOf(std::uint64_t version, std::uint32_t blocks) {
  schema::SegmentRow row;
  row.first_n = BlockNumber(0, 1);
  row.last_n = BlockNumber(0, blocks);
  row.block_count = blocks;
  row.bytes = 100 * blocks;
  return {{version, 0, Space::kChunks, 0}, row};
}

DeadList ListOf(std::uint64_t prev, std::vector<BlockRun> runs = {}) {
  DeadList list;
  list.prev = prev;
  if (!runs.empty()) list.parts.push_back({0, std::move(runs)});
  return list;
}

BlockRun RunOf(std::uint64_t version, std::uint32_t first,
               std::uint32_t count) {
  return {
      schema::BlockKind::kChunk, Space::kChunks, version,
      BlockNumber(0, first),     count,          100 * std::uint64_t{count}};
}

TEST(NeededSegmentsTest, WhatNobodyKnowsIsNeeded) {
  SegmentNeeds needs({SegmentOf(3, 2), SegmentOf(7, 2)});
  ASSERT_OK(needs.Add(3, ListOf(0)));
  ASSERT_OK(needs.Add(5, ListOf(3, {RunOf(3, 1, 2)})));
  EXPECT_THAT(needs.NeededBy({{5}, 5}), ElementsAre(false, true));
  EXPECT_THAT(needs.NeededBy({{3}, 5}), ElementsAre(true, true));
}

TEST(NeededSegmentsTest, WhatWasSavedSinceIsKept) {
  SegmentNeeds needs({SegmentOf(3, 2), SegmentOf(5, 2), SegmentOf(7, 2)});
  ASSERT_OK(needs.Add(3, ListOf(0)));
  ASSERT_OK(needs.Add(5, ListOf(3, {RunOf(3, 1, 1)})));
  ASSERT_OK(needs.Add(7, ListOf(5, {RunOf(5, 1, 2)})));
  EXPECT_THAT(needs.NeededBy({{}, 7}), ElementsAre(false, false, false));
  EXPECT_THAT(needs.NeededBy({{}, 6}), ElementsAre(true, false, true));
  EXPECT_THAT(needs.NeededBy({{}, 3}), ElementsAre(true, true, true));
}

TEST(NeededSegmentsTest, AListThatCannotBeIsNamed) {
  const std::vector<ChunkSegment> segments = {SegmentOf(3, 2)};
  SegmentNeeds blocks(segments);
  ASSERT_OK(blocks.Add(3, ListOf(0)));
  const absl::Status beyond = blocks.Add(5, ListOf(3, {RunOf(3, 2, 2)}));
  EXPECT_EQ(beyond.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(beyond.message(), HasSubstr("of version 5 names blocks"));
  SegmentNeeds chain(segments);
  ASSERT_OK(chain.Add(5, ListOf(2)));
  const absl::Status torn = chain.Add(8, ListOf(6));
  EXPECT_EQ(torn.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(torn.message(), HasSubstr("follows version 6"));
  EXPECT_EQ(chain.Add(9, ListOf(9)).code(), absl::StatusCode::kDataLoss);
}

}  // namespace
}  // namespace ckptree::testing
