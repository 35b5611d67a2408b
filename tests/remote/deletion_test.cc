// SPDX-License-Identifier: Apache-2.0

// What nothing needs any more leaves the object store, and nothing else does:
// two machines that take a store over from each other, saves, deletions, and
// requests that fail; objects that were deleted come back, as a put that is
// late brings them. What must be there is said by a count beside.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <mutex>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "ckptree/ckptree.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/core/fixture.h"
#include "tests/objects/counting_store.h"
#include "tests/remote/fixture.h"
#include "tests/testutil/temp_dir.h"

namespace ckptree::testing {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kLarge = 2 << 20;
constexpr std::size_t kSmall = 20 << 10;

class DeletionTest : public ::testing::Test {
 protected:
  void SetUp() override {
    setenv("XDG_CACHE_HOME", std::string(disks_ / "cache").c_str(), 1);
  }
  std::string Address() { return absl::StrCat("file://", dir_.path()); }
  StoreOptions Remote(absl::Duration grace) {
    StoreOptions options = RemoteOptions(Address());
    options.take_over = true;
    options.remote_grace = grace;
    return options;
  }
  static std::size_t BytesOf(std::int64_t step) {
    return step % 3 == 0 ? kSmall : kLarge;
  }
  static void Save(Store& store, std::int64_t step) {
    SaveStep(store, step, BytesOf(step));
  }
  static void Expect(Store& store, const std::set<std::int64_t>& steps) {
    const std::vector<std::int64_t> found = StepsOf(store);
    EXPECT_EQ(std::set(found.begin(), found.end()), steps);
    for (const std::int64_t step : steps) {
      ExpectStep(store, step, BytesOf(step));
    }
    ExpectWhole(store);
  }
  std::vector<fs::path> ObjectsOf(const std::string& kind) {
    return testing::ObjectsOf(dir_.path(), kind);
  }
  // Commits that save nothing, and indexes behind them.
  static void Settle(Store& store) {
    for (int i = 0; i < 8; ++i) {
      const std::string name = absl::StrCat("settles", i);
      if (!store.Untag(name).ok()) {
        ASSERT_TRUE(store.Tag(name, *LatestOf(store)).ok());
      }
      ASSERT_TRUE(store.WaitReplicated(kLong).ok());
    }
  }
  static std::optional<std::int64_t> LatestOf(Store& store) {
    const std::vector<StepInfo> steps = store.Steps().value();
    if (steps.empty()) return std::nullopt;
    return steps.back().step;
  }

