// Every write, sync, rename and removal of a creation and of a commit fails in
// its turn: once, and from then on.

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kv/database.h"
#include "rocksdb/file_system.h"
#include "schema/spaces.h"
#include "tests/kv_fixture.h"
#include "tests/testutil/status_matchers.h"

namespace ckptree::kv {
namespace {

using ::ckptree::testing::IsOk;
using ::ckptree::testing::StatusIs;
using ::testing::Not;
using rocksdb::FileOptions;
using rocksdb::IODebugContext;
using rocksdb::IOOptions;
using rocksdb::IOStatus;
using schema::Space;

// Counts the operations that change something and fails the chosen ones.
struct Plan {
  std::atomic<std::int64_t> count{0};
  std::atomic<std::int64_t> fail_at{-1};
  std::atomic<bool> sticky{false};
  std::atomic<std::int64_t> failed{0};

  void Arm(std::int64_t at, bool from_then_on) {
    count = 0;
    failed = 0;
    sticky = from_then_on;
    fail_at = at;
  }
  template <typename Call>
  IOStatus Run(Call&& call) {
    const std::int64_t n = count++;
    if (fail_at >= 0 && (n == fail_at || (sticky && n > fail_at))) {
      ++failed;
      return IOStatus::IOError("injected");
    }
    return std::forward<Call>(call)();
  }
};

class FailingFile : public rocksdb::FSWritableFileOwnerWrapper {
 public:
  FailingFile(std::unique_ptr<rocksdb::FSWritableFile> file, Plan* plan)
      : FSWritableFileOwnerWrapper(std::move(file)), plan_(plan) {}
  using FSWritableFileOwnerWrapper::Append;
  IOStatus Append(const rocksdb::Slice& data, const IOOptions& options,
                  IODebugContext* dbg) override {
    return plan_->Run([&] {
      return FSWritableFileOwnerWrapper::Append(data, options, dbg);
    });
  }
  IOStatus Sync(const IOOptions& options, IODebugContext* dbg) override {
    return plan_->Run(
        [&] { return FSWritableFileOwnerWrapper::Sync(options, dbg); });
  }

 private:
  Plan* const plan_;
};

class FailingRwFile : public rocksdb::FSRandomRWFileOwnerWrapper {
 public:
  FailingRwFile(std::unique_ptr<rocksdb::FSRandomRWFile> file, Plan* plan)
      : FSRandomRWFileOwnerWrapper(std::move(file)), plan_(plan) {}
  IOStatus Write(std::uint64_t offset, const rocksdb::Slice& data,
                 const IOOptions& options, IODebugContext* dbg) override {
    return plan_->Run([&] {
      return FSRandomRWFileOwnerWrapper::Write(offset, data, options, dbg);
    });
  }
  IOStatus Sync(const IOOptions& options, IODebugContext* dbg) override {
    return plan_->Run(
        [&] { return FSRandomRWFileOwnerWrapper::Sync(options, dbg); });
  }

 private:
  Plan* const plan_;
};

class FailingDirectory : public rocksdb::FSDirectoryWrapper {
 public:
  FailingDirectory(std::unique_ptr<rocksdb::FSDirectory> directory, Plan* plan)
      : FSDirectoryWrapper(std::move(directory)), plan_(plan) {}
  IOStatus Fsync(const IOOptions& options, IODebugContext* dbg) override {
    return plan_->Run([&] { return FSDirectoryWrapper::Fsync(options, dbg); });
  }
  IOStatus FsyncWithDirOptions(const IOOptions& options, IODebugContext* dbg,
                               const rocksdb::DirFsyncOptions& sync) override {
    return plan_->Run([&] {
      return FSDirectoryWrapper::FsyncWithDirOptions(options, dbg, sync);
    });
  }

 private:
  Plan* const plan_;
};

class FailingFileSystem : public rocksdb::FileSystemWrapper {
 public:
  explicit FailingFileSystem(Plan* plan)
      : FileSystemWrapper(rocksdb::FileSystem::Default()), plan_(plan) {}
  const char* Name() const override { return "FailingFileSystem"; }

