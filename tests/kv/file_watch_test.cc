// SPDX-License-Identifier: Apache-2.0

#include "kv/file_watch.h"

#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "tests/testutil/temp_dir.h"

namespace ckptree::kv {
namespace {

constexpr absl::Duration kNow = absl::ZeroDuration();
constexpr absl::Duration kLong = absl::Seconds(60);

void Append(const std::string& path) {
  std::ofstream(path, std::ios::app) << "more";
}

class FileWatchTest : public ::testing::Test {
 protected:
  FileWatchTest() { Append(path_); }

  const testing::TempDir dir_;
  const std::string path_ = dir_ / "file";
};

TEST_F(FileWatchTest, WhatWasWrittenBeforeTheWaitEndsIt) {
  FileWatch watch(path_);
  EXPECT_FALSE(watch.Wait(kNow));
  Append(path_);
  EXPECT_TRUE(watch.Wait(kNow));
  EXPECT_FALSE(watch.Wait(kNow));
}

TEST_F(FileWatchTest, WhatIsWrittenMeanwhileWakes) {
  FileWatch watch(path_);
  absl::Notification woken;
  std::thread waits([&] {
    EXPECT_TRUE(watch.Wait(absl::InfiniteDuration()));
    woken.Notify();
  });
  Append(path_);
  EXPECT_TRUE(woken.WaitForNotificationWithTimeout(kLong));
  waits.join();
}

TEST_F(FileWatchTest, AllFilesOfAFolder) {
  FileWatch watch(dir_.path());
  Append(path_);
  EXPECT_TRUE(watch.Wait(kNow));
  Append(dir_ / "other");
  EXPECT_TRUE(watch.Wait(kNow));
  EXPECT_FALSE(watch.Wait(kNow));
}

TEST_F(FileWatchTest, AFileThatGetsANameThere) {
  testing::TempDir elsewhere;
  FileWatch watch(dir_.path());
  Append(elsewhere / "new");
  EXPECT_FALSE(watch.Wait(kNow));
  std::filesystem::rename(elsewhere / "new", dir_ / "renamed");
  EXPECT_TRUE(watch.Wait(kNow));
  EXPECT_TRUE(watch.Add(elsewhere.path()));
  Append(elsewhere / "more");
  EXPECT_TRUE(watch.Wait(kNow));
  EXPECT_FALSE(watch.Add(dir_ / "missing"));
}

TEST_F(FileWatchTest, WakeEndsAWait) {
  for (const std::string& path : {path_, dir_ / "missing"}) {
    FileWatch watch(path);
    watch.Wake();
    EXPECT_TRUE(watch.Wait(kLong));
    EXPECT_FALSE(watch.Wait(kNow));
    std::thread waits([&] { EXPECT_TRUE(watch.Wait(kLong)); });
    watch.Wake();
    waits.join();
  }
}

TEST_F(FileWatchTest, OfAnotherFileNothingIsSaid) {
  FileWatch watch(path_);
  Append(dir_ / "other");
  EXPECT_FALSE(watch.Wait(kNow));
}

TEST_F(FileWatchTest, WithoutAWatchTheClockEndsIt) {
  FileWatch watch(dir_ / "missing");
  Append(dir_ / "missing");
  EXPECT_FALSE(watch.Wait(absl::Milliseconds(1)));
}

}  // namespace
}  // namespace ckptree::kv