  TempDir dir_;
  TempDir disks_;
};

TEST_F(DeletionTest, WhatRemovedStepsHadAloneGoes) {
  Store store = Store::Open(disks_ / "a", Remote(absl::ZeroDuration())).value();
  for (int step = 1; step <= 8; ++step) Save(store, step);
  ASSERT_TRUE(store.WaitReplicated(kLong).ok());
  const std::size_t before = ObjectsOf("segment").size();
  for (int step = 1; step <= 6; ++step) ASSERT_TRUE(store.Delete(step).ok());
  ASSERT_TRUE(store.Collect().ok());
  Settle(store);
  const std::size_t after = ObjectsOf("segment").size();
  EXPECT_LT(after, before);
  EXPECT_GT(after, 0);
  for (int i = 0; i < 3; ++i) Settle(store);
  ASSERT_TRUE(store.Close().ok());
  // Of some fifteen: the newest two, and those of which the last commits say
  // that they are dead, also that of the close, which no pass came behind.
  EXPECT_LE(ObjectsOf("index").size(), 5);
  Store other = Store::Open(disks_ / "b", Remote(absl::ZeroDuration())).value();
  Expect(other, {7, 8});
}

TEST_F(DeletionTest, NothingGoesWithinTheGraceTime) {
  RequestCount count;
  Store store = Store::Open(disks_ / "a", Remote(absl::Hours(1))).value();
  for (int step = 1; step <= 8; ++step) Save(store, step);
  ASSERT_TRUE(store.WaitReplicated(kLong).ok());
  const std::size_t before = ObjectsOf("segment").size();
  for (int step = 1; step <= 7; ++step) ASSERT_TRUE(store.Delete(step).ok());
  ASSERT_TRUE(store.Collect().ok());
  Settle(store);
  EXPECT_EQ(ObjectsOf("segment").size(), before);
  for (const std::string& request : count.requests()) {
    if (!absl::StartsWith(request, "delete ")) continue;
    EXPECT_TRUE(absl::StrContains(request, "proof-") ||
                absl::StrContains(request, "/clock-"))
        << request;
  }
}

// A reader that has the rows, and then waits until the segments are gone.
// Segments go between the open and the read: the steps are gone, and no bytes
// are wrong.
TEST_F(DeletionTest, AReaderThatIsSlowIsTold) {
  Store store = Store::Open(disks_ / "a", Remote(absl::ZeroDuration())).value();
  for (int step = 1; step <= 6; ++step) Save(store, step);
  ASSERT_TRUE(store.WaitReplicated(kLong).ok());
  RequestCount count;
  bool removed = false;
  count.SetHook([&](const std::string& what) {
    if (removed || !absl::StrContains(what, "/segment/")) {
      return absl::OkStatus();
    }
    removed = true;
    for (int step = 1; step <= 4; ++step) {
      EXPECT_TRUE(store.Delete(step).ok());
    }
    EXPECT_TRUE(store.Collect().ok());
    Settle(store);
    return absl::OkStatus();
  });
  StoreOptions reading = QuietOptions();
  reading.create_if_missing = false;
  reading.read_only = true;
  absl::StatusOr<Store> reader = Store::Open(Address(), reading);
  ASSERT_TRUE(reader.ok()) << reader.status();
  EXPECT_FALSE(removed);
  const Step first = reader->OpenStep(1).value();
  const Step fifth = reader->OpenStep(5).value();
  Bytes bytes(BytesOf(1));
  const absl::Status read = first.Read("params/w", std::span(bytes));
  EXPECT_TRUE(removed);
  EXPECT_TRUE(IsStepGone(read)) << read;
  ASSERT_TRUE(fifth.Read("params/w", std::span(bytes)).ok());
  EXPECT_EQ(bytes, RandomBytes(BytesOf(5), 5));
  ASSERT_TRUE(reader->Refresh().ok());
  Expect(*reader, {5, 6});
}

TEST_F(DeletionTest, RandomWriters) {
  constexpr int kTrials = 3;
  constexpr int kLives = 8;
  std::map<std::string, int> fired;
  for (int trial = 0; trial < kTrials; ++trial) {
    std::mt19937_64 random(static_cast<std::uint64_t>(trial) + 1);
    const auto chance = [&](unsigned of) { return random() % of == 0; };
    fs::remove_all(fs::path(dir_.path()));
    fs::create_directories(fs::path(dir_.path()));
    const fs::path away = disks_ / absl::StrCat("away", trial);
    fs::create_directories(away);
    RequestCount count;
    std::set<std::int64_t> steps;
    std::int64_t newest = 0;
    // Of objects that were deleted, to come again.
    std::map<fs::path, fs::path> deleted;
    std::mutex mu;
    std::mt19937_64 faults(static_cast<std::uint64_t>(trial) + 77);
    bool faulty = false;
    count.SetHook([&](const std::string& what) -> absl::Status {
      const std::scoped_lock lock(mu);
      if (absl::StartsWith(what, "delete ") &&
          !absl::StrContains(what, "proof-") &&
          !absl::StrContains(what, "/clock-")) {
        const fs::path object = fs::path(dir_.path()) / what.substr(7);
        if (fs::exists(object) && !deleted.contains(object)) {
          const fs::path copy = away / absl::StrCat(deleted.size());
          fs::copy_file(object, copy);
          deleted[object] = copy;
          ++fired["deleted"];
        }
      }
      if (faulty && faults() % 9 == 0 && !absl::StartsWith(what, "create ")) {
        ++fired["failed"];
        return absl::UnavailableError("a fault");
      }
      return absl::OkStatus();
    });
    for (int life = 0; life < kLives; ++life) {
      const std::string disk = disks_ / absl::StrCat(trial, "-", life);
      StoreOptions options = Remote(absl::ZeroDuration());
      // Its disk goes before it is closed: what its own threads had committed
      // by then is waited for, and comes no more.
      options.remote_timeout = absl::Seconds(2);
      absl::StatusOr<Store> opened = Store::Open(disk, options);
      ASSERT_TRUE(opened.ok()) << opened.status();
      Store store = *std::move(opened);
      Expect(store, steps);
      faulty = life % 2 == 1;
      const int saves = 2 + static_cast<int>(random() % 6);
      for (int i = 0; i < saves; ++i) {
        Save(store, ++newest);
        steps.insert(newest);
        while (steps.size() > 3 && chance(2)) {
          ASSERT_TRUE(store.Delete(*steps.begin()).ok());
          steps.erase(steps.begin());
          if (chance(2)) {
            ASSERT_TRUE(store.Collect().ok());
          }
        }
        if (chance(2)) {
          ASSERT_TRUE(store.WaitReplicated(kLong).ok());
        }
      }
      {
        const std::scoped_lock lock(mu);
        faulty = false;
        // Puts that are late, each where it was.
        for (const auto& [object, copy] : deleted) {
          if (fs::exists(object) || !chance(3)) continue;
          fs::copy_file(copy, object);
          ++fired["came again"];
        }
      }
      ASSERT_TRUE(store.WaitReplicated(kLong).ok());
      // Some do not close it.
      if (chance(2)) {
        ASSERT_TRUE(store.Close().ok());
      }
      // Renamed, as its threads may still make files where it is removed.
      fs::rename(disk, disk + "-lost");
    }
    {
      Store store = Store::Open(disks_ / absl::StrCat(trial, "-last"),
                                Remote(absl::ZeroDuration()))
                        .value();
      Expect(store, steps);
      Settle(store);
      Settle(store);
      ASSERT_TRUE(store.Close().ok());
    }
    // Nothing is left but what is needed: one object for each segment.
    Store plain =
        Store::Open(disks_ / absl::StrCat(trial, "-last"), QuietOptions())
            .value();
    Expect(plain, steps);
    std::set<std::string> segments;
    for (const fs::path& path : ObjectsOf("segment")) {
      const std::string name = path.filename().string();
      const std::size_t begin = name.find('-');
      EXPECT_TRUE(
          segments.insert(name.substr(begin, name.rfind('-') - begin)).second)
          << name;
    }
    // The same, and that of the close.
    EXPECT_LE(ObjectsOf("index").size(), 5);
    EXPECT_LE(ObjectsOf("rows").size(), 0);
  }
  for (const std::string what : {"deleted", "failed", "came again"}) {
    EXPECT_GT(fired[what], 0) << what;
  }
}

}  // namespace
}  // namespace ckptree::testing
