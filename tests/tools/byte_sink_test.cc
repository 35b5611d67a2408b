// SPDX-License-Identifier: Apache-2.0

// Results go to a file that appears whole or not at all.

#include "tools/output/byte_sink.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/testutil/status_matchers.h"
#include "tests/testutil/temp_dir.h"

namespace ckptree::tools {
namespace {

namespace fs = std::filesystem;

std::string Contents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

class NewFileTest : public ::testing::Test {
 protected:
  absl::Status Write(std::string_view text, bool commit = true) const {
    absl::StatusOr<NewFile> file = NewFile::Create(path_);
    if (!file.ok()) return file.status();
    ByteSink sink(file->descriptor());
    sink.Write(text);
    if (absl::Status status = sink.Flush(); !status.ok()) return status;
    return commit ? file->Commit() : absl::OkStatus();
  }
  int Left() const {
    return static_cast<int>(std::distance(fs::directory_iterator(dir_.path()),
                                          fs::directory_iterator()));
  }

  testing::TempDir dir_;
  const std::string path_ = dir_ / "out";
  const std::string temporary_ = absl::StrCat(path_, ".", getpid(), ".tmp");
};

TEST_F(NewFileTest, IsThereOnceItIsCommitted) {
  ASSERT_OK(Write("never", /*commit=*/false));
  EXPECT_EQ(Left(), 0);
  ASSERT_OK(Write("old"));
  ASSERT_OK(Write("never", /*commit=*/false));
  EXPECT_EQ(Contents(path_), "old");
  ASSERT_OK(Write("new"));
  EXPECT_EQ(Contents(path_), "new");
  EXPECT_EQ(Left(), 1);
}

TEST_F(NewFileTest, DoesNotWriteThroughALinkInItsWay) {
  const std::string other = dir_ / "other";
  std::ofstream(other) << "somebody's";
  fs::create_symlink(other, temporary_);
  ASSERT_OK(Write("new"));
  EXPECT_EQ(Contents(path_), "new");
  EXPECT_FALSE(fs::is_symlink(path_));
  EXPECT_EQ(Contents(other), "somebody's");
}

TEST_F(NewFileTest, WritesOverWhatAKilledProcessLeft) {
  std::ofstream(temporary_) << "half of something longer";
  ASSERT_OK(Write("new"));
  EXPECT_EQ(Contents(path_), "new");
  EXPECT_EQ(Left(), 1);
}

TEST_F(NewFileTest, WritesDevicesInPlace) {
  absl::StatusOr<NewFile> null = NewFile::Create("/dev/null");
  ASSERT_OK(null);
  ASSERT_OK(null->Commit());
  EXPECT_TRUE(fs::is_character_file("/dev/null"));
  EXPECT_FALSE(NewFile::Create(dir_.path()).ok());  // A folder.
}

}  // namespace
}  // namespace ckptree::tools
