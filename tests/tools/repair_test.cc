// SPDX-License-Identifier: Apache-2.0

// `ckptree repair` and `ckptree recover` on the same damage: each says what is
// lost before it does anything, and what is left is bit-exact.

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "ckptree/ckptree.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/testutil/flip_byte.h"
#include "tests/testutil/status_matchers.h"
#include "tests/tools/repair_fixture.h"

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

TEST_F(RepairTest, AWholeStoreIsLeftAlone) {
  const auto before = AllFiles(source_);
  for (const std::string flag : {"--quiet", "--yes"}) {
    const Result result = Run({"repair", source_, flag});
    EXPECT_EQ(result.code, 0) << result.err;
    EXPECT_THAT(result.out, HasSubstr("nothing is wrong"));
  }
  auto after = AllFiles(source_);
  after[source_ + "/LOCK"] = before.at(source_ + "/LOCK");
  EXPECT_TRUE(after == before);
  EXPECT_THAT(Siblings(), IsEmpty());
}

// ---- one damage, and nothing is lost ----

TEST_F(RepairTest, AByteOfTheJournalIsFlipped) {
  KillAfterTwoMoreSteps();
  const std::string killed = CopyOf("killed");
  for (const std::string copy : {"a-", "b-"}) {
    // In the first, a middle and the last record.
    for (const std::size_t eighth : {1u, 4u, 8u}) {
      const std::string file = JournalFiles(copy).back();
      const std::string bytes = ReadFile(file);
      std::size_t at = LastByte(bytes) * eighth / 8;
      while (bytes[at] == 0) --at;
      SCOPED_TRACE(absl::StrFormat("%s at %d", file, at));
      FlipByte(file, at);
      EXPECT_NE(ReadFile(file), bytes);
      MendWholly();
      fs::remove_all(source_);
      fs::copy(killed, source_, fs::copy_options::recursive);
    }
  }
}

TEST_F(RepairTest, AFileOfTheJournalIsCutOrGone) {
  KillAfterTwoMoreSteps();
  const std::string killed = CopyOf("killed");
  for (const std::string copy : {"a-", "b-"}) {
    for (const bool gone : {true, false}) {
      const std::string file = JournalFiles(copy).back();
      SCOPED_TRACE(file);
      if (gone) {
        fs::remove(file);
      } else {
        fs::resize_file(file, LastByte(ReadFile(file)) / 2);
      }
      MendWholly();
      fs::remove_all(source_);
      fs::copy(killed, source_, fs::copy_options::recursive);
    }
  }
}

TEST_F(RepairTest, TheFileOfAllRowsIsDamaged) {
  // A repair makes one.
  fs::remove(Db("CURRENT"));
  ASSERT_EQ(Run({"repair", source_, "--yes"}).code, 0);
  ASSERT_THAT(JournalFiles("rows-"), Not(IsEmpty()));
  const std::string file = JournalFiles("rows-").back();
  const std::string bytes = ReadFile(file);
  std::size_t at = LastByte(bytes) / 2;
  while (bytes[at] == 0) --at;
  FlipByte(file, at);
  Mend("mend", 0);
  // The new one is whole: without the index it is needed.
  model_ = ContentOf(source_);
  ASSERT_THAT(model_, SizeIs(6));
  fs::remove(Db("CURRENT"));
  destination_ = source_;
  ExpectAll();
}

TEST_F(RepairTest, CurrentIsDeleted) {
  fs::remove(Db("CURRENT"));
  EXPECT_EQ(Mend("mend", 0)["newest_whole_step"], 50);
}

TEST_F(RepairTest, AByteOfCurrentIsFlipped) {
  FlipByte(Db("CURRENT"), 3);
  Mend("mend", 0);
}

TEST_F(RepairTest, TheManifestIsCut) {
  const std::string path = DbFiles("MANIFEST", "").back();
  fs::resize_file(path, fs::file_size(path) / 2);
  Mend("mend", 0);
}

