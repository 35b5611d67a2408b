// SPDX-License-Identifier: Apache-2.0

// Two damages at once that the index, or the file of all rows, makes good.

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kv/database.h"
#include "schema/spaces.h"
#include "tests/kv/recovery_fixture.h"
#include "tests/testutil/flip_byte.h"
#include "tests/testutil/status_matchers.h"

namespace ckptree::kv {
namespace {

namespace fs = std::filesystem;

using ::ckptree::testing::IsOk;
using ::ckptree::testing::IsOkAndHolds;
using ::ckptree::testing::StatusIs;
using schema::Space;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

class EndOfJournalTest : public RecoveryTest {};

// Both copies of records are gone that the index has all rows of.
TEST_F(EndOfJournalTest, WhatTheIndexHasIsNotLostWithTheJournal) {
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
TEST_F(EndOfJournalTest, AnOpenAloneMendsTheEndOfTheJournal) {
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

TEST_F(EndOfJournalTest, AFileOfAllRowsThatIsGoneIsToldAndMadeAnew) {
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

// An open for writing reads all of the journal: what is wrong with a file that
// it does not need is told, and mended.
TEST_F(EndOfJournalTest, EarlierFilesAreMendedToo) {
  ASSERT_NO_FATAL_FAILURE(MakeStore(/*closed=*/true));
  fs::rename(Store(), dir_ / "whole");
  const auto damage = [this](const std::string& file, int how) {
    const std::string path = Store() + "/journal/" + file;
    const std::uintmax_t size = fs::file_size(path);
    if (how == 0) fs::remove(path);
    if (how == 1) fs::resize_file(path, 0);
    if (how == 2) fs::resize_file(path, size / 2);
    if (how == 3) fs::resize_file(path, 100);
    if (how == 4) fs::resize_file(path, size - 100);
    if (how == 5) testing::FlipByte(path, 4096 + 30);
  };
  for (const std::string file :
       {"a-0000000001", "b-0000000001", "a-0000000002", "b-0000000002"}) {
    for (int how = 0; how < 6; ++how) {
      if (how == 4 && file[0] == 'a') continue;  // Zeros behind its seal.
      SCOPED_TRACE(absl::StrFormat("%s, damage %d", file, how));
      fs::remove_all(Store());
      fs::copy(dir_ / "whole", Store(), fs::copy_options::recursive);
      damage(file, how);
      {
        ASSERT_OK_AND_ASSIGN(const auto reader, Open(Mode::kRead));
        std::vector<std::string> ragged;
        EXPECT_THAT(reader->CheckJournal(&ragged).value(),
                    Contains(HasSubstr("journal/" + file)));
        EXPECT_THAT(ragged, IsEmpty());
      }
      {
        ASSERT_OK_AND_ASSIGN(const auto writer, Open());
        ExpectAll(*writer);
        EXPECT_THAT(writer->report().warnings,
                    Contains(HasSubstr("journal/" + file)));
        ASSERT_OK(writer->Close());
      }
      ASSERT_OK_AND_ASSIGN(const auto again, Open(Mode::kRead));
      std::vector<std::string> ragged;
      EXPECT_THAT(again->CheckJournal(&ragged).value(), IsEmpty());
      EXPECT_THAT(ragged, IsEmpty());
    }
  }
}

// Files that the file of all rows covers are dropped, the oldest first; of
// these removals a power cut may keep the later ones alone.
TEST_F(EndOfJournalTest, AnOldFileThatCameBackIsNoGapInTheJournal) {
  ASSERT_NO_FATAL_FAILURE(MakeStore(/*closed=*/true));
  fs::copy(Store() + "/journal", dir_ / "before");
  {
    ASSERT_OK_AND_ASSIGN(const auto database, Open());
    PutOne(*database, "newest", "n");
    ASSERT_OK(database->WriteRows());
    ASSERT_OK(database->Close());
  }
  for (const std::string copy : {"a", "b"}) {
    const std::string first = copy + "-0000000001";
    ASSERT_FALSE(fs::exists(Store() + "/journal/" + first));
    ASSERT_FALSE(fs::exists(Store() + "/journal/" + copy + "-0000000002"));
    fs::copy(dir_ / ("before/" + first), Store() + "/journal/" + first);
  }
  {
    ASSERT_OK_AND_ASSIGN(const auto reader, Open(Mode::kRead));
    ExpectAll(*reader);
    EXPECT_THAT(reader->report().warnings, IsEmpty());
  }
  {
    ASSERT_OK_AND_ASSIGN(const auto writer, Open());
    ExpectAll(*writer);
    EXPECT_THAT(writer->report().warnings, IsEmpty());
    ASSERT_OK(writer->Close());
  }
  // Without that file the index alone has these rows.
  for (const std::string& file : Files()) {
    if (file.starts_with("journal/rows-")) fs::remove(Store() + "/" + file);
  }
  ASSERT_OK_AND_ASSIGN(const auto writer, Open());
  EXPECT_THAT(writer->report().warnings,
              Contains(HasSubstr("the index has the rows")));
}

// The second copy that a kill leaves is whole, but nobody can tell it from what
// power leaves: it is mended without a word, and a verification tells.
TEST_F(EndOfJournalTest, AShortSecondCopyIsMendedByTheNextWriter) {
  ASSERT_NO_FATAL_FAILURE(MakeStore(/*closed=*/false));
  fs::rename(Store(), dir_ / "whole");
  for (const std::uintmax_t left : {0u, 3989u, 4096u, 4500u}) {
    SCOPED_TRACE(left);
    fs::remove_all(Store());
    fs::copy(dir_ / "whole", Store(), fs::copy_options::recursive);
    ASSERT_GT(fs::file_size(Store() + "/journal/b-0000000002"), left);
    fs::resize_file(Store() + "/journal/b-0000000002", left);
    std::vector<std::string> ragged;
    {
      ASSERT_OK_AND_ASSIGN(const auto reader, Open(Mode::kRead));
      EXPECT_THAT(reader->CheckJournal(&ragged).value(), IsEmpty());
      EXPECT_THAT(ragged, Contains(HasSubstr("journal/b-0000000002")));
      EXPECT_THAT(reader->report().warnings, IsEmpty());
    }
    {
      ASSERT_OK_AND_ASSIGN(const auto writer, Open());
      ExpectAll(*writer);
      EXPECT_THAT(writer->report().warnings, IsEmpty());
      ASSERT_OK(writer->Close());
    }
    // One more damage costs nothing again.
    for (const std::string& file : Files()) {
      if (file.starts_with("journal/a-"))
        fs::resize_file(Store() + "/" + file, 0);
    }
    ASSERT_NO_FATAL_FAILURE(ExpectReadsAndWrites());
  }
}

// A crash leaves zeros, or less of it: a byte that is neither is damage.
TEST_F(EndOfJournalTest, AFlippedByteOfASecondCopyIsNoCrash) {
  ASSERT_NO_FATAL_FAILURE(MakeStore(/*closed=*/false));
  const std::string b = Store() + "/journal/b-0000000002";
  const std::uint64_t size = fs::file_size(b);
  fs::rename(Store(), dir_ / "whole");
  for (const bool zero : {true, false}) {
    // In the preface, in the first record, in the last one.
    for (const std::uint64_t at :
         {std::uint64_t{20}, std::uint64_t{4100}, size - 1}) {
      SCOPED_TRACE(::testing::Message() << zero << " " << at);
      fs::remove_all(Store());
      fs::copy(dir_ / "whole", Store(), fs::copy_options::recursive);
      if (zero) {
        const std::uint64_t sector = at / 512 * 512;
        std::fstream file(b, std::ios::in | std::ios::out | std::ios::binary);
        file.seekp(static_cast<std::streamoff>(sector));
        file << std::string(std::min<std::uint64_t>(512, size - sector), '\0');
      } else {
        std::ifstream file(b, std::ios::binary);
        file.seekg(static_cast<std::streamoff>(at));
        // Not to a zero.
        testing::FlipByte(b, at, file.peek() == 4 ? 8 : 4);
      }
      std::vector<std::string> ragged;
      std::vector<std::string> damage;
      {
        ASSERT_OK_AND_ASSIGN(const auto reader, Open(Mode::kRead));
        damage = reader->CheckJournal(&ragged).value();
      }
      const auto names_b = Contains(HasSubstr("journal/b-0000000002"));
      EXPECT_THAT(ragged,
                  zero ? ::testing::Matcher<std::vector<std::string>>(names_b)
                       : IsEmpty());
      EXPECT_THAT(damage,
                  zero ? ::testing::Matcher<std::vector<std::string>>(IsEmpty())
                       : names_b);
      ASSERT_OK_AND_ASSIGN(const auto writer, Open());
      ExpectAll(*writer);
      ASSERT_OK(writer->Close());
    }
  }
}

// The third word on what is the newest: no row is in it.
TEST_F(EndOfJournalTest, ATipThatIsDamagedOrGoneIsToldAndMadeAnew) {
  ASSERT_NO_FATAL_FAILURE(MakeStore(/*closed=*/true));
  const std::string tip = Store() + "/journal/tip";
  std::vector<std::string> ragged;
  for (const std::string& bytes :
       {std::string(4096, 'x'), std::string(4096, '\0'), std::string()}) {
    const bool gone = bytes.empty();
    SCOPED_TRACE(gone);
    if (gone) {
      fs::remove(tip);
    } else {
      std::ofstream(tip, std::ios::binary) << bytes;
    }
    const auto named =
        HasSubstr(gone ? "journal/tip is gone" : "journal/tip is damaged");
    {
      ASSERT_OK_AND_ASSIGN(const auto reader, Open(Mode::kRead));
      EXPECT_THAT(reader->CheckJournal(&ragged).value(), ElementsAre(named));
    }
    {
      ASSERT_OK_AND_ASSIGN(const auto writer, Open());
      ExpectAll(*writer);
      EXPECT_THAT(writer->report().warnings, Contains(named));
      ASSERT_OK(writer->Close());
    }
    ASSERT_OK_AND_ASSIGN(const auto reader, Open(Mode::kRead));
    EXPECT_THAT(reader->CheckJournal(&ragged).value(), IsEmpty());
    EXPECT_THAT(ragged, IsEmpty());
  }
}

// Before the first close it is not synced: a crash of the machine leaves zeros.
TEST_F(EndOfJournalTest, ATipThatWasNeverSyncedMayBeZeros) {
  {
    ASSERT_OK_AND_ASSIGN(const auto database, Create());
    PutOne(*database, "k", "v");
    fs::copy(Store(), dir_ / "live", fs::copy_options::recursive);
    ASSERT_OK(database->Close());
  }
  fs::remove_all(Store());
  fs::rename(dir_ / "live", Store());
  std::ofstream(Store() + "/journal/tip", std::ios::binary)
      << std::string(4096, '\0');
  std::vector<std::string> ragged;
  ASSERT_OK_AND_ASSIGN(const auto reader, Open(Mode::kRead));
  EXPECT_THAT(reader->CheckJournal(&ragged).value(), IsEmpty());
  EXPECT_OK(reader->report().lost);
}

// A file of all rows is known by what it says, whatever its name.
TEST_F(EndOfJournalTest, AFileOfAllRowsMayHaveAnotherName) {
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

}  // namespace
}  // namespace ckptree::kv
