// SPDX-License-Identifier: Apache-2.0

// Segments that somebody deleted from the object store, or cut: the next job
// makes it whole again, also one that saves once.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "ckptree/ckptree.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/core/fixture.h"
#include "tests/remote/fixture.h"
#include "tests/testutil/temp_dir.h"

namespace ckptree::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr std::size_t kSmallSave = 4 << 10;
constexpr std::size_t kLargeSave = 3 << 20;

class LostSegmentsTest : public ::testing::TestWithParam<Durable> {
 protected:
  void SetUp() override {
    setenv("XDG_CACHE_HOME", Disk("cache").c_str(), 1);
    fs::create_directory(Disk("share"));
    Store store = Store::Open(Disk("a"), Remote()).value();
    for (std::int64_t step = 1; step <= 3; ++step) {
      SaveStep(store, step, kLargeSave);
    }
    ASSERT_TRUE(store.Close().ok());
  }

  std::string Disk(const std::string& name) { return dir_ / name; }
  std::string Run() { return Disk("share") + "/run"; }
  StoreOptions Remote() {
    StoreOptions options = RemoteOptions("file://" + Run());
    options.durable = GetParam();
    options.log = [this](LogSeverity, std::string_view,
                         std::string_view message) {
      const absl::MutexLock lock(&mu_);
      said_.emplace_back(message);
    };
    return options;
  }
  std::vector<std::string> Said() {
    const absl::MutexLock lock(&mu_);
    return said_;
  }
  // Of that step's version.
  std::vector<fs::path> SegmentsOf(int version) {
    std::vector<fs::path> of;
    for (const fs::path& segment : ObjectsOf(Run(), "segment")) {
      const std::string name = segment.filename();
      if (absl::StrContains(name, absl::StrCat("-", version, "-")) &&
          name.find(absl::StrCat("-", version, "-")) == name.find('-')) {
        of.push_back(segment);
      }
    }
    return of;
  }
  void LoseStep2() {
    const std::vector<fs::path> segments = SegmentsOf(2);
    ASSERT_FALSE(segments.empty());
    fs::resize_file(segments[0], fs::file_size(segments[0]) / 2);
    for (std::size_t i = 1; i < segments.size(); ++i) fs::remove(segments[i]);
  }
  void ExpectWholeThere(std::int64_t last) {
    fs::remove_all(Disk("cache"));
    {
      StoreOptions options = QuietOptions();
      options.create_if_missing = false;
      options.read_only = true;
      Store reader = Store::Open("file://" + Run(), options).value();
      for (std::int64_t step = 1; step <= 3; ++step) {
        ExpectStep(reader, step, kLargeSave);
      }
      EXPECT_EQ(StepsOf(reader).back(), last);
      ExpectWhole(reader);
    }
    // A machine that has nothing else.
    Store other =
        Store::Open(Disk("b"), RemoteOptions("file://" + Run())).value();
    ExpectStep(other, 2, kLargeSave);
    ExpectWhole(other);
  }

  TempDir dir_;
  absl::Mutex mu_;
  std::vector<std::string> said_;
};

TEST_P(LostSegmentsTest, AJobOfOneSaveUploadsThemAgain) {
  LoseStep2();
  {
    Store store = Store::Open(Disk("a"), Remote()).value();
    SaveStep(store, 4, kSmallSave);
    const absl::Status closed = store.Close();
    ASSERT_TRUE(closed.ok()) << closed;
  }
  EXPECT_THAT(Said(), Contains(HasSubstr("segments that steps need are")));
  EXPECT_THAT(Said(), Not(Contains(HasSubstr("with the next save"))));
  ExpectWholeThere(4);
}

TEST_P(LostSegmentsTest, WaitReplicatedWaitsForThat) {
  LoseStep2();
  Store store = Store::Open(Disk("a"), Remote()).value();
  SaveStep(store, 4, kSmallSave);
  const absl::Status there = store.WaitReplicated(kLong);
  ASSERT_TRUE(there.ok()) << there;
  EXPECT_EQ(store.Info().unshipped, 0);
  // Its writer is alive, and its directory is not asked.
  StoreOptions reading = QuietOptions();
  reading.create_if_missing = false;
  reading.read_only = true;
  Store reader = Store::Open("file://" + Run(), reading).value();
  ExpectStep(reader, 2, kLargeSave);
  ExpectWhole(reader);
}

// One tag is a commit, too; and what was mended is not uploaded a second time.
TEST_P(LostSegmentsTest, OnceIsEnough) {
  LoseStep2();
  for (const char* tag : {"one", "two", "three"}) {
    Store store = Store::Open(Disk("a"), Remote()).value();
    ASSERT_TRUE(store.Tag(tag, 3).ok());
    ASSERT_TRUE(store.Close().ok());
  }
  int found = 0;
  for (const std::string& said : Said()) {
    found += absl::StrContains(said, "segments that steps need are");
  }
  EXPECT_EQ(found, 1);
  ExpectWholeThere(3);
}

INSTANTIATE_TEST_SUITE_P(Durable, LostSegmentsTest,
                         ::testing::Values(Durable::kLocal, Durable::kRemote));

}  // namespace
}  // namespace ckptree::testing
