// SPDX-License-Identifier: Apache-2.0

// Readers beside a writer in another process, and forked children.

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <iostream>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kv/database.h"
#include "schema/spaces.h"
#include "tests/fault/fs_interrupt.h"
#include "tests/kv/fixture.h"
#include "tests/testutil/status_matchers.h"

namespace ckptree::kv {
namespace {

namespace fs = std::filesystem;

using ::ckptree::testing::IsOk;
using ::ckptree::testing::IsOkAndHolds;
using ::ckptree::testing::StatusIs;
using schema::Space;
using ::testing::Optional;

constexpr const char* kWriterVariable = "CKPTREE_TEST_WRITER_STORE";
// The key of a block of arrays that the line "block N" commits.
std::string BlockKey(const std::string& line) {
  return VersionKey(1, std::string("\0\0\2\0\0\0", 6) + line.back());
}

// The other process: this program, started again. Commits each line it reads
// as the value of "line" and answers with the ordinal. "segment" adopts one,
// "drop" drops it, "flush" flushes, "small" writes to kSmall too, "fill ..."
// so much to a space that it alone is flushed at the next commit.
bool RunWriterIfAsked() {
  const char* const store = std::getenv(kWriterVariable);
  if (store == nullptr) return false;
  auto database = Database::Open(
      store, Options(), Mode::kReadWrite,
      [](const Database&, const OpenReport&) { return absl::OkStatus(); });
  if (!database.ok()) {
    std::cout << database.status() << std::endl;
    _exit(1);
  }
  std::cout << "open" << std::endl;
  std::uint64_t version = 0;
  const std::string large(9 << 20, 'f');
  for (std::string line; std::getline(std::cin, line);) {
    if (line == "segment") {
      ++version;
      auto writer = SegmentWriter::Create(
          Options(), Space::kChunks,
          (*database)->staging_directory() + "/s" + std::to_string(version), 0);
      if (!writer.ok() ||
          !(*writer)
               ->Add(VersionKey(version, "a"), std::string(9999, 'c'))
               .ok() ||
          !(*writer)->AddAligned(VersionKey(version, "b"), "last").ok()) {
        _exit(2);
      }
      const auto staged = (*writer)->Finish();
      if (!staged.ok() || !(*database)->Adopt({*staged}).ok()) _exit(3);
    } else if (line == "drop") {
      if (!(*database)
               ->Drop(Space::kChunks,
                      {{VersionKey(version, ""), VersionKey(version + 1, "")}})
               .ok()) {
        _exit(4);
      }
    } else if (line == "flush") {
      if (!(*database)->Secure().ok()) _exit(5);
    } else if (line == "rows") {
      if (!(*database)->WriteRows().ok()) _exit(6);
    }
    CommitRequest request;
    request.version = version;
    if (line.starts_with("block")) {
      request.batch.PutBlock(BlockKey(line), std::string(2000, 'b'));
    } else if (line == "small") {
      request.batch.Put(Space::kSmall, RecordKey("small"), "value");
    } else if (line == "fill records") {
      request.batch.Put(Space::kRecords, RecordKey("fill"), large);
    } else if (line == "fill small") {
      request.batch.Put(Space::kSmall, RecordKey("fill"), large);
    }
    request.batch.Put(Space::kRecords, RecordKey("line"), line);
    const CommitResult result = (*database)->Commit(std::move(request));
    std::cout << result.ordinal << std::endl;
  }
  _exit(0);
}

// Before main: the child never runs a test.
const bool is_writer = RunWriterIfAsked();

class OtherWriter {
 public:
  explicit OtherWriter(const std::string& store) {
    std::array<int, 2> to{};
    std::array<int, 2> from{};
    EXPECT_EQ(pipe(to.data()), 0);
    EXPECT_EQ(pipe(from.data()), 0);
    pid_ = fork();
    if (pid_ == 0) {
      dup2(to[0], STDIN_FILENO);
      dup2(from[1], STDOUT_FILENO);
      for (const int end : {to[0], to[1], from[0], from[1]}) close(end);
      setenv(kWriterVariable, store.c_str(), 1);
      execl("/proc/self/exe", "writer", nullptr);
      _exit(127);
    }
    close(to[0]);
    close(from[1]);
    to_ = to[1];
    from_ = fdopen(from[0], "r");
    EXPECT_EQ(Line(), "open");
  }
  ~OtherWriter() { Kill(); }

  std::string Do(const std::string& line) {
    const std::string text = line + "\n";
    EXPECT_EQ(write(to_, text.data(), text.size()),
              static_cast<ssize_t>(text.size()));
    return Line();
  }

  // As a crash: nothing is closed.
  void Kill() {
    if (pid_ == 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    pid_ = 0;
    close(to_);
    fclose(from_);
  }

 private:
  std::string Line() {
    std::array<char, 1000> buffer{};
    if (fgets(buffer.data(), buffer.size(), from_) == nullptr) return "gone";
    std::string line = buffer.data();
    line.pop_back();
    return line;
  }

  pid_t pid_ = 0;
  int to_ = -1;
  FILE* from_ = nullptr;
};

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
  // Each is read for its preface first.
  for (const auto& [file, nth] : {std::pair("/tip", 1),
                                  {"a-0000000002", 1},
                                  {"a-0000000002", 2},
                                  {"b-0000000002", 1},
                                  {"b-0000000002", 2}}) {
    const auto disk = std::make_shared<InterruptedFs>();
    options_.file_system = disk;
    ASSERT_OK_AND_ASSIGN(const auto reader, Open(Mode::kRead));
    writer.Do("x");
    const std::string wanted = std::string("block ") + ++block;
    disk->BeforeReading(
        file, [&] { writer.Do(wanted); }, nth);
    ASSERT_OK(reader->Refresh());
    ASSERT_TRUE(disk->fired()) << file << nth;
    ASSERT_OK_AND_ASSIGN(const auto line,
                         reader->Get(Space::kRecords, RecordKey("line")));
    if (line == wanted) {
      EXPECT_THAT(reader->Get(Space::kSmall, BlockKey(wanted)),
                  IsOkAndHolds(Optional(std::string(2000, 'b'))))
          << file << nth;
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
  for (const char* const file : {"/tip", "a-0000000002", "b-0000000002"}) {
    const auto disk = std::make_shared<InterruptedFs>();
    options_.file_system = disk;
    ASSERT_OK_AND_ASSIGN(const auto reader, Open(Mode::kRead));
    writer.Do("x");
    disk->BeforeReading(file, [&] { writer.Do("segment"); });
    ASSERT_OK(reader->Refresh());
    ASSERT_TRUE(disk->fired()) << file;
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
