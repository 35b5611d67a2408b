// SPDX-License-Identifier: Apache-2.0

// Uploads that take long, fail, or are answered by what stands before the
// store: a commit comes behind them, and nothing is sent twice.

#include <algorithm>
#include <filesystem>
#include <map>
#include <mutex>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "ckptree/ckptree.h"
#include "gtest/gtest.h"
#include "kv/monotonic.h"
#include "tests/core/fixture.h"
#include "tests/objects/counting_store.h"
#include "tests/remote/fixture.h"
#include "tests/testutil/temp_dir.h"

namespace ckptree::testing {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kSave = 2 << 20;

bool IsSegment(const std::string& what) {
  return what.starts_with("put ") && absl::StrContains(what, "/segment/");
}
bool IsCommit(const std::string& what) {
  return what.starts_with("create ") && absl::StrContains(what, "/commit/");
}

class SlowUploadsTest : public ::testing::Test {
 protected:
  void TearDown() override {
    count_.SetHook(nullptr);
    count_.SetAnsweredHook(nullptr);
  }
  std::string Folder() const { return dir_ / "remote"; }
  StoreOptions Remote() { return RemoteOptions("file://" + Folder()); }
  std::map<std::string, int> SegmentPuts() {
    std::map<std::string, int> puts;
    for (const std::string& what : count_.requests()) {
      // By the segment, whatever the attempt is called.
      if (IsSegment(what)) ++puts[what.substr(0, what.rfind('-'))];
    }
    return puts;
  }
  void ExpectThere(int steps) {
    Store there = Store::Open(dir_ / "there", Remote()).value();
    for (int step = 1; step <= steps; ++step) ExpectStep(there, step, kSave);
    ExpectWhole(there);
  }

  TempDir dir_;
  RequestCount count_;
  std::mutex mu_;
};

TEST_F(SlowUploadsTest, ACommitHasItsTimeFromItsOwnBeginning) {
  absl::Time uploaded = absl::InfinitePast();
  int commits = 0;
  count_.SetAnsweredHook([&](const std::string& what) {
    if (!IsSegment(what)) return;
    const std::scoped_lock lock(mu_);
    uploaded = kv::MonotonicNow();
  });
  count_.SetCallHook([&](const std::string& what, const kv::Call& call) {
    if (!IsCommit(what)) return absl::OkStatus();
    const std::scoped_lock lock(mu_);
    if (uploaded == absl::InfinitePast()) return absl::OkStatus();
    EXPECT_GE(call.deadline, uploaded + absl::Minutes(1));
    ++commits;
    return absl::OkStatus();
  });
  Store store = Store::Open(dir_ / "run", Remote()).value();
  SaveStep(store, 1, kSave);
  ASSERT_OK(store.WaitReplicated(kLong));
  ASSERT_OK(store.Close());
  EXPECT_GE(commits, 1);
}

TEST_F(SlowUploadsTest, WhatWasUploadedIsNotSentAgain) {
  constexpr int kSteps = 6;
  int failed_commits = 0;
  int failed_segments = 0;
  bool opened = false;
  count_.SetHook([&](const std::string& what) -> absl::Status {
    const std::scoped_lock lock(mu_);
    if (!opened) return absl::OkStatus();
    // One of the segments, and the commit behind them all.
    if (IsSegment(what) && failed_segments < 2) {
      ++failed_segments;
      return absl::UnavailableError("not now");
    }
    if (IsCommit(what) && failed_commits < 3) {
      ++failed_commits;
      return absl::UnavailableError("not now, either");
    }
    return absl::OkStatus();
  });
  Store store = Store::Open(dir_ / "run", Remote()).value();
  {
    const std::scoped_lock lock(mu_);
    opened = true;
  }
  for (int step = 1; step <= kSteps; ++step) SaveStep(store, step, kSave);
  ASSERT_OK(store.WaitReplicated(kLong));
  ASSERT_OK(store.Close());
  EXPECT_EQ(failed_segments, 2);
  EXPECT_EQ(failed_commits, 3);
  int puts = 0;
  for (const fs::path& one : ObjectsOf(Folder(), "segment")) {
    EXPECT_TRUE(fs::exists(one));
    ++puts;
  }
  const std::map<std::string, int> asked = SegmentPuts();
  int requests = 0;
  for (const auto& [segment, times] : asked) requests += times;
  // Each but the two that failed was answered once.
  EXPECT_EQ(requests, puts + failed_segments) << count_.Text();
  ExpectThere(kSteps);
}

TEST_F(SlowUploadsTest, ALieAboutACommitEndsNothing) {
  int lies = 0;
  count_.SetHook([&](const std::string& what) {
    const std::scoped_lock lock(mu_);
    if (lies > 0 || !what.starts_with("head ") ||
        !absl::StrContains(what, "/commit/")) {
      return absl::OkStatus();
    }
    ++lies;
    const fs::path there = fs::path(Folder()) / what.substr(5);
    fs::rename(there, there.string() + ".away");
    return absl::OkStatus();
  });
  count_.SetAnsweredHook([&](const std::string& what) {
    const std::scoped_lock lock(mu_);
    const fs::path there = fs::path(Folder()) / what.substr(5);
    if (what.starts_with("head ") && fs::exists(there.string() + ".away")) {
      fs::rename(there.string() + ".away", there);
    }
  });
  Store store = Store::Open(dir_ / "run", Remote()).value();
  int step = 0;
  while (lies == 0 && step < 40) {
    SaveStep(store, ++step, kSave);
    ASSERT_OK(store.WaitReplicated(kLong));
  }
  EXPECT_EQ(lies, 1);
  for (const int more : {1, 2, 3, 4}) SaveStep(store, step + more, kSave);
  ASSERT_OK(store.WaitReplicated(kLong));
  ASSERT_OK(store.Close());
  ExpectThere(step + 4);
}

}  // namespace
}  // namespace ckptree::testing
