// What an open finds after damage, a crash, a copy: nothing is lost silently, and
// one damage costs nothing.

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kv/database.h"
#include "kv/testing/forced_compaction.h"
#include "schema/spaces.h"
#include "tests/kv_fixture.h"
#include "tests/testutil/flip_byte.h"
#include "tests/testutil/status_matchers.h"

namespace ckptree::kv {
namespace {

namespace fs = std::filesystem;

using ::ckptree::testing::IsOk;
using ::ckptree::testing::IsOkAndHolds;
using ::ckptree::testing::StatusIs;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using schema::Space;

class RecoveryTest : public KvTest {
 protected:
  RecoveryTest() {
    options_.segment_space =
        [](std::string_view value) -> std::optional<Space> {
      if (!value.starts_with("9/")) return std::nullopt;
      return Space::kChunks;
    };
  }

  // The model: what was acknowledged.
  std::map<std::string, std::string> rows_;
  std::map<std::uint64_t, std::string> blocks_;
  std::uint64_t commits_ = 0;

  void PutOne(Database& database, const std::string& name,
              const std::string& value) {
    ASSERT_EQ(Put(database, name, value).outcome, Outcome::kCommitted);
    rows_[name] = value;
    ++commits_;
  }
  void SaveOne(Database& database, std::uint64_t version) {
    ASSERT_EQ(SmallSave(database, version).outcome, Outcome::kCommitted);
    rows_["step" + std::to_string(version)] = "row";
    blocks_[version] = std::string(100, 's');
    ++commits_;
  }

  // Rows, blocks and a segment; written in two sessions, closed or left as a
  // killed process leaves it.
  void MakeStore(bool closed) {
    rows_.clear();
    blocks_.clear();
    fs::remove_all(Store());
    fs::remove_all(dir_ / "live");
    {
      ASSERT_OK_AND_ASSIGN(const auto database, Create());
      commits_ = 1;
      for (int i = 0; i < 6; ++i) {
        PutOne(*database, "k" + std::to_string(i), std::string(300, 'v'));
      }
      SaveOne(*database, 1);
      ASSERT_OK_AND_ASSIGN(const StagedSegment segment,
                           Stage(*database, 9, Space::kChunks, 4, 1000));
      ASSERT_OK(database->Adopt({segment}));
      ASSERT_OK(database->Close());
    }
    ASSERT_OK_AND_ASSIGN(const auto database, Open());
    SaveOne(*database, 2);
    PutOne(*database, "k1", "changed");
    PutOne(*database, "late", "x");
    if (!closed) {
      // As it lies there while it is written.
      fs::copy(Store(), dir_ / "live", fs::copy_options::recursive);
    }
    ASSERT_OK(database->Close());
    if (!closed) {
      fs::remove_all(Store());
      fs::rename(dir_ / "live", Store());
    }
  }

  void ExpectAll(const Database& database, std::uint64_t more = 0) {
    EXPECT_EQ(database.report().ordinal, commits_ + more);
    EXPECT_OK(database.report().lost);
    for (const auto& [name, value] : rows_) {
      EXPECT_THAT(database.Get(Space::kRecords, RecordKey(name)),
                  IsOkAndHolds(std::optional<std::string>(value)))
          << name;
    }
    for (const auto& [version, bytes] : blocks_) {
      EXPECT_THAT(database.Get(Space::kSmall, VersionKey(version, "block")),
                  IsOkAndHolds(std::optional<std::string>(bytes)));
    }
    for (int i = 0; i < 4; ++i) {
      EXPECT_THAT(database.Get(Space::kChunks, ChunkKey(9, i)),
                  IsOkAndHolds(std::optional<std::string>(
                      Payload(9, i, 1000))));
    }
    // By a scan, too: no row more.
    const absl::StatusOr<Iterator> opened =
        database.Scan(Space::kRecords, RecordKey(""), RecordKey("\xff"));
    ASSERT_THAT(opened, IsOk());
    auto scan = database.Scan(Space::kRecords, RecordKey(""),
                              RecordKey("\xff"));
    std::size_t count = 0;
    for (; scan->Valid(); scan->Next()) ++count;
    EXPECT_OK(scan->status());
    EXPECT_EQ(count, rows_.size());
  }

