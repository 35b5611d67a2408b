// SPDX-License-Identifier: Apache-2.0

// Results go to a file that appears whole or not at all, and what a process
// that was killed left of one goes with the next.

#include "tools/output/new_file.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/testutil/status_matchers.h"
#include "tests/testutil/temp_dir.h"
#include "tools/output/byte_sink.h"

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
  const std::string temporary_ =
      absl::StrCat(path_, ".", getpid(), ".ckptree.tmp");
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

TEST_F(NewFileTest, KeepsWhatCameInTheMeantime) {
  {
    ASSERT_OK_AND_ASSIGN(NewFile file, NewFile::Create(path_));
    std::ofstream(path_) << "theirs";
    const absl::Status status = file.Commit(Others::kKeep);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_NE(status.message().find(path_), status.message().npos) << status;
  }
  EXPECT_EQ(Contents(path_), "theirs");
  EXPECT_EQ(Left(), 1);
  fs::remove(path_);
  ASSERT_OK_AND_ASSIGN(NewFile file, NewFile::Create(path_));
  ASSERT_OK(file.Commit(Others::kKeep));
  EXPECT_EQ(Contents(path_), "");
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

// As the shell names >(command), and /dev/stdout a pipe.
TEST_F(NewFileTest, WritesAPipeThatHasNoNameOfItsOwn) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  {
    ASSERT_OK_AND_ASSIGN(NewFile file,
                         NewFile::Create("/dev/fd/" + std::to_string(ends[1])));
    ASSERT_EQ(::write(file.descriptor(), "text", 4), 4);
    EXPECT_OK(file.Commit());
  }
  ::close(ends[1]);
  std::array<char, 8> found{};
  EXPECT_EQ(::read(ends[0], found.data(), found.size()), 4);
  EXPECT_STREQ(found.data(), "text");
  ::close(ends[0]);
}

TEST_F(NewFileTest, WritesDevicesInPlace) {
  absl::StatusOr<NewFile> null = NewFile::Create("/dev/null");
  ASSERT_OK(null);
  ASSERT_OK(null->Commit());
  EXPECT_TRUE(fs::is_character_file("/dev/null"));
  EXPECT_FALSE(NewFile::Create(dir_.path()).ok());  // A folder.
}

// A process that makes a file and a folder, and is stopped in the middle.
class AbandonedTest : public NewFileTest {
 protected:
  void TearDown() override {
    if (child_ > 0) Kill();
  }

  void BeginIn(const std::string& folder) {
    int ready[2];
    ASSERT_EQ(pipe(ready), 0);
    child_ = fork();
    if (child_ == 0) {
      const auto file = NewFile::Create(folder + "/a.npz");
      auto made = NewFolder::Create(folder + "/b");
      if (!file.ok() || !made.ok()) _exit(1);
      std::ofstream(*made / "inner") << "half";
      if (write(ready[1], "r", 1) != 1) _exit(1);
      while (true) pause();
    }
    close(ready[1]);
    char byte = 0;
    ASSERT_EQ(read(ready[0], &byte, 1), 1);
    close(ready[0]);
  }
  void Kill() {
    kill(child_, SIGKILL);
    int status = 0;
    ASSERT_EQ(waitpid(child_, &status, 0), child_);
    ASSERT_TRUE(WIFSIGNALED(status));
    child_ = 0;
  }
  std::set<std::string> Names() const {
    std::set<std::string> names;
    for (const auto& entry : fs::directory_iterator(dir_.path())) {
      names.insert(entry.path().filename().string());
    }
    return names;
  }

  pid_t child_ = 0;
};

TEST_F(AbandonedTest, GoesOnceItsProcessHasEnded) {
  ASSERT_NO_FATAL_FAILURE(BeginIn(dir_.path()));
  const std::string number = std::to_string(child_);
  const std::set<std::string> living = {"a.npz." + number + ".ckptree.tmp",
                                        "b." + number + ".ckptree.tmp"};
  ASSERT_EQ(Names(), living);
  RemoveAbandonedBeside(path_);
  EXPECT_EQ(Names(), living);
  Kill();
  // Another target in that folder will do.
  RemoveAbandonedBeside(path_ + "/");
  EXPECT_EQ(Names(), std::set<std::string>());
}

TEST_F(AbandonedTest, WhatIsHeldUnderOurNumberStays) {
  // As another container's, which counts its processes anew.
  const std::string theirs = temporary_;
  std::ofstream(theirs) << "theirs";
  const int held = open(theirs.c_str(), O_RDWR | O_CLOEXEC);
  ASSERT_EQ(flock(held, LOCK_EX), 0);
  ASSERT_OK(Write("new"));
  RemoveAbandonedBeside(path_);
  EXPECT_EQ(Contents(path_), "new");
  EXPECT_EQ(Contents(theirs), "theirs");
  close(held);
  RemoveAbandonedBeside(path_);
  EXPECT_EQ(Names(), std::set<std::string>{"out"});
}

TEST_F(AbandonedTest, WhatHasAnotherNameOrIsALinkIsNotTouched) {
  const std::set<std::string> others = {
      "model.tmp",          "model.1.tmp",         "model.ckptree.tmp",
      "model..ckptree.tmp", "x.1.ckptree.tmp.npz", "ckptree.tmp",
      ".ckptree.tmp",       "model.1a.ckptree.tmp"};
  for (const std::string& name : others) std::ofstream(dir_ / name) << "kept";
  fs::create_directory(dir_ / "folder");
  std::ofstream(dir_ / "folder/inner") << "kept";
  fs::create_symlink(dir_ / "folder", dir_ / "x.7.ckptree.tmp");
  RemoveAbandonedBeside(path_);
  std::set<std::string> left = others;
  left.insert("folder");
  EXPECT_EQ(Names(), left);
  EXPECT_EQ(Contents(dir_ / "folder/inner"), "kept");
}

TEST_F(AbandonedTest, AFolderIsThereWholeOrNotAtAll) {
  {
    ASSERT_OK_AND_ASSIGN(NewFolder folder, NewFolder::Create(path_));
    std::ofstream(folder / "a") << "1";
    EXPECT_EQ(Left(), 1);
  }
  EXPECT_EQ(Left(), 0);
  {
    ASSERT_OK_AND_ASSIGN(NewFolder folder, NewFolder::Create(path_ + "/"));
    std::ofstream(folder / "a") << "1";
    ASSERT_OK(folder.Commit());
  }
  EXPECT_EQ(Contents(path_ + "/a"), "1");
  const std::string file = dir_ / "file";
  {
    ASSERT_OK_AND_ASSIGN(NewFolder folder, NewFolder::Create(file));
    std::ofstream(folder / "a") << "2";
    std::ofstream(folder / "b") << "3";
    ASSERT_OK(folder.Commit("b"));
  }
  EXPECT_EQ(Contents(file), "3");
  EXPECT_EQ(Names(), (std::set<std::string>{"file", "out"}));
}

}  // namespace
}  // namespace ckptree::tools
