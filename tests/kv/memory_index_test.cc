// SPDX-License-Identifier: Apache-2.0

// An index in memory over tables on a disk that may only be read.

#include "kv/rocks/memory_index.h"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kv/database.h"
#include "kv/file_system.h"
#include "kv/rocks/index_rebuild.h"
#include "tests/kv/index_fixture.h"
#include "tests/testutil/flip_byte.h"
#include "tests/testutil/status_matchers.h"

namespace ckptree::kv {
namespace {

namespace fs = std::filesystem;
using ::ckptree::testing::FlipByte;
using ::ckptree::testing::IsOkAndHolds;
using schema::Space;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class MemoryIndexTest : public IndexRebuildTest {
 protected:
  struct DiskFile {
    std::string bytes;
    fs::file_time_type time;
    fs::perms mode = fs::perms::none;
    friend bool operator==(const DiskFile&, const DiskFile&) = default;
  };

  // Every file of the store, after others were allowed to read it.
  std::map<std::string, DiskFile> Disk() const {
    std::map<std::string, DiskFile> disk;
    for (const auto& entry : fs::recursive_directory_iterator(Store())) {
      disk[entry.path()] = {
          entry.is_regular_file() ? ReadAll(entry.path()) : "",
          fs::last_write_time(entry.path()), entry.status().permissions()};
    }
    return disk;
  }

  // Makes the index anew in memory, in the place of the one on the disk, and
  // opens the store over it.
  void OpenOverMemory(RebuildReport* report) {
    const auto before = Disk();
    const Options memory = WithDirectoryInMemory(options_, Db());
    ASSERT_OK_AND_ASSIGN(*report, Rebuild(OnDisk(Db()), memory, Db(), memory));
    ASSERT_OK_AND_ASSIGN(database_,
                         Database::Open(Store(), memory, Mode::kRead, NoCheck));
    EXPECT_EQ(Disk(), before);
  }

  void Fill() {
    for (std::uint64_t version = 1; version <= 5; ++version) {
      ASSERT_NO_FATAL_FAILURE(Save(Space::kChunks, version, 6, 5000));
      ASSERT_NO_FATAL_FAILURE(Save(Space::kLeaves, version, 30, 90));
      ASSERT_NO_FATAL_FAILURE(SaveSmall(version, 4, 3000));
    }
    ASSERT_NO_FATAL_FAILURE(Close());
    for (const auto& entry : fs::recursive_directory_iterator(Store())) {
      fs::permissions(entry.path(), fs::perms::others_read,
                      fs::perm_options::add);
    }
  }
};

TEST_F(MemoryIndexTest, TheStoreIsReadWithoutAWriteToTheDisk) {
  ASSERT_NO_FATAL_FAILURE(Fill());
  fs::remove(Db() + "/CURRENT");
  RebuildReport report;
  ASSERT_NO_FATAL_FAILURE(OpenOverMemory(&report));
  EXPECT_THAT(report.losses, IsEmpty());
  EXPECT_THAT(report.notes, IsEmpty());
  EXPECT_EQ(report.tables, 10);
  ASSERT_NO_FATAL_FAILURE(ExpectAllThere(*database_));
  ASSERT_OK_AND_ASSIGN(const std::vector<LiveFile> files,
                       database_->LiveFiles());
  EXPECT_THAT(files, SizeIs(10));
  for (const LiveFile& file : files) {
    EXPECT_TRUE(file.whole);
    EXPECT_OK(database_->CheckFile(file));
    if (file.space == Space::kLeaves) {
      EXPECT_OK(database_->CheckLeafCopies(file));
    }
  }
  // Taken in as they are, beside the first ones.
  EXPECT_THAT(database_->LeafCopies(),
              IsOkAndHolds(SizeIs(std::count_if(
                  files.begin(), files.end(), [](const LiveFile& it) {
                    return it.space == Space::kLeaves;
                  }))));
  std::string straight(5, '?');
  EXPECT_TRUE(database_->ReadUnchecked(
      Space::kChunks, Key(2, 3), models_[Space::kChunks][Key(2, 3)].size(), 7,
      std::as_writable_bytes(std::span(straight))));
  EXPECT_EQ(straight, models_[Space::kChunks][Key(2, 3)].substr(7, 5));
  EXPECT_OK(database_->Close());
}

TEST_F(MemoryIndexTest, ADamagedTableIsWrittenAnewInMemory) {
  ASSERT_NO_FATAL_FAILURE(Fill());
  const std::string chunks = TableWith(models_[Space::kChunks][Key(3, 1)]);
  FlipByte(chunks, fs::file_size(chunks) - 1);
  const std::string leaves = TableWith(models_[Space::kLeaves][Key(2, 1)]);
  FlipByte(leaves, fs::file_size(leaves) - 200);
  RebuildReport report;
  ASSERT_NO_FATAL_FAILURE(OpenOverMemory(&report));
  EXPECT_THAT(report.losses, IsEmpty());
  EXPECT_THAT(report.notes, SizeIs(4));
  ASSERT_NO_FATAL_FAILURE(ExpectAllThere(*database_));
}

TEST_F(MemoryIndexTest, NothingElseMayBeChanged) {
  ASSERT_NO_FATAL_FAILURE(Fill());
  const Options memory = WithDirectoryInMemory(options_, dir_ / "memory");
  const auto before = Disk();
  EXPECT_FALSE(WriteFile(memory, Store() + "/x", "x").ok());
  EXPECT_FALSE(RemoveFile(memory, Store() + "/HEAD").ok());
  EXPECT_FALSE(MakeDirectory(memory, Store() + "/folder").ok());
  EXPECT_FALSE(RenameFile(memory, Store() + "/HEAD", Store() + "/B").ok());
  EXPECT_FALSE(RenameFile(memory, Store() + "/HEAD", dir_ / "memory/B").ok());
  EXPECT_EQ(Disk(), before);
  // And what is written there is not on the disk.
  ASSERT_OK(MakeDirectory(memory, dir_ / "memory"));
  ASSERT_OK(WriteFile(memory, dir_ / "memory/x", "in memory"));
  ASSERT_OK_AND_ASSIGN(const std::string read,
                       ReadFile(memory, dir_ / "memory/x", 100));
  EXPECT_EQ(read, "in memory");
  EXPECT_FALSE(fs::exists(dir_ / "memory"));
  ASSERT_OK(RemoveTree(memory, dir_ / "memory"));
  ASSERT_OK_AND_ASSIGN(const auto names,
                       ListDirectory(memory, dir_ / "memory"));
  EXPECT_THAT(names, IsEmpty());
}

}  // namespace
}  // namespace ckptree::kv