  IOStatus NewWritableFile(const std::string& path, const FileOptions& options,
                           std::unique_ptr<rocksdb::FSWritableFile>* file,
                           IODebugContext* dbg) override {
    IOStatus status = plan_->Run([&] {
      return FileSystemWrapper::NewWritableFile(path, options, file, dbg);
    });
    if (status.ok()) {
      *file = std::make_unique<FailingFile>(std::move(*file), plan_);
    }
    return status;
  }
  IOStatus NewRandomRWFile(const std::string& path, const FileOptions& options,
                           std::unique_ptr<rocksdb::FSRandomRWFile>* file,
                           IODebugContext* dbg) override {
    IOStatus status =
        FileSystemWrapper::NewRandomRWFile(path, options, file, dbg);
    if (status.ok()) {
      *file = std::make_unique<FailingRwFile>(std::move(*file), plan_);
    }
    return status;
  }
  IOStatus NewDirectory(const std::string& path, const IOOptions& options,
                        std::unique_ptr<rocksdb::FSDirectory>* directory,
                        IODebugContext* dbg) override {
    IOStatus status =
        FileSystemWrapper::NewDirectory(path, options, directory, dbg);
    if (status.ok()) {
      *directory =
          std::make_unique<FailingDirectory>(std::move(*directory), plan_);
    }
    return status;
  }
  IOStatus DeleteFile(const std::string& path, const IOOptions& options,
                      IODebugContext* dbg) override {
    return plan_->Run(
        [&] { return FileSystemWrapper::DeleteFile(path, options, dbg); });
  }
  IOStatus RenameFile(const std::string& from, const std::string& to,
                      const IOOptions& options, IODebugContext* dbg) override {
    return plan_->Run([&] {
      return FileSystemWrapper::RenameFile(from, to, options, dbg);
    });
  }
  IOStatus LinkFile(const std::string& from, const std::string& to,
                    const IOOptions& options, IODebugContext* dbg) override {
    return plan_->Run(
        [&] { return FileSystemWrapper::LinkFile(from, to, options, dbg); });
  }
  IOStatus CreateDir(const std::string& path, const IOOptions& options,
                     IODebugContext* dbg) override {
    return plan_->Run(
        [&] { return FileSystemWrapper::CreateDir(path, options, dbg); });
  }

 private:
  Plan* const plan_;
};

class FaultTest : public KvTest {
 protected:
  FaultTest() {
    failing_.file_system = std::shared_ptr<rocksdb::FileSystem>(
        std::make_shared<FailingFileSystem>(&plan_));
  }
  absl::StatusOr<std::unique_ptr<Database>> OpenFailing() {
    return Database::Open(Store(), failing_, Mode::kReadWrite, NoCheck);
  }