  // Reads all, writes one more, reads all again; the damage mended.
  void ExpectReadsAndWrites() {
    {
      const auto reader = Open(Mode::kRead);
      ASSERT_TRUE(reader.ok()) << reader.status();
      ExpectAll(**reader);
    }
    {
      const auto writer = Open();
      ASSERT_TRUE(writer.ok()) << writer.status();
      ExpectAll(**writer);
      ASSERT_EQ(Put(**writer, "more", "m").outcome, Outcome::kCommitted);
      ASSERT_OK((*writer)->Close());
    }
    const auto again = Open(Mode::kRead);
    ASSERT_TRUE(again.ok()) << again.status();
    rows_["more"] = "m";
    ExpectAll(**again, 1);
    rows_.erase("more");
  }

  // Every file of the store but the lock, relative.
  std::vector<std::string> Files() const {
    std::vector<std::string> files;
    for (const auto& entry : fs::recursive_directory_iterator(Store())) {
      const std::string path = fs::relative(entry.path(), Store());
      if (entry.is_regular_file() && path != "LOCK") files.push_back(path);
    }
    std::sort(files.begin(), files.end());
    return files;
  }

  // `damage` is done to a copy of each file in turn.
  template <typename Damage>
  void ForEachFile(const Damage& damage) {
    for (const bool closed : {true, false}) {
      ASSERT_NO_FATAL_FAILURE(MakeStore(closed));
      fs::remove_all(dir_ / "whole");
      fs::rename(Store(), dir_ / "whole");
      fs::copy(dir_ / "whole", Store(), fs::copy_options::recursive);
      for (const std::string& file : Files()) {
        fs::remove_all(Store());
        fs::copy(dir_ / "whole", Store(), fs::copy_options::recursive);
        SCOPED_TRACE(file + (closed ? " closed" : " killed"));
        damage(file);
        if (HasFailure()) return;
      }
    }
  }

