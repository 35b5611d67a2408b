// SPDX-License-Identifier: Apache-2.0

// Readers beside a writer in another process, and forked children.

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <tuple>
#include <utility>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kv/database.h"
#include "schema/spaces.h"
#include "tests/fault/fs_interrupt.h"
#include "tests/kv/fixture.h"
#include "tests/kv/other_writer.h"
#include "tests/testutil/status_matchers.h"

namespace ckptree::kv {
namespace {

using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;
namespace fs = std::filesystem;

using ::ckptree::testing::IsOk;
using ::ckptree::testing::IsOkAndHolds;
using ::ckptree::testing::StatusIs;
using schema::Space;
using ::testing::Optional;

class ReaderTest : public KvTest {
 protected:
  void MakeStore() {
    ASSERT_OK_AND_ASSIGN(const auto database, Create());
    ASSERT_OK(database->Close());
  }

  std::uint64_t version_ = 0;  // That the other writer used last.
};

// Blocks of arrays stand in the first copy of the journal alone.
TEST_F(ReaderTest, ACommitThatComesWhileTheReaderLooksHasItsBlocks) {
  MakeStore();
  OtherWriter writer(Store());
  char block = '0';
  // An open reads each for its preface first, a refresh the end of the first
  // copy alone.
  for (const auto& [by_open, file, nth] :
       {std::tuple(true, "/tip", 1), std::tuple(true, "a-0000000002", 1),
        std::tuple(true, "a-0000000002", 2),
        std::tuple(true, "b-0000000002", 1),
        std::tuple(true, "b-0000000002", 2), std::tuple(false, "/tip", 1),
        std::tuple(false, "a-0000000002", 1),
        std::tuple(false, "a-0000000002", 2)}) {
    const auto disk = std::make_shared<InterruptedFs>();
    options_.file_system = disk;
    const std::string wanted = std::string("block ") + ++block;
    const auto arm = [&, file = file, nth = nth] {
      writer.Do("x");
      disk->BeforeReading(
          file, [&] { writer.Do(wanted); }, nth);
    };
    if (by_open) arm();
    ASSERT_OK_AND_ASSIGN(const auto reader, Open(Mode::kRead));
    if (!by_open) {
      arm();
      ASSERT_OK(reader->Refresh());
    }
    ASSERT_TRUE(disk->fired()) << file << nth << by_open;
    ASSERT_OK_AND_ASSIGN(const auto line,
                         reader->Get(Space::kRecords, RecordKey("line")));
    if (line == wanted) {
      EXPECT_THAT(reader->Get(Space::kSmall, BlockKey(wanted)),
                  IsOkAndHolds(Optional(std::string(2000, 'b'))))
          << file << nth << by_open;
    }
    ASSERT_OK(reader->Refresh());
    EXPECT_THAT(reader->Get(Space::kRecords, RecordKey("line")),
                IsOkAndHolds(Optional(wanted)));
    EXPECT_THAT(reader->Get(Space::kSmall, BlockKey(wanted)),
                IsOkAndHolds(Optional(std::string(2000, 'b'))));
  }
}

TEST_F(ReaderTest, FollowsAWriterInAnotherProcess) {
  MakeStore();
  ASSERT_OK_AND_ASSIGN(const auto reader, Open(Mode::kRead));
  EXPECT_FALSE(reader->following());
  OtherWriter writer(Store());
  EXPECT_THAT(Open(), StatusIs(absl::StatusCode::kUnavailable));
  ASSERT_OK(reader->Refresh());
  EXPECT_TRUE(reader->following());
  for (int i = 0; i < 20; ++i) {
    const std::string line = i % 5 == 4 ? "flush" : std::to_string(i);
    ASSERT_NE(writer.Do(line), "0");
    ASSERT_OK(reader->Refresh());
    EXPECT_THAT(reader->Get(Space::kRecords, RecordKey("line")),
                IsOkAndHolds(Optional(line)));
  }
  ASSERT_OK_AND_ASSIGN(const auto late, Open(Mode::kRead));
  EXPECT_TRUE(late->following());
  EXPECT_THAT(late->Get(Space::kRecords, RecordKey("line")),
              IsOkAndHolds(Optional(std::string("flush"))));

  writer.Kill();
  ASSERT_OK(reader->Refresh());
  EXPECT_FALSE(reader->following());
  EXPECT_THAT(reader->Get(Space::kRecords, RecordKey("line")),
              IsOkAndHolds(Optional(std::string("flush"))));
  // A killed writer leaves a store that opens, with all it acknowledged.
  ASSERT_OK_AND_ASSIGN(const auto database, Open());
  EXPECT_EQ(database->report().ordinal, 21);
  ASSERT_EQ(Put(*database, "line", "mine").outcome, Outcome::kCommitted);
  ASSERT_OK(reader->Refresh());
  EXPECT_TRUE(reader->following());
  EXPECT_THAT(reader->Get(Space::kRecords, RecordKey("line")),
              IsOkAndHolds(Optional(std::string("mine"))));
  ASSERT_OK(database->Close());
  ASSERT_OK(reader->Refresh());
  EXPECT_FALSE(reader->following());
}

TEST_F(ReaderTest, SaysWhichRowsARefreshChanged) {
  ASSERT_OK_AND_ASSIGN(auto writer, Create());
  ASSERT_OK(Put(*writer, "before", "1").status);
  ASSERT_OK_AND_ASSIGN(const auto reader, Open(Mode::kRead));
  const std::uint64_t first = reader->view();
  ASSERT_OK(Put(*writer, "a", "1").status);
  ASSERT_OK(reader->Refresh());
  const std::uint64_t second = reader->view();
  ASSERT_OK(Put(*writer, "b", "2").status);
  CommitRequest erase;
  erase.kind = CommitKind::kTag;
  erase.batch.Delete(Space::kRecords, RecordKey("before"));
  ASSERT_OK(writer->Commit(std::move(erase)).status);
  ASSERT_OK(reader->Refresh());
  auto changes = reader->ChangesSince(first);
  ASSERT_TRUE(changes.has_value());
  EXPECT_EQ(changes->view, reader->view());
  EXPECT_THAT(changes->keys,
              UnorderedElementsAre(RecordKey("a"), RecordKey("b"),
                                   RecordKey("before")));
  changes = reader->ChangesSince(second);
  ASSERT_TRUE(changes.has_value());
  EXPECT_THAT(changes->keys,
              UnorderedElementsAre(RecordKey("b"), RecordKey("before")));
  // Those before were forgotten.
  EXPECT_FALSE(reader->ChangesSince(first).has_value());
  const std::uint64_t third = reader->view();
  EXPECT_THAT(reader->ChangesSince(third)->keys, IsEmpty());
  // The index is opened anew where the writer goes.
  ASSERT_OK(writer->Close());
  ASSERT_OK(reader->Refresh());
  EXPECT_FALSE(reader->ChangesSince(third).has_value());
}

TEST_F(ReaderTest, ViewsStayValidWhenTheWriterDropsTheFile) {
  MakeStore();
  OtherWriter writer(Store());
  ASSERT_OK_AND_ASSIGN(const auto reader, Open(Mode::kRead));
  writer.Do("segment");
  EXPECT_THAT(reader->Get(Space::kRecords, RecordKey("line")),
              IsOkAndHolds(std::nullopt));
  ASSERT_OK(reader->Refresh());
  EXPECT_THAT(reader->Get(Space::kRecords, RecordKey("line")),
              IsOkAndHolds(Optional(std::string("segment"))));
  ASSERT_OK_AND_ASSIGN(const Value view,
                       reader->View(Space::kChunks, VersionKey(1, "a")));
  EXPECT_EQ(view.view(), std::string(9999, 'c'));
  writer.Do("drop");
  // Until it catches up, the reader sees what it saw.
  ASSERT_OK_AND_ASSIGN(const Value again,
                       reader->View(Space::kChunks, VersionKey(1, "b")));
  EXPECT_EQ(again.view(), "last");
  ASSERT_OK(reader->Refresh());
  EXPECT_EQ(view.view(), std::string(9999, 'c'));
}

// A commit that comes while the reader looks is seen as a whole or not at all,
// and what it refers to is there.
TEST_F(ReaderTest, ACommitThatComesWhileTheReaderLooksIsWhole) {
  MakeStore();
  OtherWriter writer(Store());
  for (const auto& [by_open, file] :
       {std::pair(true, "/tip"), std::pair(true, "a-0000000002"),
        std::pair(true, "b-0000000002"), std::pair(false, "/tip"),
        std::pair(false, "a-0000000002")}) {
    const auto disk = std::make_shared<InterruptedFs>();
    options_.file_system = disk;
    const auto arm = [&, file = file] {
      writer.Do("x");
      disk->BeforeReading(file, [&] { writer.Do("segment"); });
    };
    if (by_open) arm();
    ASSERT_OK_AND_ASSIGN(const auto reader, Open(Mode::kRead));
    if (!by_open) {
      arm();
      ASSERT_OK(reader->Refresh());
    }
    ASSERT_TRUE(disk->fired()) << file << by_open;
    EXPECT_THAT(
        reader->Get(Space::kRecords, RecordKey("line")),
        IsOkAndHolds(Optional(::testing::AnyOf(std::string("x"), "segment"))));
    ASSERT_OK(reader->Refresh());
    ASSERT_THAT(reader->Get(Space::kRecords, RecordKey("line")),
                IsOkAndHolds(Optional(std::string("segment"))));
    ++version_;
    EXPECT_OK(reader->View(Space::kChunks, VersionKey(version_, "a")));
    EXPECT_OK(reader->Read(Space::kChunks, VersionKey(version_, "b")));
  }
}

// A file that goes while it is about to be opened leaves no reader with an old
// list of files.
TEST_F(ReaderTest, AFileThatGoesWhileTheReaderOpensIsNoDamage) {
  MakeStore();
  OtherWriter writer(Store());
  const auto disk = std::make_shared<InterruptedFs>();
  options_.file_system = disk;
  writer.Do("segment");
  disk->BeforeReading(".sst", [&] {
    writer.Do("drop");
    writer.Do("segment");
  });
  ASSERT_OK_AND_ASSIGN(const auto reader, Open(Mode::kRead));
  ASSERT_TRUE(disk->fired());
  ASSERT_OK(reader->Refresh());
  EXPECT_THAT(reader->Get(Space::kRecords, RecordKey("line")),
              IsOkAndHolds(Optional(std::string("segment"))));
  EXPECT_OK(reader->View(Space::kChunks, VersionKey(2, "a")));
  EXPECT_THAT(reader->report().warnings, ::testing::IsEmpty());
}

// The writer may write all rows to files and drop the journal's while a reader
// is between the two: it sees no half of a commit, and no older one.
TEST_F(ReaderTest, AJournalThatGoesWhileTheReaderOpensIsNotMissed) {
  MakeStore();
  OtherWriter writer(Store());
  writer.Do("small");
  for (const char* const file : {".sst", "/tip"}) {
    const auto disk = std::make_shared<InterruptedFs>();
    options_.file_system = disk;
    writer.Do("x");
    disk->BeforeReading(file, [&] {
      writer.Do("fill small");
      writer.Do("rows");
      writer.Do("y");
    });
    ASSERT_OK_AND_ASSIGN(const auto reader, Open(Mode::kRead));
    ASSERT_TRUE(disk->fired()) << file;
    EXPECT_THAT(reader->Get(Space::kRecords, RecordKey("line")),
                IsOkAndHolds(Optional(::testing::AnyOf(
                    std::string("x"), "fill small", "rows", "y"))));
    EXPECT_THAT(reader->Get(Space::kSmall, RecordKey("small")),
                IsOkAndHolds(Optional(std::string("value"))));
    ASSERT_OK(reader->Refresh());
    EXPECT_THAT(reader->Get(Space::kRecords, RecordKey("line")),
                IsOkAndHolds(Optional(std::string("y"))));
    EXPECT_THAT(reader->Get(Space::kSmall, RecordKey("small")),
                IsOkAndHolds(Optional(std::string("value"))));
  }
}

TEST_F(ReaderTest, ReadingChangesNothingInTheStore) {
  MakeStore();
  const auto listing = [&] {
    std::string text;
    for (const auto& entry : fs::recursive_directory_iterator(Store())) {
      text +=
          entry.path().string() + " " +
          std::to_string(entry.last_write_time().time_since_epoch().count()) +
          "\n";
    }
    return text;
  };
  const std::string before = listing();
  {
    ASSERT_OK_AND_ASSIGN(const auto reader, Open(Mode::kRead));
    EXPECT_OK(reader->Refresh());
    EXPECT_EQ(Put(*reader, "a", "1").outcome, Outcome::kFailed);
    EXPECT_THAT(reader->Secure(),
                StatusIs(absl::StatusCode::kFailedPrecondition));
  }
  EXPECT_EQ(listing(), before);
  OtherWriter writer(Store());
  writer.Do("x");
  const std::string beside = listing();
  {
    ASSERT_OK_AND_ASSIGN(const auto reader, Open(Mode::kRead));
    EXPECT_TRUE(reader->following());
    EXPECT_OK(reader->Refresh());
  }
  EXPECT_EQ(listing(), beside);
}

TEST_F(ReaderTest, AForkedChildIsRefusedAndHarmless) {
  ASSERT_OK_AND_ASSIGN(auto database, Create());
  ASSERT_EQ(Put(*database, "a", "1").outcome, Outcome::kCommitted);
  auto scan =
      std::make_unique<Iterator>(*database->Scan(Space::kRecords, "", ""));
  auto value =
      std::make_unique<Value>(*database->Read(Space::kRecords, RecordKey("a")));
  const pid_t child = fork();
  if (child == 0) {
    alarm(5);  // Hanging is the failure this looks for.
    if (Put(*database, "a", "child").outcome != Outcome::kFenced) _exit(1);
    if (!absl::IsFailedPrecondition(
            database->Get(Space::kRecords, "a").status())) {
      _exit(2);
    }
    if (!absl::IsFailedPrecondition(database->Secure())) _exit(3);
    if (!absl::IsFailedPrecondition(database->Close())) _exit(4);
    scan.reset();
    value.reset();
    database.reset();
    _exit(0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status)) << status;
  EXPECT_EQ(WEXITSTATUS(status), 0);
  scan.reset();
  value.reset();
  EXPECT_EQ(Put(*database, "a", "2").outcome, Outcome::kCommitted);
  ASSERT_OK(database->Close());
  ASSERT_OK_AND_ASSIGN(const auto reopened, Open());
  EXPECT_THAT(reopened->Get(Space::kRecords, RecordKey("a")),
              IsOkAndHolds(Optional(std::string("2"))));
}

}  // namespace
}  // namespace ckptree::kv
