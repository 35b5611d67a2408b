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
#include "tests/tools_repair_fixture.h"

namespace ckptree {
namespace {

namespace fs = std::filesystem;
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

TEST_F(RepairTest, HeadDeleted) {
  fs::remove(source_ + "/HEAD");
  const Json report = Mend("write-head", 0);
  EXPECT_EQ(report["newest_whole_step"], 50);
}

TEST_F(RepairTest, HeadIsGarbage) {
  std::ofstream(source_ + "/HEAD", std::ios::trunc) << std::string(40000, 'x');
  Mend("write-head", 0);
}

TEST_F(RepairTest, HeadIsAnOldCopy) {
  fs::copy_file(source_ + "/HEAD", scratch_ / "old");
  KillAfterTwoMoreSteps();
  fs::remove(source_ + "/HEAD");
  fs::rename(scratch_ / "old", source_ + "/HEAD");
  Mend("write-head", 0);
}

TEST_F(RepairTest, HeadIsOfAnotherStore) {
  MakeStore(scratch_ / "other");
  fs::copy_file(scratch_ / "other/HEAD", source_ + "/HEAD",
                fs::copy_options::overwrite_existing);
  fs::remove_all(scratch_ / "other");
  const Json report = Mend("write-head", 0);
  EXPECT_THAT(report["problems"].dump(), HasSubstr("another store"));
}

TEST_F(RepairTest, TheLogIsCutBehindAcknowledgedCommits) {
  const std::string log = KillAfterTwoMoreSteps();
  fs::resize_file(log, fs::file_size(log) - 8);
  const Json report = Mend("write-head", 1);
  EXPECT_THAT(report["losses"].dump(), HasSubstr("what the last commit did"));
  EXPECT_THAT(report["problems"].dump(), HasSubstr("commit 10 was"));
  EXPECT_THAT(report["losses"].dump(), HasSubstr("save 7"));
  EXPECT_THAT(report["notes"].dump(), HasSubstr("copy the store first"));
  EXPECT_EQ(report["newest_whole_step"], 60);
}

TEST_F(RepairTest, TheLogIsGone) {
  fs::remove(KillAfterTwoMoreSteps());
  const Json report = Mend("write-head", 1);
  EXPECT_EQ(report["newest_whole_step"], 50);
}

// The blocks of small saves leave the log long before their rows: they are
// there, and nothing names them.
TEST_F(RepairTest, TheLogsAreGoneAndSmallBlocksAreLeft) {
  const std::string live = scratch_ / "live";
  {
    ASSERT_OK_AND_ASSIGN(Store store, Store::Open(source_, Quiet()));
    const std::vector<std::byte> bytes = testing::RandomBytes(20 << 10, 8);
    for (int step = 100; step < 600; ++step) {
      StepBuilder builder = store.Begin(step);
      builder.PutInt("count", step);
      std::vector<std::byte> own = bytes;
      own[0] = static_cast<std::byte>(step & 0xff);
      builder.Put("own", {.dtype = DType::kUint8,
                          .shape = {static_cast<std::int64_t>(own.size())},
                          .data = own.data()});
      ASSERT_OK(std::move(builder).Commit().WaitCommitted(absl::Minutes(1)));
    }
    fs::copy(source_, live, fs::copy_options::recursive);
    ASSERT_OK(store.Close());
  }
  fs::remove_all(source_);
  fs::rename(live, source_);
  highest_ = 505;
  for (const std::string& log : DbFiles("", ".log")) fs::remove(log);
  const Json report = Mend("write-head", 1);
  EXPECT_THAT(report["steps"], SizeIs(5));
  EXPECT_THAT(report["losses"].dump(), HasSubstr("save 50: the row"));
}

TEST_F(RepairTest, AByteOfTheLogIsFlipped) {
  FlipByte(KillAfterTwoMoreSteps(), 100);
  Mend("write-head", 1);
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

TEST_F(RepairTest, TheManifestIsCut) {
  const std::string path = DbFiles("MANIFEST", "").back();
  fs::resize_file(path, fs::file_size(path) / 2);
  Mend("rebuild", 0);
}

// Wherever it is cut, the rows are in tables that it no longer names: HEAD
// alone would lose them.
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
    EXPECT_EQ(result.code, 1);
    EXPECT_EQ(plan["action"], "rebuild") << part;
    EXPECT_EQ(plan["complete"], true) << part << result.out;
    EXPECT_THAT(plan["steps"], SizeIs(7)) << part;
  }
  EXPECT_THAT(Siblings(), IsEmpty());
  Mend("rebuild", 0);
}

TEST_F(RepairTest, CurrentIsDeleted) {
  fs::remove(Db("CURRENT"));
  Mend("rebuild", 0);
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
  // The open moves the rows from the log to a table.
  ASSERT_OK(Store::Open(source_, Quiet())->Close());
  model_ = ContentOf(source_);
  highest_ = 105;
  std::string rows;
  for (const std::string& path : DbFiles("", ".sst")) {
    if (ReadFile(path).find("note 150") != std::string::npos) rows = path;
  }
  ASSERT_NE(rows, "");
  FlipByte(rows, ReadFile(rows).find("note 150"));
  const Json report = Mend("rebuild", 1);
  EXPECT_GE(report["steps"].size(), 60u);
  EXPECT_LT(report["steps"].size(), 105u);
  EXPECT_THAT(report["losses"].dump(), HasSubstr("save 56: the row"));
}

TEST_F(RepairTest, HeadAndAChunkAreDamaged) {
  fs::remove(source_ + "/HEAD");
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
  EXPECT_THAT(result.out, HasSubstr("lost: step 50: own/w: "));
  EXPECT_THAT(result.out, HasSubstr(source_ + ".damaged.2"));
  EXPECT_TRUE(fs::is_empty(source_ + ".damaged"));
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

TEST_F(RepairTest, NothingCanBeKept) {
  for (const auto& entry : fs::directory_iterator(source_ + "/db")) {
    fs::remove(entry.path());
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
  // In the middle of reading, and in the middle of saving.
  for (const int most : {3, 700}) {
    int asked = 0;
    RepairOptions options;
    options.execute = true;
    options.cancelled = [&] { return ++asked > most; };
    EXPECT_TRUE(absl::IsCancelled(Repair(source_, options).status())) << most;
    auto after = AllFiles(source_);
    after[source_ + "/LOCK"] = before.at(source_ + "/LOCK");
    EXPECT_TRUE(after == before);
    EXPECT_THAT(Siblings(), IsEmpty());
  }
}

TEST_F(RepairTest, ARepairIsAskedFor) {
  for (const bool head : {true, false}) {
    fs::remove(head ? source_ + "/HEAD" : NewestChunks());
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
  fs::remove(source_ + "/HEAD");
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

}  // namespace
}  // namespace ckptree
