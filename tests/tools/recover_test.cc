// SPDX-License-Identifier: Apache-2.0

// `ckptree recover` on stores that are damaged in every way there is.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "ckptree/ckptree.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/testutil/flip_byte.h"
#include "tests/testutil/status_matchers.h"
#include "tests/tools/recover_fixture.h"

namespace ckptree {
namespace {

namespace fs = std::filesystem;
using ::testing::Contains;
using ::testing::ElementsAre;
using testing::FlipByte;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;
using Json = nlohmann::json;

TEST_F(RecoverTest, AWholeStoreIsCopied) {
  const Json report = Recover(0);
  EXPECT_EQ(report["steps_saved"], 5);
  EXPECT_THAT(report["notes"], IsEmpty());
  ASSERT_OK_AND_ASSIGN(const Store from,
                       Store::Open(source_, {.read_only = true}));
  ASSERT_OK_AND_ASSIGN(const Store to,
                       Store::Open(destination_, {.read_only = true}));
  const auto before = from.Steps().value();
  const auto after = to.Steps().value();
  for (std::size_t i = 0; i < before.size(); ++i) {
    EXPECT_EQ(after[i].digest, before[i].digest);
    EXPECT_EQ(after[i].note, before[i].note);
    EXPECT_EQ(after[i].new_bytes, before[i].new_bytes);  // Shared again.
    EXPECT_EQ(after[i].begun, before[i].begun);
    EXPECT_EQ(after[i].staged, before[i].staged);
    EXPECT_EQ(after[i].committed, before[i].committed);
    const auto old_step = from.OpenStep(AtStep(before[i].step)).value();
    const auto new_step = to.OpenStep(AtStep(before[i].step)).value();
    EXPECT_EQ(new_step.Metadata()->lineage, old_step.Metadata()->lineage);
  }
}

TEST_F(RecoverTest, WithoutOneCopyOfTheJournal) {
  const std::string whole = made_->directory / "source";
  for (const std::string copy : {"a-", "b-"}) {
    ASSERT_THAT(JournalFiles(copy), Not(IsEmpty()));
    for (const std::string& path : JournalFiles(copy)) fs::remove(path);
    fs::remove_all(destination_);
    EXPECT_EQ(Recover(0)["steps_saved"], 5) << copy;
    fs::remove_all(source_);
    fs::copy(whole, source_, fs::copy_options::recursive);
  }
}

TEST_F(RecoverTest, WithoutCurrent) {
  fs::remove(Db("CURRENT"));
  EXPECT_EQ(Recover(0)["steps_saved"], 5);
}

TEST_F(RecoverTest, WithoutManifest) {
  for (const std::string& path : DbFiles("MANIFEST", "")) fs::remove(path);
  EXPECT_EQ(Recover(0)["steps_saved"], 5);
}

TEST_F(RecoverTest, ARemovedStepStaysRemovedWithoutManifest) {
  {
    ASSERT_OK_AND_ASSIGN(Store store, Store::Open(source_));
    ASSERT_OK(store.Delete(40));
    ASSERT_OK(store.Close());
  }
  ASSERT_OK(Store::Open(source_)->Close());
  model_.erase(40);
  for (const std::string& path : DbFiles("MANIFEST", "")) fs::remove(path);
  EXPECT_EQ(Recover(0)["steps_saved"], 4);
}

TEST_F(RecoverTest, WithAManifestCutAnywhere) {
  const std::string path = DbFiles("MANIFEST", "").back();
  const std::string whole = ReadFile(path);
  for (const std::size_t parts : {1u, 4u, 6u, 7u}) {
    std::ofstream(path, std::ios::binary | std::ios::trunc)
        << whole.substr(0, whole.size() * parts / 8);
    fs::remove_all(destination_);
    EXPECT_EQ(Recover(0)["steps_saved"], 5) << parts;
  }
}

TEST_F(RecoverTest, AFlippedBitCostsTheLeavesOfItsChunk) {
  // The array of step 50 is one of three chunks or so.
  FlipByte(NewestChunks(), fs::file_size(NewestChunks()) / 2);
  const Json report = Recover(1);
  EXPECT_THAT(LostLeaves(report, 50), ElementsAre("own/w"));
  for (const int step : {10, 20, 30, 40}) {
    EXPECT_THAT(LostLeaves(report, step), IsEmpty());
  }
  const Result log = Run({"-C", destination_, "log", "--json"});
  EXPECT_THAT(log.out, HasSubstr("[recovered: 1 of 610 leaves lost] note"));
  // The same for people.
  fs::remove_all(destination_);
  const Result text = Run({"recover", source_, destination_});
  EXPECT_EQ(text.code, 1);
  EXPECT_THAT(text.out, HasSubstr("lost: step 50: own/w: "));
  EXPECT_THAT(text.out, HasSubstr("1 LEAF LOST"));
}

TEST_F(RecoverTest, AFlippedBitWithoutManifestCostsNoMore) {
  FlipByte(NewestChunks(), fs::file_size(NewestChunks()) / 2);
  for (const std::string& path : DbFiles("MANIFEST", "")) fs::remove(path);
  const Json report = Recover(1);
  EXPECT_THAT(LostLeaves(report, 50), ElementsAre("own/w"));
}

TEST_F(RecoverTest, ADeletedChunkTableCostsItsLeaves) {
  fs::remove(NewestChunks());
  const Json report = Recover(1);
  EXPECT_THAT(LostLeaves(report, 50), ElementsAre("own/w"));
  for (const int step : {10, 20, 30, 40}) {
    EXPECT_THAT(LostLeaves(report, step), IsEmpty());
  }
}

TEST_F(RecoverTest, ACutChunkTableCostsItsLeaves) {
  fs::resize_file(NewestChunks(), fs::file_size(NewestChunks()) / 2);
  const Json report = Recover(1);
  EXPECT_THAT(LostLeaves(report, 50), ElementsAre("own/w"));
}

// Of leaf records there are two copies.
TEST_F(RecoverTest, ADeletedLeafTableCostsNothing) {
  ASSERT_THAT(leaf_tables_, Not(IsEmpty()));
  for (const std::string& path : leaf_tables_) {
    ASSERT_TRUE(fs::remove(path));
    fs::remove_all(destination_);
    EXPECT_EQ(Recover(0)["steps_saved"], 5);
    fs::copy(made_->directory / "source/db" / fs::path(path).filename(), path);
  }
}

TEST_F(RecoverTest, BothTablesOfLeavesDeletedCostTheirLeavesAndTheirTies) {
  // All tables that are neither of chunks nor of rows.
  for (const std::string& path : TablesOfLeaves()) fs::remove(path);
  const Json report = Recover(1);
  for (const int step : {20, 30, 40, 50}) {
    const auto lost = LostLeaves(report, step);
    EXPECT_GE(lost.size(), static_cast<std::size_t>(kManyLeaves)) << step;
    EXPECT_THAT(lost, Contains("many/w17"));
  }
  EXPECT_THAT(LostLeaves(report, 20), Contains("big/tied"));
  EXPECT_THAT(LostLeaves(report, 10), IsEmpty());
}

TEST_F(RecoverTest, BothCopiesOfTheNewestCommitCostThatCommit) {
  // What a killed trainer leaves: rows in the journal alone.
  const std::string live = scratch_ / "live";
  {
    ASSERT_OK_AND_ASSIGN(Store store, Store::Open(source_));
    StepBuilder builder = store.Begin(60);
    builder.PutInt("count", 60);
    ASSERT_OK(std::move(builder).Commit().WaitCommitted(absl::Minutes(1)));
    const std::vector<std::byte> own = testing::RandomBytes(kBigBytes, 4);
    StepBuilder large = store.Begin(70);
    large.Put("own/w", {.dtype = DType::kUint8,
                        .shape = {static_cast<std::int64_t>(own.size())},
                        .data = own.data()});
    ASSERT_OK(std::move(large).Commit().WaitCommitted(absl::Minutes(1)));
    fs::copy(source_, live, fs::copy_options::recursive);
    ASSERT_OK(store.Close());
  }
  fs::remove_all(source_);
  fs::rename(live, source_);
  model_ = ContentOf(source_);
  ASSERT_THAT(model_, SizeIs(7));
  const std::string a = JournalFiles("a-").back();
  const std::string b = JournalFiles("b-").back();
  const std::string whole_a = ReadFile(a);
  const std::string whole_b = ReadFile(b);
  // One copy is enough, also without the MANIFEST.
  FlipByte(a, LastByte(whole_a));
  EXPECT_EQ(Recover(0)["steps_saved"], 7);
  FlipByte(a, LastByte(whole_a));
  FlipByte(b, LastByte(whole_b));
  fs::remove_all(destination_);
  EXPECT_EQ(Recover(0)["steps_saved"], 7);
  // Without both the last commit is gone: a large save, of which the segments
  // are there.
  FlipByte(a, LastByte(whole_a));
  fs::remove_all(destination_);
  const Json report = Recover(1);
  EXPECT_EQ(report["steps_saved"], 6);
  EXPECT_THAT(report["losses"].dump(), HasSubstr("acknowledged"));
  EXPECT_THAT(report["losses"].dump(), HasSubstr("save 7: the row"));
  // And so without the MANIFEST.
  for (const std::string& path : DbFiles("MANIFEST", "")) fs::remove(path);
  fs::remove_all(destination_);
  EXPECT_EQ(Recover(1)["steps_saved"], 6);
}

TEST_F(RecoverTest, ADamagedRowTableCostsNothing) {
  // Hundreds of steps, so that their rows fill many blocks of one table.
  {
    ASSERT_OK_AND_ASSIGN(Store store, Store::Open(source_));
    for (int step = 100; step < 400; ++step) {
      StepBuilder builder = store.Begin(step);
      builder.PutInt("count", step);
      builder.SetCustomMetadata("{\"pad\":\"" + std::string(500, 'x') + "\"}");
      ASSERT_OK(std::move(builder).Commit().WaitCommitted(absl::Minutes(1)));
    }
    ASSERT_OK(store.Close());
  }
  // The close, or the next open, moves the rows to a table.
  ASSERT_OK(Store::Open(source_)->Close());
  model_ = ContentOf(source_);
  ASSERT_THAT(model_, SizeIs(305));
  std::string rows;
  for (const std::string& path : DbFiles("", ".sst")) {
    if (ReadFile(path).find(std::string(400, 'x')) != std::string::npos) {
      rows = path;
    }
  }
  ASSERT_NE(rows, "");
  ASSERT_GT(fs::file_size(rows), 200u << 10);
  const std::string whole = ReadFile(rows);
  for (const std::size_t eighth : {1u, 3u, 5u}) {
    std::ofstream(rows, std::ios::binary | std::ios::trunc) << whole;
    FlipByte(rows, whole.size() * eighth / 8);
    fs::remove_all(destination_);
    EXPECT_EQ(Recover(0)["steps_saved"], 305) << eighth;
  }
  // Nor with the MANIFEST gone, too.
  for (const std::string& path : DbFiles("MANIFEST", "")) fs::remove(path);
  fs::remove_all(destination_);
  EXPECT_EQ(Recover(0)["steps_saved"], 305);
}

// A block of a small save, which is recovered from wherever it still is, or is
// named: all else is there.
TEST_F(RecoverTest, ADamagedTableOfSmallBlocksCostsTheirLeavesAtMost) {
  const std::vector<std::byte> bytes = testing::RandomBytes(60 << 10, 8);
  {
    ASSERT_OK_AND_ASSIGN(Store store, Store::Open(source_));
    ASSERT_OK(store.Fork(AtStep(50), "fork"));
    for (int step = 100; step < 110; ++step) {
      StepBuilder builder = store.Begin(step);
      std::vector<std::byte> own = bytes;
      own[0] = static_cast<std::byte>(step);
      builder.Put("own", {.dtype = DType::kUint8,
                          .shape = {static_cast<std::int64_t>(own.size())},
                          .data = own.data()});
      builder.PutInt("count", step);
      ASSERT_OK(std::move(builder).Commit().WaitCommitted(absl::Minutes(1)));
    }
    ASSERT_OK(store.Close());
  }
  ASSERT_OK(Store::Open(source_)->Close());
  model_ = ContentOf(source_);
  ASSERT_THAT(model_, SizeIs(15));
  const std::string needle(reinterpret_cast<const char*>(bytes.data()) + 1000,
                           40);
  std::string table;
  for (const std::string& path : DbFiles("", ".sst")) {
    if (ReadFile(path).find(needle) != std::string::npos) table = path;
  }
  ASSERT_NE(table, "");
  FlipByte(table, ReadFile(table).find(needle));
  // And the blocks that the journal still has.
  for (const std::string& path : JournalFiles("a-")) {
    const std::string journal = ReadFile(path);
    for (std::size_t at = journal.find(needle); at != std::string::npos;
         at = journal.find(needle, at + 1)) {
      FlipByte(path, at);
    }
  }
  const Json report = Recover(1);
  EXPECT_EQ(report["steps_saved"], 15);
  std::size_t lost = 0;
  for (const auto& [step, content] : model_) {
    const std::vector<std::string> leaves = LostLeaves(report, step);
    lost += leaves.size();
    if (!leaves.empty()) {
      EXPECT_GE(step, 100);
      EXPECT_THAT(leaves, ElementsAre("own"));
    }
  }
  EXPECT_EQ(lost, 1u);
}

// Not one damage but all of the journal: nobody can tell what is missing, and
// what the index has is there.
TEST_F(RecoverTest, WithoutTheJournalTheIndexIsRecovered) {
  fs::remove_all(source_ + "/journal");
  const Json report = Recover(1);
  EXPECT_EQ(report["steps_saved"], 5);
  EXPECT_THAT(report["losses"].dump(), HasSubstr("nobody can tell"));
  ExpectAll();
}

TEST_F(RecoverTest, LostRecordsAreNoSuccess) {
  // All that is no segment.
  const std::set<std::string> segments = [this] {
    std::set<std::string> names;
    for (const auto& list : {leaf_tables_, chunk_tables_}) {
      for (const std::string& path : list) {
        names.insert(fs::path(path).filename().string());
      }
    }
    return names;
  }();
  for (const auto& entry : fs::directory_iterator(source_ + "/db")) {
    if (!segments.contains(entry.path().filename().string())) {
      fs::remove(entry.path());
    }
  }
  // Nothing of that is needed while the journal is there.
  EXPECT_EQ(Recover(0)["steps_saved"], 5);
  fs::remove_all(destination_);
  for (const auto& entry : fs::directory_iterator(source_ + "/journal")) {
    fs::remove(entry.path());
  }
  const auto before = AllFiles(source_);
  const Result result = Run({"recover", source_, destination_});
  EXPECT_NE(result.code, 0) << result.out << result.err;
  EXPECT_THAT(result.err, HasSubstr("too little is left"));
  EXPECT_FALSE(fs::exists(destination_));
  EXPECT_FALSE(fs::exists(destination_ + ".recovering"));
  EXPECT_EQ(AllFiles(source_), before);
}

TEST_F(RecoverTest, WhatAKilledOneLeavesBlocksNothing) {
  // The folder in the middle of saving, as a kill leaves it.
  const std::string work = destination_ + ".recovering";
  const std::string left = scratch_ / "left";
  int asked = 0;
  RecoverOptions options;
  options.cancelled = [&] {
    if (++asked != 1000) return asked > 1000;
    fs::copy(work, left, fs::copy_options::recursive);
    return true;
  };
  EXPECT_TRUE(absl::IsCancelled(
      ckptree::Recover(source_, destination_, options).status()));
  ASSERT_TRUE(fs::exists(left + "/LOCK"));
  ASSERT_GT(AllFiles(left).size(), 5u);
  fs::rename(left, work);
  EXPECT_EQ(Recover(0)["steps_saved"], 5);
}

TEST_F(RecoverTest, KilledAsItEndsItLeavesWhatTheNextOneRemoves) {
  const std::string work = destination_ + ".recovering";
  const std::string lock = scratch_ / "lock";
  // As it stands while one works; the store has its name before it goes.
  RecoverOptions options;
  options.cancelled = [&] {
    if (!fs::exists(lock)) fs::copy_file(work + "/LOCK", lock);
    return false;
  };
  ASSERT_TRUE(ckptree::Recover(source_, destination_, options).ok());
  ASSERT_TRUE(fs::exists(lock));
  // Killed before its folder goes, and in the middle of that.
  for (const bool empty : {false, true}) {
    SCOPED_TRACE(empty);
    fs::create_directory(work);
    if (!empty) fs::copy_file(lock, work + "/LOCK");
    EXPECT_THAT(Run({"-C", destination_, "doctor"}).out,
                HasSubstr("a recovery was killed when it had made this store"));
    const Result again = Run({"recover", source_, destination_});
    EXPECT_EQ(again.code, 2);
    EXPECT_THAT(again.err, HasSubstr("what it left is removed"));
    EXPECT_FALSE(fs::exists(work));
    ExpectAll();
  }
  // Others may be there that are not of a recovery.
  fs::remove_all(work);
  fs::create_directories(destination_);
  fs::create_directory(work);
  std::ofstream(work + "/thesis.tex") << "what somebody wants to keep";
  const Result other = Run({"recover", source_, destination_});
  EXPECT_EQ(other.code, 2);
  EXPECT_THAT(other.err, Not(HasSubstr("is removed")));
  EXPECT_TRUE(fs::exists(work + "/thesis.tex"));
}

TEST_F(RecoverTest, TheFolderOfALivingOneOrOfOthersIsLeftAlone) {
  const std::string work = destination_ + ".recovering";
  fs::create_directory(work);
  std::ofstream(work + "/thesis.tex") << "what somebody wants to keep";
  Result result = Run({"recover", source_, destination_});
  EXPECT_NE(result.code, 0);
  EXPECT_THAT(result.err, HasSubstr("no folder of a recovery"));
  EXPECT_EQ(ReadFile(work + "/thesis.tex"), "what somebody wants to keep");
  EXPECT_FALSE(fs::exists(destination_));
  fs::remove_all(work);
  RecoverOptions options;
  options.cancelled = [&] {
    if (result.code != 77) {
      result = Run({"recover", source_, destination_});
      EXPECT_NE(result.code, 0);
      EXPECT_THAT(result.err, HasSubstr("another recovery makes it"));
      result.code = 77;
    }
    return false;
  };
  EXPECT_OK(ckptree::Recover(source_, destination_, options));
  EXPECT_EQ(result.code, 77);
  ExpectAll();
}

TEST_F(RecoverTest, RefusesWhatItMustNotTouch) {
  fs::create_directory(destination_);
  Result result = Run({"recover", source_, destination_});
  EXPECT_EQ(result.code, 2);
  EXPECT_THAT(result.err, HasSubstr(destination_));
  EXPECT_TRUE(fs::is_empty(destination_));
  EXPECT_EQ(Run({"recover", source_, source_ + "/new"}).code, 2);
  EXPECT_EQ(Run({"recover", source_}).code, 2);
  EXPECT_EQ(Run({"recover", scratch_ / "nowhere", scratch_ / "x"}).code, 3);
  EXPECT_FALSE(fs::exists(scratch_ / "x"));
  EXPECT_FALSE(fs::exists(scratch_ / "x.recovering"));
  EXPECT_THAT(Run({"help", "recover"}).out, HasSubstr("Ctrl-C"));
  EXPECT_EQ(Run({"__complete", "--", "recover", "1"}).out, "");
}

TEST_F(RecoverTest, StopsAndLeavesNothing) {
  int asked = 0;
  RecoverOptions options;
  options.cancelled = [&asked] { return ++asked > 1000; };
  const auto report = ckptree::Recover(source_, destination_, options);
  EXPECT_TRUE(absl::IsCancelled(report.status())) << report.status();
  EXPECT_FALSE(fs::exists(destination_));
  EXPECT_FALSE(fs::exists(destination_ + ".recovering"));
}

TEST_F(RecoverTest, ArraysLargerThanItsMemoryAreReadTwice) {
  RecoverOptions options;
  options.memory_bytes = 1;
  const auto report = ckptree::Recover(source_, destination_, options);
  ASSERT_OK(report);
  EXPECT_TRUE(report->complete());
  const Model found = ContentOf(destination_);
  EXPECT_TRUE(found == model_);
}

}  // namespace
}  // namespace ckptree
