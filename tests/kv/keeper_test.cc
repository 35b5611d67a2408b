// SPDX-License-Identifier: Apache-2.0

// The thread behind the journal: when it syncs second copies; and on a disk
// that is nearly full, where what it writes needs no more room than it must,
// and one thing that fails keeps no other.

#include "kv/journal/keeper.h"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "kv/journal/replay.h"
#include "kv/journal/rows_file.h"
#include "kv/testing/full_disk.h"
#include "kv/testing/sync_counts.h"
#include "tests/kv/fixture.h"

namespace ckptree::kv {
namespace {

namespace fs = std::filesystem;
using schema::Space;
using ::testing::ElementsAre;

constexpr absl::Duration kPatience = absl::Minutes(2);

class KeeperTest : public ::testing::Test {
 protected:
  void SetUp() override {
    fs::create_directories(Folder());
    context_.directory = dir_ / "store";
    context_.preface.uuid = {1, 2, 3};
    context_.preface.session = 1;
    context_.preface.incarnation = 1;
    context_.preface.engine = "test";
    context_.flush = [this] {
      const absl::MutexLock lock(&mu_);
      if (flush_error_.ok()) ++flushes_;
      return flush_error_;
    };
    context_.keep_blocks = [](const JournalBlocks&) {
      return absl::OkStatus();
    };
    context_.scan = [](auto, auto) {
      return absl::InternalError("no scan is needed");
    };
  }
  void TearDown() override {
    if (keeper_ != nullptr) {
      EXPECT_OK(keeper_->Close(/*flushed=*/false));
    }
  }

  std::string Folder() const { return dir_ / "store/journal"; }
  void Start() {
    keeper_ = std::make_unique<JournalKeeper>(context_);
    ASSERT_OK(keeper_->Begin());
  }
  void SetFlush(const absl::Status& error) {
    const absl::MutexLock lock(&mu_);
    flush_error_ = error;
  }
  void Append(std::size_t block_bytes = 0) {
    const std::uint64_t n = ++commits_;
    WriteBatch batch;
    batch.Put(Space::kRecords, "key" + std::to_string(n), "value");
    if (block_bytes > 0) {
      batch.PutBlock(VersionKey(n, "block"), std::string(block_bytes, 'b'));
    }
    keeper_->WaitForRoom();
    const auto done =
        keeper_->Append({.version = n, .time_ns = 5}, EncodeBatch(batch));
    ASSERT_EQ(done.result, JournalWriter::Result::kDurable) << done.status;
    keeper_->Acknowledged();
  }
  std::vector<std::string> RowsFiles() const {
    std::vector<std::string> found;
    for (const auto& entry : fs::directory_iterator(Folder())) {
      const std::string name = entry.path().filename().string();
      if (name.starts_with("rows")) found.push_back(name);
    }
    std::ranges::sort(found);
    return found;
  }
  // In the newest file of all rows.
  std::size_t RowsThere() {
    const RowsFile file =
        FindRowsFile(context_.options, context_.directory).value();
    const auto reader = RowsReader::Open(context_.options, file.path).value();
    std::size_t rows = 0;
    while (reader->Next().value() != nullptr) ++rows;
    return rows;
  }

