// Two damages at once that the index, or the file of all rows, makes good.

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kv/database.h"
#include "schema/spaces.h"
#include "tests/kv_recovery_fixture.h"
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