TEST_F(RepairTest, TheManifestIsCutAnywhere) {
  KillAfterTwoMoreSteps();
  ASSERT_OK(Store::Open(source_, Quiet())->Close());
  const std::string path = DbFiles("MANIFEST", "").back();
  const std::string whole = ReadFile(path);
  for (std::size_t part = 0; part < 12; ++part) {
    std::ofstream(path, std::ios::binary | std::ios::trunc)
        << whole.substr(0, whole.size() * part / 12);
    const Result result = Run({"repair", source_, "--json"});
    const Json plan = Json::parse(result.out, nullptr, false);
    ASSERT_FALSE(plan.is_discarded()) << result.err;
    EXPECT_EQ(plan["complete"], true) << part << result.out;
    EXPECT_THAT(plan["steps"], SizeIs(7)) << part;
    // What is cut may be of no use to anybody.
    if (result.code == 1) {
      EXPECT_EQ(plan["action"], "mend") << part;
    }
    // And whoever reads needs no repair.
    EXPECT_TRUE(ContentOf(source_) == model_) << part;
  }
  EXPECT_THAT(Siblings(), IsEmpty());
  std::ofstream(path, std::ios::binary | std::ios::trunc)
      << whole.substr(0, whole.size() / 12);
  Mend("mend", 0);
}

TEST_F(RepairTest, AByteOfARowTableIsFlipped) {
  // So many steps that their rows fill several blocks of a table.
  {
    ASSERT_OK_AND_ASSIGN(Store store, Store::Open(source_, Quiet()));
    for (int step = 100; step < 200; ++step) {
      StepBuilder builder = store.Begin(step);
      builder.PutInt("count", step);
      builder.SetNote(
          absl::StrFormat("note %d %s", step, std::string(450, 'x')));
      ASSERT_OK(std::move(builder).Commit().WaitCommitted(absl::Minutes(1)));
    }
    ASSERT_OK(store.Close());
  }
  // The close, or the open, moves the rows to a table.
  ASSERT_OK(Store::Open(source_, Quiet())->Close());
  model_ = ContentOf(source_);
  ASSERT_THAT(model_, SizeIs(105));
  highest_ = 105;
  std::string rows;
  for (const std::string& path : DbFiles("", ".sst")) {
    if (ReadFile(path).find("note 150") != std::string::npos) rows = path;
  }
  ASSERT_NE(rows, "");
  FlipByte(rows, ReadFile(rows).find("note 150"));
  EXPECT_THAT(Mend("mend", 0)["steps"], SizeIs(105));
}

// ---- two, or array bytes: by name ----

TEST_F(RepairTest, BothCopiesOfTheNewestCommitAreDamaged) {
  KillAfterTwoMoreSteps();
  for (const std::string copy : {"a-", "b-"}) {
    const std::string file = JournalFiles(copy).back();
    FlipByte(file, LastByte(ReadFile(file)));
  }
  const Json report = Mend("rebuild", 1);
  EXPECT_THAT(report["losses"].dump(), HasSubstr("acknowledged"));
  EXPECT_THAT(report["losses"].dump(), HasSubstr("save 7"));
  EXPECT_EQ(report["newest_whole_step"], 60);
}

// Of the last commits nothing is left but segments.
TEST_F(RepairTest, BothCopiesOfTheJournalAreGone) {
  KillAfterTwoMoreSteps();
  for (const std::string copy : {"a-", "b-"}) {
    fs::remove(JournalFiles(copy).back());
  }
  const Json report = Mend("rebuild", 1);
  EXPECT_EQ(report["newest_whole_step"], 50);
  EXPECT_THAT(report["losses"].dump(), HasSubstr("acknowledged"));
}

TEST_F(RepairTest, AllOfTheIndexIsGone) {
  for (const auto& entry : fs::directory_iterator(source_ + "/db")) {
    fs::remove(entry.path());
  }
  const Json report = Mend("rebuild", 1);
  // The rows are in the journal, and so are the blocks of small saves.
  EXPECT_THAT(LostLeaves(report, 10), IsEmpty());
  EXPECT_THAT(LostLeaves(report, 50), Contains("own/w"));
  EXPECT_EQ(report["newest_whole_step"], 10);
}

TEST_F(RepairTest, AByteOfAChunkIsFlipped) {
  FlipByte(NewestChunks(), fs::file_size(NewestChunks()) / 2);
  const Json report = Mend("rebuild", 1);
  EXPECT_THAT(LostLeaves(report, 50), ElementsAre("own/w"));
  EXPECT_EQ(report["newest_whole_step"], 40);
}