  testing::TempDir dir_;
  SyncCounts counts_;
  KeeperContext context_;
  std::unique_ptr<JournalKeeper> keeper_;
  std::uint64_t commits_ = 0;
  absl::Mutex mu_;
  absl::Status flush_error_;
  int flushes_ = 0;
};

TEST_F(KeeperTest, AFlushThatFailsLeavesOneFileOfAllRows) {
  Start();
  for (int i = 0; i < 3; ++i) ASSERT_NO_FATAL_FAILURE(Append());
  ASSERT_OK(keeper_->WriteRows());
  EXPECT_THAT(RowsFiles(), ElementsAre(RowsFileName(3)));
  SetFlush(absl::ResourceExhaustedError("no room"));
  for (int i = 0; i < 3; ++i) ASSERT_NO_FATAL_FAILURE(Append());
  EXPECT_TRUE(absl::IsResourceExhausted(keeper_->WriteRows()));
  EXPECT_THAT(RowsFiles(), ElementsAre(RowsFileName(6)));
  EXPECT_EQ(RowsThere(), 6U);

  // Nor is it written again, where nothing has changed.
  const std::string path = Folder() + "/" + RowsFileName(6);
  const auto written = fs::last_write_time(path);
  fs::create_directory(Folder() + "/rows.tmp");  // It would fail.
  EXPECT_TRUE(absl::IsResourceExhausted(keeper_->WriteRows()));
  fs::remove(Folder() + "/rows.tmp");
  EXPECT_EQ(fs::last_write_time(path), written);

  ASSERT_NO_FATAL_FAILURE(Append());
  SetFlush(absl::OkStatus());
  ASSERT_OK(keeper_->WriteRows());
  EXPECT_THAT(RowsFiles(), ElementsAre(RowsFileName(7)));
  EXPECT_EQ(RowsThere(), 7U);
}

TEST_F(KeeperTest, RowsThatAreNotWrittenKeepNoFlush) {
  context_.mend = true;  // All rows are due at once.
  Start();
  fs::create_directory(Folder() + "/rows.tmp");  // And cannot be written.
  keeper_->Ready();
  for (int i = 0; i < 12; ++i) {
    ASSERT_NO_FATAL_FAILURE(Append(std::size_t{4} << 20));
  }
  const absl::MutexLock lock(&mu_);
  EXPECT_TRUE(mu_.AwaitWithTimeout(
      absl::Condition(
          +[](int* flushes) { return *flushes > 0; }, &flushes_),
      kPatience));
  EXPECT_THAT(RowsFiles(), ElementsAre("rows.tmp"));
}

TEST_F(KeeperTest, AFileOfAllRowsThatWasLeftGivesItsRoom) {
  Start();
  for (int i = 0; i < 3; ++i) ASSERT_NO_FATAL_FAILURE(Append());
  ASSERT_OK(keeper_->WriteRows());
  const std::string first = Folder() + "/" + RowsFileName(3);
  fs::copy_file(first, Folder() + "/kept");
  ASSERT_NO_FATAL_FAILURE(Append());
  ASSERT_OK(keeper_->WriteRows());
  ASSERT_NO_FATAL_FAILURE(Append());
  const ChainPoint tip = keeper_->tip();
  ASSERT_OK(keeper_->Close(/*flushed=*/false));

  // As a crash leaves it, on a disk that has no room for a third.
  fs::rename(Folder() + "/kept", first);
  FullDisk disk{.takes_the_room = first, .refused = "rows.tmp"};
  context_.options.file_system = MakeFullDisk(&disk);
  context_.rows = FindRowsFile(context_.options, context_.directory).value();
  ASSERT_EQ(context_.rows.ordinal, 4U);
  context_.rows.bytes = fs::file_size(context_.rows.path);
  const JournalContent journal =
      ReadJournal(context_.options, context_.directory, 1,
                  /*beside_writer=*/false)
          .value();
  context_.tip = tip;
  context_.last = journal.records.at(tip.ordinal);
  context_.next_file = 9;
  context_.preface.session = context_.preface.incarnation = 2;
  Start();
  ASSERT_NO_FATAL_FAILURE(Append());
  ASSERT_OK(keeper_->WriteRows());
  EXPECT_GE(disk.refusals, 1);
  EXPECT_THAT(RowsFiles(), ElementsAre(RowsFileName(6)));
  EXPECT_EQ(RowsThere(), 6U);
}

TEST_F(KeeperTest, ACommitAfterAPauseIsSyncedInItsTime) {
  context_.options.file_system = MakeSyncCountingDisk(&counts_);
  context_.options.journal_sync_ms = 10;
  Start();
  keeper_->Ready();
  // Each but the first finds the thread idle: it has just synced all there was.
  for (int i = 0; i < 20; ++i) {
    const int seconds = counts_.Of("b-");
    const int notes = counts_.Of("tip");
    ASSERT_NO_FATAL_FAILURE(Append());
    ASSERT_TRUE(counts_.WaitFor("b-", seconds + 1, absl::Seconds(30))) << i;
    ASSERT_TRUE(counts_.WaitFor("tip", notes + 1, absl::Seconds(30))) << i;
  }
}

// What was acknowledged would stand in the first copy alone until the next
// commit, however late that comes.
TEST_F(KeeperTest, ASecondCopyThatIsNotSyncedIsMadeGoodAtOnce) {
  context_.options.file_system = MakeSyncCountingDisk(&counts_);
  context_.options.journal_sync_ms = 10;
  Start();
  keeper_->Ready();
  const int made = counts_.Of("tip");
  ASSERT_NO_FATAL_FAILURE(Append());
  ASSERT_TRUE(counts_.WaitFor("tip", made + 1, kPatience));
  const int syncs = counts_.Of("b-");
  const int notes = counts_.Of("tip");
  const std::vector<std::string> before = RowsFiles();
  counts_.Fail("b-");
  ASSERT_NO_FATAL_FAILURE(Append());
  ASSERT_TRUE(counts_.WaitFor("b-", syncs + 1, kPatience));
  ASSERT_TRUE(counts_.WaitFor("tip", notes + 1, kPatience));
  {
    const absl::MutexLock lock(&mu_);
    const auto flushed = [this]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
      return flushes_ > 0;
    };
    ASSERT_TRUE(mu_.AwaitWithTimeout(absl::Condition(&flushed), kPatience));
  }
  counts_.Fail("");
  ASSERT_OK(keeper_->Close(/*flushed=*/false));
  EXPECT_NE(RowsFiles(), before);
  EXPECT_EQ(RowsThere(), 2U);
  keeper_ = nullptr;
}

TEST_F(KeeperTest, ManyCommitsAreSyncedTogether) {
  context_.options.file_system = MakeSyncCountingDisk(&counts_);
  context_.options.journal_sync_ms = absl::ToInt64Milliseconds(kPatience);
  Start();
  keeper_->Ready();
  const int made = counts_.Of("b-");
  for (int i = 0; i < 100; ++i) ASSERT_NO_FATAL_FAILURE(Append());
  EXPECT_EQ(counts_.Of("b-"), made);
  ASSERT_OK(keeper_->Close(/*flushed=*/false));
  EXPECT_GT(counts_.Of("b-"), made);
  EXPECT_GT(counts_.Of("tip"), 0);
  keeper_ = nullptr;
}

}  // namespace
}  // namespace ckptree::kv
