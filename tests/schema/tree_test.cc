// SPDX-License-Identifier: Apache-2.0

#include "schema/tree.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <ctime>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "schema/dead_list.h"
#include "schema/limits.h"
#include "schema/segment_record.h"
#include "tests/schema/samples.h"

namespace ckptree::schema {
namespace {

using ::testing::HasSubstr;

std::vector<TreeEntry> Layers(int count) {
  std::vector<TreeEntry> entries;
  for (int i = 0; i < count; ++i) {
    TreeEntry entry;
    entry.path = Path()
                     .Key("params")
                     .Key(absl::StrFormat("layer_%05d", i))
                     .Key("kernel")
                     .Encode();
    entry.dtype = DType::kBfloat16;
    entry.shape = {1024, 4096};
    entries.push_back(entry);
  }
  return entries;
}

TEST(TreeTest, PagesHoldTheEntriesInOrder) {
  const std::vector<TreeEntry> entries = Layers(1100);
  const auto tree = EncodeTree(entries);
  ASSERT_TRUE(tree.ok()) << tree.status();
  EXPECT_EQ(tree->digest, base::DigestOf(tree->root));
  const auto root = DecodeTreeRoot(tree->root);
  ASSERT_TRUE(root.ok()) << root.status();
  EXPECT_EQ(root->leaf_count, 1100u);
  EXPECT_EQ(root->entry_count, 1100u);
  ASSERT_EQ(root->pages.size(), 3u);
  std::vector<TreeEntry> all;
  for (std::size_t i = 0; i < 3; ++i) {
    const auto& [digest, bytes] = tree->pages[i];
    EXPECT_EQ(digest, base::DigestOf(bytes));
    EXPECT_EQ(root->pages[i].digest, digest);
    EXPECT_EQ(root->pages[i].first_ordinal, i * 512);
    const auto page = DecodeTreePage(bytes);
    ASSERT_TRUE(page.ok()) << page.status();
    EXPECT_EQ(page->entries.size(), root->pages[i].entry_count);
    EXPECT_EQ(page->entries[0].path, root->pages[i].first_path);
    all.insert(all.end(), page->entries.begin(), page->entries.end());
  }
  EXPECT_EQ(all, entries);
  EXPECT_LE(tree->pages[0].second.size(), 512u * 22);
}

TEST(TreeTest, AnEmptyTreeAndALeafAtTheRootAreTrees) {
  const auto empty = EncodeTree({});
  ASSERT_TRUE(empty.ok());
  EXPECT_TRUE(empty->pages.empty());
  EXPECT_EQ(DecodeTreeRoot(empty->root)->leaf_count, 0u);
  TreeEntry leaf;
  leaf.kind = EntryKind::kStr;
  const auto tree = EncodeTree({leaf});
  ASSERT_TRUE(tree.ok());
  EXPECT_EQ(DecodeTreePage(tree->pages[0].second)->entries[0], leaf);
}

TEST(TreeTest, PageRoundTripsEveryField) {
  const auto page = DecodeTreePage(EncodeTreePage({SampleEntries()}));
  ASSERT_TRUE(page.ok()) << page.status();
  EXPECT_EQ(page->entries, SampleEntries());
}

TEST(TreeTest, NamesWhatIsWrongWithEntries) {
  const auto refuse = [](auto change, const char* fault) {
    std::vector<TreeEntry> entries = SampleEntries();
    change(&entries);
    const absl::Status status = EncodeTree(entries).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << fault;
    EXPECT_THAT(std::string(status.message()), HasSubstr(fault));
  };
  using E = std::vector<TreeEntry>;
  EXPECT_TRUE(EncodeTree(SampleEntries()).ok());
  refuse([](E* e) { std::swap((*e)[4], (*e)[5]); },
         "rng: it stands after step");
  refuse([](E* e) { (*e)[5].path = (*e)[4].path; }, "rng: it is there twice");
  refuse(
      [](E* e) {
        (*e)[1].kind = EntryKind::kInt;
        (*e)[1].tag.clear();
      },
      "opt/.mu: it is below opt, which is a leaf (int)");
  refuse([](E* e) { e->back().tie_to = Path().Key("no").Encode(); },
         "tied: it is tied to no, which is no leaf");
  refuse([](E* e) { e->back().tie_to = (*e)[0].path; }, "which is no leaf");
  refuse([](E* e) { e->back().tie_to.clear(); }, "a tie without a target");
  refuse([](E* e) { (*e)[2].dtype = DType::kNone; }, "unknown element type");
  refuse([](E* e) { (*e)[2].dtype = static_cast<DType>(99); },
         "opt/.mu: an unknown element type");
  refuse([](E* e) { (*e)[2].packed = true; }, "packed");
  refuse([](E* e) { (*e)[2].shape = {-1}; }, "its shape");
  refuse([](E* e) { (*e)[2].shape.assign(65, 1); }, "its shape");
  refuse([](E* e) { (*e)[5].shape = {1}; }, "step: fields of an array");
  refuse([](E* e) { (*e)[5].tie_to = (*e)[4].path; }, "tied, but no tie");
  refuse([](E* e) { (*e)[5].kind = static_cast<EntryKind>(11); },
         "unknown kind");
  refuse([](E* e) { e->back().tag = "x"; }, "a tag on what can have none");
  refuse([](E* e) { (*e)[1].tag.assign(4097, 'x'); }, "its tag is too long");
  refuse([](E* e) { (*e)[0].path = "\x01"; }, "entry 0: a key is missing");
}

TEST(TreeTest, TiesMayPointForwardAndBack) {
  std::vector<TreeEntry> entries = SampleEntries();
  entries[0].kind = EntryKind::kTie;
  entries[0].tie_to = entries[5].path;
  EXPECT_TRUE(EncodeTree(entries).ok());
}

TEST(TreeTest, RandomTreesRoundTrip) {
  constexpr unsigned kSeed = 8;
  SCOPED_TRACE(kSeed);
  std::mt19937 random(kSeed);
  for (int round = 0; round < 300; ++round) {
    TreePage page;
    std::vector<std::string> paths;
    for (unsigned i = 0; i < 1 + random() % 60; ++i) {
      Path path;
      for (unsigned depth = 0; depth <= random() % 3; ++depth) {
        if (random() % 2 != 0) {
          path.Key(std::string(random() % 4, 'a'));
        } else {
          path.Index(random() % 300);
        }
      }
      paths.push_back(path.Encode());
    }
    std::sort(paths.begin(), paths.end());
    paths.erase(std::unique(paths.begin(), paths.end()), paths.end());
    for (const std::string& path : paths) {
      TreeEntry entry;
      entry.path = path;
      entry.kind = static_cast<EntryKind>(1 + random() % 10);
      if (entry.kind == EntryKind::kArray) {
        entry.dtype = static_cast<DType>(1 + random() % 34);
        entry.packed = IsSubByte(entry.dtype) && random() % 2 != 0;
        entry.shape.assign(random() % 4, random() % 9);
      }
      if (random() % 4 == 0) entry.tag = random() % 2 != 0 ? "one" : "two";
      page.entries.push_back(entry);
    }
    const auto decoded = DecodeTreePage(EncodeTreePage(page));
    ASSERT_TRUE(decoded.ok()) << decoded.status() << " round " << round;
    ASSERT_EQ(decoded->entries, page.entries) << "round " << round;
  }
}

TEST(TreeTest, PagesAreCheap) {
  const std::vector<TreeEntry> entries = Layers(100'000);
  const std::clock_t begin = std::clock();
  const auto tree = EncodeTree(entries);
  const std::clock_t middle = std::clock();
  std::size_t read = 0;
  for (const auto& [digest, bytes] : tree->pages) {
    read += DecodeTreePage(bytes)->entries.size();
  }
  const std::clock_t end = std::clock();
  EXPECT_EQ(read, entries.size());
  const auto nanoseconds = [](std::clock_t from, std::clock_t to) {
    return static_cast<double>(to - from) / CLOCKS_PER_SEC * 1e9 / 100'000;
  };
  // A figure for the log: machines differ, so nothing is asserted of it.
  std::printf("tree: %.1f bytes, encode %.0f, decode %.0f ns of CPU a leaf\n",
              static_cast<double>(tree->pages[0].second.size()) / 512,
              nanoseconds(begin, middle), nanoseconds(middle, end));
}

TEST(TreeRootTest, RefusesCountsThatCannotBe) {
  const auto refuse = [](auto change) {
    TreeRoot root = SampleRoot();
    change(&root);
    EXPECT_EQ(DecodeTreeRoot(EncodeTreeRoot(root)).status().code(),
              absl::StatusCode::kDataLoss);
  };
  refuse([](TreeRoot* r) { r->pages[0].entry_count = 513; });
  refuse([](TreeRoot* r) { r->pages[0].entry_count = 0; });
  refuse([](TreeRoot* r) { r->leaf_count = 600; });  // 100 in 12 entries.
  refuse([](TreeRoot* r) { r->leaf_count = 499; });
  refuse([](TreeRoot* r) { r->pages[1].first_path = r->pages[0].first_path; });
  refuse([](TreeRoot* r) { r->pages[0].first_path = "x"; });
}

TEST(DeadListTest, RunsAndBlocksAreInverse) {
  constexpr unsigned kSeed = 9;
  SCOPED_TRACE(kSeed);
  std::mt19937 random(kSeed);
  for (int round = 0; round < 500; ++round) {
    std::vector<Block> blocks;
    for (unsigned i = 0; i < 1 + random() % 60; ++i) {
      const bool chunk = random() % 2 != 0;
      blocks.push_back({chunk ? BlockKind::kChunk : BlockKind::kLeafRecord,
                        random() % 2 != 0 ? Space::kSmall
                        : chunk           ? Space::kChunks
                                          : Space::kLeaves,
                        1 + random() % 3,
                        1 + static_cast<std::uint32_t>(random() % 12)});
      Block& last = blocks.back();
      last.bytes = static_cast<std::uint32_t>(last.version) * 100 + last.n;
    }
    const std::vector<BlockRun> runs = RunsOf(blocks);
    std::sort(blocks.begin(), blocks.end());
    blocks.erase(std::unique(blocks.begin(), blocks.end()), blocks.end());
    std::vector<Block> again;
    std::uint64_t bytes = 0, bytes_of_runs = 0;
    for (const BlockRun& run : runs) {
      bytes_of_runs += run.bytes;
      for (std::uint32_t i = 0; i < run.count; ++i) {
        again.push_back({run.kind, run.place, run.version, run.first_n + i});
      }
    }
    for (const Block& block : blocks) bytes += block.bytes;
    EXPECT_EQ(again, blocks);
    EXPECT_EQ(bytes_of_runs, bytes);
    std::vector<Block> halves[2];
    for (const Block& block : blocks) halves[random() % 2].push_back(block);
    EXPECT_EQ(MergeRuns(RunsOf(halves[0]), RunsOf(halves[1])), runs);
    const DeadList list{1, 3, {{7, runs}}};
    const auto decoded = DecodeDeadList(EncodeDeadList(list));
    ASSERT_TRUE(decoded.ok()) << decoded.status() << " round " << round;
    EXPECT_EQ(*decoded, list);
  }
  EXPECT_TRUE(RunsOf({}).empty());
}

TEST(DeadListTest, RefusesWhatCannotBe) {
  const auto refuse = [](auto change, const char* fault) {
    DeadList list = SampleDead();
    change(&list);
    const absl::Status status = DecodeDeadList(EncodeDeadList(list)).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << fault;
    EXPECT_THAT(std::string(status.message()), HasSubstr(fault));
  };
  using L = DeadList;
  refuse([](L* l) { l->parts[0].runs.clear(); }, "without runs");
  refuse([](L* l) { l->parts[1].part = 0; }, "part 0");
  refuse([](L* l) { l->parts[1].part = 4096; }, "part 4096");
  refuse([](L* l) { l->prev = 7; }, "cannot refer to");
  refuse([](L* l) { l->parts[0].runs[0].version = 0; }, "cannot refer to");
  refuse([](L* l) { l->parts[0].runs[0].count = 0; }, "empty");
  refuse([](L* l) { l->parts[0].runs[0].first_n = 0; }, "not of blocks");
  refuse([](L* l) { l->parts[0].runs[0].bytes = 3; }, "cannot have");
  refuse([](L* l) { l->parts[0].runs[0].bytes = std::uint64_t{1} << 40; },
         "cannot have");
  refuse([](L* l) { l->parts[0].runs[0].count = 0xffffff; }, "not of blocks");
  refuse([](L* l) { l->parts[0].runs[2].first_n = 5; }, "could be one");
  refuse([](L* l) { l->parts[0].runs[0].place = Space::kChunks; },
         "blocks of kind 1 in space 3");
  refuse([](L* l) { l->parts[0].runs[1].kind = BlockKind::kHeader; },
         "blocks of kind 0");
}

TEST(SegmentTest, RefusesRowsThatCannotBe) {
  for (const SegmentRow& row :
       std::vector<SegmentRow>{{2, 1, 1, 1},
                               {1, 2, 3, 1},
                               {1, 2, 0, 1},
                               {0, 2, 1, 1},
                               {1, kTableSequence, 1, 1},
                               {1, BlockNumber(1, 1), 1, 1}}) {
    EXPECT_EQ(DecodeSegmentRow(EncodeSegmentRow(row)).status().code(),
              absl::StatusCode::kDataLoss);
  }
}

TEST(SegmentTest, RefusesDeadBlocksThatCannotBe) {
  const auto refuse = [](auto change, const char* fault) {
    SegmentRow row = SampleRow();
    change(&row);
    const absl::Status status =
        DecodeSegmentRow(EncodeSegmentRow(row)).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << fault;
    EXPECT_THAT(std::string(status.message()), HasSubstr(fault));
  };
  using R = SegmentRow;
  refuse([](R* r) { r->dead[0].count = 0; }, "that it does not have");
  refuse([](R* r) { r->dead[0].first = 0; }, "that it does not have");
  refuse([](R* r) { r->dead[1].first = 3; },
         "that it does not have");  // One run.
  refuse([](R* r) { r->dead[1].count = 6; }, "that it does not have");
  refuse([](R* r) { r->block_count = 5; }, "more dead");  // All of them.
  refuse([](R* r) { r->dead_bytes = 1001; }, "more dead");
  refuse([](R* r) { r->dead_bytes = 4; }, "more dead");
  refuse([](R* r) { r->dead.clear(); }, "more dead");
}

TEST(SegmentTest, BuriesEachBlockOnce) {
  constexpr unsigned kSeed = 4;
  SCOPED_TRACE(kSeed);
  std::mt19937 random(kSeed);
  for (int round = 0; round < 300; ++round) {
    SegmentRow row{1, 40, 40, 4000};
    std::set<std::uint32_t> dead;
    for (int i = 0; i < 30 && dead.size() < 39; ++i) {
      const auto first = static_cast<std::uint32_t>(random() % 42);
      const auto count = static_cast<std::uint32_t>(random() % 4);
      bool fits = count > 0 && first >= 1 && first + count <= 41;
      for (std::uint32_t s = first; s < first + count; ++s) {
        fits = fits && !dead.contains(s);
      }
      const SegmentRow before = row;
      EXPECT_EQ(MarkDead(first, count, 100ull * count, &row).ok(), fits);
      if (!fits) {
        EXPECT_EQ(row, before);
        continue;
      }
      for (std::uint32_t s = first; s < first + count; ++s) dead.insert(s);
      EXPECT_EQ(row.dead_count(), dead.size());
      EXPECT_EQ(row.dead_bytes, 100 * dead.size());
      for (std::uint32_t s = 0; s < 42; ++s) {
        EXPECT_EQ(row.IsDead(s), dead.contains(s)) << s;
      }
      if (dead.size() == 40) break;
      const auto decoded = DecodeSegmentRow(EncodeSegmentRow(row));
      ASSERT_TRUE(decoded.ok()) << decoded.status();
      EXPECT_EQ(*decoded, row);
    }
  }
}

TEST(SegmentTest, RefusesTablesThatCannotBe) {
  const auto refuse = [](auto change) {
    SegmentTable table = SampleTable();
    change(&table);
    EXPECT_EQ(DecodeSegmentTable(EncodeSegmentTable(table)).status().code(),
              absl::StatusCode::kDataLoss);
  };
  using T = SegmentTable;
  refuse([](T* t) { t->entries[1].n = t->entries[0].n; });
  refuse([](T* t) { t->entries[0].n = kTableSequence; });
  refuse([](T* t) { t->entries[0].slices.clear(); });
  refuse([](T* t) { t->entries[0].slices[0].offset = kMaxChunkBytes; });
  refuse([](T* t) { t->entries[0].slices[0].length = 0; });
  refuse([](T* t) { t->entries[0].slices[0].shape[0] = -3; });
  refuse([](T* t) { t->entries[0].slices[0].shape.push_back(1); });
  EXPECT_TRUE(DecodeSegmentTable(EncodeSegmentTable({})).ok());
}

}  // namespace
}  // namespace ckptree::schema