  bool HoldsPayload(const std::string& file) const {
    std::ifstream in(Store() + "/" + file, std::ios::binary);
    const std::string bytes((std::istreambuf_iterator<char>(in)), {});
    return bytes.find("9/1bbbb") != std::string::npos ||
           bytes.find(std::string(100, 's')) != std::string::npos;
  }
};

TEST_F(RecoveryTest, WithoutDamageNothingIsSaid) {
  for (const bool closed : {true, false}) {
    ASSERT_NO_FATAL_FAILURE(MakeStore(closed));
    ASSERT_OK_AND_ASSIGN(const auto reader, Open(Mode::kRead));
    EXPECT_THAT(reader->report().warnings, IsEmpty());
    ExpectReadsAndWrites();
  }
}

TEST_F(RecoveryTest, AnyOneFileThatIsGoneCostsNoRow) {
  ForEachFile([&](const std::string& file) {
    // Its arrays are lost with it; the rows are not.
    if (HoldsPayload(file)) return;
    fs::remove(Store() + "/" + file);
    ExpectReadsAndWrites();
  });
}

TEST_F(RecoveryTest, AnyOneFileThatIsCutOrEmptiedCostsNoRow) {
  ForEachFile([&](const std::string& file) {
    if (HoldsPayload(file)) return;
    fs::resize_file(Store() + "/" + file,
                    fs::file_size(Store() + "/" + file) / 2);
    ExpectReadsAndWrites();
  });
}

// What is mended is whole from then on: what is committed next stands twice, and
// a kill costs none of it.
TEST_F(RecoveryTest, WhatIsCommittedAfterDamageOutlivesAKill) {
  ASSERT_NO_FATAL_FAILURE(MakeStore(/*closed=*/true));
  {
    // Blocks of arrays are in the newest record.
    ASSERT_OK_AND_ASSIGN(const auto database, Open());
    ASSERT_NO_FATAL_FAILURE(SaveOne(*database, 3));
    ASSERT_OK(database->Close());
  }
  const auto model = std::tuple(rows_, blocks_, commits_);
  fs::copy(Store(), dir_ / "kept", fs::copy_options::recursive);
  std::vector<std::string> files;
  for (const auto& entry : fs::directory_iterator(dir_ / "kept/journal")) {
    files.push_back(entry.path().filename());
  }
  for (const std::string& file : files) {
    for (const bool cut : {false, true}) {
      SCOPED_TRACE(file + (cut ? " is cut" : " is gone"));
      std::tie(rows_, blocks_, commits_) = model;
      fs::remove_all(Store());
      fs::copy(dir_ / "kept", Store(), fs::copy_options::recursive);
      if (cut) {
        fs::resize_file(Store() + "/journal/" + file, 100);
      } else {
        fs::remove(Store() + "/journal/" + file);
      }
      fs::remove_all(dir_ / "live");
      {
        ASSERT_OK_AND_ASSIGN(const auto database, Open());
        // What the background would do, but nothing of it during the copy.
        ASSERT_OK(database->WriteRows());
        ASSERT_OK(database->WriteRows());
        ASSERT_NO_FATAL_FAILURE(SaveOne(*database, 4));
        ASSERT_NO_FATAL_FAILURE(SaveOne(*database, 5));
        std::error_code went;
        do {
          fs::remove_all(dir_ / "live");
          fs::copy(Store(), dir_ / "live", fs::copy_options::recursive, went);
        } while (went);
        ASSERT_OK(database->Close());
      }
      fs::remove_all(Store());
      fs::rename(dir_ / "live", Store());
      ASSERT_OK_AND_ASSIGN(const auto database, Open());
      ASSERT_NO_FATAL_FAILURE(ExpectAll(*database));
      EXPECT_THAT(database->report().warnings, IsEmpty());
    }
  }
}

TEST_F(RecoveryTest, FlippedBytesAnywhereCostNoRow) {
  ForEachFile([&](const std::string& file) {
    if (HoldsPayload(file)) return;
    const std::string path = Store() + "/" + file;
    const std::uint64_t size = std::min<std::uint64_t>(
        fs::file_size(path), std::uint64_t{12} << 10);
    // A few in each file; trial_judged_test does them all.
    const std::uint64_t stride = std::max<std::uint64_t>(1, size / 12);
    for (std::uint64_t at = stride / 2; at < size; at += stride) {
      fs::remove_all(Store());
      fs::copy(dir_ / "whole", Store(), fs::copy_options::recursive);
      testing::FlipByte(path, at);
      SCOPED_TRACE(at);
      ExpectReadsAndWrites();
      if (HasFailure()) return;
    }
  });
}

// The blocks of a record stand in its first copy alone: where its header or rows
// are damaged there, the second copy says where, and digests which are whole.
TEST_F(RecoveryTest, DamageOfARecordCostsNoneOfItsBlocks) {
  ASSERT_NO_FATAL_FAILURE(MakeStore(/*closed=*/false));
  fs::rename(Store(), dir_ / "whole");
  const std::string name = "/journal/a-0000000002";
  std::ifstream in((dir_ / "whole") + name, std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(in)), {});
  const std::size_t block = bytes.find(std::string(100, 's'));
  ASSERT_NE(block, bytes.npos);
  const std::size_t record = bytes.rfind("CKJR", block);
  ASSERT_NE(record, bytes.npos);
  for (std::size_t at = record; at < block; at += 7) {
    SCOPED_TRACE(at - record);
    fs::remove_all(Store());
    fs::copy(dir_ / "whole", Store(), fs::copy_options::recursive);
    testing::FlipByte(Store() + name, at);
    ASSERT_NO_FATAL_FAILURE(ExpectReadsAndWrites());
  }
}

TEST_F(RecoveryTest, TheNoteOfTheTipMayHaveChangedNamesWithAFile) {
  ASSERT_NO_FATAL_FAILURE(MakeStore(/*closed=*/false));
  const std::string journal = Store() + "/journal/";
  fs::rename(journal + "tip", journal + "x");
  fs::rename(journal + "a-0000000002", journal + "tip");
  fs::rename(journal + "x", journal + "a-0000000002");
  ExpectReadsAndWrites();
}

TEST_F(RecoveryTest, ANameAloneSaysNothingOfRows) {
  for (const bool closed : {true, false}) {
    for (const std::string content : {"", "no rows at all"}) {
      ASSERT_NO_FATAL_FAILURE(MakeStore(closed));
      std::ofstream(Store() + "/journal/rows-00000000000000000099") << content;
      ASSERT_NO_FATAL_FAILURE(ExpectReadsAndWrites());
    }
  }
}

TEST_F(RecoveryTest, ALockFileOfAnySizeIsOne) {
  ASSERT_NO_FATAL_FAILURE(MakeStore(/*closed=*/true));
  fs::resize_file(Store() + "/LOCK", std::uintmax_t{2} << 20);
  ExpectReadsAndWrites();
}

TEST_F(RecoveryTest, AnIndexOfAnotherTimeIsBroughtUpToDate) {
  ASSERT_NO_FATAL_FAILURE(MakeStore(/*closed=*/true));
  fs::copy(Store() + "/db", dir_ / "old", fs::copy_options::recursive);
  {
    ASSERT_OK_AND_ASSIGN(const auto database, Open());
    for (int i = 0; i < 5; ++i) {
      PutOne(*database, "newer" + std::to_string(i), "n");
    }
  }
  fs::remove_all(Store() + "/db");
  fs::rename(dir_ / "old", Store() + "/db");
  ExpectReadsAndWrites();
}

TEST_F(RecoveryTest, ALostTipIsToldAndNotForgotten) {
  ASSERT_NO_FATAL_FAILURE(MakeStore(/*closed=*/false));
  // Both copies of the newest file.
  std::vector<std::string> newest;
  for (const std::string& file : Files()) {
    if (file.starts_with("journal/a-") || file.starts_with("journal/b-")) {
      if (file.ends_with("2")) newest.push_back(file);
    }
  }
  ASSERT_EQ(newest.size(), 2);
  for (const std::string& file : newest) fs::remove(Store() + "/" + file);
  EXPECT_THAT(Open(), StatusIs(absl::StatusCode::kDataLoss,
                               HasSubstr("acknowledged and are missing")));
  EXPECT_THAT(Open(), StatusIs(absl::StatusCode::kDataLoss));
  ASSERT_OK_AND_ASSIGN(const auto reader, Open(Mode::kRead));
  EXPECT_THAT(reader->report().lost, Not(IsOk()));
  EXPECT_THAT(reader->Get(Space::kRecords, RecordKey("k0")),
              IsOkAndHolds(Not(std::nullopt)));
  EXPECT_THAT(Create(), StatusIs(absl::StatusCode::kAlreadyExists));
}

// Both copies of records are gone that the index has all rows of.
TEST_F(RecoveryTest, WhatTheIndexHasIsNotLostWithTheJournal) {
  for (const bool note : {true, false}) {
    SCOPED_TRACE(note);
    ASSERT_NO_FATAL_FAILURE(MakeStore(/*closed=*/true));
    {
      ASSERT_OK_AND_ASSIGN(const auto database, Open());
      PutOne(*database, "newest", "n");
      ASSERT_OK(database->Close());
    }
    std::string newest;
    for (const std::string& file : Files()) {
      if (file.starts_with("journal/a-")) newest = file;
    }
    ASSERT_EQ(newest, "journal/a-0000000003");
    fs::remove(Store() + "/" + newest);
    fs::remove(Store() + "/journal/b-0000000003");
    if (!note) {
      fs::remove(Store() + "/journal/tip");
      fs::remove_all(Store() + "/journal/a-0000000002");
      EXPECT_THAT(Open(), StatusIs(absl::StatusCode::kDataLoss,
                                   HasSubstr("nobody can tell")));
      ASSERT_OK_AND_ASSIGN(const auto reader, Open(Mode::kRead));
      EXPECT_THAT(reader->report().lost, Not(IsOk()));
      EXPECT_THAT(reader->Get(Space::kRecords, RecordKey("newest")),
                  IsOkAndHolds(std::optional<std::string>("n")));
      continue;
    }
    ASSERT_NO_FATAL_FAILURE(ExpectReadsAndWrites());
    ASSERT_OK_AND_ASSIGN(const auto reader, Open(Mode::kRead));
    EXPECT_THAT(reader->report().warnings, IsEmpty());
  }
}

// The same, and nothing is committed after: what the open began says enough.
TEST_F(RecoveryTest, AnOpenAloneMendsTheEndOfTheJournal) {
  ASSERT_NO_FATAL_FAILURE(MakeStore(/*closed=*/true));
  {
    ASSERT_OK_AND_ASSIGN(const auto database, Open());
    ASSERT_OK(database->Close());
  }
  for (const std::string copy : {"a", "b"}) {
    fs::remove(Store() + "/journal/" + copy + "-0000000002");
  }
  {
    ASSERT_OK_AND_ASSIGN(const auto database, Open());
    ExpectAll(*database);
    EXPECT_THAT(database->report().warnings,
                Contains(HasSubstr("the index has the rows")));
    ASSERT_OK(database->Close());
  }
  {
    ASSERT_OK_AND_ASSIGN(const auto database, Open());
    ExpectAll(*database);
    EXPECT_THAT(database->report().warnings, IsEmpty());
  }
  // Now the index, for the rows are in the journal again.
  fs::remove_all(Store() + "/db/CURRENT");
  ExpectReadsAndWrites();
}

TEST_F(RecoveryTest, AFileOfAllRowsThatIsGoneIsToldAndMadeAnew) {
  ASSERT_NO_FATAL_FAILURE(MakeStore(/*closed=*/true));
  const auto rows_files = [this] {
    std::vector<std::string> found;
    for (const std::string& file : Files()) {
      if (file.starts_with("journal/rows-")) found.push_back(file);
    }
    return found;
  };
  {
    ASSERT_OK_AND_ASSIGN(const auto database, Open());
    ASSERT_OK(database->WriteRows());
    ASSERT_OK(database->Close());
  }
  ASSERT_EQ(rows_files().size(), 1);
  fs::remove(Store() + "/" + rows_files()[0]);
  {
    ASSERT_OK_AND_ASSIGN(const auto reader, Open(Mode::kRead));
    ExpectAll(*reader);
    EXPECT_THAT(reader->report().warnings,
                Contains(HasSubstr("is missing: the index alone has")));
  }
  {
    ASSERT_OK_AND_ASSIGN(const auto database, Open());
    ASSERT_OK(database->Close());
  }
  EXPECT_EQ(rows_files().size(), 1);
  fs::remove_all(Store() + "/db/CURRENT");
  ExpectReadsAndWrites();
}

// A file of all rows is known by what it says, whatever its name.
TEST_F(RecoveryTest, AFileOfAllRowsMayHaveAnotherName) {
  for (const bool copied : {true, false}) {
    SCOPED_TRACE(copied);
    ASSERT_NO_FATAL_FAILURE(MakeStore(/*closed=*/true));
    std::string rows;
    {
      ASSERT_OK_AND_ASSIGN(const auto database, Open());
      ASSERT_OK(database->WriteRows());
      ASSERT_NO_FATAL_FAILURE(SaveOne(*database, 3));
      ASSERT_OK(database->Close());
    }
    for (const std::string& file : Files()) {
      if (file.starts_with("journal/rows-")) rows = Store() + "/" + file;
    }
    ASSERT_NE(rows, "");
    const std::string other = Store() + "/journal/rows-00000000000000000099";
    if (copied) {
      fs::copy(rows, other);
    } else {
      fs::rename(rows, other);
    }
    fs::remove_all(Store() + "/db/CURRENT");
    ASSERT_NO_FATAL_FAILURE(ExpectReadsAndWrites());
    EXPECT_FALSE(fs::exists(other));
  }
}

TEST_F(RecoveryTest, ManyCommitsGoIntoTheFileOfAllRows) {
  options_.journal_file_bytes = 1200 << 10;
  options_.journal_rows_bytes = 64 << 10;
  {
    ASSERT_OK_AND_ASSIGN(const auto database, Create());
    commits_ = 1;
    for (int i = 0; i < 300; ++i) {
      PutOne(*database, "k" + std::to_string(i % 50),
             std::string(700, static_cast<char>('a' + i % 26)));
    }
    ASSERT_OK(database->WriteRows());
    PutOne(*database, "last", "1");
    ASSERT_OK_AND_ASSIGN(const StagedSegment segment,
                         Stage(*database, 9, Space::kChunks, 4, 1000));
    ASSERT_OK(database->Adopt({segment}));
  }
  int rows = 0;
  int copies = 0;
  for (const std::string& file : Files()) {
    rows += file.starts_with("journal/rows-") ? 1 : 0;
    copies += file.starts_with("journal/a-") ? 1 : 0;
  }
  EXPECT_EQ(rows, 1);
  // 300 commits take seven files.
  EXPECT_LE(copies, 2);
  fs::remove_all(Store() + "/db/CURRENT");
  ExpectReadsAndWrites();
}

TEST_F(RecoveryTest, AnOpenThatCommitsNothingMakesNoFile) {
  ASSERT_NO_FATAL_FAILURE(MakeStore(/*closed=*/true));
  const std::vector<std::string> before = Files();
  for (int i = 0; i < 5; ++i) {
    ASSERT_OK_AND_ASSIGN(const auto database, Open());
  }
  std::vector<std::string> journal;
  for (const std::string& file : Files()) {
    if (file.starts_with("journal/")) journal.push_back(file);
    EXPECT_FALSE(file.ends_with(".damaged")) << file;
  }
  for (const std::string& file : before) {
    if (file.starts_with("journal/")) std::erase(journal, file);
  }
  EXPECT_THAT(journal, IsEmpty());
  EXPECT_LT(Files().size(), before.size() + 4);
}

// Where two names cannot be exchanged, a crash between two renames leaves the
// new index alone.
TEST_F(RecoveryTest, AnIndexUnderItsNewNameIsRead) {
  ASSERT_NO_FATAL_FAILURE(MakeStore(/*closed=*/true));
  fs::rename(Store() + "/db", Store() + "/db.new");
  {
    ASSERT_OK_AND_ASSIGN(const auto reader, Open(Mode::kRead));
    ASSERT_NO_FATAL_FAILURE(ExpectAll(*reader));
    EXPECT_OK(reader->FileBytes());
  }
  EXPECT_FALSE(fs::exists(Store() + "/db"));
  ASSERT_OK_AND_ASSIGN(const auto writer, Open());
  ASSERT_NO_FATAL_FAILURE(ExpectAll(*writer));
  EXPECT_FALSE(fs::exists(Store() + "/db.new"));
}

TEST_F(RecoveryTest, LinksAreRefused) {
  ASSERT_NO_FATAL_FAILURE(MakeStore(/*closed=*/true));
  fs::create_symlink("/etc/hostname", Store() + "/db/000999.sst");
  EXPECT_THAT(Open(), StatusIs(absl::StatusCode::kFailedPrecondition,
                               HasSubstr("link")));
  EXPECT_THAT(Open(Mode::kRead),
              StatusIs(absl::StatusCode::kFailedPrecondition));
  fs::remove(Store() + "/db/000999.sst");
  fs::rename(Store() + "/journal/tip", dir_ / "tip");
  fs::create_symlink(dir_ / "tip", Store() + "/journal/tip");
  EXPECT_THAT(Open(), StatusIs(absl::StatusCode::kFailedPrecondition));
}

TEST_F(RecoveryTest, TheCheckDecidesBeforeAnythingChanges) {
  ASSERT_NO_FATAL_FAILURE(MakeStore(/*closed=*/true));
  const std::vector<std::string> files = Files();
  EXPECT_THAT(Report(), IsOk());
  EXPECT_EQ(Files(), files);
}

TEST_F(RecoveryTest, ACopyIsANewIncarnation) {
  ASSERT_NO_FATAL_FAILURE(MakeStore(/*closed=*/true));
  fs::rename(Store(), dir_ / "original");
  fs::copy(dir_ / "original", Store(), fs::copy_options::recursive);
  {
    ASSERT_OK_AND_ASSIGN(const OpenReport found, Report());
    EXPECT_TRUE(found.copied);
    EXPECT_EQ(found.incarnation, 2);
  }
  {
    ASSERT_OK_AND_ASSIGN(const auto database, Open());
    ASSERT_EQ(Put(*database, "here", "v").outcome, Outcome::kCommitted);
  }
  ASSERT_OK_AND_ASSIGN(const OpenReport report, Report());
  EXPECT_FALSE(report.copied);
  EXPECT_EQ(report.incarnation, 2);
}

TEST_F(RecoveryTest, HighestVersionComesFromEverywhere) {
  {
    ASSERT_OK_AND_ASSIGN(const auto database, Create());
    ASSERT_EQ(SmallSave(*database, 4).outcome, Outcome::kCommitted);
    ASSERT_OK_AND_ASSIGN(const StagedSegment segment,
                         Stage(*database, 9, Space::kChunks, 2, 100));
    ASSERT_OK(database->Adopt({segment}));
  }
  EXPECT_EQ(Report()->highest_version, 9);
  {
    ASSERT_OK_AND_ASSIGN(const auto database, Open());
    ASSERT_OK(database->MakeStaging("v12-x"));
    EXPECT_THAT(database->MakeStaging("../x"),
                StatusIs(absl::StatusCode::kInvalidArgument));
  }
  EXPECT_EQ(Report()->highest_version, 12);
  {
    ASSERT_OK_AND_ASSIGN(const auto database, Open());
    EXPECT_THAT(database->ListStaging(),
                IsOkAndHolds(::testing::ElementsAre("v12-x")));
    ASSERT_OK(database->RemoveStaging("v12-x"));
    EXPECT_THAT(database->ListStaging(), IsOkAndHolds(IsEmpty()));
  }
}

// RocksDB 7.8 drops every key of a database that only ever ingested when it
// compacts beside a snapshot; creation writes rows to a file, which keeps ours from being one.
TEST_F(RecoveryTest, AdoptedKeysSurviveACompactionBesideASnapshot) {
  {
    ASSERT_OK_AND_ASSIGN(const auto database, Create());
    ASSERT_OK_AND_ASSIGN(const StagedSegment segment,
                         Stage(*database, 1, Space::kChunks, 10, 100));
    ASSERT_OK(database->Adopt({segment}));
  }
  EXPECT_THAT(CompactBesideSnapshot(Store() + "/db", Space::kChunks),
              IsOkAndHolds(10 + 9));  // A gap before each but the first.
}

}  // namespace
}  // namespace ckptree::kv