TEST_F(RepairTest, ASegmentIsDeleted) {
  fs::remove(NewestChunks());
  const Json report = Mend("rebuild", 1);
  EXPECT_THAT(LostLeaves(report, 50), ElementsAre("own/w"));
}

TEST_F(RepairTest, CurrentAndAChunkAreDamaged) {
  fs::remove(Db("CURRENT"));
  FlipByte(NewestChunks(), fs::file_size(NewestChunks()) / 2);
  const Json report = Mend("rebuild", 1);
  EXPECT_THAT(LostLeaves(report, 50), ElementsAre("own/w"));
}

TEST_F(RepairTest, PeopleAreToldWhatIsLost) {
  FlipByte(NewestChunks(), fs::file_size(NewestChunks()) / 2);
  Result result = Run({"repair", source_});
  EXPECT_THAT(result.out, HasSubstr("whole: 4 steps: 10, 20, 30, 40\n"));
  EXPECT_THAT(result.out, HasSubstr("the newest whole step is 40\n"));
  EXPECT_THAT(result.out, HasSubstr("lost: step 50: own/w: "));
  EXPECT_THAT(result.out, Not(HasSubstr("own/w: step 50")));
  EXPECT_THAT(result.out, HasSubstr("takes the place of " + source_));
  EXPECT_THAT(result.out, HasSubstr("--yes` does it"));
  // A second damaged store does not take the place of the first.
  fs::create_directory(source_ + ".damaged");
  result = Run({"repair", source_, "--yes"});
  EXPECT_EQ(result.code, 1) << result.err;
  EXPECT_THAT(result.out, HasSubstr("kept as " + source_ + ".damaged.N"));
  EXPECT_THAT(result.out, HasSubstr("lost: step 50: own/w: "));
  EXPECT_THAT(result.out, HasSubstr(source_ + ".damaged.2"));
  EXPECT_TRUE(fs::is_empty(source_ + ".damaged"));
  // Later, too, whoever uses that step.
  const std::string loss = "recovered: 1 of 610 leaves lost";
  result = Run({"-C", source_, "verify", "--deep"});
  EXPECT_EQ(result.code, 0) << result.out;
  EXPECT_THAT(result.out, HasSubstr("step 50: " + loss));
  EXPECT_THAT(result.out, Not(HasSubstr("step 40: recovered")));
  const std::string out = scratch_ / "50.safetensors";
  result = Run({"-C", source_, "export", "latest", out});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("step 50: " + loss));
}

TEST_F(RepairTest, ALiveWriterIsRefused) {
  ASSERT_OK_AND_ASSIGN(const Store writer, Store::Open(source_, Quiet()));
  for (const std::string flag : {"--quiet", "--yes"}) {
    const Result result = Run({"repair", source_, flag});
    EXPECT_EQ(result.code, 4) << result.err;
    EXPECT_THAT(result.err, HasSubstr("pid "));
  }
}

TEST_F(RepairTest, RefusesWhatIsNoStore) {
  EXPECT_EQ(Run({"repair", scratch_ / "nowhere"}).code, 3);
  fs::create_directory(scratch_ / "empty");
  EXPECT_EQ(Run({"repair", scratch_ / "empty", "--yes"}).code, 3);
  EXPECT_TRUE(fs::is_empty(scratch_ / "empty"));
  EXPECT_EQ(Run({"repair"}).code, 2);
  fs::create_symlink("/etc/hostname", Db("000999.sst"));
  EXPECT_EQ(Run({"repair", source_}).code, 2);
  EXPECT_THAT(Run({"help", "repair"}).out, HasSubstr("STORE.damaged"));
}

TEST_F(RepairTest, ALinkToTheStoreStaysALink) {
  fs::remove(NewestChunks());
  fs::create_directory_symlink(source_, scratch_ / "link");
  EXPECT_EQ(Run({"repair", scratch_ / "link", "--yes"}).code, 1);
  EXPECT_TRUE(fs::is_symlink(scratch_ / "link"));
  EXPECT_THAT(Siblings(), ElementsAre("link", "source.damaged"));
  EXPECT_OK(Store::Open(scratch_ / "link", Quiet()));
}