  Plan plan_;
  Options failing_;
};

TEST_F(FaultTest, AnInterruptedCreationIsSimplyRepeated) {
  std::int64_t fired = 0;
  for (const bool sticky : {true, false}) {
    for (std::int64_t at = 0;; ++at) {
      SCOPED_TRACE(at);
      std::filesystem::remove_all(Store());
      plan_.Arm(at, sticky);
      const bool acknowledged =
          Database::Create(Store(), failing_, kTestUuid, kTestStoreKey,
                           "first", {})
              .ok();
      const bool hit = plan_.failed > 0;
      plan_.Arm(-1, false);
      fired += hit;
      if (acknowledged) {
        EXPECT_THAT(Create(), StatusIs(absl::StatusCode::kAlreadyExists));
      } else if (!std::filesystem::exists(Store() + "/CREATING") &&
                 std::filesystem::exists(Store() + "/HEAD")) {
        // Only making the removal of the mark durable failed.
        EXPECT_THAT(Create(), StatusIs(absl::StatusCode::kAlreadyExists));
      } else {
        EXPECT_THAT(Open(),
                    ::testing::AnyOf(
                        StatusIs(absl::StatusCode::kFailedPrecondition),
                        StatusIs(absl::StatusCode::kNotFound)));
        EXPECT_THAT(Create(), IsOk());
      }
      ASSERT_OK_AND_ASSIGN(const auto database, Open());
      EXPECT_EQ(Put(*database, "a", "1").ordinal, 2);
      if (!hit) break;
    }
  }
  EXPECT_GT(fired, 60);
}

TEST_F(FaultTest, AFailedCommitIsUnknownAndTheHandleDead) {
  { ASSERT_OK_AND_ASSIGN(const auto database, Create()); }
  std::uint64_t committed = 1;
  std::int64_t fired = 0;
  for (std::int64_t at = 0;; ++at) {
    SCOPED_TRACE(at);
    plan_.Arm(-1, false);
    const std::string value = "v" + std::to_string(at);
    bool hit = false;
    CommitResult result;
    {
      ASSERT_OK_AND_ASSIGN(const auto database, OpenFailing());
      plan_.Arm(at, /*from_then_on=*/false);
      result = Put(*database, "a", value);
      hit = plan_.failed > 0;
      plan_.Arm(-1, false);
      if (hit) {
        EXPECT_EQ(result.outcome, Outcome::kUnknown);
        EXPECT_THAT(database->health(), Not(IsOk()));
        // It does not come back to life, and still reads.
        EXPECT_EQ(Put(*database, "b", "1").outcome, Outcome::kFailed);
        EXPECT_THAT(database->Flush(), Not(IsOk()));
        EXPECT_OK(database->Get(Space::kRecords, kTestStoreKey));
      } else {
        EXPECT_EQ(result.outcome, Outcome::kCommitted);
      }
    }
    fired += hit;
    ASSERT_OK_AND_ASSIGN(const auto database, Open());
    const std::uint64_t ordinal = database->report().ordinal;
    if (!hit) {
      EXPECT_EQ(ordinal, committed + 1);
    } else {
      EXPECT_TRUE(ordinal == committed || ordinal == committed + 1);
    }
    // The commit is there as a whole or not at all.
    ASSERT_OK_AND_ASSIGN(const std::optional<std::string> found,
                         database->Get(Space::kRecords, RecordKey("a")));
    EXPECT_EQ(found == value, ordinal == committed + 1);
    committed = ordinal;
    if (!hit) break;
  }
  // The log: append, sync. HEAD: write, sync.
  EXPECT_GE(fired, 4);
}

TEST_F(FaultTest, AFailedManifestWriteKeepsEveryFileThatItMayName) {
  { ASSERT_OK_AND_ASSIGN(const auto database, Create()); }
  std::int64_t fired = 0;
  std::uint64_t version = 0;
  for (const bool sticky : {false, true}) {
    for (std::int64_t at = 0;; ++at) {
      SCOPED_TRACE(at);
      plan_.Arm(-1, false);
      ++version;
      bool hit = false;
      {
        ASSERT_OK_AND_ASSIGN(const auto database, OpenFailing());
        ASSERT_OK_AND_ASSIGN(const StagedSegment chunks,
                             Stage(*database, version, Space::kChunks, 3, 100));
        ASSERT_OK_AND_ASSIGN(const StagedSegment leaves,
                             Stage(*database, version, Space::kLeaves, 3, 100));
        plan_.Arm(at, sticky);
        absl::Status status = database->Adopt({chunks, leaves});
        if (status.ok()) {
          const CommitResult result = SmallSave(*database, version);
          status = result.status;
        }
        if (status.ok()) status = database->Flush();
        hit = plan_.failed > 0;
      }
      plan_.Arm(-1, false);
      fired += hit;
      std::filesystem::remove_all(Store() + "/staging");
      ASSERT_OK_AND_ASSIGN(const auto database, Open());
      ASSERT_OK_AND_ASSIGN(const std::vector<LiveFile> files,
                           database->LiveFiles());
      for (const LiveFile& file : files) EXPECT_TRUE(file.whole) << file.path;
      EXPECT_EQ(Put(*database, "on", "1").outcome, Outcome::kCommitted);
      if (!hit) break;
    }
  }
  EXPECT_GT(fired, 30);
}

}  // namespace
}  // namespace ckptree::kv
