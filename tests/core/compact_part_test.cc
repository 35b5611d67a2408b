// SPDX-License-Identifier: Apache-2.0

// What a save is compared with says of each leaf what its record said, and of
// two versions which blocks died, as their records do.

#include "core/version/compact_part.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "base/digest.h"
#include "core/version/base_part.h"
#include "core/version/dead_blocks.h"
#include "schema/leaf_record.h"

namespace ckptree::internal {
namespace {

using schema::Space;

std::shared_ptr<const schema::EncodedTree> SomeTree() {
  return std::make_shared<const schema::EncodedTree>();
}

// The same part with its records and in columns.
struct Both {
  BasePart records;
  std::shared_ptr<const CompactPart> columns;
};

void AddTo(const std::shared_ptr<const BaseLeaf>& leaf, bool whole,
           CompactPartBuilder* columns, BasePart* records) {
  const schema::LeafRecord& record = leaf->record;
  CompactPartBuilder::NewLeaf added;
  added.at = {0, 1, leaf->place, leaf->version, leaf->source};
  added.value = leaf->value_digest;
  added.since = {record.since_version, record.since_step};
  added.byte_length = record.byte_length;
  added.record_bytes = leaf->encoded_bytes;
  for (const Statistics& statistics : record.statistics) {
    added.nan += statistics.nan;
    added.inf += statistics.inf;
  }
  if (!IsCompact(record.is_inline, whole, record.byte_length, record.chunks)) {
    added.record = std::make_shared<const schema::LeafRecord>(record);
  } else if (!record.is_inline) {
    added.chunk = &record.chunks[0];
  }
  columns->Add(std::move(added));
  records->leaves.push_back(leaf);
}

// Saves in a row, each of which leaves most leaves as they were.
class Saves {
 public:
  explicit Saves(std::uint32_t seed) : random_(seed) {}

  // Of `from`, null for the first, each leaf with its neighbours in packs.
  Both Next(const Both* from, std::size_t leaves, bool all_records) {
    ++version_;
    Both next;
    CompactPartBuilder builder(from == nullptr ? nullptr : from->columns.get(),
                               leaves);
    for (std::uint32_t i = 0; i < leaves; ++i) {
      const bool known = from != nullptr && i < from->records.leaves.size();
      const bool changed = !known || random_() % 5 == 0;
      if (!changed && !all_records) {
        const auto& old = from->records.leaves[i];
        builder.Keep(i, {0, 1, old->place, old->version, old->source});
        next.records.leaves.push_back(old);
        continue;
      }
      bool whole = true;
      std::shared_ptr<const BaseLeaf> leaf =
          changed ? Changed(i, &whole)
                  : Again(*from->records.leaves[i], i, &whole);
      AddTo(leaf, whole, &builder, &next.records);
    }
    next.columns = builder.Finish(SomeTree(), 0);
    for (const auto& leaf : next.records.leaves) {
      next.records.map.Append(leaf->place, leaf->version, leaf->source);
    }
    return next;
  }

 private:
  std::shared_ptr<const BaseLeaf> Changed(std::uint32_t i, bool* whole) {
    auto leaf = std::make_shared<BaseLeaf>();
    schema::LeafRecord& record = leaf->record;
    record.since_version = version_;
    record.since_step = static_cast<std::int64_t>(10 * version_);
    record.byte_length = 300;
    if (i % 3 == 0) {
      record.is_inline = true;
      record.byte_length = 3;
      record.inline_value = absl::StrFormat("%03d", random_() % 1000);
    } else {
      const std::size_t chunks = i % 7 == 1 ? 3 : 1;
      record.byte_length *= chunks;
      for (std::size_t c = 0; c < chunks; ++c) {
        schema::ChunkRef& ref = record.chunks.emplace_back();
        ref.version = version_;
        ref.n = chunks == 1 ? 1 + i / 16 : 1000 + 4 * i + std::uint32_t(c);
        ref.length = 300;
        ref.offset = chunks == 1 ? 300 * (i % 16) : 0;
        ref.block_length = chunks == 1 ? 4800 : 300;
        ref.digest = base::DigestOf(absl::StrFormat("%d", random_()));
      }
      *whole = i % 11 != 2;
    }
    if (i % 13 == 0) {
      record.statistics.resize(1);
      record.statistics[0].nan = 1 + random_() % 3;
      record.statistics[0].inf = random_() % 2;
    }
    return Written(std::move(leaf), i);
  }

  // Its record once more, in this version.
  std::shared_ptr<const BaseLeaf> Again(const BaseLeaf& old, std::uint32_t i,
                                        bool* whole) {
    auto leaf = std::make_shared<BaseLeaf>();
    leaf->record = old.record;
    *whole = i % 11 != 2 || old.record.is_inline;
    return Written(std::move(leaf), i);
  }