// Nor is what others called as the folder that it works in.
TEST_F(RepairTest, AFolderOfOthersIsNoFolderOfARepair) {
  const auto refused = [this](const std::string& why) {
    for (const std::string flag : {"--quiet", "--yes"}) {
      const Result result = Run({"repair", source_, flag});
      EXPECT_EQ(result.code, 2) << result.out << result.err;
      EXPECT_THAT(result.err, HasSubstr(why));
    }
  };
  const auto before = AllFiles(source_);
  const std::string folder = source_ + ".repairing";
  fs::create_directories(folder + "/thesis");
  std::ofstream(folder + "/thesis/ch1.tex") << "mine";
  refused("has thesis, which no repair made");
  EXPECT_EQ(fs::file_size(folder + "/thesis/ch1.tex"), 4u);
  fs::rename(folder, scratch_ / "other");
  fs::create_directory_symlink(scratch_ / "other", folder);
  fs::remove(NewestChunks());
  refused("is no folder");
  EXPECT_EQ(fs::file_size(scratch_ / "other/thesis/ch1.tex"), 4u);
  fs::remove(folder);
  // A recovery has a folder of its own, of which the same is true.
  fs::copy(source_, destination_ + ".recovering", fs::copy_options::recursive);
  const auto of_others = AllFiles(destination_ + ".recovering");
  const Result recovered = Run({"recover", source_, destination_});
  EXPECT_EQ(recovered.code, 2) << recovered.out << recovered.err;
  EXPECT_THAT(recovered.err, HasSubstr("which no recovery made"));
  EXPECT_TRUE(AllFiles(destination_ + ".recovering") == of_others);
  EXPECT_NE(AllFiles(source_), before);  // But for the chunks.
}

// They are no part of what is damaged.
TEST_F(RepairTest, FilesOfOthersStayWhereTheyAre) {
  fs::create_directory(source_ + "/logs");
  std::ofstream(source_ + "/logs/train.log") << "mine";
  std::ofstream(source_ + "/config.yaml") << "mine";
  fs::create_symlink("/nowhere", source_ + "/latest");
  for (const auto& entry : fs::directory_iterator(source_ + "/journal")) {
    const std::string name = entry.path().filename();
    if (name.starts_with("a-") || name.starts_with("b-")) {
      fs::remove(entry.path());
    }
  }
  const Result result = Run({"repair", source_, "--yes"});
  EXPECT_EQ(result.code, 1) << result.err;  // Not all can be told.
  EXPECT_THAT(Siblings(), ElementsAre("source.damaged"));
  EXPECT_EQ(fs::file_size(source_ + "/logs/train.log"), 4u);
  EXPECT_EQ(fs::file_size(source_ + "/config.yaml"), 4u);
  EXPECT_EQ(fs::read_symlink(source_ + "/latest"), "/nowhere");
  for (const char* name : {"logs", "config.yaml", "latest"}) {
    EXPECT_FALSE(fs::exists(fs::symlink_status(source_ + ".damaged/" + name)))
        << name;
  }
}

TEST_F(RepairTest, NothingCanBeKept) {
  for (const std::string folder : {"/db", "/journal"}) {
    for (const auto& entry : fs::directory_iterator(source_ + folder)) {
      fs::remove(entry.path());
    }
  }
  const auto before = AllFiles(source_);
  for (const std::string flag : {"--quiet", "--yes"}) {
    EXPECT_NE(Run({"repair", source_, flag}).code, 0);
  }
  auto after = AllFiles(source_);
  after[source_ + "/LOCK"] = before.at(source_ + "/LOCK");
  EXPECT_TRUE(after == before);
  EXPECT_THAT(Siblings(), IsEmpty());
}

