// `ckptree recover` on stores that are damaged in every way there is.

#include <algorithm>
#include <cstddef>
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
#include "tests/tools_recover_fixture.h"

namespace ckptree {
namespace {

namespace fs = std::filesystem;
using testing::FlipByte;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
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
    EXPECT_EQ(after[i].begun_ns, before[i].begun_ns);
    EXPECT_EQ(after[i].staged_ns, before[i].staged_ns);
    EXPECT_EQ(after[i].committed_ns, before[i].committed_ns);
    const auto old_step = from.Restore(AtStep(before[i].step)).value();
    const auto new_step = to.Restore(AtStep(before[i].step)).value();
    EXPECT_EQ(new_step.Metadata()->lineage, old_step.Metadata()->lineage);
  }
}

TEST_F(RecoverTest, WithoutHead) {
  fs::remove(source_ + "/HEAD");
  EXPECT_EQ(Recover(0)["steps_saved"], 5);
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
  for (const std::size_t parts : {1, 4, 6, 7}) {
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
  EXPECT_THAT(report["losses"].dump(), HasSubstr("cannot be read"));
}

TEST_F(RecoverTest, ADeletedLeafTableCostsItsLeavesAndTheirTies) {
  for (const std::string& path : leaf_tables_) fs::remove(path);
  const Json report = Recover(1);
  for (const int step : {20, 30, 40, 50}) {
    const auto lost = LostLeaves(report, step);
    EXPECT_GE(lost.size(), static_cast<std::size_t>(kManyLeaves)) << step;
    EXPECT_THAT(lost, Contains("many/w17"));
  }
  EXPECT_THAT(LostLeaves(report, 20), Contains("big/tied"));
  EXPECT_THAT(LostLeaves(report, 10), IsEmpty());
}

TEST_F(RecoverTest, ACutLogCostsTheNewestCommits) {
  // What a killed trainer leaves: rows in the log alone.
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
  std::string log;
  for (const std::string& path : DbFiles("", ".log")) {
    if (fs::file_size(path) > 0) log = path;
  }
  ASSERT_NE(log, "");
  const std::string whole = ReadFile(log);
  // Without its last bytes the last commit is gone: a large save, of which the
  // segments are there.
  fs::resize_file(log, whole.size() - 8);
  Json report = Recover(1);
  EXPECT_EQ(report["steps_saved"], 6);
  EXPECT_THAT(report["losses"].dump(), HasSubstr("were acknowledged"));
  EXPECT_THAT(report["losses"].dump(), HasSubstr("save 7: the row"));
  // And so without the MANIFEST.
  for (const std::string& path : DbFiles("MANIFEST", "")) fs::remove(path);
  fs::remove_all(destination_);
  EXPECT_EQ(Recover(1)["steps_saved"], 6);
  // With its log whole nothing is lost even then.
  std::ofstream(log, std::ios::binary | std::ios::trunc) << whole;
  fs::remove_all(destination_);
  EXPECT_EQ(Recover(0)["steps_saved"], 7);
}

TEST_F(RecoverTest, ADamagedRowTableCostsTheRowsOfItsBlocks) {
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
  // The next open moves the rows from the log to a table.
  ASSERT_OK(Store::Open(source_)->Close());
  std::string rows;
  for (const std::string& path : DbFiles("", ".sst")) {
    if (ReadFile(path).find(std::string(400, 'x')) != std::string::npos) {
      rows = path;
    }
  }
  ASSERT_NE(rows, "");
  ASSERT_GT(fs::file_size(rows), 200u << 10);
  const std::string whole = ReadFile(rows);
  for (const bool manifest : {true, false}) {
    if (!manifest) {
      for (const std::string& path : DbFiles("MANIFEST", "")) fs::remove(path);
    }
    for (const std::size_t eighth : {1, 3, 5}) {
      std::ofstream(rows, std::ios::binary | std::ios::trunc) << whole;
      FlipByte(rows, whole.size() * eighth / 8);
      fs::remove_all(destination_);
      const Result result = Run({"recover", source_, destination_, "--json"});
      EXPECT_EQ(result.code, 1) << result.err;
      const Json report = Json::parse(result.out);
      if (!manifest) {
        EXPECT_THAT(report["losses"].dump(),
                    HasSubstr("cannot be read in 1 places"));
      }
      // At most the rows of 16 KiB, which are those of about 100 steps.
      EXPECT_GE(report["steps_saved"], 200) << manifest << eighth;
      EXPECT_EQ(Run({"-C", destination_, "verify"}).code, 0);
    }
  }
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
  const auto before = AllFiles(source_);
  const Result result = Run({"recover", source_, destination_});
  EXPECT_EQ(result.code, 1) << result.out << result.err;
  EXPECT_THAT(result.out, HasSubstr("NOTHING COULD BE RECOVERED"));
  EXPECT_THAT(result.out, HasSubstr("save 2: the row"));
  EXPECT_THAT(result.out, HasSubstr("leaf records"));
  EXPECT_FALSE(fs::exists(destination_));
  EXPECT_FALSE(fs::exists(destination_ + ".recovering"));
  EXPECT_EQ(AllFiles(source_), before);
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