  std::shared_ptr<const BaseLeaf> Written(std::shared_ptr<BaseLeaf> leaf,
                                          std::uint32_t i) {
    leaf->value_digest = schema::ValueDigest(leaf->record);
    leaf->version = version_;
    leaf->source = i;
    leaf->place = version_ % 2 == 0 ? Space::kSmall : Space::kLeaves;
    leaf->encoded_bytes = 40 + i % 5;
    return leaf;
  }

  std::mt19937 random_;
  std::uint64_t version_ = 0;
};

void ExpectAlike(const Both& both) {
  const CompactPart& part = *both.columns;
  ASSERT_EQ(part.size(), both.records.leaves.size());
  std::uint64_t bytes = 0, record_bytes = 0;
  auto nonfinite = part.nonfinite().begin();
  for (std::size_t i = 0; i < part.size(); ++i) {
    const BaseLeaf& leaf = *both.records.leaves[i];
    const schema::LeafRecord& record = leaf.record;
    EXPECT_EQ(part.value(i), leaf.value_digest);
    EXPECT_EQ(part.since(i), (Since{record.since_version, record.since_step}));
    EXPECT_EQ(part.record_bytes(i), leaf.encoded_bytes);
    EXPECT_EQ(part.is_inline(i), record.is_inline);
    if (part.record(i) != nullptr) {
      EXPECT_EQ(*part.record(i), record);
    } else if (!record.is_inline) {
      EXPECT_EQ(part.Reference(i, record.chunks[0].digest), record.chunks[0]);
    }
    if (!record.statistics.empty()) {
      ASSERT_NE(nonfinite, part.nonfinite().end());
      EXPECT_EQ(nonfinite->ordinal, i);
      EXPECT_EQ(nonfinite->nan, record.statistics[0].nan);
      EXPECT_EQ(nonfinite->inf, record.statistics[0].inf);
      ++nonfinite;
    }
    bytes += record.byte_length;
    record_bytes += leaf.encoded_bytes;
  }
  EXPECT_EQ(nonfinite, part.nonfinite().end());
  EXPECT_EQ(part.logical_bytes(), bytes);
  EXPECT_EQ(part.all_record_bytes(), record_bytes);
  EXPECT_EQ(part.map(), both.records.map);
  EXPECT_EQ(BlocksOfPart(part), BlocksOfPart(both.records));
}

TEST(CompactPartTest, SaysWhatTheRecordsSay) {
  constexpr std::uint32_t kSeed = 5;
  Saves saves(kSeed);
  Both base = saves.Next(nullptr, 300, false);
  ExpectAlike(base);
  std::size_t runs = 0;
  for (std::size_t round = 0; round < 30; ++round) {
    SCOPED_TRACE(round);
    // Leaves come and go, and now and then all records are made anew.
    Both next = saves.Next(&base, 250 + 7 * (round % 9), round % 10 == 9);
    ExpectAlike(next);
    const auto dead = DeadBlocks(base.columns.get(), *next.columns);
    EXPECT_EQ(dead, DeadBlocks(&base.records, next.records));
    runs += dead.size();
    base = std::move(next);
  }
  EXPECT_GT(runs, 1000u);
}

TEST(CompactPartTest, NothingIsDeadWithoutABaseAndOfTheSame) {
  Saves saves(6);
  const Both base = saves.Next(nullptr, 50, false);
  EXPECT_TRUE(DeadBlocks(nullptr, *base.columns).empty());
  EXPECT_TRUE(DeadBlocks(base.columns.get(), *base.columns).empty());
}

TEST(CompactPartTest, ALeafOfAPackTakesFewBytes) {
  constexpr std::uint32_t kLeaves = 100000;
  CompactPartBuilder builder(nullptr, kLeaves);
  for (std::uint32_t i = 0; i < kLeaves; ++i) {
    schema::ChunkRef ref;
    ref.version = 1;
    ref.n = 1 + i / 16;
    ref.length = 4096;
    ref.block_length = 1 << 16;
    CompactPartBuilder::NewLeaf leaf;
    leaf.at = {0, 1, Space::kLeaves, 1, i};
    leaf.since = {1, 0};
    leaf.byte_length = 4096;
    leaf.chunk = &ref;
    builder.Add(std::move(leaf));
  }
  const auto part = builder.Finish(SomeTree(), 0);
  EXPECT_LE(part->MemoryBytes() / kLeaves, 48u);
}

}  // namespace
}  // namespace ckptree::internal