TEST_F(RepairTest, InterruptedItLeavesTheStore) {
  fs::remove(NewestChunks());
  const auto before = AllFiles(source_);
  const std::string work = source_ + ".repairing";
  // In the middle of reading, and in the middle of saving.
  for (const bool saving : {false, true}) {
    const int most = saving ? 600 : 3;
    int asked = 0;
    RepairOptions options;
    options.execute = true;
    options.cancelled = [&] {
      return (!saving || fs::exists(work)) && ++asked > most;
    };
    EXPECT_TRUE(absl::IsCancelled(Repair(source_, options).status())) << most;
    auto after = AllFiles(source_);
    after[source_ + "/LOCK"] = before.at(source_ + "/LOCK");
    EXPECT_TRUE(after == before);
    EXPECT_THAT(Siblings(), IsEmpty());
  }
}

TEST_F(RepairTest, WhatAKilledOneLeavesBlocksNothing) {
  FlipByte(NewestChunks(), fs::file_size(NewestChunks()) / 2);
  // What lies beside the store in the middle of saving, as a kill leaves it.
  const std::string work = source_ + ".repairing";
  const std::string left = scratch_ / "left";
  int asked = 0;
  RepairOptions options;
  options.execute = true;
  options.cancelled = [&] {
    if (!fs::exists(work)) return false;
    if (++asked != 600) return asked > 600;
    fs::copy(work, left, fs::copy_options::recursive);
    return true;
  };
  EXPECT_TRUE(absl::IsCancelled(Repair(source_, options).status()));
  ASSERT_TRUE(fs::exists(left + "/LOCK"));
  ASSERT_GT(AllFiles(left).size(), 5u);
  fs::rename(left, work);
  const Result result = Run({"repair", source_, "--yes", "--json"});
  EXPECT_EQ(result.code, 1) << result.out << result.err;
  EXPECT_THAT(Siblings(), ElementsAre("source.damaged"));
  destination_ = source_;
  const Json report = Json::parse(result.out);
  EXPECT_THAT(LostLeaves(report, 50), ElementsAre("own/w"));
  Compare(report);
}

TEST_F(RepairTest, ARepairIsAskedFor) {
  for (const bool current : {true, false}) {
    fs::remove(current ? Db("CURRENT") : NewestChunks());
    RepairOptions options;
    options.execute = true;
    bool asked = false;
    options.confirm = [&](const RepairReport& plan) {
      asked = true;
      EXPECT_THAT(plan.steps, SizeIs(5));
      return false;
    };
    ASSERT_OK_AND_ASSIGN(const RepairReport report, Repair(source_, options));
    EXPECT_TRUE(asked);
    EXPECT_FALSE(report.done);
    EXPECT_NE(Run({"repair", source_}).code, 0);
    EXPECT_THAT(Siblings(), IsEmpty());
  }
}

TEST_F(RepairTest, ThePlanMustStillBeTrue) {
  fs::remove(Db("CURRENT"));
  ASSERT_OK_AND_ASSIGN(const RepairReport plan, Repair(source_));
  RepairOptions options;
  options.execute = true;
  options.only_if = plan.id;
  fs::remove(NewestChunks());  // More damage than was agreed to.
  EXPECT_TRUE(absl::IsAborted(Repair(source_, options).status()));
  // And when it changes while the question is on the screen.
  options.only_if.clear();
  options.confirm = [&](const RepairReport&) {
    std::ofstream(source_ + "/db/CURRENT", std::ios::trunc) << "changed";
    return true;
  };
  EXPECT_TRUE(absl::IsAborted(Repair(source_, options).status()));
  EXPECT_THAT(Siblings(), IsEmpty());
}

// What readers write does not make it another store.
TEST_F(RepairTest, AReaderMayComeBetweenThePlanAndTheRepair) {
  FlipByte(NewestChunks(), fs::file_size(NewestChunks()) / 2);
  RepairOptions options;
  options.execute = true;
  options.confirm = [&](const RepairReport&) {
    StoreOptions reading = Quiet();
    reading.read_only = true;
    const auto reader = Store::Open(source_, reading);
    EXPECT_OK(reader.status());
    if (!reader.ok()) return false;
    EXPECT_OK(reader->OpenStep(10).status());
    EXPECT_TRUE(fs::exists(source_ + "/leases"));
    return true;
  };
  ASSERT_OK_AND_ASSIGN(const RepairReport report, Repair(source_, options));
  EXPECT_TRUE(report.done);
}

}  // namespace
}  // namespace ckptree
